"""Inputs that an in-place activation has overwritten: using one again is using the result."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from torchapl.surgery.channels import ChannelTracker

if TYPE_CHECKING:
    from torchapl.surgery.dryrun import Call


class OverwrittenInputs:
    """Tells a call whether its input is used again, and by whom."""

    def __init__(self, tracker: ChannelTracker) -> None:
        self._tracker = tracker
        self._calls: dict[int, tuple[weakref.ref[Tensor], Call]] = {}

    def note(self, input: Tensor, call: Call) -> None:
        """Remember that a call has overwritten its input."""
        self._calls[id(input)] = (weakref.ref(input), call)

    def check(self, values: object, reader: nn.Module | None) -> None:
        """Mark the calls whose input is among the values that a module's forward uses."""
        for leaf in tree_leaves(values) if self._calls else ():
            call = self._call(leaf)
            if call is not None and call.owner is reader:
                call.rewires = True
            elif call is not None:
                call.escapes = True

    def renewed(self, values: Any) -> Any:
        """Return what goes from module to module, with results for overwritten inputs."""
        if not any(self._call(leaf) for leaf in tree_leaves(values) if self._calls):
            return values
        return tree_map(self._renewed, values)

    def _renewed(self, leaf: Any) -> Any:
        if self._call(leaf) is None:
            return leaf
        # Another tensor of the same values, which is not known as overwritten.
        view = leaf.view_as(leaf)
        self._tracker.rename(leaf, view)
        return view

    def _call(self, leaf: object) -> Call | None:
        reference, call = self._calls.get(id(leaf), (None, None))
        return call if reference is not None and reference() is leaf else None
