"""``torchapl bench``: speed as a ratio to torch's own activations."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchapl.bench.op import Measurement, Setting

EXAMPLES = """examples:
  torchapl bench op                                   all shapes; about a quarter of an hour
  torchapl bench op --quick                           one shape of each kind, no eager forms
  torchapl bench op --shape 128,96,32,32 --hinges 5 --threads 1
  torchapl bench op --csv op.csv --plot op.png        with versions and device
  torchapl bench op --shape 100,274 --mode training --csv op.csv        a part, added to the others
  torchapl bench op --dtype bfloat16 --capability AVX2
  torchapl bench step                                 whole steps of the paper's networks

Values and gradients are checked first; nothing is timed if they are wrong. Times are compared in
one process, in turn, as medians of ratios to F.relu with 20 % and 80 % quantiles.
"""

# The kernels' names and torch's.
_CAPABILITIES = {
    "baseline": "DEFAULT",
    "AVX2": "AVX2",
    "AVX-512": "AVX512",
    "AVX-512-BF16": "AVX512",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "bench",
        help="time the operator against torch's own activations",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("op", "step"))
    parser.add_argument(
        "--shape", action="append", type=_shape, metavar="N,C,...", help="instead of the usual ones"
    )
    parser.add_argument("--hinges", type=int, nargs="+", default=[1, 2, 5, 8, 10])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--mode", nargs="+", choices=("training", "inference"), default=["training", "inference"]
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="of the maps"
    )
    parser.add_argument("--channels-last", action="store_true", help="maps and parameters")
    parser.add_argument(
        "--capability",
        choices=_CAPABILITIES,
        help="hold torch and the kernels to these instructions (default: the best there are)",
    )
    parser.add_argument("--rounds", type=int, default=11, help="times each is timed (default 11)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer shapes, no eager APL")
    parser.add_argument("--peers", action="store_true", help="also other packages' activations")
    parser.add_argument(
        "--default-allocator",
        action="store_true",
        help="let large tensors be fresh memory each time, whose page faults hide arithmetic",
    )
    parser.add_argument("--csv", type=Path, help="add the numbers to this file")
    parser.add_argument("--plot", type=Path, help="draw ratio against S to this file")
    parser.set_defaults(run=run)


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) < 2 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"a shape looks like 128,96,32,32, got {text!r}")
    return shape


def run(args: argparse.Namespace) -> int:
    """Check, measure, print; 1 if the operator's values are wrong."""
    for name, least in (("hinges", 1), ("threads", 1), ("rounds", 2)):
        given = getattr(args, name)
        if min(given if isinstance(given, list) else [given]) < least:
            raise ValueError(f"--{name} must be at least {least}")
    if args.capability is not None:
        _hold_to(args.capability)
    # The profiler that counts memory announces itself on stderr otherwise; 6 is above all levels.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    from torchapl.bench.timing import reuse_memory

    if not args.default_allocator and not reuse_memory():
        print("note: memory is not reused here, page faults are part of the times", file=sys.stderr)
    return _step(args) if args.what == "step" else _op(args)


def _hold_to(capability: str) -> None:
    # Read by torch's first operation, which nothing before has called.
    os.environ["ATEN_CPU_CAPABILITY"] = _CAPABILITIES[capability].lower()
    import torch

    from torchapl.ops.extension import hold_to

    if (found := torch.backends.cpu.get_cpu_capability()) != _CAPABILITIES[capability]:
        raise ValueError(f"--capability {capability}: torch runs by {found} in this process")
    hold_to(capability)


def _op(args: argparse.Namespace) -> int:
    from torchapl.bench import op, record

    shapes = args.shape or (op.SHAPES[1:4] if args.quick else op.SHAPES)
    settings = list(
        op.settings(shapes, args.threads, args.mode, args.dtype, channels_last=args.channels_last)
    )
    try:
        for setting in settings:
            for size in args.hinges:
                op.check(setting, size, args.device)
    except RuntimeError as error:
        print(f"error: nothing was timed: {error}", file=sys.stderr)
        return 1
    measurements: list[Measurement] = []
    print(f"values and gradients checked for {len(settings)} settings", file=sys.stderr)
    for index, setting in enumerate(settings, start=1):
        rows = op.measure(
            setting,
            args.hinges,
            device=args.device,
            slow=not args.quick,
            peers=args.peers,
            rounds=args.rounds,
        )
        measurements += rows
        print(f"[{index}/{len(settings)}]", file=sys.stderr)
        _print_setting(setting, rows)
    if args.csv is not None:
        record.add_to_csv(measurements, args.csv, args.device, reused=not args.default_allocator)
    if args.plot is not None:
        record.plot(measurements, args.plot)
    return 0


def _print_setting(setting: Setting, rows: list[Measurement]) -> None:
    mode = "forward + backward" if setting.training else "forward"
    threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    kind = "" if setting.dtype == "float32" else f", {setting.dtype}"
    kind += ", channels last" if setting.channels_last else ""
    print(f"\n{setting.shape} per {setting.units}, {mode}, {threads}{kind}")
    print(f"  {'':14} {'S':>3}  {'ratio to relu':>20} {'ms':>9} {'peak MB':>8} {'saved MB':>8}")
    for row in rows:
        spread = f"{row.ratio.median:.2f} ({row.ratio.low:.2f} - {row.ratio.high:.2f})"
        size = row.hinges or ""
        print(
            f"  {row.candidate:14} {size:>3}  {spread:>20} {row.milliseconds:9.3f} "
            f"{row.peak_bytes / 1e6:8.1f} {row.saved_bytes / 1e6:8.1f}",
            flush=True,
        )


def _step(args: argparse.Namespace) -> int:
    from torchapl.bench.step import NETS, measure_step

    print(
        "training steps at batch 100, APL as the library makes it (S = 8 per channel); ratios of "
        "bare steps, median (95 % interval)"
    )
    ratios = ("APL / ReLU", "SiLU / ReLU", "APL / SiLU", "loop / bare, ReLU")
    print(
        f"{'':10} {'threads':>7} {' '.join(f'{name:>21}' for name in ratios)} {'blocks':>6} "
        f"{'ReLU ms':>8} {'loop adds':>18} {'checkpoint':>10} "
        f"{'curves add to SiLU: forward, backward, update':>46}"
    )
    for net in NETS:
        for threads in args.threads:
            row = measure_step(net, threads, device=args.device, rounds=args.rounds)
            cells = [
                f"{c.median:.3f} ({c.low:.3f} - {c.high:.3f})"
                for c in (row.apl, row.silu, row.apl_to_silu, row.relu_loop)
            ]
            added = f"{row.added:.0f} us = {row.added_percent:.2f} %"
            print(
                f"{net:10} {threads:7} {' '.join(f'{cell:>21}' for cell in cells)} {row.blocks:6} "
                f"{row.milliseconds:8.1f} {added:>18} {row.checkpoint:7.0f} ms "
                f"{' '.join(f'{part:+12.0f}' for part in row.curves)} us",
                flush=True,
            )
    return 0
