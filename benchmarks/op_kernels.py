"""Time the CPU kernels without autograd beside SiLU's; also on a machine that does other things.

python benchmarks/op_kernels.py 128,32,16,16 unit --capability AVX2

Prints microseconds of forward and backward, each the best of many in turn, and APL over SiLU. For
AVX2 set ATEN_CPU_CAPABILITY=avx2 too, so that torch's SiLU has the same instructions.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch
import torch.nn.functional as F

from torchapl.bench.timing import reuse_memory
from torchapl.ops import _C, apl_operator, backward_operator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("units", choices=("channel", "unit", "last"))
    parser.add_argument("--hinges", type=int, default=8)
    parser.add_argument("--capability", choices=_C.capabilities(), default=_C.capability())
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    reuse_memory()
    torch.set_num_threads(1)
    _C.set_capability(options.capability)

    shape = options.shape
    x, g = (torch.randn(shape).to(getattr(torch, options.dtype)) for _ in range(2))
    unit_dim = len(shape) - 1 if options.units == "last" else 1
    units = shape[1:] if options.units == "unit" else shape[unit_dim : unit_dim + 1]
    a, b = (0.3 * torch.randn(options.hinges, *units) for _ in range(2))
    calls = {
        "silu forward": lambda: F.silu(x),
        "silu backward": lambda: torch.ops.aten.silu_backward.default(g, x),
        "apl forward": lambda: apl_operator(x, a, b, unit_dim),
        "apl backward": lambda: backward_operator(g, x, a, b, unit_dim, (True,) * 3),
    }
    best = dict.fromkeys(calls, float("inf"))
    with torch.no_grad():
        for _ in range(options.rounds):
            for name, call in calls.items():
                start = perf_counter()
                call()
                best[name] = min(best[name], 1e6 * (perf_counter() - start))
    silu, apl = (sum(best[f"{name} {way}"] for way in WAYS) for name in ("silu", "apl"))
    times = "  ".join(f"{name} {value:.1f}" for name, value in best.items())
    print(f"{options.capability} {options.dtype}: {times}  apl/silu {apl / silu:.2f}")


WAYS = ("forward", "backward")

if __name__ == "__main__":
    main()
