"""Curves frozen for inference: a layer of units becomes the quickest operator that computes it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from torchapl.curves.kinks import Kinks
from torchapl.curves.replace import replace_units
from torchapl.functional import _is_exporting, apl
from torchapl.modules import AffineAPL, Unit, inner_unit
from torchapl.ops.curve import check, curve, evaluate
from torchapl.ops.table import segment_table
from torchapl.surgery.apply import like_unit
from torchapl.surgery.swap import forget, mark_fused


def fuse(model: nn.Module) -> nn.Module:
    """Return a copy for inference, with every layer of units in its quickest form.

    The outputs stay the same up to rounding. What becomes of a layer:

    - Hinges that do nothing are dropped, and hinges at one place merged. A layer of ReLUs becomes
      an ``nn.ReLU``.
    - A layer whose curves are all the same has one.
    - An :class:`~torchapl.curves.AffineAPL` is computed in one pass over the input, with its affine
      map folded into the curve.
    - Curves with five kinks or more that whole maps share become tables of segments, which take
      nearly as long for 15 kinks as for 8. Kernels use them where they are faster.

    The new modules hold buffers and no parameters; a gradient of the input passes through them.
    Exported programs (``torch.export``, ONNX, ``torch.jit.trace``) hold plain operators, as those
    of units do. Subclasses of the units with a ``forward`` of their own are left as they are.

    The copy of a swapped model is described as swapped no more: units cannot be put back into it.
    A model of transformers is saved before it is fused; its ``save_pretrained`` refuses afterwards.

    Args:
        model: Holds units somewhere, or is one; stays as it is.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), APL(8), nn.Linear(8, 8), APL(8, init="relu"))
        >>> fuse(model)
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): FusedAPL((), kinks=9, unit_dim=1)
          (2): Linear(in_features=8, out_features=8, bias=True)
          (3): ReLU()
        )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    fused = replace_units(copy.deepcopy(model), _in_its_place)
    forget(fused)
    return fused


class FusedAPL(nn.Module):
    r"""Curves frozen for inference; :func:`fuse` makes them of units.

    .. math::
        f(x) = k x + z + w \max(0, x - c) + \sum_s j_s \max(0, p_s - x)

    Its numbers stay in float32 or float64 when a model is brought to half precision.

    Attributes:
        jump: The :math:`j_s`, by which the slopes rise, of shape ``(hinges, *unit_shape)``.
        position: The :math:`p_s`, of the same shape.
        line: k, z, w and c, of shape ``(4, *unit_shape)``; empty for those of an APL unit, 0, 0, 1
            and 0.
        table: The same curves as segments, ``(*unit_shape, 4 * 2**levels)``; may be empty.
    """

    jump: Tensor
    position: Tensor
    line: Tensor
    table: Tensor

    def __init__(
        self, jump: Tensor, position: Tensor, line: Tensor, table: Tensor, unit_dim: int
    ) -> None:
        super().__init__()
        self.unit_dim = unit_dim
        for name, numbers in zip(_NUMBERS, (jump, position, line, table), strict=True):
            self.register_buffer(name, numbers)

    def forward(self, input: Tensor) -> Tensor:
        # Not self.jump: four of those take as long as a small ReLU.
        numbers: dict[str, Any] = self._buffers
        jump, position, line, table = map(numbers.__getitem__, _NUMBERS)
        if forward_ad._current_level >= 0 or _is_exporting():
            return evaluate(input, jump, position, line, self.unit_dim)
        # Neighbours of the input may share a curve.
        on_maps = jump.dim() == 1 or input.dim() > self.unit_dim + 1
        if not line.numel() and not (table.numel() and on_maps and input.is_cpu):
            return apl(input, jump, position, unit_dim=self.unit_dim)
        try:
            return curve(input, jump, position, line, table, self.unit_dim)
        except RuntimeError:
            # Its messages name what does not fit.
            check(input, jump, position, line, self.unit_dim)
            raise

    def extra_repr(self) -> str:
        shape, kinks = tuple(self.jump.shape[1:]), len(self.jump) + 1
        return f"{shape}, kinks={kinks}, unit_dim={self.unit_dim}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FusedAPL:
        before = {name: getattr(self, name) for name in _NUMBERS}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # untyped
        for name, numbers in before.items():
            moved = getattr(self, name)
            # In half precision the segments of a curve would no longer meet; tables are float32.
            if moved.dtype != numbers.dtype and (name == "table" or moved.dtype.itemsize < 4):
                setattr(self, name, numbers.to(moved.device))
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any
    ) -> None:
        # Other curves than these may have another number of kinks.
        for name in _NUMBERS:
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(saved, Tensor) and saved.shape != own.shape:
                setattr(self, name, own.new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *arguments)


