"""The defaults are the paper's, and impossible values are refused with what to do instead."""

import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import BatchConfig, Config, ModelConfig, SearchConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.strict import to_dict


def test_the_defaults_are_the_papers_base_model():
    assert to_dict(Config()) == {
        "model": {
            "vocabulary": 37_000,
            "source_vocabulary": None,
            "layers": 6,
            "encoder_layers": None,
            "decoder_layers": None,
            "d_model": 512,
            "d_ff": 2048,
            "heads": 8,
            "d_k": None,
            "d_v": None,
            "attention": "scaled",
            "positions": "sinusoidal",
            "max_positions": 1024,
            "norm": "post",
            "norm_epsilon": 1e-5,
            "activation": "relu",
            "biases": False,
            "tie": "all",
            "dropout": 0.1,
            "attention_dropout": 0.0,
            "feed_forward_dropout": 0.0,
        },
        "batch": {
            "source_tokens": 25_000,
            "target_tokens": 25_000,
            "parts": 8,
            "similar_lengths": True,
            "sentences": None,
            "subword_dropout": 0.0,
        },
        "training": {
            "steps": 100_000,
            "epochs": None,
            "tokens": None,
            "patience": None,
            "schedule": "inverse-sqrt",
            "warmup_steps": 4000,
            "peak_rate": None,
            "encoder_rate": 1.0,
            "optimiser": "adam",
            "beta1": 0.9,
            "beta2": 0.98,
            "epsilon": 1e-9,
            "clip": None,
            "label_smoothing": 0.1,
            "agreement": 0.0,
            "accumulate": 1,
            "precision": "auto",
            "sharded": False,
            "average_checkpoints": 5,
            "average_decay": None,
            "checkpoint_minutes": 10.0,
            "checkpoint_steps": None,
            "keep_best": 1,
            "best_by": "loss",
            "bleu_sentences": 1000,
            "not_finite": "stop",
            "freeze": [],
            "seed": 1,
        },
        "search": {
            **{"beam": 4, "alpha": 0.6, "extra_tokens": 50, "max_tokens": None, "min_tokens": 0, "n_best": 1},
            **{"stop": "exact", "no_repeat": None, "repetition_penalty": 1.0, "word_share": 1.0},
            **{"sample": False, "temperature": 1.0, "top_k": None, "top_p": 1.0, "sample_seed": 1},
        },
    }


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (ModelConfig, {"heads": 7}, "model.heads = 7 does not divide model.d_model = 512; use 1, 2, 4, 8, …"),
        (ModelConfig, {"heads": 60}, "does not divide model.d_model = 512; use 1, 2, 4, 8, 16, 32, 64, …"),
        (ModelConfig, {"heads": 8, "d_model": 4}, "model.heads = 8 does not divide model.d_model = 4; use 1, 2, 4"),
        (ModelConfig, {"heads": 3, "d_model": 4}, "model.heads = 3 does not divide model.d_model = 4; use 1, 2, 4"),
        (
            ModelConfig,
            {"heads": 7, "d_k": 64},
            "model.heads = 7 does not divide model.d_model = 512; use 1, 2, 4, 8, …",
        ),
        (ModelConfig, {"heads": 1, "d_model": 7}, 'pairs of sine and cosine; use 8, or model.positions = "learned"'),
        (ModelConfig, {"heads": 3, "d_model": 9}, 'pairs of sine and cosine; use 12, or model.positions = "learned"'),
        (ModelConfig, {"heads": 3, "d_model": 9, "d_k": 4, "d_v": 4}, 'use 10, or model.positions = "learned"'),
        (ModelConfig, {"d_model": 10**12 + 39, "positions": "learned"}, "use 1, 1000000000039"),  # a prime, at once
        (
            ModelConfig,
            {"heads": 4, "d_model": 12, "positions": "rotary"},
            "model.d_k = 3 is odd, and rotary positions turn pairs of numbers; use 4",
        ),
        (
            ModelConfig,
            {"d_k": 7, "positions": "rotary"},
            "model.d_k = 7 is odd, and rotary positions turn pairs of numbers; use 8",
        ),
        (ModelConfig, {"d_k": -1, "positions": "rotary"}, "model.d_k = -1 is out of range; use 1 or more"),
        (
            ModelConfig,
            {"source_vocabulary": 8_000},
            'is not model.vocabulary = 37000, and model.tie = "all" shares one matrix; use model.tie = "output"',
        ),
        (
            ModelConfig,
            {"source_vocabulary": 0, "tie": "none"},
            "model.source_vocabulary = 0 is out of range; use 1 or more",
        ),
        (ModelConfig, {"encoder_layers": 0}, "model.encoder_layers = 0 is out of range; use 1 or more"),
        (ModelConfig, {"decoder_layers": -1}, "model.decoder_layers = -1 is out of range; use 1 or more"),
        (
            ModelConfig,
            {"attention_dropout": 1.5},
            "model.attention_dropout = 1.5 is out of range; use 0 or more and less than 1",
        ),
        (
            ModelConfig,
            {"feed_forward_dropout": float("nan")},
            "model.feed_forward_dropout = nan is out of range; use 0 or more and less than 1",
        ),
        (ModelConfig, {"heads": 0}, "model.heads = 0 is out of range; use 1 or more"),
        (ModelConfig, {"d_k": 0}, "model.d_k = 0 is out of range; use 1 or more"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout = 1.0 is out of range; use 0 or more and less than 1"),
        (BatchConfig, {"source_tokens": 25_001}, "does not divide into batch.parts = 8; use 25000 or 25008"),
        (BatchConfig, {"target_tokens": 7}, "batch.target_tokens = 7 does not divide into batch.parts = 8; use 8"),
        (BatchConfig, {"parts": 0}, "batch.parts = 0 is out of range; use 1 or more"),
        (BatchConfig, {"sentences": 7}, "batch.sentences = 7 leaves some of batch.parts = 8 empty; use 8 or more"),
        (TrainingConfig, {"warmup_steps": 0}, "training.warmup_steps = 0 is out of range; use 1 or more"),
        (TrainingConfig, {"beta2": 1.0}, "training.beta2 = 1.0 is out of range; use 0 or more and less than 1"),
        (TrainingConfig, {"epsilon": 0.0}, "training.epsilon = 0.0 is out of range; use more than 0"),
        (TrainingConfig, {"checkpoint_minutes": float("inf")}, "minutes = inf is out of range; use more than 0"),
        (TrainingConfig, {"checkpoint_minutes": None}, "checkpoint_steps are both off; give one of them"),
        (TrainingConfig, {"peak_rate": 0.0}, "training.peak_rate = 0.0 is out of range; use more than 0"),
        (TrainingConfig, {"clip": -1.0}, "training.clip = -1.0 is out of range; use more than 0"),
        (TrainingConfig, {"accumulate": 0}, "training.accumulate = 0 is out of range; use 1 or more"),
        (TrainingConfig, {"average_decay": 1.0}, "average_decay = 1.0 is out of range; use 0 or more and less than 1"),
        (
            TrainingConfig,
            {"best_by": "bleu", "bleu_sentences": 0},
            'training.best_by = "bleu" needs translations; use training.bleu_sentences = 1000',
        ),
        (
            TrainingConfig,
            {"schedule": "cosine", "steps": 4000},
            "training.warmup_steps = 4000 leaves no steps to fall in; use fewer than training.steps = 4000",
        ),
        (TrainingConfig, {"seed": -1}, "training.seed = -1 is out of range; use 0 or more"),
        (SearchConfig, {"beam": 0}, "search.beam = 0 is out of range; use 1 or more"),
        (SearchConfig, {"alpha": -0.1}, "search.alpha = -0.1 is out of range; use 0 or more"),
        (SearchConfig, {"n_best": 5}, "search.n_best = 5 is more than search.beam = 4; use a beam of 5"),
        (SearchConfig, {"temperature": 0.0}, "search.temperature = 0.0 is out of range; use more than 0"),
        (SearchConfig, {"top_p": 1.5}, "search.top_p = 1.5 is out of range; use 1 or less"),
        (
            SearchConfig,
            {"min_tokens": 9, "max_tokens": 5},
            "search.min_tokens = 9 is more than search.max_tokens = 5",
        ),
    ],
)
def test_impossible_values_are_refused(cls: type, values: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as caught:
        cls(**values)
    (line,) = str(caught.value).splitlines()
    assert line.endswith(message)


def test_every_impossible_value_is_named():
    with pytest.raises(ConfigError) as caught:
        ModelConfig(layers=0, heads=7, dropout=-1.0)
    assert [line.split(" = ")[0] for line in str(caught.value).splitlines()] == [
        "model.layers",
        "model.dropout",
        "model.heads",
    ]
    with pytest.raises(ConfigError) as caught:
        ModelConfig(heads=7, d_k=7, positions="rotary", source_vocabulary=9)
    assert [line.split(" = ")[0] for line in str(caught.value).splitlines()] == [
        "model.heads",
        "model.d_k",
        "model.source_vocabulary",
    ]


def test_heads_are_free_when_their_widths_are_given():
    assert ModelConfig(heads=7, d_k=64, d_v=32).head_widths() == (64, 32)
    assert ModelConfig(d_k=16).head_widths() == (16, 64)
    assert ModelConfig(heads=1, d_model=7, positions="learned").head_widths() == (7, 7)


def test_stacks_are_as_deep_as_layers_says_unless_they_differ():
    assert ModelConfig(layers=3).stacks() == (3, 3)
    assert ModelConfig(layers=3, encoder_layers=12).stacks() == (12, 3)
    assert ModelConfig(encoder_layers=12, decoder_layers=1).stacks() == (12, 1)


@given(
    d_model=st.integers(1, 60), heads=st.integers(1, 60), positions=st.sampled_from(["sinusoidal", "learned", "rotary"])
)
def test_what_is_advised_is_legal(d_model: int, heads: int, positions: Literal["sinusoidal", "learned", "rotary"]):
    """Following the remedies one after another leads to settings that are accepted."""
    values: dict[str, Any] = {"d_model": d_model, "heads": heads, "positions": positions}
    for _ in range(4):
        try:
            ModelConfig(**values)
            return
        except ConfigError as error:
            line = str(error).splitlines()[0]
        found = re.match(r"model\.(\w+) = \d+ .*; use (?:\d+, )*(\d+)", line)
        assert found, line
        values[found[1]] = int(found[2])
    ModelConfig(**values)
