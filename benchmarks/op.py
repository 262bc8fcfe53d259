"""Tune the CPU kernels: ratios to F.relu of one shape, for several numbers of hinges.

python benchmarks/op.py 128,96,32,32 channel --threads 1 --capability AVX2
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

from torchapl.bench.timing import interleaved, ratios, reuse_memory, training
from torchapl.ops import _C, apl_operator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("units", choices=("channel", "unit", "layer", "last"))
    parser.add_argument("--hinges", type=int, nargs="+", default=[1, 2, 5, 8, 10])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--capability", nargs="+", choices=_C.capabilities(), default=[_C.capability()]
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--channels-last", action="store_true", help="maps and parameters")
    parser.add_argument("--contiguous-parameters", action="store_true", help="maps alone")
    parser.add_argument("--default-allocator", action="store_true")
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if not options.default_allocator:
        reuse_memory()
    for threads in options.threads:
        for capability in options.capability:
            torch.set_num_threads(threads)
            _C.set_capability(capability)
            measure(options, f"{options.shape} {options.units} {threads} threads {capability}")


def measure(options: argparse.Namespace, title: str) -> None:
    shape = options.shape
    x = torch.randn(shape).to(getattr(torch, options.dtype))
    if options.channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    unit_dim = len(shape) - 1 if options.units == "last" else 1
    units = {"channel": shape[1:2], "unit": shape[1:], "layer": (), "last": shape[-1:]}[
        options.units
    ]

    def candidate(function, parameters=()):
        if options.inference:
            return lambda: function(x)
        return training(function, x, parameters)

    candidates = {"relu": candidate(F.relu), "silu": candidate(F.silu)}
    for hinges in options.hinges:
        a, b = (torch.randn(hinges, *units).mul_(0.3) for _ in range(2))
        if options.channels_last and a.dim() == 4 and not options.contiguous_parameters:
            # As net.to(memory_format=torch.channels_last) does.
            a, b = (t.contiguous(memory_format=torch.channels_last) for t in (a, b))
        a.requires_grad_()
        b.requires_grad_()
        candidates[f"S={hinges}"] = candidate(
            lambda x, a=a, b=b: apl_operator(x, a, b, unit_dim if units else 0), (a, b)
        )
    with torch.set_grad_enabled(not options.inference):
        seconds = interleaved(candidates, rounds=options.rounds)
    found = ratios(seconds, to="relu")
    row = "  ".join(f"{name} {value.median:.2f}" for name, value in found.items() if name != "relu")
    print(f"{title}: relu {1e3 * min(seconds['relu']):.3f} ms  {row}", flush=True)


if __name__ == "__main__":
    main()
