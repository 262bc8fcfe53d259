"""Run the core tests with the built wheel under several versions of torch and Python, no compiler.

    python tools/wheel.py && python tools/compat.py --pair 3.10=2.10.0 3.11=2.13.0 3.13=2.15.0

Each pair gets an environment below build/compat. Those with CUDA have about 6 GB, most of which uv
links from its cache. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Of the environment in which tools/wheel.py built.
UV = ROOT / "build" / "wheel" / "venv" / "bin" / "uv"
# The oldest torch that the kernels serve, the one that is developed with, the newest known.
PAIRS = ("3.10=2.10.0", "3.11=2.13.0", "3.12=2.15.0", "3.13=2.15.0")
# All that needs torch, numpy and pytest alone.
CORE = (
    "test_autograd.py",
    "test_functional.py",
    "test_geometry.py",
    "test_init.py",
    "test_kernels.py",
    "test_modules.py",
    "test_ops.py",
    "test_optim.py",
    "test_segments.py",
    "test_torch_internals.py",
    "surgery",
)


def main() -> None:
    """Test every pair and print a table; stop with an error where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", nargs="+", default=PAIRS, metavar="PYTHON=TORCH")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "compat")
    options = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob(f"*_{platform.machine()}.whl")
    work = options.work.resolve()
    rows = [test(pair, wheel, work) for pair in options.pair]
    print("| Python | torch | kernels | core tests | PReLU over ReLU | APL over ReLU |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    if any("passed" not in row[3] or "failed" in row[3] for row in rows):
        sys.exit("not all passed")


def test(pair: str, wheel: Path, work: Path) -> list[str]:
    """Return Python, torch, kernels, what became of the tests, and what small calls cost."""
    python, _, torch = pair.partition("=")
    interpreter = find(python)
    if interpreter is None:
        return [python, torch, "", "no such interpreter here", "", ""]
    environment = work / f"python{python}-torch{torch}"
    own = environment / "bin" / "python"
    if not own.exists():
        run(UV, "venv", "--quiet", "--python", interpreter, environment)
    install = (UV, "pip", "install", "--quiet", "--python", own)
    run(*install, f"torch=={torch}", "numpy", "pytest", "pytest-timeout", "hypothesis")
    run(*install, "--no-deps", "--reinstall", wheel)

    # Away from the sources, so that the wheel is tested.
    folder = environment / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copytree(ROOT / "src" / "torchapl", folder / "src" / "torchapl")
    for binary in (folder / "src").rglob("*.so"):
        binary.unlink()
    shutil.copy(ROOT / "pyproject.toml", folder)
    kernels = run(own, "-c", "import torchapl; print(torchapl.backends()['cpu'][0])", cwd=folder)
    core = [f"tests/{name}" for name in CORE]
    # Warnings of other versions of torch are theirs.
    options = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-m", "not slow"]
    outside = ["--ignore", "tests/surgery/test_transformers.py"]
    report = run(own, "-m", "pytest", *options, *core, *outside, cwd=folder, check=False)
    outcome = re.findall(r"\d+ (?:passed|failed|errors?)", report.splitlines()[-1])
    _, ratios = run(own, ROOT / "tools" / "overhead.py", cwd=folder).rsplit(": ", 1)
    return [python, torch, kernels.strip(), ", ".join(outcome) or report[-300:], *ratios.split()]


def find(version: str) -> Path | None:
    """Return an interpreter of this version, on the path or among pyenv's."""
    name = f"python{version}"
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(root.glob(f"versions/{version}.*/bin/{name}"))
    on_path = shutil.which(name)
    # What is on the path may be pyenv's stand-in for a version that is not selected.
    if on_path is not None:
        candidates.append(Path(on_path))
    return next((path for path in candidates if works(path)), None)


def works(interpreter: Path) -> bool:
    """Tell whether an interpreter starts."""
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0


def run(*command: str | Path, cwd: Path = ROOT, check: bool = True) -> str:
    """Run a command where no compiler is found and return what it prints."""
    variables = os.environ | {"CC": "none", "CXX": "none", "OMP_NUM_THREADS": "1"}
    variables.pop("PYTHONPATH", None)
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments, cwd=cwd, env=variables, check=check, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
