"""The schemas of the operators ``torchapl::apl`` and ``torchapl::apl_backward``."""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("torchapl", "DEF")
LIBRARY.define(
    "apl(Tensor input, Tensor slope, Tensor offset, int unit_dim) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    "apl_backward(Tensor grad, Tensor input, Tensor slope, Tensor offset, int unit_dim, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    "apl_double_backward(Tensor? grad_input, Tensor? grad_slope, Tensor? grad_offset, Tensor grad, "
    "Tensor input, Tensor slope, Tensor offset, int unit_dim) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
apl_operator = torch.ops.torchapl.apl.default
backward_operator = torch.ops.torchapl.apl_backward.default
double_backward_operator = torch.ops.torchapl.apl_double_backward.default
