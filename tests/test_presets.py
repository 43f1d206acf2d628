"""The paper's models have the paper's sizes."""

from dataclasses import replace
from typing import Literal

import pytest
from torch import nn

from transduce.config import ModelConfig
from transduce.errors import ConfigError
from transduce.presets import PRESETS, get

COUNTED = [name for name, preset in PRESETS.items() if preset.paper_millions is not None]


def millions(name: str) -> float:
    """Return a preset's parameters, in millions."""
    return get(name).config.model.parameters() / 1e6


def test_all_models_of_the_paper_are_there():
    assert list(PRESETS) == [
        "base", "big", "big-en-fr", "modern", "A-heads-1", "A-heads-4", "A-heads-16", "A-heads-32", "B-d_k-16",
        "B-d_k-32", "C-layers-2", "C-layers-4", "C-layers-8", "C-d_model-256", "C-d_model-1024", "C-d_ff-1024",
        "C-d_ff-4096", "D-dropout-0.0", "D-dropout-0.2", "D-smoothing-0.0", "D-smoothing-0.2", "E-learned", "parsing",
        "parsing-small", "tiny", "small",
    ]  # fmt: skip
    assert {name: PRESETS[name].paper_millions for name in COUNTED} == {
        "base": 65, "big": 213, "B-d_k-16": 58, "B-d_k-32": 60, "C-layers-2": 36, "C-layers-4": 50, "C-layers-8": 80,
        "C-d_model-256": 28, "C-d_model-1024": 168, "C-d_ff-1024": 53, "C-d_ff-4096": 90,
    }  # fmt: skip
    configs = [preset.config for preset in PRESETS.values()]
    assert len(set(configs)) == len(configs)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_near_the_papers(name: str):
    model, paper = get(name).config.model, get(name).paper_millions
    tolerance = 0.05 if model.layers >= 6 else 0.07
    assert millions(name) == pytest.approx(paper, rel=tolerance)


def vocabularies(name: str) -> tuple[float, float]:
    """Return the least and the greatest vocabulary with which a preset's count rounds to the paper's."""
    model, paper = get(name).config.model, get(name).paper_millions
    assert paper is not None
    rest = model.parameters() - model.vocabulary * model.d_model
    return ((paper - 0.5) * 1e6 - rest) / model.d_model, ((paper + 0.5) * 1e6 - rest) / model.d_model


def test_one_vocabulary_explains_every_count_of_table_3_but_the_big_models():
    # The paper says "about 37000 tokens". Its counts say more: all ten are exact with any vocabulary in this range.
    least, greatest = zip(*(vocabularies(name) for name in COUNTED if name != "big"))
    assert 41_000 < max(least) < min(greatest) < 41_250
    assert 35_000 < vocabularies("big")[0] < vocabularies("big")[1] < 37_000


@pytest.mark.parametrize(
    ("larger", "smaller", "paper"),
    [
        ("base", "B-d_k-16", 7),
        ("base", "B-d_k-32", 5),
        ("base", "C-layers-4", 15),
        ("C-layers-8", "base", 15),
        ("C-layers-4", "C-layers-2", 14),
        ("base", "C-d_ff-1024", 12),
        ("C-d_ff-4096", "base", 25),
    ],
)
def test_differences_between_rows_are_the_papers(larger: str, smaller: str, paper: int):
    # Each of the two counts is rounded to a million.
    assert millions(larger) - millions(smaller) == pytest.approx(paper, abs=1)


def test_row_b_lowers_the_keys_alone():
    assert millions("base") - millions("B-d_k-16") == pytest.approx(7, abs=0.5)
    assert get("B-d_k-16").config.model.head_widths() == (16, 64)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_parameters_are_those_of_torchs_parts(positions: Literal["sinusoidal", "learned"]):
    config = ModelConfig(vocabulary=50, layers=3, d_model=24, d_ff=40, heads=4, max_positions=9, positions=positions)
    layer = nn.ModuleList(
        [nn.MultiheadAttention(24, 4, bias=False) for _ in range(3)]
        + [nn.Linear(24, 40) for _ in range(2)]
        + [nn.Linear(40, 24) for _ in range(2)]
        + [nn.LayerNorm(24) for _ in range(5)]
    )
    embeddings = [nn.Embedding(50, 24)] + [nn.Embedding(9, 24) for _ in range(2) if positions == "learned"]
    count = sum(p.numel() for p in layer.parameters()) * 3 + sum(p.numel() for e in embeddings for p in e.parameters())
    assert config.parameters() == count


def test_heads_share_the_width_in_row_a():
    rows = {name: get(name).config.model for name in PRESETS if name.startswith("A-")}
    assert [model.head_widths()[0] for model in rows.values()] == [512, 128, 32, 16]
    assert {model.parameters() for model in rows.values()} == {get("base").config.model.parameters()}


def test_the_big_model_trains_as_in_section_6_1():
    big, french = get("big").config, get("big-en-fr").config
    assert (big.model.layers, big.model.d_model, big.model.d_ff, big.model.heads) == (6, 1024, 4096, 16)
    assert (big.model.dropout, big.training.steps, big.training.average_checkpoints) == (0.3, 300_000, 20)
    assert french == replace(big, model=replace(big.model, dropout=0.1, vocabulary=32_000))


def test_the_parser_is_that_of_section_6_3():
    base, parsing = get("base").config, get("parsing").config
    # 16,000 subwords of words; the brackets are few and have a vocabulary of their own.
    sizes = {"vocabulary": 64, "source_vocabulary": 16_000, "tie": "output"}
    assert parsing.model == replace(base.model, layers=4, d_model=1024, **sizes)
    assert (parsing.search.beam, parsing.search.alpha, parsing.search.extra_tokens) == (21, 0.3, 300)
    assert (parsing.training, parsing.batch) == (base.training, base.batch)


def test_the_smaller_parser_searches_as_the_papers():
    small, parsing = get("parsing-small").config, get("parsing").config
    # Its trees are written with words, which the paper's are not.
    assert (small.search, small.model.layers) == (replace(parsing.search, word_share=0.5), parsing.model.layers)
    assert small.model.parameters() < parsing.model.parameters() / 2
    assert small.model.dropout > parsing.model.dropout


def test_our_own_models_are_small():
    assert millions("tiny") == pytest.approx(1.3, rel=0.1)
    assert millions("small") == pytest.approx(20, rel=0.1)
    assert get("tiny").config.batch.source_tokens == get("tiny").config.batch.target_tokens == 1024


def test_a_wrong_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"^unknown preset bse; did you mean base\?$"):
        get("bse")
    with pytest.raises(ConfigError, match=r"^unknown preset xyzzy; `transduce presets` lists them all$"):
        get("xyzzy")
