"""The folder tree is the architecture: imports go one way, and the core needs torch alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "torchapl"

# A part may import from its own level (only itself) and from the levels above it in this list.
LEVELS = [
    {"theorem", "reference"},
    {"ops"},
    {"functional"},
    {"starts"},
    {"modules"},
    {"init", "optim"},
    {"curves"},
    {"surgery", "plotting"},
    {"integrations"},
    {"paper"},
    {"bench"},
    {"cli"},
]
PAPER_LEVELS = [
    {"activations", "atomic"},
    {"config"},
    {"rivals", "data", "schedule", "metrics", "runs", "checkpoint", "provenance"},
    {"optim"},
    {"nets"},
    {"experiments", "train"},
    {"sweep", "tune"},
    {"report"},
]
EXTRA = {
    "numpy",
    "scipy",
    "matplotlib",
    "pyarrow",
    "rich",
    "optuna",
    "onnx",
    "transformers",
    "triton",
    "safetensors",
}


def imported_modules(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield each module that a file imports and whether it does so when it is itself imported."""
    tree = ast.parse(path.read_text())
    top_level = set(tree.body)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from ((name, node in top_level) for name in names)


def level_of(part: str, levels: list[set[str]]) -> int | None:
    return next((index for index, parts in enumerate(levels) if part in parts), None)


def violations(root: Path, package: str, levels: list[set[str]]) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        if path == root / "__init__.py":
            continue
        own = path.relative_to(root).parts[0].removesuffix(".py")
        own_level = level_of(own, levels)
        if own_level is None:
            found.append(f"{path.relative_to(root)}: {own!r} has no place in the import order")
            continue
        for name, _ in imported_modules(path):
            if not name.startswith(package + "."):
                continue
            part = name.removeprefix(package + ".").split(".")[0]
            level = level_of(part, levels)
            # `from torchapl import apl` takes a public name of the core.
            if level is None or part == own:
                continue
            if level >= own_level:
                found.append(f"{path.relative_to(root)} imports {name}")
    return found


def test_imports_go_one_way() -> None:
    assert violations(SOURCE, "torchapl", LEVELS) == []


def test_imports_of_the_paper_go_one_way() -> None:
    assert violations(SOURCE / "paper", "torchapl.paper", PAPER_LEVELS) == []


def test_the_order_is_enforced(tmp_path: Path) -> None:
    (tmp_path / "functional.py").write_text("def f():\n    from torchapl.modules import APL\n")
    (tmp_path / "stray.py").write_text("")
    assert len(violations(tmp_path, "torchapl", LEVELS)) == 2


def test_importing_the_package_imports_torch_alone() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import torchapl; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - {'torchapl'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & EXTRA
    assert loaded <= set(sys.stdlib_module_names) | {"torch"}
    assert result.stderr == ""


@pytest.mark.slow
def test_importing_the_package_is_quick() -> None:
    code = (
        "import time, torch; start = time.process_time(); import torchapl; "
        "print(time.process_time() - start)"
    )
    # CPU time, the best of three: other work on the machine is not ours.
    seconds = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(3)
    )
    assert seconds < 0.1
