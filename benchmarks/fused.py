"""Time inference with fused curves: ratios to F.relu of SiLU, of units and of their fused form.

    python benchmarks/fused.py
    ATEN_CPU_CAPABILITY=avx2 python benchmarks/fused.py --capability AVX2

The values are compared first. "AffineAPL" has curves of another affine map each.
"""

from __future__ import annotations

import argparse
from statistics import median

import torch
import torch.nn.functional as F

from torchapl import APL, fuse
from torchapl.bench.timing import interleaved, ratios, reuse_memory
from torchapl.curves import AffineAPL
from torchapl.ops import _C

SETTINGS = (
    ((128, 96, 32, 32), "channel"),
    ((128, 96, 32, 32), "position"),
    ((1, 64, 112, 112), "channel"),
    ((1, 64, 112, 112), "position"),
    ((1, 256, 14, 14), "channel"),
    ((4096, 300), "unit"),
    ((100, 274), "unit"),
    ((1, 10), "unit"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hinges", type=int, nargs="+", default=[2, 8, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--capability", choices=_C.capabilities(), default=_C.capability())
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--affine", action="store_true", help="AffineAPL in place of APL")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument(
        "--best", action="store_true", help="compare the shortest times, on a busy machine"
    )
    parser.add_argument("--only", type=int, nargs="+", help="these of the settings, from 0 on")
    options = parser.parse_args()
    reuse_memory()
    _C.set_capability(options.capability)
    sizes = " / ".join(map(str, options.hinges))
    print(f"{options.capability}, {options.dtype}, torch {torch.__version__}, S = {sizes}\n")
    print("| shape | curve per | threads | ReLU, us | SiLU | unit | fused | fused / unit |")
    print("|---|---|---|---|---|---|---|---|")
    chosen = [SETTINGS[i] for i in options.only] if options.only else SETTINGS
    for threads in options.threads:
        torch.set_num_threads(threads)
        for shape, per in chosen:
            measure(options, shape, per, threads)


@torch.inference_mode()
def measure(options: argparse.Namespace, shape: tuple[int, ...], per: str, threads: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).to(getattr(torch, options.dtype))
    units = shape[1:] if per == "position" else shape[1:2]
    candidates = {"relu": lambda: F.relu(x), "silu": lambda: F.silu(x)}
    for size in options.hinges:
        kind = AffineAPL if options.affine else APL
        unit = kind(units, size, unit_dim=1, dtype=x.dtype)
        inner = unit.unit if options.affine else unit
        inner.slope.normal_().mul_(0.3)
        inner.offset.normal_()
        if options.affine:
            unit.skip.fill_(-0.5)
            unit.center.fill_(0.25)
        fused = fuse(unit)
        assert_close(fused(x), unit(x))
        candidates[f"unit {size}"] = lambda unit=unit: unit(x)
        candidates[f"fused {size}"] = lambda fused=fused: fused(x)
    seconds = interleaved(
        candidates, rounds=options.rounds, shortest=0.0 if options.best else 0.002
    )

    def ratio(name: str, to: str = "relu") -> str:
        if options.best:
            return f"{min(seconds[name]) / min(seconds[to]):.2f}"
        return f"{ratios(seconds, to=to)[name].median:.2f}"

    def cell(kind: str, to: str = "relu") -> str:
        return " / ".join(ratio(f"{kind} {s}", to.format(s)) for s in options.hinges)

    relu = min(seconds["relu"]) if options.best else median(seconds["relu"])
    cells = (f"{1e6 * relu:.1f}", ratio("silu"), cell("unit"), cell("fused"))
    print(
        f"| {shape} | {per} | {threads} | {' | '.join(cells)} | {cell('fused', 'unit {}')} |",
        flush=True,
    )


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 16 * torch.finfo(actual.dtype).eps
    scale = float(expected.float().abs().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


if __name__ == "__main__":
    main()
