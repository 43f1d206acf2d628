"""Greedy search says what the model finds most probable, sentence by sentence, and knows when to end."""

import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentences import KINDS, make_model, make_row, random_sentences
from sentences import one_thread as one_thread
from torch.nn import LayerNorm

from transduce.decoding import search
from transduce.decoding.cache import Cache
from transduce.decoding.search import greedy, greedy_all
from transduce.errors import DataError
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

MODELS = {name: make_model(**changes) for name, changes in KINDS.items()}
LENGTHS = [4, 9, 1, 2, 9, 6, 3, 1, 12]
many = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@torch.no_grad()
def plain_greedy(model: Transformer, source: list[int], longest: int) -> list[int]:
    """One sentence by the definition: the whole model again for every token, without a cache."""
    said: list[int] = []
    while len(said) < longest:
        logits = model(*make_row([source]), *make_row([[BEGIN, *said]]))[-1]
        logits[[PAD, BEGIN]] = -torch.inf
        said.append(int(logits.argmax()))
        if said[-1] == END:
            return said[:-1]
    return said


def sources_for(model: Transformer, lengths: list[int], seed: int = 0) -> list[list[int]]:
    return random_sentences(lengths, model.config.source_vocabulary or model.config.vocabulary, seed)


def as_lists(outputs: list[np.ndarray]) -> list[list[int]]:
    return [output.tolist() for output in outputs]


@pytest.mark.parametrize("name", list(MODELS))
def test_greedy_is_the_definition(name: str):
    model = MODELS[name]
    sources = sources_for(model, LENGTHS)
    limits = [6, 3, 8, 1, 2, 7, 4, 5, 3]
    found = as_lists(greedy(model, *make_row(sources), torch.tensor(limits)))
    assert found == [plain_greedy(model, source, limit) for source, limit in zip(sources, limits)]


def test_some_translations_end_themselves_and_some_are_cut():
    """Else the comparisons here would show less than they seem to."""
    found = [
        (len(output), length + 5)
        for model in MODELS.values()
        for output, length in zip(greedy_all(model, sources_for(model, LENGTHS), 5), LENGTHS)
    ]
    assert 5 < sum(length < limit for length, limit in found) < len(found) - 5
    assert len({length for length, _ in found}) > 5


@given(
    name=st.sampled_from(list(MODELS)),
    lengths=st.lists(st.integers(1, 8), max_size=6),
    extra=st.integers(0, 4),
    tokens=st.sampled_from([1, 40, 1 << 15]),
    seed=st.integers(0, 99),
)
@many
def test_many_sentences_are_as_each_alone_in_their_order(
    monkeypatch: pytest.MonkeyPatch, name: str, lengths: list[int], extra: int, tokens: int, seed: int
):
    model = MODELS[name]
    sources = sources_for(model, lengths, seed)
    monkeypatch.setattr(search, "BATCH_TOKENS", tokens)
    found = as_lists(greedy_all(model, sources, extra))
    assert found == [plain_greedy(model, source, len(source) + extra) for source in sources]


def test_sentences_may_be_arrays_of_any_width():
    model = MODELS["paper"]
    sources = sources_for(model, LENGTHS)
    expected = as_lists(greedy_all(model, sources, 3))
    for dtype in (np.uint16, np.int32, np.int64):
        outputs = greedy_all(model, [np.array(source, dtype) for source in sources], 3)
        assert as_lists(outputs) == expected


def test_nothing_is_translated_into_nothing():
    assert greedy_all(MODELS["paper"], [], 50) == []


def test_the_memory_for_short_sentences_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Each may become `extra` tokens longer, so sentences of one token cost more than their own length."""
    sizes: list[int] = []

    def watch(model: Transformer, source: torch.Tensor, offsets: torch.Tensor, longest: torch.Tensor):
        sizes.append(len(longest) * (int(offsets.diff().max()) + int(longest.max())))
        return greedy(model, source, offsets, longest)

    monkeypatch.setattr(search, "greedy", watch)
    monkeypatch.setattr(search, "BATCH_TOKENS", 300)
    greedy_all(MODELS["paper"], sources_for(MODELS["paper"], [1] * 20 + [3] * 20 + [200]), 10)
    assert max(sizes[1:]) <= 300 < sizes[0]  # one that is longer than all memory is tried alone
    assert len(sizes) < 10


@torch.no_grad()
def test_a_translation_ends_at_its_end():
    model = make_model(tie="none", norm="pre")
    assert isinstance(model.decoder_norm, LayerNorm)
    model.decoder_norm.weight.zero_()
    model.decoder_norm.bias.fill_(1.0)  # the same state always, whatever was read
    model.output.weight.zero_()
    model.output.weight[7] = 1.0
    sources = sources_for(model, LENGTHS)
    assert as_lists(greedy_all(model, sources, 2)) == [[7] * (length + 2) for length in LENGTHS]
    model.output.weight[END] = 2.0
    assert as_lists(greedy_all(model, sources, 2)) == [[]] * len(LENGTHS)


def test_what_has_ended_costs_nothing_more(monkeypatch: pytest.MonkeyPatch):
    model = MODELS["rotary, pre-norm, untied"]
    taken: list[int] = []
    advance = Cache.advance

    def count(cache: Cache, tokens: torch.Tensor) -> torch.Tensor:
        taken.append(len(tokens))
        return advance(cache, tokens)

    monkeypatch.setattr(Cache, "advance", count)
    outputs = greedy_all(model, sources_for(model, LENGTHS), 5)
    said = [min(len(output) + 1, length + 5) for output, length in zip(outputs, LENGTHS)]  # with the end, if it came
    assert sum(taken) == sum(said)
    assert len(set(taken)) > 2


@torch.no_grad()
def test_padding_and_the_beginning_are_never_said():
    model = make_model(tie="none")
    strong = 100 * torch.randn(12, dtype=torch.float64)
    model.output.weight[PAD], model.output.weight[BEGIN] = strong, -strong  # one of them is always the most probable
    sources = sources_for(model, LENGTHS)
    outputs = greedy_all(model, sources, 5)
    assert not {PAD, BEGIN} & set(np.concatenate(outputs).tolist())
    assert as_lists(outputs) == [plain_greedy(model, source, len(source) + 5) for source in sources]


def test_learned_positions_end_a_translation_where_they_end():
    model = make_model(positions="learned", max_positions=8, seed=3)
    sources = sources_for(model, [8, 5, 1, 8])
    outputs = greedy_all(model, sources, 6)
    assert as_lists(outputs) == [plain_greedy(model, source, min(8, len(source) + 6)) for source in sources]
    assert max(map(len, outputs)) == 8


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([8, 9], "sentence 2 has 9 tokens, and the model has learned positions for 8 (model.max_positions); split"),
        ([3, 12, 8, 9, 70], "sentence 2 has 12 tokens (and 2 more like it), and the model has learned positions for"),
    ],
)
def test_a_source_longer_than_learned_positions_is_refused(lengths: list[int], message: str):
    model = make_model(positions="learned", max_positions=8)
    with pytest.raises(DataError, match=re.escape(message)):
        greedy_all(model, sources_for(model, lengths), 6)
    other = make_model(positions="rotary", d_k=4, max_positions=8)  # knows no such limit
    assert len(greedy_all(other, sources_for(other, lengths), 0)) == len(lengths)
