"""What people do with models of Hugging Face: save, load, train, resume, start from a config."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from integrations.test_integrations import names_in, scalars_and_images
from torchapl import APL, SwapReport, describe, fuse, restore_activations, swap_activations
from torchapl.curves import AffineAPL
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


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Let memory that nobody has written hold NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40}


def bert(kind: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, kind)
    name = kind.split("For")[0].removesuffix("Model")
    settings = BERT | {"intermediate_size": 24, "pad_token_id": 0} | options
    return model(getattr(transformers, f"{name}Config")(**settings)).eval()


def test_curves_that_a_checkpoint_lacks_start_as_new_ones(
    tmp_path: Path, poisoned_memory: None
) -> None:
    import torchapl.integrations.transformers  # noqa: F401  # knows the name

    bert("BertModel").save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path, hidden_act="apl")
    units = [module for module in model.modules() if isinstance(module, APL)]
    assert len(units) == 2
    for unit in units:
        assert torch.equal(unit.slope, APL().slope)
        assert torch.equal(unit.offset, APL().offset)
    # What is there is loaded, to the bit.
    shaken(model).save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter)


class Affine(transformers.PreTrainedModel):
    config_class = transformers.GPT2Config

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.layer = nn.Linear(4, 4)
        self.curve = AffineAPL(4, 3, init="relu")
        # A start of its own, which is no reason to start again.
        with torch.no_grad():
            self.curve.unit.slope.fill_(0.25)
        self.post_init()


def test_half_of_a_curve_and_an_affine_one(tmp_path: Path, poisoned_memory: None) -> None:
    import torchapl.integrations.transformers  # noqa: F401  # starts them

    model = Affine(config())
    assert (model.curve.unit.slope == 0.25).all()
    state = {name: value for name, value in model.state_dict().items() if "curve" not in name}
    model.save_pretrained(tmp_path, state_dict=state)
    curve = Affine.from_pretrained(tmp_path).curve
    fresh = AffineAPL(4, 3, init="relu")
    assert all(torch.equal(curve.state_dict()[k], v) for k, v in fresh.state_dict().items())
    offset = torch.full((3, 4), 0.5)
    model.save_pretrained(tmp_path, state_dict=state | {"curve.unit.offset": offset})
    curve = Affine.from_pretrained(tmp_path).curve
    assert torch.equal(curve.unit.offset, offset)
    assert torch.equal(curve.unit.slope, fresh.unit.slope)


def test_fused_curves_are_not_saved(tmp_path: Path) -> None:
    model = swapped()
    fused = fuse(model)
    assert not hasattr(fused.config, "torchapl")
    assert describe(fused) == SwapReport()
    for part in (fused, fused.transformer):
        with pytest.raises(ValueError, match=r"mlp\.act and 1 more are fused.*save the model"):
            part.save_pretrained(tmp_path)
    # Nor where a name in the configuration put the units in, or where a ReLU is left of them.
    relu = transformers.AutoModel.from_config(config(activation_function="apl"))
    for unit in relu.modules():
        if isinstance(unit, APL):
            nn.init.zeros_(unit.slope)
    with pytest.raises(ValueError, match="save the model"):
        fuse(relu).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    # The model itself can still be saved.
    model.save_pretrained(tmp_path)
    assert describe(model).swaps


def test_a_plain_model_with_the_same_configuration_stays_plain(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = swapped()
    plain = transformers.GPT2LMHeadModel(model.config).eval()
    plain.save_pretrained(tmp_path / "plain")
    model.save_pretrained(tmp_path / "swapped")
    loaded = from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "plain")
    assert not describe(loaded).swaps
    assert torch.equal(logits(loaded), logits(plain))
    again = from_pretrained(transformers.GPT2LMHeadModel, tmp_path / "swapped")
    assert torch.equal(logits(again), logits(model))


def test_refuses_a_description_whose_curves_are_not_there(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = swapped()
    transformers.GPT2LMHeadModel(config()).save_pretrained(tmp_path)
    kind = transformers.GPT2LMHeadModel
    with pytest.raises(ValueError, match=r"no values for transformer\.h\.0\.mlp\.act and 1 more"):
        from_pretrained(kind, tmp_path, config=model.config)
    model.save_pretrained(tmp_path)
    _, info = from_pretrained(kind, tmp_path, output_loading_info=True)
    assert not info["missing_keys"]


@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert", "Electra"])
def test_a_head_without_place_for_some_curves(tmp_path: Path, family: str) -> None:
    from torchapl.integrations.transformers import from_pretrained

    small = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "embedding_size": 16}
    model = bert(f"{family}ForMaskedLM", **small)
    model = shaken(swap_activations(model, {"input_ids": IDS}, num_hinges=4))
    model.save_pretrained(tmp_path / "first")
    body = [swap.name for swap in describe(model).swaps if ".layer." in swap.name]
    (head,) = (swap.name for swap in describe(model).swaps if swap.name not in body)
    with pytest.warns(UserWarning, match=f"left out.*: {re.escape(head)}$") as warned:
        other = from_pretrained(transformers.AutoModelForSequenceClassification, tmp_path / "first")
    assert sum("left out" in str(warning.message) for warning in warned) == 1
    assert [swap.name for swap in describe(other).swaps] == body
    base = model.base_model(IDS).last_hidden_state
    assert torch.equal(other.eval().base_model(IDS).last_hidden_state, base)
    # Without any head, and back from there.
    with pytest.warns(UserWarning, match="left out"):
        alone = from_pretrained(transformers.AutoModel, tmp_path / "first").eval()
    assert torch.equal(alone(IDS).last_hidden_state, base)
    alone.save_pretrained(tmp_path / "body")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = from_pretrained(transformers.AutoModelForMaskedLM, tmp_path / "body")
    assert torch.equal(again.eval().base_model(IDS).last_hidden_state, base)


def test_a_head_with_another_module_of_the_same_name(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = bert("RobertaForSequenceClassification")
    swap_activations(model, {"input_ids": IDS}, num_hinges=4).save_pretrained(tmp_path)
    assert "classifier" in [entry.module for entry in describe(model).rewrites]
    with pytest.warns(UserWarning, match="left out.*: classifier.tanh_1$"):
        other = from_pretrained(transformers.RobertaForTokenClassification, tmp_path)
    assert type(other.classifier) is nn.Linear
    assert len(describe(other).swaps) == 2
    # The same class is not to lack anything.
    model.config.num_hidden_layers = 1
    with pytest.raises(ValueError, match=r"no module 'roberta\.encoder\.layer\.1"):
        from_pretrained(type(model), tmp_path, config=model.config)


def test_only_the_head_is_swapped(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    model = bert("BertForMaskedLM")
    model = swap_activations(
        model, {"input_ids": IDS}, num_hinges=4, match=lambda name, module: name.startswith("cls")
    )
    shaken(model).save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path).eval()
    assert len(describe(loaded).swaps) == 1
    assert torch.equal(logits(loaded), logits(model))


def test_models_swapped_in_parts(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config()).eval()
    for block in model.transformer.h:
        block.mlp = swap_activations(block.mlp, torch.randn(4, 16, 16), num_hinges=4)
    shaken(model).save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path)
    assert describe(loaded) == describe(model)
    assert len(describe(loaded).swaps) == 2
    assert torch.equal(logits(loaded), logits(model))
    # What is put back is not saved.
    restore_activations(model.transformer.h[0]).eval()
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path)
    assert [swap.name for swap in describe(loaded).swaps] == ["transformer.h.1.mlp.act"]
    assert torch.equal(logits(loaded), logits(model))


def test_a_swapped_part_that_shares_the_configuration(tmp_path: Path) -> None:
    from torchapl.integrations.transformers import from_pretrained

    torch.manual_seed(0)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    sizes = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers",)}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 40}
    bart = transformers.BartConfig(
        **sizes, **heads, **widths, **ends, decoder_start_token_id=0, max_position_embeddings=32
    )
    model = transformers.BartForConditionalGeneration(bart).eval()
    encoder = model.model.encoder
    model.model.encoder = swap_activations(encoder, {"input_ids": IDS}, num_hinges=4)
    shaken(model).save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path).eval()
    names = [swap.name for swap in describe(loaded).swaps]
    assert names == [f"model.encoder.layers.{layer}.activation_fn" for layer in (0, 1)]
    assert torch.equal(logits(loaded), logits(model))


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
