"""The one table of geometries and layouts; every law is tested over it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Case:
    name: str
    input_shape: tuple[int, ...]
    unit_shape: tuple[int, ...]
    unit_dim: int
    layout: str = "contiguous"
    hinges: int = 2

    def make(
        self,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        parameter_dtype: torch.dtype | None = None,
        device: str = "cpu",
        requires_grad: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """Return input, slope, offset and unit_dim, with no input within 1e-3 of a kink."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        slope = 0.5 * normal(self.hinges, *self.unit_shape)
        # Offsets lie on odd multiples of 1/32 and inputs on even ones: no finite difference of
        # gradcheck and no rounding to bfloat16 of moderate values crosses a kink.
        offset = ((normal(self.hinges, *self.unit_shape) * 16).round() * 2 + 1) / 32
        base = ((normal(*self.input_shape) * 16).round() * 2) / 32
        base = torch.where(base == 0, 0.125, base)
        to = {"dtype": dtype, "device": device}
        parameters = {"dtype": parameter_dtype or dtype, "device": device}
        tensors = (
            lay_out(base.to(**to), self.layout),
            slope.to(**parameters),
            offset.to(**parameters),
        )
        x, a, b = (tensor.requires_grad_(requires_grad) for tensor in tensors)
        return x, a, b, self.unit_dim

    @property
    def normal_dim(self) -> int:
        """The non-negative unit_dim that the operator takes."""
        if not self.unit_shape:
            return 0
        return self.unit_dim % len(self.input_shape)


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    """Return a tensor of the same values in another memory layout."""
    if layout == "contiguous":
        return tensor.contiguous()
    if layout == "channels_last":
        return tensor.contiguous(
            memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        )
    if layout == "strided":
        # Every second element of a larger tensor: neither dense nor aligned.
        larger = tensor.new_full([2 * size + 1 for size in tensor.shape], float("nan"))
        view = larger[tuple(slice(1, 2 * size, 2) for size in tensor.shape)]
        return view.copy_(tensor)
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded":
        return tensor[:1].expand_as(tensor)
    raise ValueError(layout)


CASES = [
    Case("per channel", (4, 3, 5, 6), (3,), 1),
    Case("per position", (4, 3, 5, 6), (3, 5, 6), 1),
    Case("per layer", (4, 3, 5, 6), (), 1),
    Case("dense", (7, 37), (37,), 1),
    Case("one hinge", (7, 19), (19,), 1, hinges=1),
    Case("five hinges", (5, 3, 4, 4), (3,), 1, hinges=5),
    Case("ten hinges per position", (5, 2, 4, 3), (2, 4, 3), 1, hinges=10),
    Case("last axis", (2, 5, 33), (33,), -1),
    Case("two last axes", (2, 3, 4, 5), (4, 5), -2),
    Case("first axis", (6, 5), (6,), 0),
    Case("whole input", (6, 5), (6, 5), 0),
    Case("middle axes", (2, 3, 4, 5, 2), (3, 4), 1),
    Case("vector", (9,), (9,), 0),
    Case("scalar", (), (), 0),
    Case("channels last per channel", (4, 3, 5, 6), (3,), 1, "channels_last"),
    Case("channels last per position", (4, 3, 5, 6), (3, 5, 6), 1, "channels_last"),
    Case("channels last per layer", (4, 3, 5, 6), (), 1, "channels_last"),
    Case("channels last rows", (2, 3, 4, 5), (3, 4), 1, "channels_last"),
    Case("channels last 3d", (2, 3, 2, 3, 4), (3,), 1, "channels_last"),
    Case("strided per channel", (4, 3, 5, 6), (3,), 1, "strided"),
    Case("strided per position", (4, 3, 5, 6), (3, 5, 6), 1, "strided"),
    Case("transposed per channel", (4, 3, 5), (3,), 1, "transposed"),
    Case("transposed dense", (8, 5), (5,), 1, "transposed"),
    Case("expanded per channel", (4, 3, 5, 6), (3,), 1, "expanded"),
    Case("expanded dense", (7, 5), (5,), 1, "expanded"),
    Case("empty batch", (0, 3, 5, 6), (3,), 1),
    Case("empty batch per position", (0, 3, 5, 6), (3, 5, 6), 1),
    Case("no units", (4, 0, 5), (0,), 1),
    Case("empty space", (4, 3, 0), (3,), 1),
    Case("size one", (1, 1, 1, 1), (1,), 1),
    Case("size one channels last", (4, 1, 5, 6), (1,), 1, "channels_last"),
    Case("batch of one", (1, 5, 7), (5,), 1),
    Case("many rows few units", (1031, 3), (3,), 1),
    Case("few units long maps", (2, 2, 67, 61), (2,), 1),
    Case("wide", (3, 1027), (1027,), 1),
]
