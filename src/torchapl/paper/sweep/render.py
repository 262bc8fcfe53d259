"""Tables as text: for the terminal, for Markdown pages, for machines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchapl.paper.activations import ACTIVATIONS
from torchapl.paper.experiments import Metric, Table
from torchapl.paper.sweep.statistics import Difference, Summary
from torchapl.runs.records import Json


def by_metric(summaries: Sequence[Summary]) -> dict[Metric, list[Summary]]:
    """Return the summaries by what they measure: each is a table of its own."""
    parts: dict[Metric, list[Summary]] = {}
    for summary in summaries:
        parts.setdefault(summary.metric, []).append(summary)
    return parts


def rows_of(table: Table, summaries: Sequence[Summary]) -> list[tuple[str, ...]]:
    """Return the table's lines as strings, one for each cell that has a run or a failure."""
    return [
        (summary.row, table.columns[summary.column], *_describe(summary))
        for summary in summaries
        if summary.n or summary.failed
    ]


def _lines(table: Table, summaries: Sequence[Summary], baseline: str) -> list[tuple[str, ...]]:
    """Return header and rows."""
    difference = f"to {row_title(baseline)}, 95 %"
    header = ("method", "data", "n", "mean (std)", difference, "less error", "chosen", "published")
    lines = [header, *rows_of(table, summaries)]
    if any(summary.published for summary in summaries):
        return lines
    return [line[:-1] for line in lines]


def row_title(row: str) -> str:
    """Return how tables call the row of an activation."""
    return ACTIVATIONS.get(row).title if row in ACTIVATIONS else row


def _describe(summary: Summary) -> tuple[str, ...]:
    digits = summary.metric.digits
    failed = f" + {summary.failed} failed" if summary.failed else ""
    return (
        f"{summary.n}{failed}",
        mean_and_std(summary.mean, summary.std, digits),
        _difference(summary.difference, digits),
        _reduction(summary.difference),
        ", ".join(choice.winner for choice in summary.choices),
        _published(summary),
    )


def mean_and_std(mean: float, std: float, digits: int) -> str:
    """Return ``11.38 (0.09)``; only the mean where there is one run."""
    if math.isnan(mean):
        return "-"
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ({std:.{digits}f})")


def _published(summary: Summary) -> str:
    """Return the paper's number as the paper writes it."""
    if summary.published is None:
        return ""
    mean, std = summary.published
    mean_digits, std_digits = summary.metric.published_digits
    # One number has a digit more than its column: 3.40 falls to .514.
    mean_digits = max(mean_digits, len(f"{mean!r}".partition(".")[2]))
    spread = "" if std is None else f" ({std:.{std_digits}f})"
    return f"{mean:.{mean_digits}f}{spread}"


def _reduction(difference: Difference | None) -> str:
    if difference is None or difference.relative_reduction is None:
        return ""
    # Adding 0 makes -0.0 a plain 0.
    return f"{round(100 * difference.relative_reduction, 1) + 0.0:.1f} %"


def _difference(difference: Difference | None, digits: int) -> str:
    if difference is None:
        return ""
    return f"{difference.mean:+.{digits}f} +- {difference.half_width:.{digits}f}"


def markdown(table: Table, summaries: Sequence[Summary], baseline: str = "relu") -> str:
    """Return the table as Markdown."""
    lines = _lines(table, summaries, baseline)
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(table: Table, summaries: Sequence[Summary], baseline: str = "relu") -> str:
    """Return the table in aligned columns."""
    lines = _lines(table, summaries, baseline)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(summaries: Sequence[Summary]) -> list[Json]:
    """Return the cells as plain values, with every run's number and the validation scores."""
    return [_cell(summary) for summary in summaries]


def _cell(summary: Summary) -> Json:
    difference = summary.difference
    return {
        "row": summary.row,
        "column": summary.column,
        "experiment": summary.experiment,
        "metric": summary.metric.name,
        "n": summary.n,
        "failed": summary.failed,
        "mean": _number(summary.mean),
        "std": _number(summary.std),
        "values": {str(seed): value for seed, value in summary.values.items()},
        "difference": None
        if difference is None
        else {
            "n": difference.n,
            "mean": difference.mean,
            "half_width": difference.half_width,
            "relative_reduction": difference.relative_reduction,
        },
        "choices": [
            {
                "winner": choice.winner,
                "scores": {
                    candidate: _number(score)
                    for candidate, score in zip(choice.candidates, choice.scores, strict=True)
                },
            }
            for choice in summary.choices
        ],
        "published": None if summary.published is None else summary.published[0],
        "published_std": None if summary.published is None else summary.published[1],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
