"""What people do with models of Hugging Face: save, load, train, resume, start from a config."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integrations.test_integrations import names_in, scalars_and_images
from torchapl import APL, describe, restore_activations, swap_activations
from torchapl.paper.report.payload import build_payload

transformers = pytest.importorskip("transformers")
# It is noisy about models this small, and the tests of this package make warnings errors.
pytestmark = pytest.mark.filterwarnings("ignore")

IDS = torch.arange(32).reshape(2, 16)


def config(**options: Any) -> Any:
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    return transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, vocab_size=40, n_positions=16, **special, **options
    )


def shaken(model: nn.Module) -> Any:
    """Return the model with other weights and curves, in evaluation mode."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def swapped() -> Any:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config())
    return shaken(swap_activations(model, {"input_ids": IDS}))


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(IDS).logits


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "AutoModelForCausalLM"])
def test_save_and_load_to_the_bit(tmp_path: Path, kind: str) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = swapped()
    model.save_pretrained(tmp_path / "first")
    loaded = from_pretrained(getattr(transformers, kind), tmp_path / "first")
    assert type(loaded) is transformers.GPT2LMHeadModel
    assert torch.equal(logits(loaded), logits(model))
    assert describe(loaded) == describe(model)
    # And once more.
    loaded.save_pretrained(tmp_path / "second")
    assert torch.equal(logits(from_pretrained(type(loaded), tmp_path / "second")), logits(model))


def test_load_with_another_head_and_another_precision(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = swapped()
    model.save_pretrained(tmp_path / "head")
    body = from_pretrained(transformers.AutoModel, tmp_path / "head")
    assert type(body) is transformers.GPT2Model
    assert torch.equal(body(IDS).last_hidden_state, model.transformer(IDS).last_hidden_state)
    body.save_pretrained(tmp_path / "body")
    head = from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "body")
    assert torch.equal(logits(head), logits(model))
    half = from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "head", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}


def test_a_model_without_units_loads_as_ever(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = restore_activations(swapped())
    model.save_pretrained(tmp_path)
    assert "torchapl" not in (tmp_path / "config.json").read_text()
    loaded = from_pretrained(transformers.GPT2LMHeadModel, tmp_path)
    assert torch.equal(logits(loaded), logits(model))


class Own(transformers.PreTrainedModel):
    config_class = transformers.GPT2Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.layer = nn.Linear(4, 4)
        self.post_init()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x))


def test_refuses_a_model_whose_own_forward_was_rewritten(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    swap_activations(Own(config()), torch.randn(2, 4)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the forward of Own itself was rewritten"):
        from_pretrained(Own, tmp_path)


def test_from_scratch_by_the_name_in_a_config(tmp_path: Path) -> None:
    import torchapl.integrations.transformers  # noqa: F401  # knows the name

    auto = transformers.AutoModelForCausalLM
    model = shaken(auto.from_config(config(activation_function="apl")))
    assert sum(isinstance(module, APL) for module in model.modules()) == 2
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(auto.from_pretrained(tmp_path)), logits(model))


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = (IDS[0] + index) % 40
        return {"input_ids": ids, "labels": ids}


def trainer(model: nn.Module, folder: Path, **options: Any) -> Any:
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "max_steps": 10,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-2,
            "logging_steps": 2,
            "save_steps": 5,
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            **options.pop("arguments", {}),
        }
    )
    return transformers.Trainer(model, arguments, train_dataset=Rows(), **options)


def test_checkpoints_of_the_trainer(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    start = swapped()
    model = copy.deepcopy(start)
    trainer(model, tmp_path).train()
    curves = "transformer.h.0.mlp.act.slope"
    assert not torch.equal(model.get_parameter(curves), start.get_parameter(curves))
    half_way, end = (
        from_pretrained(transformers.GPT2LMHeadModel, tmp_path / f"checkpoint-{step}")
        for step in (5, 10)
    )
    assert torch.equal(logits(end), logits(model.eval()))
    # From a checkpoint on, training goes the same way to the bit.
    assert not torch.equal(logits(half_way), logits(end))
    trainer(half_way, tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert torch.equal(logits(half_way.eval()), logits(end))


@pytest.mark.parametrize("first", [True, False], ids=["in front", "at the end"])
def test_callback_out_of_the_box(tmp_path: Path, first: bool) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboard")
    from torchapl.integrations.transformers import CurveCallback

    run = trainer(
        swapped(),
        tmp_path,
        arguments={"report_to": ["tensorboard"], "save_strategy": "no"},
        callbacks=None if first else [CurveCallback()],
    )
    if first:
        run.callback_handler.callbacks.insert(0, CurveCallback())
    run.train()
    tag = "curves/transformer.h.0.mlp.act/left_slope_mean"
    assert tag in run.state.log_history[0]
    scalars, images = scalars_and_images(tmp_path / "runs")
    assert tag in scalars
    assert "train/loss" in scalars
    assert images == {"curves"}
    # At the start, after 8 steps, and at the ends of the epochs of 4.
    steps = (0, 4, 8, 10)
    assert names_in(tmp_path / "curves") == [f"curves_{step:08d}.png" for step in steps]
    payload: Any = build_payload(tmp_path / "curves")
    (report,) = payload["runs"]
    assert (report["name"], report["seed"], report["status"]) == ("GPT2LMHeadModel", 42, "finished")
    assert [point[0] for point in payload["learning"][0]["metrics"]["train_loss"]] == [1, 2, 3]
    assert len(payload["curves"][0]["layers"]) == 2
