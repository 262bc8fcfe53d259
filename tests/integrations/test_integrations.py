from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchapl import APL, swap_activations
from torchapl.integrations.curves import curve_statistics


def network() -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Hardtanh(), nn.Linear(8, 1)
    )
    swapped = swap_activations(model, torch.randn(16, 4), num_hinges=2)
    assert isinstance(swapped, nn.Sequential)
    return swapped


def test_statistics() -> None:
    model = network()
    with torch.no_grad():
        model[1].slope.copy_(torch.tensor([-0.5, 0.25])[:, None].expand(2, 8))
    statistics = curve_statistics(model)
    assert statistics["curves/1/left_slope_mean"] == 0.25
    assert statistics["curves/1/left_slope_std"] == 0
    assert statistics["curves/1/slope_abs_mean"] == 0.375
    assert {name.split("/")[1] for name in statistics} == {"1", "3"}
    assert set(curve_statistics(APL(3), prefix="")) >= {"left_slope_mean"}


def test_a_shared_layer_is_counted_and_drawn_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from torchapl.integrations.curves import save_figure

    shared = APL(3)
    model = nn.Sequential(shared, nn.Linear(3, 3), shared)
    assert {name.split("/")[1] for name in curve_statistics(model)} == {"0"}
    assert save_figure(model, tmp_path / "new", 7).name == "curves_00000007.png"


@pytest.mark.filterwarnings("ignore")
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    from torchapl.integrations.tensorboard import add_curves

    with SummaryWriter(str(tmp_path)) as writer:
        add_curves(writer, network(), step=7)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert "curves/1/left_slope_mean" in events.Tags()["scalars"]
    assert events.Images("curves")[0].step == 7


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    pytest.importorskip("matplotlib")
    from torchapl.integrations.lightning import CurveCallback

    class Regression(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(32, 4))
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[CurveCallback(every_n_steps=1, folder=tmp_path / "curves")],
    )
    trainer.fit(Regression(), torch.utils.data.DataLoader(data, batch_size=16))
    assert "curves/net.1/left_slope_mean" in trainer.callback_metrics
    assert [path.name for path in sorted((tmp_path / "curves").iterdir())] == [
        "curves_00000002.png",
        "curves_00000004.png",
    ]


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    pytest.importorskip("matplotlib")
    from torchapl.integrations.transformers import CurveCallback

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": F.mse_loss(self.net(x).squeeze(-1), labels)}

    data: Any = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=1, per_device_train_batch_size=8,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    reported: list[str] = []

    class Reporter(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_log(self, *args: object, logs: dict[str, float], **kwargs: object) -> None:
            reported.extend(logs)

    trainer = transformers.Trainer(
        Regression(), arguments, train_dataset=data, callbacks=[Reporter()]
    )
    trainer.callback_handler.callbacks.insert(0, CurveCallback(folder=tmp_path / "curves"))
    trainer.train()
    assert "curves/net.1/left_slope_mean" in reported
    assert "curves/net.1/left_slope_mean" in trainer.state.log_history[0]
    assert (tmp_path / "curves" / "curves_00000002.png").exists()
