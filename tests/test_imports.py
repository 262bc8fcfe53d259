"""The folder tree is the architecture: imports go one way, and the core needs torch alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "torchapl"


def levels_of(package: str) -> list[set[str]]:
    """Read the order of the imports: a part may import from itself and from the levels above."""
    text = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text()
    section = text.split(f"In `{package}`:\n\n")[1].split("\n\n")[0]
    parts = (line.split(". ", 1)[1].split(":")[0] for line in section.splitlines())
    return [set(re.findall(r"`(\w+)`", names)) for names in parts]


LEVELS = levels_of("torchapl")
PAPER_LEVELS = levels_of("torchapl.paper")
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
    offences = []
    for path in sorted(root.rglob("*.py")):
        if path == root / "__init__.py":
            continue
        own = path.relative_to(root).parts[0].removesuffix(".py")
        own_level = level_of(own, levels)
        if own_level is None:
            offences.append(f"{path.relative_to(root)}: {own!r} has no place in the import order")
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
                offences.append(f"{path.relative_to(root)} imports {name}")
    return offences


def test_imports_go_one_way() -> None:
    assert violations(SOURCE, "torchapl", LEVELS) == []


def test_imports_of_the_paper_go_one_way() -> None:
    assert violations(SOURCE / "paper", "torchapl.paper", PAPER_LEVELS) == []


@pytest.mark.parametrize(
    ("folder", "levels"),
    [(SOURCE, LEVELS), (SOURCE / "paper", PAPER_LEVELS)],
    ids=["core", "paper"],
)
def test_the_list_names_what_there_is(folder: Path, levels: list[set[str]]) -> None:
    parts = {
        path.name.removesuffix(".py") for path in folder.iterdir() if path.suffix in ("", ".py")
    }
    assert set().union(*levels) == {part for part in parts if not part.startswith("_")}


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


def modules_after(code: str) -> set[str]:
    """Return what a program has imported beyond torch itself."""
    program = (
        f"import sys, torch; before = set(sys.modules); import torchapl; {code}; "
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_importing_the_package_imports_no_part_of_it() -> None:
    assert {name for name in modules_after("pass") if name.startswith("torchapl")} == {"torchapl"}


def test_a_unit_brings_the_core_alone() -> None:
    """What the first unit of a program waits for: a new import here is one that everybody pays."""
    loaded = modules_after("torchapl.APL(3)(torch.ones(2, 3))")
    own = {name for name in loaded if name.startswith("torchapl")}
    parts = {name.split(".")[1] for name in own - {"torchapl"}}
    core = ("form", "functional", "init", "modules", "ops", "reference", "theorem", "watch")
    assert parts <= set(core)
    assert not own & {"torchapl.ops.curve", "torchapl.ops.geometry", "torchapl.ops.triton"}
    # Beside these only what torch itself, or the standard library, imports late.
    others = {name.split(".")[0] for name in loaded - own}
    assert others <= set(sys.stdlib_module_names) | {"torch"}
    assert not any(name.startswith(("torch._inductor", "torch.fx.")) for name in loaded)
