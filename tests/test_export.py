from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import Tensor, nn

from cases import CASES, Case
from torchapl import APL, apl, init

all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Unit(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        _, slope, offset, self.unit_dim = case.make()
        self.slope, self.offset = nn.Parameter(slope), nn.Parameter(offset)

    def forward(self, x: Tensor) -> Tensor:
        return apl(x, self.slope, self.offset, unit_dim=self.unit_dim)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        APL(4, init=init.authors_),
        nn.Conv2d(4, 4, 3),
        APL((4, 4, 4), 3, init=init.authors_),
        nn.Flatten(),
        nn.Linear(64, 5),
        APL(init=init.authors_),
    ).eval()


@all_cases
def test_export_keeps_the_values(case: Case) -> None:
    unit, x = Unit(case), case.make()[0]
    program = torch.export.export(unit, (x,))
    torch.testing.assert_close(program.module()(x), unit(x))


def test_exported_program_is_saved_and_takes_any_batch() -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: batch},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    other = torch.randn(7, 3, 8, 8)
    torch.testing.assert_close(loaded(other), net(other))


@pytest.mark.filterwarnings("ignore:units of shape")
@pytest.mark.parametrize("strict", [False, True])
def test_exported_program_takes_any_length(strict: bool) -> None:
    net = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), APL(8))
    length = torch.export.Dim("length")
    program = torch.export.export(
        net, (torch.randn(2, 3, 20),), dynamic_shapes=({2: length},), strict=strict
    )
    # Also where the length is that of the other axis.
    for other in (torch.randn(2, 3, 33), torch.randn(2, 3, 8)):
        torch.testing.assert_close(program.module()(other), net[1](net[0](other)))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traced_program_holds_the_formula() -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    traced = torch.jit.trace(net, (x,))
    assert "torchapl::" not in str(traced.inlined_graph)
    other = torch.randn(7, 3, 8, 8)
    torch.testing.assert_close(traced(other), net(other))


# The exporter takes seconds for each: one of every geometry, layouts are lost on the way anyway.
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if case.layout == "contiguous" and 0 not in case.input_shape and case.hinges != 2
    ]
    + [case for case in CASES if case.name in ("per layer", "last axis", "middle axes", "scalar")],
    ids=lambda case: case.name,
)
def test_onnx_runs_equal(case: Case) -> None:
    unit, x = Unit(case), case.make()[0].contiguous()
    assert_runs_equal(unit, x)


@pytest.mark.slow
def test_onnx_of_a_network_takes_any_batch() -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    session = to_onnx(net, x, {0: torch.export.Dim("batch", min=2)})
    other = torch.randn(9, 3, 8, 8)
    (actual,) = session.run(None, {session.get_inputs()[0].name: other.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), net(other).detach())


def assert_runs_equal(model: nn.Module, x: Tensor) -> None:
    session = to_onnx(model, x)
    (actual,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), model(x).detach())


def to_onnx(model: nn.Module, x: Tensor, dynamic: dict[int, object] | None = None):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter's own deprecations are not ours to mend.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, (x,), dynamo=True, verbose=False, dynamic_shapes=(dynamic,) if dynamic else None
        )
        program.save(buffer)
    operators = {node.domain for node in program.model_proto.graph.node}
    assert operators <= {"", "ai.onnx"}
    return onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
