"""Settings, names of activations and descriptions of swaps."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path

from targets import target
from torchapl.paper.activations import Activation
from torchapl.paper.config import Experiment, from_dict, override, to_dict
from torchapl.surgery.report import Left, Rewrite, Swap, SwapReport

MINE = Experiment("mine", net="nin", activation=Activation.parse("apl:2"))


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def are_finite(value: object) -> bool:
    return all(
        math.isfinite(getattr(value, field.name))
        for field in fields(value)  # type: ignore[arg-type]
        if isinstance(getattr(value, field.name), float)
    )


@target(
    ValueError,
    share=8,
    seeds=lambda _: [
        b"optim.lr=0.02",
        b"optim.factors=((60000, 1.0), (80000, 0.1))",
        b"activation=apl:5:channel:leaky",
        b"activation.num_hinges=3",
        b"data.validation=0.1",
        b"data.limit=none",
        b"width=0.5",
        b"data.augment=true",
    ],
)
def settings(content: bytes, folder: Path) -> None:
    changed = override(MINE, text_of(content))
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert are_finite(changed)
    assert are_finite(changed.optim)
    assert are_finite(changed.data)


@target(
    ValueError,
    share=8,
    seeds=lambda _: [b"relu", b"leaky:0.05", b"apl:2:channel:leaky", b"apl:1:frozen:bound=0.5"],
)
def activations(content: bytes, folder: Path) -> None:
    activation = Activation.parse(text_of(content))
    assert Activation.parse(str(activation)) == activation
    assert are_finite(activation)


REPORT = SwapReport(
    (Swap("1", "ReLU", (8,), 1, 8, 128, 0.0, (-1.0, 2.0), aliases=("a",)),),
    (Rewrite("block", (("relu", "act"),), (("flag", True),)),),
    (Left("2", "GELU", "model.py:3", "in place"),),
    1e-3,
    2.0,
)


@target(ValueError, share=6, seeds=lambda _: [REPORT.to_json().encode()])
def swap_descriptions(content: bytes, folder: Path) -> None:
    report = SwapReport.from_json(text_of(content))
    # NaN differs from itself.
    assert str(SwapReport.from_json(report.to_json())) == str(report)
