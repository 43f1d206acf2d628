"""Word alignments: from the attention of the step that reads a word, for words as a reader counts them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentences import KINDS, make_model, make_row, random_sentences
from threads import always_one_thread as always_one_thread

from transduce.config import ModelConfig
from transduce.decoding import alignment
from transduce.decoding.alignment import Place, align_words, attention_shares, match_unknown, number_words
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.model.attention import Weights
from transduce.model.layers import DecoderLayer
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, SPACE, Subwords


def as_tokens(sentences: list[list[int]]) -> list[np.ndarray]:
    return [np.array(sentence, np.int32) for sentence in sentences]


# Kinds of model with the layer and the steps after a word was said: the last of few layers, or the third of six.
PLACES: list[tuple[dict[str, Any], int, int]] = [
    (KINDS["paper"], 1, 0),
    (KINDS["rotary, additive, d_k"], 0, 0),
    (KINDS["unscaled, d_k, d_v"] | {"decoder_layers": 6}, 2, 1),
    ({"decoder_layers": 4}, 1, 1),
    ({"decoder_layers": 3}, 2, 0),
]


@pytest.mark.parametrize(("changes", "layer", "after"), PLACES)
def test_shares_are_the_attention_of_one_layer(
    changes: dict[str, Any], layer: int, after: int, monkeypatch: pytest.MonkeyPatch
):
    """Each pair by itself, by the definition; and cut into batches of any size."""
    model = make_model(**changes)
    pairs = list(zip(as_tokens(random_sentences([3, 9, 1, 5])), as_tokens(random_sentences([4, 1, 7, 2], seed=1))))
    expected: list[np.ndarray] = []
    with torch.inference_mode():
        for source, target in pairs:
            seen: list[Weights] = []
            row, offsets = make_row([source.tolist()])
            memory = model.encode(row, offsets)
            model.decode(*make_row([[BEGIN, *target.tolist()]]), memory, offsets, cross_weights=seen)
            steps = seen[layer][0].mean(0).numpy()
            expected.append(steps[1:] if after else steps[:-1])
    for tokens in (1, 9, 1 << 13):
        monkeypatch.setattr(alignment, "TOKENS", tokens)
        found = attention_shares(model, pairs)
        for share, wanted, (source, target) in zip(found, expected, pairs):
            assert share.shape == (len(target), len(source))
            np.testing.assert_allclose(share, wanted, atol=1e-6)
            np.testing.assert_allclose(share.sum(1), 1, atol=1e-5)
    assert attention_shares(model, []) == []


@pytest.mark.parametrize(("layers", "layer", "after"), [(1, 0, 0), (2, 1, 0), (6, 2, 1)])
def test_a_model_that_looks_at_its_own_place_is_aligned_by_that(layers: int, layer: int, after: int):
    """Weights made by hand: in one layer each position attends to the same one of the source, in others anywhere.

    In deep decoders a word is read one step after it is generated, so word i attends to place i + 1.
    """
    model = Transformer(ModelConfig(vocabulary=20, layers=layers, d_model=32, d_ff=4, heads=1)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float(name.endswith("norm.weight")))  # so that nothing is left but positions
        looking = model.decoder[layer]
        assert isinstance(looking, DecoderLayer)
        looking.cross_attention.projection[:64] = 8 * torch.eye(32).repeat(2, 1)
    source, target = as_tokens(random_sentences([7, 6], vocabulary=20))
    (share,) = attention_shares(model, [(source, target)])
    assert share.argmax(1).tolist() == [place + after for place in range(6)]
    words = [f"{SPACE}{number}" for number in range(6)]
    assert align_words(share, words, words[:5]) == [(place + after, place) for place in range(5)]


class Copier:
    """A model made by hand that repeats its source, each token a word; one head shows the source position, as told."""

    def __init__(self, place: Place):
        self.place = place
        self.config = ModelConfig(vocabulary=300, layers=3, d_model=8, d_ff=8, heads=2)
        self.decoder, self.device = [None] * 3, torch.device("cpu")

    def encode(self, source: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return source

    def decode(
        self,
        row: torch.Tensor,
        offsets: torch.Tensor,
        memory: torch.Tensor,
        source_offsets: torch.Tensor,
        cross_weights: Any = None,
    ) -> torch.Tensor:
        """Return logits in which a word is probable if it is in the source."""
        if cross_weights is not None:
            cross_weights += [[] for _ in self.decoder]
            for steps, keys in zip(offsets.diff().tolist(), source_offsets.diff().tolist()):
                for layer in cross_weights:
                    layer.append(torch.full((2, steps, keys), 1 / keys))
                for step in range(min(steps - self.place.after, keys)):
                    cross_weights[self.place.layer][-1][self.place.head, step + self.place.after] = torch.eye(keys)[
                        step
                    ]
        logits = torch.zeros(len(row), 300)
        for place, there in enumerate(memory.long().split(source_offsets.diff().tolist())):
            logits[offsets[place] : offsets[place + 1], there] = 8.0
        return logits

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return states


class Words(Subwords):
    """Subwords that are all whole words."""

    def __init__(self):
        self.ends = True

    def pieces(self, tokens: Any) -> list[str]:
        return [f"{SPACE}{token}" for token in tokens]


@pytest.mark.parametrize("place", [Place(0, 0, 1), Place(1, 1, 0), Place(1, 0, 1), Place(2, 1, 1)])
def test_places_are_found_by_what_the_model_needs(place: Place):
    model: Any = Copier(place)
    random = np.random.default_rng(1)
    pairs = [(sentence, sentence) for sentence in (np.append(random.permutation(200)[:9] + 20, END) for _ in range(30))]
    both: Any = {"source": Words(), "target": Words()}
    assert alignment.find_places(model, pairs, both) == [place]
    assert alignment.find_places(model, pairs[:5], both) == []  # of 45 words nothing is concluded
    assert alignment.find_places(model, [(np.tile(source, 6), target) for source, target in pairs], both) == []
    assert alignment.find_places(model, [(np.array([END]), target) for _, target in pairs], both) == []


def test_places_are_written_and_read():
    model = make_model(decoder_layers=2)
    places = [Place(1, 0, 1), Place(0, 1, 0)]
    about = {"alignment": alignment.write_places(places)}
    assert about["alignment"] == [{"layer": 2, "head": 1, "after": 1}, {"layer": 1, "head": 2, "after": 0}]
    assert alignment.read_places(about, model) == places
    assert alignment.read_places({}, model) == alignment.usual_places(model)
    for wrong in (
        [{"layer": 9, "head": 1, "after": 0}],
        [{"layer": 1, "head": 0, "after": 0}],
        [{"layer": 1}],
        [3],
        [{"layer": 1, "head": 1, "after": 2}],
        [{"layer": 1, "head": 1, "after": None}],
    ):
        with pytest.raises(DataError, match="names heads that it does not have"):
            alignment.read_places({"alignment": wrong}, model)


def test_shares_of_some_heads_are_their_mean():
    model = make_model(decoder_layers=2)
    pairs = list(zip(as_tokens(random_sentences([5])), as_tokens(random_sentences([4], seed=1))))
    first, second = (attention_shares(model, pairs, [place])[0] for place in (Place(0, 1, 0), Place(1, 0, 1)))
    (found,) = attention_shares(model, pairs, [Place(0, 1, 0), Place(1, 0, 1)])
    np.testing.assert_allclose(found, (first + second) / 2, atol=1e-6)
    assert abs(first - second).max() > 1e-3


def test_links_by_hand():
    shares = np.array([[0.5, 0.3, 0.1, 0.1], [0.2, 0.1, 0.6, 0.1], [0.1, 0.4, 0.4, 0.1], [0.0, 0.0, 0.0, 1.0]])
    # Source: "ab c" and its end; target: "x yz" and its end. The first word's two pieces outweigh the other one's.
    assert align_words(shares, ["▁a", "b", "▁c"], ["▁x", "▁y", "z"]) == [(0, 0), (1, 1)]
    assert align_words(shares, ["▁a", "▁b", "▁c"], ["▁x", "y", "z"]) == [(2, 0)]
    assert align_words(shares[[2, 1, 0, 3]], ["▁a", "▁b", "▁c"], ["▁x", "▁y", "▁z"]) == [(0, 2), (1, 0), (2, 1)]
    # All that a word's pieces get counts, not the most that one of them gets.
    assert align_words(np.array([[0.3, 0.3, 0.4, 0.0]]), ["▁a", "b", "▁c"], ["▁x"]) == [(0, 0)]


def test_what_is_empty_has_no_links():
    assert align_words(np.ones((1, 3)), ["▁a", "b"], []) == []
    assert align_words(np.ones((3, 1)), [], ["▁a", "b"]) == []
    assert align_words(np.ones((1, 1)), [], []) == []


def test_words_are_counted_as_a_reader_does():
    assert number_words(["▁a", "b", "▁c"]).tolist() == [0, 0, 1]
    assert number_words(["a", "▁b"]).tolist() == [0, 1]
    assert number_words(["▁", "a", "▁", "▁b", "▁", "c", "▁"]).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert number_words(["▁<0xF0>", "<0x9F>", "▁x"]).tolist() == [0, 0, 1]
    assert number_words(["▁▁a", "b▁", "c"]).tolist() == [0, 0, 1]
    assert number_words([]).tolist() == []


@given(st.lists(st.sampled_from([SPACE, "▁a", "b", "▁▁", "c▁", "<0x41>"]), max_size=12))
def test_there_are_as_many_words_as_in_the_text(pieces: list[str]):
    found = number_words(pieces)
    words = "".join(pieces).replace(SPACE, " ").split()
    assert len(found) == len(pieces)
    assert (np.diff(found) >= 0).all()
    assert set(found.tolist()) == set(range(max(1, len(words)))) if pieces else True
    for number, word in enumerate(words):
        own = "".join(piece for piece, place in zip(pieces, found) if place == number)
        assert word in own.replace(SPACE, " ") or SPACE in "".join(pieces)


@pytest.mark.parametrize(
    "text", ["two euros and nine dollars", "one", "日本語 🙂 x", "a\u2581b", "the  third\tof\u00a0May"]
)
@pytest.mark.parametrize("max_tokens", [1, 9])
def test_links_of_translations_are_in_range(translator: Translator, text: str, max_tokens: int):
    found = translator.translate(text, alignments=True, beam=6, n_best=4, max_tokens=max_tokens)
    (sentence,) = found.sentences
    pieces = translator.subwords["source"].pieces(translator.subwords["source"].encode(sentence.source))
    for one in sentence.alternatives:
        assert one.alignment is not None
        words = 1 + max(number_words(one.tokens), default=-1)
        assert sorted(target for _, target in one.alignment) == list(range(words))  # one link for each
        assert one.alignment == sorted(one.alignment)
        assert all(0 <= place < len(sentence.source.split()) for place, _ in one.alignment)
    assert len(set(number_words(pieces).tolist())) == len(sentence.source.split())
    # They are those of the model's attention to this translation.
    best = sentence.alternatives[0]
    tokens = [translator.subwords["target"].processor.piece_to_id(piece) for piece in best.tokens]
    pair = (translator.tokens(sentence.source, "source"), np.array([*tokens, END]))
    (share,) = attention_shares(translator.loaded[0].model, [pair])
    assert best.alignment == align_words(share, pieces, best.tokens)


@pytest.mark.parametrize(
    ("looks", "matched"),
    [
        ([[0.1, 0.6], [0.5, 0.2]], [1, 0]),
        ([[0.6, 0.1], [0.5, 0.2]], [0, 1]),  # the one with more attention to it gets the first
        ([[0.5, 0.2], [0.6, 0.1]], [1, 0]),
        ([[0.5, 0.2], [0.6, 0.1], [0.4, 0.3]], [0, 0, 1]),  # each is taken once before any is taken twice
        ([[0.5], [0.6]], [0, 0]),
    ],
)
def test_unknown_tokens_come_from_those_they_look_at(looks: list[list[float]], matched: list[int]):
    source = np.array([9, *[1] * len(looks[0]), 3])
    target = np.array([*[1] * len(looks), 7, 3])
    shares = np.full((len(target), len(source)), 0.9)
    shares[: len(looks), 1:-1] = looks
    assert match_unknown(shares, source, target) == matched
