"""The laws of the operator once more where the package was installed without a compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# None in sys.modules makes the import fail, as it does where nothing was compiled.
PROGRAM = """
import sys
sys.modules["torchapl.ops._C"] = None
import pytest, torchapl
assert torchapl.backends()["cpu"].implementation == "reference"
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_laws_hold_without_compiled_kernels() -> None:
    tests = Path(__file__).parent
    files = [str(tests / name) for name in ("test_ops.py", "test_modules.py", "test_init.py")]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--no-header"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *options, *files],
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
