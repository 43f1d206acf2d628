"""What heads are measured to attend to, where it is known: attention made by hand, and a model made by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lookers import learn_subwords

from transduce.config import Config, ModelConfig
from transduce.decoding.engine import TorchEngine
from transduce.decoding.translator import Translator
from transduce.model.layers import EncoderLayer
from transduce.model.saved import Loaded
from transduce.model.transformer import Transformer
from transduce.seeing.heads import measure_profiles
from transduce.seeing.kinds import Kind
from transduce.seeing.roles import Frequencies, Profile, Sides, Tally, is_punctuation, mask_cross, mask_self
from transduce.seeing.switching import Head

SOURCE = ["▁a", "b", "▁c", "▁a", "▁.", "▁d", "e", "▁f"]
TARGET = ["▁x", "▁c", "y", "▁a"]
RARE = Frequencies([SOURCE, ["▁a", "b", "▁c", "▁d", "e", "▁."]])  # f is the rarest


def profile_of(weights: np.ndarray, kind: Kind, sides: Sides | None = None) -> Profile:
    """Return the profile of one head's weights over one sentence."""
    tally = Tally(1)
    sides = sides or Sides(SOURCE, TARGET, [])
    masks = mask_cross(sides, RARE) if kind == "cross" else mask_self(SOURCE, RARE, kind)
    tally.add(weights[None], masks, causal=kind == "decoder")
    if kind == "cross":
        tally.add_alignment(weights[None], sides)
    return tally.profile(0)


def looks(*places: int, keys: int = 9) -> np.ndarray:
    """Return attention from query i to key places[i] alone."""
    return np.eye(keys)[list(places)]


@pytest.mark.parametrize(
    ("places", "role"),
    [
        ((0, 0, 1, 2, 3, 4, 5, 6, 7), "previous"),
        ((1, 2, 3, 4, 5, 6, 7, 8, 8), "next"),
        ((0, 1, 2, 3, 4, 5, 6, 7, 8), "same"),
        ((8,) * 9, "end"),
        ((4,) * 9, "stop"),
        ((7,) * 9, "rare"),
        ((8, 8, 7, 8, 0, 0, 0, 1, 2), "far"),
    ],
)
def test_a_head_that_does_one_thing_has_that_role(places: tuple[int, ...], role: str):
    found = profile_of(looks(*places), "encoder")
    assert found.role == role
    assert found.shares[role] == pytest.approx(1 if role != "far" else 8 / 9, abs=0.12)
    assert found.entropy == found.evenness == 0


def test_shares_by_hand():
    """Each query's place: a b | c | a | . | d e | f | end."""
    found = profile_of(looks(1, 0, 2, 0, 3, 6, 8, 7, 8), "encoder")
    assert found.shares == pytest.approx(
        {
            "previous": 2 / 8,  # b looks at a, the full stop at a: two of the eight that have a token before them
            "next": 2 / 8,
            "same": 3 / 9,
            "word": 3 / 4,  # a b, b a and d e; but e looks elsewhere
            "twin": 1 / 2,  # the second a looks at the first
            "end": 2 / 9,
            "stop": 0,
            "rare": 1 / 9,
            "far": 0,
        }
    )
    assert found.distance == pytest.approx((1 + 1 + 0 + 3 + 1 + 1 + 2 + 0 + 0) / 9)


def test_even_attention_is_chance():
    found = profile_of(np.full((9, 9), 1 / 9), "encoder")
    assert found.shares == pytest.approx(found.even)
    assert found.shares["previous"] == pytest.approx(1 / 9)
    assert found.shares["word"] == pytest.approx(1 / 9)
    assert found.evenness == pytest.approx(1)
    assert found.entropy == pytest.approx(np.log(9))
    assert found.role == "broad"


def test_a_decoder_looks_back_alone():
    even = np.tril(np.ones((9, 9))) / np.arange(1, 10)[:, None]
    found = profile_of(even, "decoder")
    assert found.shares == pytest.approx(found.even)
    assert "next" not in found.shares
    assert "end" not in found.shares
    assert found.shares["begin"] == pytest.approx(np.mean(1 / np.arange(1, 10)))
    assert found.shares["previous"] == pytest.approx(np.mean(1 / np.arange(2, 10)))
    assert found.evenness == pytest.approx(1)
    assert profile_of(looks(*[0] * 9), "decoder").role == "begin"
    # The beginning comes first: place 1 is the first subword, and 2 goes on its word.
    word = profile_of(looks(0, 1, 1, 3, 4, 5, 6, 6, 8), "decoder")
    assert word.shares["word"] == pytest.approx(1)


