from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from torchapl import APL, curves, fuse, init


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        APL(4, 3, init=init.authors_),
        nn.Conv2d(4, 4, 3),
        APL((4, 4, 4), 2, init=init.authors_),
        nn.Flatten(),
        nn.Linear(64, 5),
        curves.fit(torch.tanh, 3, (-3.0, 3.0)).module(5),
        APL(),
    ).eval()


# torch's own deprecation, in run_decompositions.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_exported_program_has_core_operators_only() -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    program = torch.export.export(net, (x,))
    for exported in (program, program.run_decompositions()):
        calls = [node.target for node in exported.graph.nodes if node.op == "call_function"]
        names = {getattr(call, "namespace", "python") for call in calls}
        assert names <= {"aten", "python"}
        torch.testing.assert_close(exported.module()(x), net(x))
    core = [call for call in calls if isinstance(call, torch._ops.OpOverload)]
    plain = [c for c in core if torch.Tag.core not in c.tags]
    assert {str(call) for call in plain} <= {"aten._assert_tensor_metadata.default"}


def test_exported_program_runs_without_this_package(tmp_path: Path) -> None:
    net, x = network(), torch.randn(4, 3, 8, 8)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    torch.save((x, net(x).detach()), tmp_path / "example.pt")
    code = """
import sys, torch
x, y = torch.load("example.pt")
torch.testing.assert_close(torch.export.load("net.pt2").module()(x), y)
assert "torchapl" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["apl", "fused", "maxout", "relu", "spline"])
def test_onnx_has_standard_operators_and_equal_outputs(form: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net, x = network(), torch.randn(4, 3, 8, 8)
    expected = net(x).detach()
    if form == "fused":
        net = fuse(net)
    elif form == "maxout":
        net = curves.to_maxout(net)
    elif form == "relu":
        net = curves.to_relu_network(net, x)
    elif form == "spline":
        net[1] = curves.to_spline(net[1])
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter's own deprecations are not ours to mend.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(net, (x,), dynamo=True, verbose=False)
        program.save(buffer)
    assert {node.domain for node in program.model_proto.graph.node} <= {"", "ai.onnx"}
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-4, atol=1e-5)