_NUMBERS = ("jump", "position", "line", "table")


def _in_its_place(name: str, unit: Unit) -> nn.Module:
    module = like_unit(_fused(name, unit), unit)
    mark_fused(module)
    return module


@torch.no_grad()
def _fused(name: str, unit: Unit) -> nn.Module:
    inner = inner_unit(unit)
    if any(nn.parameter.is_lazy(parameter) for parameter in inner.parameters()):
        raise ValueError(f"the units of {name!r} have no curves yet: run the model once")
    if not inner.slope.numel():
        # Of an input without elements.
        return nn.ReLU()
    dtype = torch.promote_types(inner.slope.dtype, torch.float32)
    kinks = Kinks.unordered(unit)
    kinks = kinks._replace(position=kinks.position.to(dtype).double())
    # The last kink is that of max(0, x).
    position, jump = _merged(kinks.position[..., :-1], kinks.jump[..., :-1], ascending=False)
    line = position[..., :0]
    if isinstance(unit, AffineAPL):
        numbers = torch.stack([unit.skip, unit.shift, unit.scale, unit.center]).double()
        line = numbers.expand(*inner.unit_shape, 4)
    elif jump.shape[-1] == 0:
        return nn.ReLU()
    if _all_equal(position, jump, line):
        kinks = Kinks(*(numbers[(0,) * len(inner.unit_shape)] for numbers in kinks))
        position, jump, line = (
            numbers[(0,) * len(inner.unit_shape)] for numbers in (position, jump, line)
        )
    table = None
    # On the last axis neighbours have different curves.
    on_maps = position.dim() == 1 or (position.dim() == 2 and inner.unit_dim != -1)
    if dtype == torch.float32 and on_maps:
        all_kinks = _merged(kinks.position, kinks.jump, ascending=True)
        table = segment_table(*all_kinks, kinks.right_slope, kinks.right_intercept)
    return FusedAPL(
        jump.to(dtype).movedim(-1, 0).contiguous(),
        position.to(dtype).movedim(-1, 0).contiguous(),
        line.to(dtype).movedim(-1, 0).contiguous() if line.numel() else line.to(dtype).flatten(),
        position.new_empty(0, dtype=torch.float32) if table is None else table,
        inner.unit_dim,
    )


def _merged(position: Tensor, jump: Tensor, *, ascending: bool) -> tuple[Tensor, Tensor]:
    """Return the curves' kinks without those that do nothing.

    All curves of a layer have as many as the one with the most. Where there are fewer, the last is
    there several times with a part of its jump each: a kink without jump would make 0 * inf.

    Args:
        position: Where the curves bend, of shape ``(*unit_shape, K)``.
        jump: By how much their slopes rise there.
        ascending: Sort the kinks. Otherwise they keep their order: sums of hinges then cancel as
            those of the units do.
    """
    most = position.shape[-1]
    position, order = position.sort(-1)
    jump = jump.gather(-1, order)
    # Kinks at one place get one index, and the sum of their jumps.
    index = torch.nn.functional.pad((position.diff(dim=-1) != 0).long(), (1, 0)).cumsum(-1)
    jump = torch.zeros_like(jump).scatter_add_(-1, index, jump)
    position = torch.zeros_like(position).scatter_(-1, index, position)
    place = torch.arange(most, device=jump.device).expand_as(jump)
    if not ascending:
        place = torch.full_like(place, most).scatter_reduce_(-1, index, order, "amin")
    order = torch.where(jump == 0, most, place).argsort(-1)
    count = (jump != 0).sum(-1, keepdim=True)
    most = int(count.max())
    last = (count - 1).clamp(min=0)
    place = torch.arange(most, device=jump.device).expand(*jump.shape[:-1], most)
    order = order.gather(-1, place.minimum(last))
    parts = (place - last + 1).clamp(min=0).minimum(most - 1 - last)
    return position.gather(-1, order), jump.gather(-1, order) * torch.exp2(-parts.double())


def _all_equal(*numbers: Tensor) -> bool:
    """Tell whether all curves of a layer are the same."""
    together = torch.cat(numbers, -1)
    curves = together.reshape(-1, together.shape[-1])
    return len(curves) > 1 and bool((curves == curves[:1]).all())
