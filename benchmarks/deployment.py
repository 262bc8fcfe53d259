"""Time networks with APL units in onnxruntime against ReLU and SiLU, and against PyTorch.

    python benchmarks/deployment.py

The network is a small convolutional one; times are medians of passes that take turns.
"""

from __future__ import annotations

import io
import statistics
import time
import warnings
from collections.abc import Callable

import onnxruntime
import torch
from torch import nn

from torchapl import APL, curves, init

BATCH, CHANNELS, SIZE, REPEATS = 16, 64, 32, 60


def network(activation: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for channels in (3, CHANNELS, CHANNELS):
        layers += [nn.Conv2d(channels, CHANNELS, 3, padding=1), activation()]
    return nn.Sequential(*layers).eval()


def session_of(model: nn.Module, x: torch.Tensor) -> onnxruntime.InferenceSession:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), dynamo=True, verbose=False).save(buffer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(
        buffer.getvalue(), options, providers=["CPUExecutionProvider"]
    )


def main() -> None:
    x = torch.randn(BATCH, 3, SIZE, SIZE)
    nets = {
        "ReLU": network(nn.ReLU),
        "SiLU": network(nn.SiLU),
        "APL S=1": network(lambda: APL(CHANNELS, 1, init=init.authors_)),
        "APL S=2": network(lambda: APL(CHANNELS, 2, init=init.authors_)),
        "APL S=5": network(lambda: APL(CHANNELS, 5, init=init.authors_)),
    }
    nets["APL S=2 as ReLU network"] = curves.to_relu_network(nets["APL S=2"], x)
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, net in nets.items():
        session = session_of(net, x)
        feed = {session.get_inputs()[0].name: x.numpy()}
        (output,) = session.run(None, feed)
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(output), net(x), rtol=1e-3, atol=1e-4)
        calls[name, "torch"] = lambda net=net: net(x)
        calls[name, "onnx"] = lambda session=session, feed=feed: session.run(None, feed)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    with torch.inference_mode():
        for _ in range(REPEATS):
            for key, call in calls.items():
                begin = time.perf_counter()
                call()
                times[key].append(time.perf_counter() - begin)
    medians = {key: 1e3 * statistics.median(values[5:]) for key, values in times.items()}
    print("| network | PyTorch, ms | onnxruntime, ms | onnxruntime / PyTorch | / ReLU |")
    print("|---|---:|---:|---:|---:|")
    for name in nets:
        eager, onnx = medians[name, "torch"], medians[name, "onnx"]
        relative = onnx / medians["ReLU", "onnx"]
        print(f"| {name} | {eager:.2f} | {onnx:.2f} | {onnx / eager:.2f} | {relative:.2f} |")


if __name__ == "__main__":
    main()
