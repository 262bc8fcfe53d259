"""The schemas of the operators of :mod:`torchapl.ops` and :mod:`torchapl.segments`."""

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
# For segments.py: gradients by segment slopes, with a copy of the slopes as bytes; then, in their
# place, the slopes after a step. Of the CPU only, and not differentiable.
LIBRARY.define(
    "segment_gradients(Tensor[] grads, Tensor[] slopes, float unit, float decay) "
    "-> (Tensor[], Tensor)"
)
LIBRARY.define("segment_step(Tensor(a!)[] slopes, Tensor before, float unit) -> ()")
apl_operator = torch.ops.torchapl.apl.default
backward_operator = torch.ops.torchapl.apl_backward.default
double_backward_operator = torch.ops.torchapl.apl_double_backward.default
segment_gradients_operator = torch.ops.torchapl.segment_gradients.default
segment_step_operator = torch.ops.torchapl.segment_step.default
