"""Pin what is developed and built with, with hashes: tools/develop.txt and tools/wheel.txt.

    python tools/lock.py             # after a change of pyproject.toml or tools/wheel.in
    python tools/lock.py --upgrade   # to the newest versions

Needs uv on the path. torch is pinned by constraints.txt alone, without a hash and without its CUDA
packages: whether the build for the CPU or one with CUDA is installed is left to the machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent
# The oldest Python for which all tools of development have a release.
PYTHON = "3.11.7"
LEFT_OUT = re.compile(r"(torch|cuda-\w+|nvidia-[\w-]+)==")


def main() -> None:
    """Write both files; versions that are there stay unless --upgrade is given."""
    compile_pins("develop.txt", TOOLS.parent / "pyproject.toml", "--extra", "dev")
    compile_pins("wheel.txt", TOOLS / "wheel.in")


def compile_pins(name: str, *source: str | Path) -> None:
    """Let uv resolve the requirements for every system, and leave out torch's builds."""
    target = TOOLS / name
    options = ["--universal", "--python-version", PYTHON, "--generate-hashes", "--quiet"]
    options += [
        "--no-annotate",
        "--no-header",
        "--constraint",
        str(TOOLS.parent / "constraints.txt"),
    ]
    command = ["uv", "pip", "compile", *options, *sys.argv[1:], *map(str, source)]
    subprocess.run([*command, "--output-file", str(target)], check=True)
    # A pin begins at the margin, its hashes are indented.
    pins = re.split(r"^(?=\S)", target.read_text(), flags=re.MULTILINE)
    target.write_text("".join(pin for pin in pins if not LEFT_OUT.match(pin)))


if __name__ == "__main__":
    main()
