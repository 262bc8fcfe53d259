"""timm: learned activations in models that take an ``act_layer``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torchapl.modules import LazyAPL, Sharing, Start


def act_layer(
    num_hinges: int = 8,
    per: Sharing = "channel",
    *,
    unit_dim: int | None = None,
    init: Start | str | None = None,
) -> Callable[..., LazyAPL]:
    """Return what ``timm.create_model(..., act_layer=...)`` takes.

    The units get their shapes from the first batch, so run one before you make the optimiser; a
    ``state_dict`` may be loaded before. To keep the function that a pretrained model has, use
    :func:`torchapl.swap_activations` instead.

    Args:
        num_hinges: As in :class:`LazyAPL`.
        per: As in :class:`LazyAPL`.
        unit_dim: As in :class:`LazyAPL`: -1 for vision transformers and for ConvNeXt, whose
            features come last.
        init: As in :class:`LazyAPL`.

    Example:
        >>> from torchapl.integrations.timm import act_layer
        >>> def build():
        ...     import timm
        ...     return timm.create_model("resnet18", act_layer=act_layer())
    """
    return partial(_make, num_hinges, per, unit_dim, init)


def _make(
    num_hinges: int,
    per: Sharing,
    unit_dim: int | None,
    init: Start | str | None,
    inplace: bool = False,
) -> LazyAPL:
    # Many models ask for an activation in place; the unit's output is another tensor.
    return LazyAPL(num_hinges, per, unit_dim=unit_dim, init=init)
