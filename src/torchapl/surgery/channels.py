"""Where the channels of a tensor are: followed from the layer that made them to the unit.

A layer that makes features says on which axis they lie: a convolution on axis 1, a linear layer on
the last. From there on, labels that number the channels ride along: every function that moves data
is also applied to the labels, and the one axis along which they still vary is the channels' axis.
So a square map (C == W) is no trap, and where two axes vary there is no guess.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from torchapl.watch import same_random_state

# How many axes come after the channels.
_AFTER = {
    "conv1d": 1,
    "conv2d": 2,
    "conv3d": 3,
    "conv_transpose1d": 1,
    "conv_transpose2d": 2,
    "conv_transpose3d": 3,
    "pixel_shuffle": 2,
    "pixel_unshuffle": 2,
    "linear": 0,
    "bilinear": 0,
    "addmm": 0,
    "embedding": 0,
    "embedding_bag": 0,
    "multi_head_attention_forward": 0,
    "lstm": 0,
    "gru": 0,
    "rnn_tanh": 0,
    "rnn_relu": 0,
    "lstm_cell": 0,
    "gru_cell": 0,
    "rnn_tanh_cell": 0,
    "rnn_relu_cell": 0,
}
_CHANNELS_SECOND = {"batch_norm", "instance_norm", "group_norm"}
_PRODUCTS = {"matmul", "mm", "bmm", "__matmul__", "__rmatmul__"}
# Same shape in and out does not mean that every element stayed where it was.
_MOVERS = {
    *("transpose", "transpose_", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "t"),
    *("T", "mT", "H", "mH", "adjoint", "reshape", "view", "view_as", "reshape_as", "flatten"),
    *("unflatten", "ravel", "squeeze", "unsqueeze", "__getitem__", "roll", "rot90", "as_strided"),
}


@dataclass(frozen=True)
class Channels:
    """The axis of a tensor's channels, None where it is ambiguous, and the layer that made them."""

    axis: int | None
    feeder: nn.Module | None


class ChannelTracker:
    """Follows channels through the torch functions of one forward pass."""

    def __init__(self) -> None:
        # The tensors are not kept: all maps of a large model at once would not fit into memory.
        self._known: dict[int, tuple[weakref.ref[Tensor], Channels]] = {}

    def find(self, tensor: Tensor) -> Channels:
        """Return what is known of a tensor; of two axes the second is always the channels'."""
        channels = self._channels(tensor) or Channels(None, None)
        if channels.axis is None and tensor.dim() == 2:
            return Channels(1, channels.feeder)
        return channels

    def follow(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: object,
        layer: nn.Module | None,
    ) -> None:
        """Note where the channels of ``result = function(*args, **kwargs)`` are."""
        outputs = [leaf for leaf in tree_leaves(result) if _is_tracked(leaf)]
        if not outputs:
            return
        name = _name(function)
        made = _made(name, args, outputs[0])
        if made is not None:
            self._note(outputs[0], Channels(made, layer))
            return
        inputs = [leaf for leaf in tree_leaves((args, dict(kwargs))) if _is_tracked(leaf)]
        sources = [
            (leaf, channels) for leaf in inputs if (channels := self._channels(leaf)) is not None
        ]
        if not sources:
            return
        if name not in _MOVERS:
            alike = [channels for leaf, channels in sources if leaf.shape == outputs[0].shape]
            if len(outputs) == 1 and alike:
                self._note(outputs[0], _merge(alike))
                return
        axes = self._label_axes(function, args, kwargs, len(outputs))
        if name not in _MOVERS and len(sources) == 1 and axes == [None]:
            axes = [_kept_axis(sources[0], outputs[0])]
        for output, axis in zip(outputs, axes, strict=True):
            self._note(output, Channels(axis, _merge([channels for _, channels in sources]).feeder))

    def rename(self, old: Tensor, new: Tensor) -> None:
        """Give ``new``, the same values, the channels of ``old``."""
        channels = self._channels(old)
        if channels is not None:
            self._note(new, channels)

    def _channels(self, tensor: Tensor) -> Channels | None:
        entry = self._known.get(id(tensor))
        # The id of a tensor that is gone may have been given to another.
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def _note(self, tensor: Tensor, channels: Channels) -> None:
        self._known[id(tensor)] = (weakref.ref(tensor), channels)

    def _label_axes(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        count: int,
    ) -> list[int | None]:
        given = tree_map(self._label, (tuple(args), dict(kwargs)))
        devices = [leaf.device for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        try:
            with same_random_state(devices):
                labels = function(*given[0], **given[1])
        except Exception:  # labels are float32 and contiguous, which not every function takes
            return [None] * count
        axes = [_varying_axis(leaf) for leaf in tree_leaves(labels) if _is_tracked(leaf)]
        return axes if len(axes) == count else [None] * count

    def _label(self, leaf: Any) -> Any:
        if not _is_tracked(leaf):
            return leaf
        channels = self._channels(leaf)
        if channels is None or channels.axis is None:
            return torch.zeros(leaf.shape, device=leaf.device)
        shape = [1] * leaf.dim()
        shape[channels.axis] = -1
        size = leaf.shape[channels.axis]
        # Not from 0: a labelled channel and the zeros of padding must differ.
        numbers = torch.arange(1.0, size + 1, device=leaf.device)
        return numbers.reshape(shape).expand(leaf.shape).contiguous()


def _is_tracked(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    # x.T arrives as the __get__ of a descriptor.
    return getattr(function.__self__, "__name__", name) if name == "__get__" else name  # type: ignore[attr-defined]  # a method wrapper has __self__


def _made(name: str, args: Sequence[Any], output: Tensor) -> int | None:
    """Return the axis on which this function makes features, or None if it makes none."""
    if name in _AFTER and output.dim() > _AFTER[name]:
        return output.dim() - 1 - _AFTER[name]
    if name in _CHANNELS_SECOND and output.dim() > 1:
        return 1
    if name in ("layer_norm", "rms_norm"):
        normalised = args[1] if len(args) > 1 else ()
        return output.dim() - 1 if len(normalised) == 1 else None
    if name in _PRODUCTS and len(args) > 1 and isinstance(args[1], Tensor):
        if isinstance(args[0], nn.Parameter) and not isinstance(args[1], nn.Parameter):
            return max(output.dim() - 2, 0)  # weight @ x has the features in its rows
        # A product with a weight makes features; one of two activations (attention) does not say.
        is_weight = isinstance(args[1], nn.Parameter) or args[1].dim() == 2
        return output.dim() - 1 if is_weight and name != "__rmatmul__" else None
    return None


def _merge(channels: Iterable[Channels]) -> Channels:
    channels = list(channels)
    axes = {entry.axis for entry in channels if entry.axis is not None}
    return Channels(axes.pop() if len(axes) == 1 else None, channels[0].feeder)


def _varying_axis(labels: Tensor) -> int | None:
    if labels.numel() == 0:
        return None
    varying = [
        axis for axis in range(labels.dim()) if bool((labels != labels.narrow(axis, 0, 1)).any())
    ]
    return varying[0] if len(varying) == 1 else None


def _kept_axis(source: tuple[Tensor, Channels], output: Tensor) -> int | None:
    """Return the axis behind pooling, padding and the like.

    There labels may say nothing: zeros at the border vary too, and one single channel never does.
    """
    tensor, channels = source
    if channels.axis is None or tensor.dim() != output.dim():
        return None
    same_size = tensor.shape[channels.axis] == output.shape[channels.axis]
    return channels.axis if same_size else None
