"""Surgery: any existing model gets learned activations, one line."""

from torchapl.surgery.functions import is_activation
from torchapl.surgery.report import Left, Rewrite, Swap, SwapReport
from torchapl.surgery.swap import (
    describe,
    rebuild_swapped,
    restore_activations,
    swap_activations,
)

__all__ = [
    "Left",
    "Rewrite",
    "Swap",
    "SwapReport",
    "describe",
    "is_activation",
    "rebuild_swapped",
    "restore_activations",
    "swap_activations",
]
