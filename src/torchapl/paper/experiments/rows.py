"""Rows beside the published ones, and what validation rows choose in a row."""

from __future__ import annotations

from dataclasses import dataclass

from torchapl.paper.activations import ACTIVATIONS, BUILT_IN, Activation


@dataclass(frozen=True)
class ActivationRow:
    """The same network with another activation."""

    name: str
    title: str
    activation: Activation


# What a curve per position is beside its shape; in dense layers the bias is there already.
POSITION_BIAS = ActivationRow(
    "position-bias",
    "Leaky ReLU 0.25 with a bias per position",
    Activation.parse("position-bias"),
)
# Every other activation that is not the paper's own has a row: to register it is enough.
_OTHERS = [kind for kind in BUILT_IN if kind not in ("relu", "leaky", "apl", POSITION_BIAS.name)]
OTHERS = tuple(
    ActivationRow(kind, ACTIVATIONS.get(kind).title, Activation.parse(kind)) for kind in _OTHERS
)
# What torchapl does unless told otherwise.
DEFAULT = ActivationRow(
    "apl-default",
    "APL per channel, the library's default",
    Activation.parse("apl"),
)
# What the start alone is worth.
DEFAULT_FROZEN = ActivationRow(
    "apl-default-frozen",
    "APL per channel, frozen at the default's start",
    Activation.parse("apl:8:channel:leaky_silu:frozen"),
)
# What a network gains by more parameters of the usual kind.
WIDER = ActivationRow("relu-wide", "ReLU, wider", Activation.parse("relu"))
LEAKY25 = ActivationRow("leaky25", "Leaky ReLU 0.25, fixed", Activation.parse("leaky:0.25"))

# Slopes of the paper, and numbers of hinges of its Table 3.
LEAKY_SLOPES = (0.01, 0.05, 0.1, 0.2, -0.01, -0.05, -0.1, -0.2)
HINGES = (1, 2, 5, 10)
# Among which assignments the validation rows decide, by row.
CHOICES: dict[str, tuple[str, ...]] = {
    "leaky": tuple(f"activation=leaky:{slope!r}" for slope in LEAKY_SLOPES),
    "apl": tuple(f"activation.num_hinges={size}" for size in HINGES),
}
