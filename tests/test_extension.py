"""Installations without what is compiled: they work, and say why they are slow."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

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
