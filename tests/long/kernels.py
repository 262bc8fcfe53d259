"""Run as a program: random calls of the operator against extended precision, every capability.

    python tests/long/kernels.py --cases 100000

Shapes, unit axes, numbers of hinges, precisions, layouts, sizes of values and numbers of threads
are drawn. A geometry is drawn several times and judged by the law of ``tests/accuracy.py``; where
the law does not hold, more draws tell a fault, which stays, from luck of eager PyTorch's. Prints
a line for each capability; a case that breaks the law is an error, exit code 1.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from accuracy import Errors, assert_as_accurate_as_eager, judge
from cases import DTYPES, Case, lay_out
from torchapl.ops import _C, apl_operator, backward_operator

# What a geometry is drawn at first, and how often at most before a broken law counts as a fault.
DRAWS, MOST_DRAWS = 8, 4096
LAYOUTS = ("contiguous", "channels_last", "strided", "transposed", "expanded")
# Of values; half precision has no room for more.
SCALES = (1e-3, 0.1, 1.0, 1.0, 10.0, 100.0)


def draw_case(chance: random.Random) -> Case:
    """Return a geometry; most are small, some long enough for vectors, strips and tasks."""
    dims = chance.choice((0, 1, 2, 2, 2, 3, 3, 4, 4, 5))
    shape = [chance.choice((1, 2, 3, 5, 8, chance.randint(0, 20))) for _ in range(dims)]
    if dims and chance.random() < 0.2:
        shape[chance.randrange(dims)] = chance.randint(20, 300)
    if dims and chance.random() < 0.01:
        shape[chance.randrange(dims)] = chance.randint(1000, 5000)
    while torch.Size(shape).numel() > 6_000:
        shape[shape.index(max(shape))] //= 2
    first = chance.randint(0, dims)
    last = chance.randint(first, dims)
    layouts = [name for name in LAYOUTS if name != "channels_last" or dims in (4, 5)]
    layout = chance.choice(layouts) if dims and 0 not in shape else "contiguous"
    units = tuple(shape[first:last])
    unit_dim = first if units else 0
    return Case("random", tuple(shape), units, unit_dim, layout, chance.randint(1, 12))


class Geometry:
    """A case, the precisions and sizes of its values; called with a seed, one draw's errors."""

    def __init__(self, chance: random.Random) -> None:
        self.case = draw_case(chance)
        self.dtype = chance.choice(DTYPES)
        self.parameter_dtype = self.dtype if chance.random() < 0.7 else chance.choice(DTYPES)
        self.scale, self.threads = chance.choice(SCALES), chance.choice((1, 1, 1, 2))
        self.gradient_layout = self.case.layout if chance.random() < 0.7 else "contiguous"
        self.mask = tuple(chance.random() < 0.8 for _ in range(3))
        self.past = chance.random() < 0.3

    def __repr__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    def __call__(self, seed: int, capabilities: Sequence[str]) -> list[list[Errors]]:
        """Return the errors of each capability; what is exact is the same for all."""
        torch.set_num_threads(self.threads)
        _C.set_past_from(0 if self.past else 2**62)
        generator = torch.Generator().manual_seed(seed)
        case = self.case
        parameters = (case.hinges, *case.unit_shape)

        def normal(shape: tuple[int, ...], scale: float, dtype: torch.dtype) -> Tensor:
            return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)

        x = lay_out(normal(case.input_shape, self.scale, self.dtype), case.layout)
        slope = normal(parameters, 0.5, self.parameter_dtype)
        offset = normal(parameters, self.scale, self.parameter_dtype)
        grad = lay_out(normal(case.input_shape, 1.0, self.dtype), self.gradient_layout)
        errors_of = judge(grad, x, slope, offset, case.unit_dim)
        found = []
        for name in capabilities:
            _C.set_capability(name)
            y = apl_operator(x, slope, offset, case.unit_dim)
            gradients = backward_operator(grad, x, slope, offset, case.unit_dim, (True,) * 3)
            worst = errors_of((y, *gradients))
            if any(self.mask):
                # Other sums, so not the same bits, but the same law.
                parts = backward_operator(grad, x, slope, offset, case.unit_dim, self.mask)
                asked = []
                for part, whole, wanted in zip(parts, gradients, self.mask, strict=True):
                    assert wanted or not part.numel()
                    asked.append(part if wanted else whole)
                worst = [max(pair) for pair in zip(worst, errors_of((y, *asked)), strict=True)]
            found.append(worst)
        return found


def check(geometry: Geometry, seed: int, capabilities: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many draws it took, and the capabilities for which the law does not hold."""
    draws: list[list[list[Errors]]] = []
    wanted = DRAWS
    while True:
        draws += [geometry(seed + draw, capabilities) for draw in range(len(draws), wanted)]
        broken = []
        for name, found in zip(capabilities, zip(*draws, strict=True), strict=True):
            try:
                assert_as_accurate_as_eager(found)
            except AssertionError:
                broken.append(name)
        if not broken or wanted >= MOST_DRAWS:
            return wanted, broken
        wanted *= 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="for each capability")
    parser.add_argument("--capability", choices=_C.capabilities(), help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    capabilities = [args.capability] if args.capability else _C.capabilities()
    chance = random.Random(args.seed)
    counts: list[int] = []
    faults = dict.fromkeys(capabilities, 0)
    while sum(counts) < args.cases:
        geometry = Geometry(chance)
        try:
            draws, broken = check(geometry, chance.getrandbits(40), capabilities)
        except AssertionError as error:
            draws, broken = DRAWS, list(capabilities)
            print(error, file=sys.stderr)
        counts.append(draws)
        for name in broken:
            faults[name] += 1
            print(f"BROKEN ({name}): {geometry}", file=sys.stderr)
    repeated = sum(count > DRAWS for count in counts)
    print("| capability | cases | geometries | drawn more than once over | most draws | broken |")
    print("|---|---|---|---|---|---|")
    for name in capabilities:
        numbers = (sum(counts), len(counts), repeated, max(counts), faults[name])
        print(f"| {name} | {' | '.join(map(str, numbers))} |", flush=True)
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
