from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchapl import APL, describe, swap_activations
from torchapl.integrations.curves import Pictures, curve_statistics
from torchapl.integrations.training_log import TrainingLog
from torchapl.paper.report.payload import build_payload


def plain() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Hardtanh(), nn.Linear(8, 1)
    )


def network() -> nn.Sequential:
    swapped = swap_activations(plain(), torch.randn(16, 4), num_hinges=2)
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
    shared, panels = APL(3), []
    model = nn.Sequential(shared, nn.Linear(3, 3), shared)
    assert {name.split("/")[1] for name in curve_statistics(model)} == {"0"}

    class Writer:
        def add_figure(self, tag: str, figure: Any, step: int) -> None:
            panels.append((tag, len(figure.axes), step))

    pictures = Pictures(tmp_path / "new", [Writer()])
    for step in (7, 7, 8):
        pictures.draw(model, step)
    assert names_in(tmp_path / "new") == ["curves_00000007.png", "curves_00000008.png"]
    assert panels == [("curves", 1, 7), ("curves", 1, 8)]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.png"))


def epochs_in(log: Path) -> int:
    return len((log / "metrics.jsonl").read_text().splitlines())


def test_every_training_has_a_log_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    def train(epochs: int, *, done: int = 0, finished: bool = True) -> None:
        log = TrainingLog(tmp_path, network(), name="mine", seed=1, epochs_done=done)
        for _ in range(epochs):
            log.epoch({"loss": torch.tensor(0.5), "epoch": 3, "curves/1/left_slope_mean": 1.0})
        log.close(finished=finished)

    train(1)
    train(3, finished=False)
    assert not (tmp_path / "log-2" / "result.json").exists()
    # From a checkpoint of its second epoch.
    train(2, done=2)
    assert [epochs_in(tmp_path / log) for log in ("log", "log-2")] == [1, 4]
    assert (tmp_path / "log-2" / "result.json").exists()
    # There is no unfinished one that has seen five.
    train(1, done=5)
    assert epochs_in(tmp_path / "log-3") == 1
    running = TrainingLog(tmp_path, network(), name="mine", seed=1)
    train(1)
    running.close(finished=True)
    assert {path.name for path in tmp_path.iterdir()} == {"log", *(f"log-{n}" for n in range(2, 6))}


