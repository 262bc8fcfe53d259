"""``torchapl report``: tables, learning curves and the learned activations on one page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torchapl.cli.train import add_load_argument

EXAMPLES = """examples:
  torchapl report runs -o report.html
  torchapl report runs -o report.html --figures figures    also the figures, as PDF and PNG
  torchapl report runs --serve                             follow runs that are still training
  torchapl report results/lab.jsonl --json                 the tables, for machines

The page needs no network and no other file. RUNS is a folder of runs, one run's folder, or a file
of stored results (tables only).
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this sub-command."""
    parser = subparsers.add_parser(
        "report",
        help="show what was learned",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder of runs")
    parser.add_argument("-o", "--output", type=Path, help="the page (default report.html)")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write all figures here")
    parser.add_argument("--serve", action="store_true", help="serve the page on 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="with --serve (default 8000)")
    parser.add_argument("--json", action="store_true", help="print the tables; no page unless -o")
    add_load_argument(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write or serve the page."""
    if args.serve:
        for name in ("output", "figures", "json"):
            if getattr(args, name):
                raise ValueError(f"--serve writes no files: leave out --{name}")
        return _serve(args.runs, args.port)
    from torchapl.paper.report.html import write_report
    from torchapl.paper.report.payload import build_payload, tables_of

    output: Path | None = args.output
    if output is None and not args.json:
        output = Path("report.html")
    if output is not None and output.is_dir():
        raise ValueError(f"--output must be a file, but {output} is a folder")
    payload = build_payload(args.runs) if output is None else write_report(args.runs, output)
    if output is not None:
        megabytes = output.stat().st_size / 1e6
        print(f"{output}: {megabytes:.1f} MB", file=sys.stderr if args.json else sys.stdout)
    if args.figures is not None:
        from torchapl.paper.report.gallery import write_figures

        written = write_figures(args.runs, args.figures)
        print(f"{args.figures}: {len(written)} figures", file=sys.stderr)
    if args.json:
        print(json.dumps(tables_of(payload), indent=2))
    return 0


def _serve(runs: Path, port: int) -> int:
    from torchapl.paper.report.serve import make_server

    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be between 0 and 65535, got {port}")
    with make_server(runs, port) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        print(f"{address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0
