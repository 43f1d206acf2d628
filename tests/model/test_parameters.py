"""The module has the parameters that its settings say, and each of them is initialised."""

import itertools
import math
from dataclasses import fields, replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import SMALL
from threads import always_one_thread as always_one_thread

from transduce.config import ModelConfig
from transduce.errors import ConfigError
from transduce.model.layers import DecoderLayer, EncoderLayer
from transduce.model.transformer import Transformer
from transduce.presets import PRESETS, get

WIDTHS = st.one_of(st.none(), st.integers(1, 6))
VALUES = st.fixed_dictionaries(
    {
        "vocabulary": st.integers(1, 30),
        "source_vocabulary": st.one_of(st.none(), st.integers(1, 30)),
        "layers": st.integers(1, 3),
        "encoder_layers": st.one_of(st.none(), st.integers(1, 4)),
        "decoder_layers": st.one_of(st.none(), st.integers(1, 4)),
        "d_model": st.integers(1, 12),
        "d_ff": st.integers(1, 20),
        "heads": st.integers(1, 4),
        "d_k": WIDTHS,
        "d_v": WIDTHS,
        "attention": st.sampled_from(["scaled", "unscaled", "additive"]),
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary"]),
        "max_positions": st.integers(1, 9),
        "norm": st.sampled_from(["post", "pre"]),
        "norm_epsilon": st.sampled_from([1e-6, 1e-5, 0.1]),
        "activation": st.sampled_from(["relu", "gelu", "silu", "swiglu"]),
        "biases": st.booleans(),
        "tie": st.sampled_from(["all", "output", "none"]),
        "dropout": st.floats(0, 0.9),
        "attention_dropout": st.floats(0, 0.9),
        "feed_forward_dropout": st.floats(0, 0.9),
    }
)


def count(config: ModelConfig) -> int:
    """Return the module's own number of parameters, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_the_parameters_it_says(name: str):
    assert count(get(name).config.model) == get(name).config.model.parameters()


@given(values=VALUES, source=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_what_the_settings_allow_can_be_built_and_run(values: dict[str, Any], source: list[int], seed: int):
    """Any settings that pass `problems()`: the count is right, a step runs, and it reaches every parameter."""
    assert values.keys() == {field.name for field in fields(ModelConfig)}
    try:
        config = ModelConfig(**values)
    except ConfigError:
        return
    torch.manual_seed(seed)
    model = Transformer(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == config.parameters()
    offsets = torch.tensor([0, *itertools.accumulate(source)])
    tokens = torch.zeros(sum(source), dtype=torch.int32)
    logits = model(tokens, offsets, tokens, offsets)
    assert logits.shape == (sum(source), config.vocabulary)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("tie", ["all", "none"])
def test_every_parameter_is_drawn(tie: Literal["all", "none"]):
    """So a model made without memory (on the meta device) can be given memory and initialised there."""
    config = replace(SMALL, norm="pre", positions="learned", attention="additive", activation="swiglu", tie=tie)
    torch.manual_seed(5)
    expected = Transformer(config)
    with torch.device("meta"):
        model = Transformer(config)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    torch.manual_seed(5)
    model.reset_parameters()
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.shape == expected.get_parameter(name).shape
        if name.endswith("bias"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        else:
            assert parameter.unique().numel() > 0.9 * parameter.numel(), name


def test_matrices_are_drawn_each_by_its_own_size():
    """Glorot and Bengio (2010): uniform within sqrt(6 / (inputs + outputs)), for each of W^Q, W^K and W^V by itself.

    W^V and W^O are smaller by the root of the number of layers in their stack.
    """
    torch.manual_seed(0)
    sizes = {"d_model": 64, "d_ff": 160, "heads": 4, "d_k": 8, "d_v": 32, "activation": "swiglu"}
    model = Transformer(ModelConfig(vocabulary=9, encoder_layers=3, decoder_layers=5, **sizes))
    layer, deeper = model.encoder[0], model.decoder[0]
    assert isinstance(layer, EncoderLayer)
    assert isinstance(deeper, DecoderLayer)
    matrices = [
        (64, 32, 1, layer.self_attention.projection.split([32, 32, 128])[:2]),
        (64, 128, 3, [layer.self_attention.projection[64:], layer.self_attention.output]),
        (64, 128, 5, [deeper.cross_attention.projection[64:], deeper.self_attention.output]),
        (64, 160, 1, [*layer.feed_forward.inner.weight.chunk(2), layer.feed_forward.outer.weight]),
    ]
    for one, other, depth, weights in matrices:
        bound = math.sqrt(6 / (one + other) / depth)
        for weight in weights:
            assert 0.95 * bound < weight.abs().max().item() <= bound
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_tokens_of_a_deep_stack_stay_apart_at_first():
    # With W^V and W^O as large as Glorot and Bengio would have them the similarity is 0.96, and nothing is learned.
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=500)).eval()
    with torch.no_grad():
        memory = model.encode(torch.randint(4, 500, (30,)), torch.tensor([0, 30]))
    memory = torch.nn.functional.normalize(memory, dim=1)
    similar = (memory @ memory.T)[~torch.eye(30, dtype=torch.bool)]
    assert similar.mean() < 0.6
