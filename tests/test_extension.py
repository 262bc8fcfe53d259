"""Installations without what is compiled: they work, and say why they are slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchapl
from torchapl.ops import extension

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_no_kernels", "_no_node", "_instructions", "_explained"):
        monkeypatch.setattr(extension, name, getattr(extension, name))


def test_the_kernels_serve_the_cpu() -> None:
    kernels = pytest.importorskip("torchapl.ops._C")
    cpu = torchapl.backends()["cpu"]
    assert cpu.implementation == f"C++ ({kernels.capability()})"
    assert extension.has_kernels()
    assert f"autograd in {'C++' if extension.has_node() else 'Python'}" in cpu.reason


def test_without_kernels_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_KERNELS", "torchapl.ops._absent")
    extension.load()
    assert not extension.has_kernels()
    cpu = torchapl.backends()["cpu"]
    assert cpu.implementation == "reference"
    assert "without its compiled kernels" in cpu.reason


def test_without_the_node_the_kernels_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchapl.ops._C")
    monkeypatch.setattr(extension, "_NODE", "torchapl.ops._absent")
    extension.load()
    assert extension.has_kernels()
    assert not extension.has_node()
    assert "autograd in Python: only an installation from source" in torchapl.backends()["cpu"][1]


def test_a_stale_binary_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "stale_kernels.py").write_text("raise ImportError('undefined symbol: _ZN2at')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extension, "_KERNELS", "stale_kernels")
    extension.load()
    assert torchapl.backends()["cpu"] == ("reference", "undefined symbol: _ZN2at")


def test_a_node_for_another_torch_is_refused() -> None:
    pytest.importorskip("torchapl.ops._autograd")
    script = (
        "import torch; torch.__version__ = '9.9.0'\n"
        "import torchapl; print(*torchapl.backends()['cpu'], sep=': ')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    # Nightly versions too: "2.14.0.dev20260101" is not "2.14.0".
    built_for = torch.__version__.split("+")[0]
    assert done.stdout.startswith("C++ (")
    assert f"in Python: it was built for torch {built_for}, this is torch 9.9" in done.stdout


def test_the_direct_call_takes_plain_tensors_alone() -> None:
    node = pytest.importorskip("torchapl.ops._autograd")
    x, a, b = torch.randn(3, 4), torch.randn(2, 4), torch.randn(2, 4)
    assert torch.equal(node.apl(x, a, b, None), torchapl.apl(x, a, b))
    assert torch.equal(node.apl(x.T, a, b, -2), torchapl.apl(x.T, a, b, unit_dim=0))
    left_alone = [
        (x, a, b),
        (x, a, b, 1.0),
        (x, a, b, True),
        (x, a, b, 2**70),
        (x, a, b, 2),
        (x, a, b[:, :3], 1),
        (x.int(), a, b, 1),
        (x.as_subclass(type("Sub", (torch.Tensor,), {})), a, b, 1),
        ([1.0], a, b, 1),
        (x[None], a, b, None),
    ]
    for arguments in left_alone:
        assert node.apl(*arguments) is NotImplemented
    with torch.overrides.BaseTorchFunctionMode():
        assert node.apl(x, a, b, 1) is NotImplemented
    with FlopCounterMode(display=False):
        assert node.apl(x, a, b, 1) is NotImplemented


def test_says_once_that_it_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "_no_kernels", "no compiler")
    monkeypatch.setattr(extension, "_explained", set())
    with pytest.warns(UserWarning, match="on cpu, .* slower: no compiler"):
        extension.explain_once(torch.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extension.explain_once(torch.ones(1))


def test_a_gpu_without_triton_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "find_spec", lambda name: None)
    monkeypatch.setattr(extension, "_explained", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    extension.has_triton.cache_clear()
    try:
        assert torchapl.backends()["cuda"] == ("reference", "triton is not installed")
    finally:
        extension.has_triton.cache_clear()

    class OnGPU:
        device = torch.device("cuda")

    with pytest.warns(UserWarning, match="on cuda, .* triton is not installed"):
        extension.explain_once(OnGPU())


PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
# Touches what it was asked to compile or to link, if that belongs to what it knows.
COMPILER = """#!/bin/sh
case "$*" in *{known}*) ;; *) exit 1 ;; esac
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "tag", "libraries"),
    [
        ("", f"{PYTHON}-{PYTHON}-linux", {"_C.abi3.so", f"_autograd{SUFFIX}"}),
        ("_autograd", "py3-none-any", set()),
        ("nothing at all", "py3-none-any", set()),
    ],
    ids=["all", "only the node", "nothing"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the names are those of Linux")
def test_a_wheel_is_named_by_what_compiled(
    tmp_path: Path, known: str, tag: str, libraries: set[str]
) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("*.so", "paper"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    # The node's object file is named by its source.
    node = project / "src" / "torchapl" / "ops" / "csrc" / "autograd.cpp"
    node.rename(node.with_name("_autograd.cpp"))
    setup = project / "setup.py"
    setup.write_text(setup.read_text().replace('"autograd.cpp"', '"_autograd.cpp"'))
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(known=known))
    compiler.chmod(0o755)
    variables = dict.fromkeys(("CC", "CXX", "LDSHARED", "LDCXXSHARED"), str(compiler))
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel"],
        cwd=project,
        env=os.environ | variables,
        capture_output=True,
        check=True,
    )
    (wheel,) = (project / "dist").iterdir()
    assert f"-{tag}" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {Path(name).name for name in names if name.endswith(".so")} == libraries