def scalars_and_images(folder: Path) -> tuple[set[str], set[str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars, images = set(), set()
    for file in folder.rglob("events*"):
        events = EventAccumulator(str(file))
        events.Reload()
        scalars |= set(events.Tags()["scalars"])
        images |= set(events.Tags()["images"])
    return scalars, images


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


def regression(lightning: Any, *bases: type, swapped: bool = True) -> Any:
    class Regression(*bases, lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network() if swapped else plain()

        def training_step(self, batch: list[Tensor]) -> Tensor:
            loss = self.net(batch[0]).square().mean()
            self.log("loss", loss)
            return loss  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Regression


def lightning_trainer(lightning: Any, folder: Path, **options: Any) -> Any:
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    return lightning.Trainer(**{"logger": False, "enable_checkpointing": False, **quiet, **options})


def loader(rows: int = 32) -> torch.utils.data.DataLoader[tuple[Tensor, ...]]:
    data = torch.utils.data.TensorDataset(torch.randn(rows, 4))
    return torch.utils.data.DataLoader(data, batch_size=16)


@pytest.mark.filterwarnings("ignore")
def test_lightning_out_of_the_box(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    pytest.importorskip("matplotlib")
    from torchapl.integrations.lightning import CurveCallback

    trainer = lightning_trainer(lightning, tmp_path, max_epochs=5, callbacks=[CurveCallback()])
    trainer.fit(regression(lightning)(), loader())
    assert "curves/net.1/left_slope_mean" in trainer.callback_metrics
    steps = (0, 2, 4, 6, 8, 10)
    assert names_in(tmp_path / "curves") == [f"curves_{step:08d}.png" for step in steps]
    payload: Any = build_payload(tmp_path / "curves")
    assert [(run["name"], run["status"]) for run in payload["runs"]] == [("Regression", "finished")]
    assert [point[0] for point in payload["learning"][0]["metrics"]["loss"]] == [1, 2, 3, 4, 5]
    assert payload["curves"][0]["moments"][0] == "start"
    assert [layer["name"] for layer in payload["curves"][0]["layers"]] == ["net.1", "net.3"]


@pytest.mark.filterwarnings("ignore")
def test_lightning_reaches_tensorboard_in_a_short_run(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    from lightning.pytorch.loggers import TensorBoardLogger

    from torchapl.integrations.lightning import CurveCallback

    trainer = lightning_trainer(
        lightning,
        tmp_path,
        max_steps=9,
        logger=TensorBoardLogger(tmp_path, name="", version="run"),
        callbacks=[CurveCallback(folder=tmp_path / "pictures")],
    )
    trainer.fit(regression(lightning)(), loader(rows=256))
    scalars, images = scalars_and_images(tmp_path / "run")
    assert "curves/net.1/left_slope_mean" in scalars
    assert images == {"curves"}
    steps = (0, 8, 9)
    assert names_in(tmp_path / "pictures") == [f"curves_{step:08d}.png" for step in steps]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("knows", [True, False], ids=["swaps itself", "knows of no swap"])
def test_lightning_checkpoints_load(tmp_path: Path, knows: bool) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from torchapl.integrations.lightning import SwappedCheckpoints

    kind = regression(lightning, SwappedCheckpoints, swapped=knows)
    module = kind()
    if not knows:
        module.net = swap_activations(module.net, 3 * torch.randn(16, 4), tolerance=0.01)
    trainer = lightning_trainer(lightning, tmp_path, max_epochs=1)
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "last.ckpt")

    loaded = kind.load_from_checkpoint(tmp_path / "last.ckpt")
    x = torch.randn(8, 4)
    assert torch.equal(loaded.net(x), module.net(x))
    assert describe(loaded) == describe(module)
    # Training goes on, its optimiser knows the loaded curves.
    trainer = lightning_trainer(lightning, tmp_path, max_epochs=2)
    trainer.fit(resumed := kind(), loader(), ckpt_path=tmp_path / "last.ckpt")
    assert trainer.global_step == 4
    assert not torch.equal(resumed.net[3].unit.slope, module.net[3].unit.slope)


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_units_is_no_error(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from torchapl.integrations.lightning import CurveCallback

    trainer = lightning_trainer(lightning, tmp_path, max_epochs=1, callbacks=[CurveCallback()])
    with pytest.warns(UserWarning, match="no APL units: there are no curves to log"):
        trainer.fit(regression(lightning, swapped=False)(), loader())
    assert names_in(tmp_path / "curves") == []
    # It is a baseline in the report.
    assert epochs_in(tmp_path / "curves" / "log") == 1


def test_an_activation_layer_for_timm() -> None:
    from torchapl.integrations.timm import act_layer

    layer = act_layer(3, unit_dim=-1, init="gelu")
    unit = layer(inplace=True)
    assert unit(torch.randn(2, 5, 4)).shape == (2, 5, 4)
    assert (unit.unit_shape, unit.num_hinges, type(unit)) == ((4,), 3, APL)
    again = pickle.loads(pickle.dumps(layer))()
    again.load_state_dict(unit.state_dict())
    assert torch.equal(again(torch.ones(2, 5, 4)), unit(torch.ones(2, 5, 4)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "unit_dim"), [("resnet18", None), ("vit_tiny_patch16_224", -1)])
def test_timm_models_build_and_load(tmp_path: Path, name: str, unit_dim: int | None) -> None:
    timm = pytest.importorskip("timm")
    from torchapl.integrations.timm import act_layer

    layer = act_layer(3, unit_dim=unit_dim, init="silu")
    model = timm.create_model(name, act_layer=layer, num_classes=3).eval()
    x = torch.randn(1, 3, 224, 224)
    expected = model(x)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    again = timm.create_model(
        name, act_layer=layer, num_classes=3, checkpoint_path=tmp_path / "weights.pth"
    )
    assert torch.equal(again.eval()(x), expected)
