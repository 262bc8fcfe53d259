"""The long tests, short: see the programs of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_broken_runs_end_as_whole_ones_or_say_why_not() -> None:
    program = Path(__file__).with_name("faults.py")
    done = subprocess.run(
        [sys.executable, program, "--kills", "8", "--damages", "30"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kill, 2 processes |" in done.stdout