def test_attention_to_the_source_is_compared_with_links():
    """Words: a b, c, a, full stop, d e, f; x, c y, a."""
    sides = Sides(SOURCE, TARGET, [(0, 0), (1, 1), (4, 2), (5, 2)])
    weights = looks(0, 2, 2, 6, 8)
    found = profile_of(weights, "cross", sides)
    assert found.shares["aligned"] == 1  # the last word is linked with two, and one of them is enough
    assert found.shares["aligned_after"] == pytest.approx(1 / 3)  # c y: the step of y still looks at c
    assert found.even["aligned"] == pytest.approx(4 / 6 / 3)
    assert found.role == "aligned"
    assert found.shares["twin"] == pytest.approx(1 / 2)  # c looks at c, a looks at e; no other is in the source
    later = profile_of(np.vstack([weights[4], weights[:4]]), "cross", sides)
    assert (later.shares["aligned_after"], later.role) == (1, "aligned")
    assert "aligned" not in profile_of(weights, "cross").shares  # no links, nothing to agree with


def test_the_rarest_are_counted_over_the_set():
    assert RARE.rarest(["▁a", "▁f", "b"]).tolist() == [False, True, False]
    assert RARE.rarest(["b", "▁a", "b"]).tolist() == [True, False, True]
    assert RARE.rarest([]).tolist() == []


def test_punctuation():
    assert [is_punctuation(piece) for piece in ("▁.", "…", "▁?!", "。", "«")] == [True] * 5
    assert not any(is_punctuation(piece) for piece in ("▁", "a.", "", "▁1", "+"))


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([*SOURCE, "▁"]), max_size=9), st.booleans())
def test_shares_are_shares(seed: int, pieces: list[str], decoder: bool):
    many = len(pieces) + 1
    weights = np.random.default_rng(seed).dirichlet(np.full(many, 0.3), (2, many))
    if decoder:
        weights = np.tril(weights) + 1e-12 * np.tril(np.ones((many, many)))
        weights /= weights.sum(-1, keepdims=True)
    tally = Tally(2)
    kind = "decoder" if decoder else "encoder"
    tally.add(weights, mask_self(pieces, RARE, kind), causal=decoder)
    for head in range(2):
        found = tally.profile(head)
        for share in (*found.shares.values(), *found.even.values(), found.evenness):
            assert -1e-9 <= share <= 1 + 1e-9
        places = [found.shares.get(name, 0.0) for name in ("same", "end", "begin")]
        assert max(places) <= 1 + 1e-9
        assert 0 <= found.distance <= many
        assert found.entropy <= np.log(many) + 1e-9


def test_a_model_made_by_hand_is_seen_through():
    """Only positions are left of it; one head of an encoder layer attends to its own place, the others evenly."""
    subwords = learn_subwords()
    config = ModelConfig(vocabulary=len(subwords), layers=2, d_model=32, d_ff=4, heads=2, d_k=32)
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float(name.endswith("norm.weight")))
        looking = model.encoder[1]
        assert isinstance(looking, EncoderLayer)
        queries, keys = looking.self_attention.projection[:64], looking.self_attention.projection[64:128]
        queries[32:] = keys[32:] = 8 * torch.eye(32)  # the second head
    loaded = Loaded(folder=None, config=Config(model=config), model=model, subwords={}, about={})  # pyright: ignore[reportArgumentType]
    loaded.subwords.update(source=subwords, target=subwords)
    translator = Translator([loaded], TorchEngine(model))
    texts = ["two euros and nine dollars", "the third of May", "one"]
    pairs = [(translator.tokens(text, "source"), translator.tokens(text, "target")) for text in texts]
    found = measure_profiles(translator, pairs, translator.align(pairs))
    assert found[Head("encoder", 1, 1)].role == "same"
    assert found[Head("encoder", 1, 1)].shares["same"] > 0.9
    for head, profile in found.items():
        if head != Head("encoder", 1, 1):
            assert profile.evenness == pytest.approx(1, abs=1e-5), head
            for name, share in profile.shares.items():
                if not name.startswith("aligned"):
                    assert share == pytest.approx(profile.even[name], abs=1e-5)
