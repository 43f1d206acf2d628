"""The defaults are the paper's, and impossible values are refused with what to do instead."""

from typing import Any

import pytest

from transduce.config import BatchConfig, Config, ModelConfig, SearchConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.strict import to_dict


def test_the_defaults_are_the_papers_base_model():
    assert to_dict(Config()) == {
        "model": {
            "vocabulary": 37_000,
            "layers": 6,
            "d_model": 512,
            "d_ff": 2048,
            "heads": 8,
            "d_k": None,
            "d_v": None,
            "positions": "sinusoidal",
            "max_positions": 1024,
            "dropout": 0.1,
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
            "warmup_steps": 4000,
            "beta1": 0.9,
            "beta2": 0.98,
            "epsilon": 1e-9,
            "label_smoothing": 0.1,
            "average_checkpoints": 5,
            "checkpoint_minutes": 10.0,
            "seed": 1,
        },
        "search": {"beam": 4, "alpha": 0.6, "extra_tokens": 50},
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
        (TrainingConfig, {"seed": -1}, "training.seed = -1 is out of range; use 0 or more"),
        (SearchConfig, {"beam": 0}, "search.beam = 0 is out of range; use 1 or more"),
        (SearchConfig, {"alpha": -0.1}, "search.alpha = -0.1 is out of range; use 0 or more"),
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


def test_heads_are_free_when_their_widths_are_given():
    assert ModelConfig(heads=7, d_k=64, d_v=32).head_widths() == (64, 32)
    assert ModelConfig(d_k=16).head_widths() == (16, 64)
    assert ModelConfig(heads=1, d_model=7, positions="learned").head_widths() == (7, 7)
