"""Architectures of Hugging Face transformers, small, from their configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import torchapl
from torchapl import describe, rebuild_swapped, swap_activations

transformers = pytest.importorskip("transformers")

TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
}
VISION = {key: value for key, value in TEXT.items() if key != "vocab_size"} | {
    "image_size": 32,
    "patch_size": 8,
}


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 50, (2, 7))}


def image() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(2, 400)}


# Model, configuration, its settings, inputs, how many calls are swapped, their kinds.
Architecture = tuple[str, str, dict[str, Any], Callable[[], dict[str, Tensor]], int, str]
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "layer_type": "basic"}
CONVNEXT = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 32}
MOBILENET = {"depth_multiplier": 0.25, "min_depth": 4, "image_size": 32}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 16}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 50}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50}
OPT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 32,
    "vocab_size": 50,
    "max_position_embeddings": 16,
    "word_embed_proj_dim": 16,
}
WAV2VEC2 = {
    **TEXT,
    "conv_dim": [8, 8],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
GELU, NEW_GELU = "GELUActivation", "NewGELUActivation"
SEQUENCE = "DistilBertForSequenceClassification"
ARCHITECTURES: dict[str, Architecture] = {
    "resnet": ("ResNetForImageClassification", "ResNetConfig", RESNET, image, 9, "ReLU"),
    "mobilenet": ("MobileNetV2Model", "MobileNetV2Config", MOBILENET, image, 35, "ReLU6"),
    "bert": ("BertForSequenceClassification", "BertConfig", TEXT, tokens, 3, f"{GELU} Tanh"),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", TEXT, tokens, 3, GELU),
    "albert": ("AlbertModel", "AlbertConfig", TEXT, tokens, 2, f"{NEW_GELU} Tanh"),
    "vit": ("ViTForImageClassification", "ViTConfig", VISION, image, 2, GELU),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig", VISION, image, 2, "QuickGELUActivation"),
    "convnext": ("ConvNextModel", "ConvNextConfig", CONVNEXT, image, 2, GELU),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2, tokens, 2, NEW_GELU),
    "opt": ("OPTForCausalLM", "OPTConfig", OPT, tokens, 2, "ReLU"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", TEXT, tokens, 2, "SiLUActivation"),
    "t5": ("T5EncoderModel", "T5Config", T5, tokens, 2, "ReLU"),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", WAV2VEC2, sound, 5, GELU),
    "distilbert": (SEQUENCE, "DistilBertConfig", DISTILBERT, tokens, 2, GELU),
}


def build(name: str) -> nn.Module:
    model, config, settings, *_ = ARCHITECTURES[name]
    torch.manual_seed(0)
    built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return built


def outputs(model: nn.Module, example: dict[str, Tensor]) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        return [leaf for leaf in tree_leaves(dict(model(**example))) if isinstance(leaf, Tensor)]


# Every fit takes its time, and the quick run has one model of each kind.
QUICK = ("resnet", "bert", "opt")
EVERY = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ARCHITECTURES
]


# The small mobilenet makes next to nothing of its input, which any difference exceeds.
@pytest.mark.filterwarnings(r"ignore:the outputs differ by \S+e-\d\d")
@pytest.mark.parametrize("name", EVERY)
def test_swap_train_save_rebuild(name: str) -> None:
    *_, inputs, count, kinds = ARCHITECTURES[name]
    model, example = build(name), inputs()
    before = outputs(model, example)
    parameters = dict(model.named_parameters())

    swapped = swap_activations(model, example)
    report = describe(swapped)
    assert swapped is model
    assert len(report.swaps) == count
    assert {swap.kind for swap in report.swaps} == set(kinds.split())
    after_swap = dict(swapped.named_parameters())
    assert all(after_swap[key] is parameter for key, parameter in parameters.items())

    after = outputs(swapped, example)
    change = max(float((new - old).abs().max()) for new, old in zip(after, before, strict=True))
    assert change == pytest.approx(report.output_error, abs=1e-5)
    if all(swap.kind == "ReLU" for swap in report.swaps):
        assert change == 0

    swapped.train()
    curves = [parameter.detach().clone() for parameter in torchapl.curve_parameters(swapped)]
    optimizer = torch.optim.SGD(swapped.parameters(), lr=1e-3)
    leaf = next(leaf for leaf in tree_leaves(dict(swapped(**example))) if leaf.requires_grad)
    (leaf - 1).square().mean().backward()
    optimizer.step()
    moved = zip(torchapl.curve_parameters(swapped), curves, strict=True)
    assert any(not torch.equal(new, old) for new, old in moved)

    rebuilt = rebuild_swapped(build(name), report.to_json())
    rebuilt.load_state_dict(swapped.state_dict(), strict=True)
    for new, old in zip(outputs(rebuilt, example), outputs(swapped, example), strict=True):
        assert torch.equal(new, old)


@pytest.mark.filterwarnings("ignore:swap_activations found no activation")
def test_what_cannot_be_traced_is_named() -> None:
    model = build("distilbert")
    report = describe(swap_activations(model, tokens(), match=lambda name, _: name == "relu"))
    left = [entry for entry in report.left if entry.reason != "not selected by match"]
    assert [(entry.name, entry.kind) for entry in left] == [("relu", "ReLU")]
    assert left[0].place.startswith("modeling_distilbert.py:")
    assert "SequenceClassifierOutput" in left[0].reason


def test_generation_and_labels_still_work() -> None:
    model = swap_activations(build("gpt2"), tokens())
    example = tokens()
    assert model(**example, labels=example["input_ids"]).loss.isfinite()
    generated = model.generate(**example, max_new_tokens=2, do_sample=False, pad_token_id=0)
    assert generated.shape == (2, 9)


def test_predictions_of_a_gpt2_of_six_layers_stay() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=6, n_embd=96, n_head=4, vocab_size=2000)
    model = transformers.GPT2LMHeadModel(config).eval()
    example, others = torch.randint(0, 2000, (3, 8, 64)).split([1, 2])
    with torch.no_grad():
        before = model(others.flatten(0, 1)).logits
        swapped = swap_activations(model, {"input_ids": example[0]})
        after = swapped(others.flatten(0, 1)).logits
    assert torch.equal(before.argmax(-1), after.argmax(-1))
    assert (before - after).abs().max() < 0.005 * before.abs().max()
