"""The laws of the operator once more where less is compiled than here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# None in sys.modules makes the import fail, as it does where nothing was compiled.
PROGRAM = """
import sys
missing, *arguments = sys.argv[1:]
sys.modules[missing] = None
import pytest
import torchapl.ops.extension
assert not torchapl.ops.extension.has_node()
assert torchapl.ops.extension.has_kernels() == (missing != "torchapl.ops._C")
sys.exit(pytest.main(arguments))
"""


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["torchapl.ops._C", "torchapl.ops._autograd"])
def test_the_laws_hold_without(missing: str) -> None:
    if missing == "torchapl.ops._autograd":
        pytest.importorskip("torchapl.ops._C", reason="the package was built without its kernels")
    tests = Path(__file__).parent
    names = ("ops", "autograd", "modules", "init", "segments")
    files = [str(tests / f"test_{name}.py") for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--no-header"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, missing, *options, *files],
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
