"""What is compiled; without torch or a C++ compiler the package installs without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/torchapl/ops/csrc")
KERNELS = "torchapl.ops._C"
NODE = "torchapl.ops._autograd"
# The oldest versions that one binary of the kernels serves: torch 2.10, Python 3.10.
OLDEST_TORCH = "0x020a000000000000"
OLDEST_PYTHON = "0x030a0000"
# One binary for every processor: what needs AVX2 or AVX-512 says so in its source.
FLAGS = ["-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=fast", "-fno-trapping-math"]


def extensions() -> list[Extension]:
    """Return the kernels and, unless for a wheel that serves every torch, the autograd node."""
    try:
        import torch
        from torch.utils.cpp_extension import include_paths, library_paths
    except ImportError as error:
        sys.stderr.write(f"torchapl: no kernels: {error}; see --no-build-isolation\n")
        return []

    node = SOURCES / "autograd.cpp"

    def extension(
        name: str,
        sources: list[Path],
        standard: str,
        libraries: list[str],
        *,
        every_python: bool,
        **macros: str | None,
    ) -> Extension:
        if every_python:
            macros["Py_LIMITED_API"] = OLDEST_PYTHON
        # No path of this machine in messages of torch's headers.
        maps = [f"-ffile-prefix-map={path}=torch" for path in include_paths()]
        return Extension(
            name,
            [str(source) for source in sources],
            depends=[str(path) for path in SOURCES.iterdir()],
            include_dirs=include_paths(),
            library_dirs=library_paths(),
            libraries=libraries,
            define_macros=list(macros.items()),
            extra_compile_args=[f"-std={standard}", *FLAGS, *maps],
            extra_link_args=["-Wl,--as-needed"] if sys.platform == "linux" else [],
            language="c++",
            py_limited_api=every_python,
            # Where it does not compile, the package works through its definition.
            optional=True,
        )

    kernels = extension(
        KERNELS,
        sorted(path for path in SOURCES.glob("*.cpp") if path != node),
        "c++17",
        ["torch_cpu"],
        every_python=True,
        TORCH_TARGET_VERSION=OLDEST_TORCH,
        TORCH_STABLE_ONLY=None,
    )
    if os.environ.get("TORCHAPL_FOR_EVERY_TORCH"):
        return [kernels]
    version = torch.__version__.split("+")[0]
    libraries = ["c10", "torch_cpu", "torch_python"]
    built_for = {"TORCHAPL_BUILT_FOR": f'"{version}"'}
    return [
        kernels,
        # What of torch knows Python's tensors belongs to one version of Python.
        extension(NODE, [node], "c++20", libraries, every_python=False, **built_for),
    ]


class BuildExtensions(build_ext):
    """Leaves out of the package what did not compile."""

    def run(self) -> None:
        super().run()
        files = {e.name: Path(self.get_ext_fullpath(e.name)) for e in self.extensions}
        if KERNELS in files and not files[KERNELS].exists():
            # The node alone serves nothing, and its wheel would be named like one with kernels.
            for file in files.values():
                file.unlink(missing_ok=True)
        self.extensions[:] = [e for e in self.extensions if files[e.name].exists()]


class Wheel(bdist_wheel):
    """Names a wheel by what is in it: pure Python where nothing was compiled."""

    def run(self) -> None:
        self.run_command("build_ext")
        if not self.distribution.has_ext_modules():
            self.root_is_pure = True
        elif all(extension.py_limited_api for extension in self.distribution.ext_modules):
            self.py_limited_api = "cp310"
        super().run()


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtensions, "bdist_wheel": Wheel},
)
