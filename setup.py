"""The C++ kernels; without torch or a compiler the package installs without them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import setup

SOURCES = Path("src/torchapl/ops/csrc")
# One binary for every processor: what needs AVX2 or AVX-512 says so in its source.
FLAGS = ["-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=fast", "-fno-trapping-math"]


def extension() -> dict[str, object]:
    """Return setup()'s arguments for the extension, none where it cannot be built."""
    try:
        import torch
        from torch.utils.cpp_extension import BuildExtension, CppExtension
    except ImportError as error:
        sys.stderr.write(f"torchapl: no kernels: {error}; see --no-build-isolation\n")
        return {}

    return {
        "ext_modules": [
            CppExtension(
                "torchapl.ops._C",
                sorted(str(path) for path in SOURCES.glob("*.cpp")),
                depends=[str(path) for path in SOURCES.iterdir()],
                define_macros=[("TORCHAPL_BUILT_FOR", f'"{torch.__version__.split("+")[0]}"')],
                extra_compile_args=[] if os.name == "nt" else FLAGS,
                # Where it does not compile, the package works through its definition.
                optional=True,
            )
        ],
        "cmdclass": {"build_ext": BuildExtension.with_options(use_ninja=False)},
    }


setup(**extension())
