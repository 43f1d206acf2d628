"""Searching for many sentences: each as if alone and by the definition, within its limits, whatever the neighbours."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentences import KINDS, make_model, random_sentences
from threads import always_one_thread as always_one_thread
from torch.nn import LayerNorm
from toys import (
    Toy,
    assert_alike,
    assert_same,
    every_translation,
    log_probability,
    plain_beam,
    plain_greedy,
    teller,
    words,
)

from transduce.config import SearchConfig
from transduce.decoding.engine import TorchEngine, TorchLines
from transduce.decoding.search import Task, greedy_all, search, search_all
from transduce.errors import ConfigError, DataError
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

MODELS = {name: make_model(**changes) for name, changes in KINDS.items()}
LENGTHS = [4, 9, 1, 2, 9, 6, 3, 1, 12]
GREEDY = SearchConfig(beam=1, extra_tokens=5)
each_kind = pytest.mark.parametrize("name", list(MODELS))


def sources_for(model: Transformer, lengths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    vocabulary = model.config.source_vocabulary or model.config.vocabulary
    return [np.array(source, np.int32) for source in random_sentences(lengths, vocabulary, seed)]


def tasks_for(model: Transformer, lengths: Sequence[int], seed: int = 0) -> list[Task]:
    return [Task(source) for source in sources_for(model, lengths, seed)]


def as_lists(outputs: Sequence[np.ndarray]) -> list[list[int]]:
    return [output.tolist() for output in outputs]


def by_definition(model: Transformer, sources: Sequence[np.ndarray], limits: Sequence[int]) -> list[list[int]]:
    return [plain_greedy(teller(model, source.tolist()), limit)[0] for source, limit in zip(sources, limits)]


# By definition


@each_kind
def test_a_beam_of_one_is_greedy_search(name: str):
    model = MODELS[name]
    tasks = tasks_for(model, LENGTHS[:5])
    found = search_all(TorchEngine(model), tasks, GREEDY)
    for task, (hypothesis,) in zip(tasks, found):
        tokens, total, ended = plain_greedy(teller(model, task.source.tolist()), len(task.source) + 5)
        assert (hypothesis.tokens.tolist(), hypothesis.ended) == (tokens, ended)
        assert hypothesis.log_probability == pytest.approx(total, rel=1e-5)
    outputs = greedy_all(TorchEngine(model), tasks, replace(GREEDY, beam=4, n_best=2))
    assert as_lists(outputs) == [hypothesis.tokens.tolist() for (hypothesis,) in found]


def test_some_translations_end_themselves_and_some_are_cut():
    """Otherwise the comparisons here would show less than they seem to."""
    for config in (GREEDY, SearchConfig(beam=3, extra_tokens=5)):
        found = [
            hypothesis
            for model in list(MODELS.values())[::2]
            for (hypothesis,) in search_all(TorchEngine(model), tasks_for(model, LENGTHS), config)
        ]
        assert sum(not hypothesis.ended for hypothesis in found) > 3
        assert sum(hypothesis.ended and hypothesis.tokens.size for hypothesis in found) > 3
        assert len({len(hypothesis.tokens) for hypothesis in found}) > 5


@each_kind
def test_a_beam_is_the_plain_search(name: str):
    model = MODELS[name]
    tasks = tasks_for(model, [4, 1, 6])
    config = SearchConfig(beam=3, n_best=3, extra_tokens=3)
    for task, hypotheses in zip(tasks, search_all(TorchEngine(model), tasks, config)):
        tell = teller(model, task.source.tolist())
        limit = len(task.source) + 3
        assert_same(hypotheses, plain_beam(tell, beam=3, alpha=0.6, limit=limit, n_best=3)[0])
        for hypothesis in hypotheses:
            np.testing.assert_allclose(hypothesis.token_scores, log_probability(tell, hypothesis), 1e-4, 1e-5)


def test_a_beam_as_wide_as_the_tree_finds_the_true_best():
    model = make_model(vocabulary=6, tie="none", seed=5)
    with torch.no_grad():
        model.output.weight.mul_(3)
    source = np.array([4, 5, 5, 1, END])
    for alpha in (0.0, 0.6, 2.0):
        config = SearchConfig(beam=9 * 4, n_best=5, alpha=alpha, max_tokens=3)
        (found,) = search_all(TorchEngine(model), [Task(source)], config)
        assert_same(found, every_translation(teller(model, source.tolist()), words(6), alpha, 3)[:5])


def test_forced_decoding_gives_the_probability_of_a_translation():
    """A prefix with an end is the whole translation, whatever the model's own output."""
    model = MODELS["paper"]
    sources, targets = sources_for(model, LENGTHS), random_sentences([3, 1, 8, 2, 5, 5, 4, 7, 2], seed=4)
    tasks = [Task(source, prefix=target) for source, target in zip(sources, targets)]
    for beam in (1, 3):
        config = SearchConfig(beam=beam, n_best=beam, alpha=0.0, min_tokens=20, no_repeat=1)
        for task, hypotheses in zip(tasks, search_all(TorchEngine(model), tasks, config)):
            (hypothesis,) = hypotheses
            assert hypothesis.ended
            assert [*hypothesis.tokens.tolist(), END] == list(task.prefix)
            expected = log_probability(teller(model, task.source.tolist()), hypothesis)
            np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)


# Neighbours, order and memory


@given(
    name=st.sampled_from(list(MODELS)),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=9),
    beam=st.integers(1, 3),
    rows=st.sampled_from([1, 3, 7, 256]),
    tokens=st.sampled_from([1, 100, 1 << 15]),
    sample=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_many_sentences_are_as_each_alone(
    name: str, lengths: list[int], beam: int, rows: int, tokens: int, sample: bool, seed: int, data: st.DataObject
):
    model = MODELS[name]
    tasks = tasks_for(model, lengths, seed)
    config = SearchConfig(beam=beam, n_best=beam, extra_tokens=3, sample=sample, sample_seed=seed)
    alone = [search_all(TorchEngine(model), [task], config)[0] for task in tasks]
    order = data.draw(st.permutations(range(len(tasks))))
    engine = TorchEngine(model)
    engine.rows, engine.tokens = rows, tokens
    found = search_all(engine, [tasks[number] for number in order], config)
    for number, hypotheses in zip(order, found):
        assert_alike(hypotheses, alone[number])


@st.composite
def any_task(draw: st.DrawFn) -> Task:
    """Draw a sentence, with anything that may be asked of its translation."""
    word = st.sampled_from(words(9))
    some = st.lists(word, min_size=1, max_size=3)
    return Task(
        np.array([*draw(st.lists(word, max_size=7)), END]),
        prefix=draw(st.one_of(st.just([]), some)),
        phrases=draw(st.one_of(st.just([]), st.lists(some, min_size=1, max_size=2))),
        forbidden=draw(st.lists(st.sampled_from(["a", "b c", "de", "x"]), max_size=2)),
        max_tokens=draw(st.one_of(st.none(), st.integers(1, 9))),
    )


PIECES = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "a", "▁b", "▁c", "de"]


@given(
    tasks=st.lists(any_task(), min_size=1, max_size=9),
    beam=st.integers(1, 4),
    rows=st.integers(1, 16),
    min_tokens=st.sampled_from([0, 3]),
    no_repeat=st.sampled_from([None, 2]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    seed=st.integers(0, 999),
    data=st.data(),
)
@settings(max_examples=25, deadline=None)
def test_whatever_is_asked_of_the_others(tasks: list[Task], beam: int, rows: int, seed: int, data: Any, **rules: Any):
    config = SearchConfig(beam=beam, n_best=beam, extra_tokens=6, **rules)
    toy = Toy(9, seed=seed)
    alone = [search_all(toy, [task], config, PIECES)[0] for task in tasks]
    order = data.draw(st.permutations(range(len(tasks))))
    toy.rows = rows
    found = search_all(toy, [tasks[number] for number in order], config, PIECES)
    for number, hypotheses in zip(order, found):
        assert hypotheses
        assert_alike(hypotheses, alone[number])


def test_sentences_leave_when_they_are_done_and_others_join():
    toy = Toy(20, rows=16, loves=lambda said: {END: 2.0 if len(said) > sum(said[:1]) else -9.0})
    tasks = [Task(np.array([4] * 3 + [5 + number % 15, END])) for number in range(120)]
    numbers = [number for number, _ in search(toy, tasks, SearchConfig(beam=2))]
    assert numbers != sorted(numbers) == list(range(120))  # they come as they are found
    (lines,) = toy.opened
    assert lines.slots == 8
    assert lines.closed
    # All slots are taken at first; later, sentences join in groups, as many as have left.
    assert lines.admitted[0] == 8
    assert set(lines.admitted[1:-1]) <= {2, 3, 4, 5, 6, 7, 8}
    assert 2 in lines.admitted
    assert sum(lines.admitted) == 120
    # Few slots are empty, except at the last sentences.
    assert np.mean(lines.advanced) > 0.85 * 8
    assert lines.advanced[-1] < 8


def test_the_longest_come_first_and_the_much_shorter_have_rooms_of_their_own():
    toy = Toy(20)
    lengths = [3, 40, 21, 10, 1, 1, 20, 19, 4]
    tasks = [Task(np.array([4] * (length - 1) + [END])) for length in lengths]
    config = SearchConfig(beam=2, extra_tokens=2)
    list(search(toy, tasks, config))
    assert [(lines.source, lines.slots, lines.target) for lines in toy.opened] == [
        (40, 3, 42),
        (19, 2, 21),
        (4, 2, 6),
        (1, 2, 3),
    ]
    toy.opened.clear()
    phrase = [replace(task, phrases=[[5]]) for task in tasks[:2]]
    list(search(toy, [*phrase, *tasks[2:3]], config))
    assert [lines.source for lines in toy.opened] == [21, 40, 3]  # those with phrases by themselves
    assert all(lines.closed for lines in toy.opened)


@pytest.mark.parametrize("beam", [1, 3])
def test_memory_is_bounded(beam: int):
    toy = Toy(20)
    config = SearchConfig(beam=beam, extra_tokens=3)
    lengths = [1] * 20 + [3] * 20 + [60]
    tasks = [Task(np.array([4] * (length - 1) + [END])) for length in lengths]
    for rows, tokens in ((256, 100), (30, 1 << 15), (1, 1)):
        toy.rows, toy.tokens = rows, tokens
        toy.opened.clear()
        list(search(toy, tasks, config))
        for lines in toy.opened:
            assert lines.beam == beam
            taken = lines.slots * (lines.source + beam * lines.target)
            if lines.slots > 1:
                assert taken <= tokens
                assert lines.slots * beam <= rows
            # And another slot would not fit.
            next_taken = (lines.slots + 1) * (lines.source + beam * lines.target)
            assert next_taken > tokens or (lines.slots + 1) * beam > rows or lines.slots in (20, 1)
        assert toy.opened[0].slots == 1  # one that is longer than all memory is tried alone


def test_a_search_left_early_gives_its_memory_back():
    toy = Toy(20, rows=4)
    tasks = [Task(np.array([4] * many + [END])) for many in range(9)]
    found = search(toy, tasks, SearchConfig(beam=2))
    next(found)
    found.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert [lines.closed for lines in toy.opened] == [True]


def test_what_has_ended_costs_nothing_more(monkeypatch: pytest.MonkeyPatch):
    model = MODELS["rotary, pre-norm, untied"]
    taken: list[int] = []
    advance = TorchLines.advance

    def count(lines: TorchLines, slots: Any, tokens: Any, parents: Any) -> torch.Tensor:
        taken.append(len(slots))
        return advance(lines, slots, tokens, parents)

    monkeypatch.setattr(TorchLines, "advance", count)
    found = search_all(TorchEngine(model), tasks_for(model, LENGTHS), GREEDY)
    assert sum(taken) == sum(len(hypothesis.token_scores) for (hypothesis,) in found)
    assert len(set(taken)) > 2


def test_a_search_leaves_the_model_as_it_was():
    model = make_model()
    expected = search_all(TorchEngine(model), tasks_for(model, LENGTHS), GREEDY)
    for _ in search(TorchEngine(model), tasks_for(model, LENGTHS), GREEDY):
        assert not torch.is_inference_mode_enabled()  # what is done between two translations is not part of it
    (model.embedding.weight.sum() * 2).backward()
    for one, other in zip(search_all(TorchEngine(model), tasks_for(model, LENGTHS), GREEDY), expected):
        assert_alike(one, other)


def test_sentences_may_be_arrays_of_any_width():
    model = MODELS["paper"]
    sources = sources_for(model, LENGTHS)
    expected = as_lists(greedy_all(TorchEngine(model), [Task(source) for source in sources], GREEDY))
    for dtype in (np.uint16, np.int32, np.int64):
        outputs = greedy_all(TorchEngine(model), [Task(np.array(source, dtype)) for source in sources], GREEDY)
        assert as_lists(outputs) == expected


def test_nothing_is_translated_into_nothing():
    assert search_all(TorchEngine(MODELS["paper"]), [], SearchConfig()) == []
    assert greedy_all(TorchEngine(MODELS["paper"]), [], SearchConfig()) == []
    assert list(search(TorchEngine(MODELS["paper"]), [], SearchConfig(sample=True))) == []


def test_an_empty_sentence_is_an_end():
    model = MODELS["paper"]
    (found,) = search_all(TorchEngine(model), [Task(np.array([END]))], SearchConfig(beam=3, n_best=3, extra_tokens=4))
    assert_same(found, plain_beam(teller(model, [END]), beam=3, alpha=0.6, limit=5, n_best=3)[0])


# Lengths


def ends_never(said: Sequence[int]) -> dict[int, float]:
    return {END: -99.0}


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("changes", "own", "limits"),
    [
        ({}, None, [51, 55, 53]),
        ({"extra_tokens": 0}, None, [1, 5, 3]),
        ({"extra_tokens": 2}, None, [3, 7, 5]),
        ({"max_tokens": 4, "extra_tokens": 2}, None, [3, 4, 4]),
        ({"extra_tokens": 2}, 6, [3, 6, 5]),
        ({"max_tokens": 4}, 2, [2, 2, 2]),
        ({"max_tokens": 2}, 4, [2, 2, 2]),
        ({"extra_tokens": 0}, 0, [1, 1, 1]),
    ],
    ids=str,
)
def test_translations_are_at_most_so_long(changes: dict[str, Any], own: int | None, limits: list[int], beam: int):
    """The source's length plus 50, as in the paper, unless set otherwise; the end counts as a token."""
    tasks = [Task(np.array([4] * (length - 1) + [END]), max_tokens=own) for length in (1, 5, 3)]
    found = search_all(Toy(8, loves=ends_never), tasks, SearchConfig(beam=beam, **changes))
    assert [len(hypothesis.tokens) for (hypothesis,) in found] == limits
    assert not any(hypothesis.ended for (hypothesis,) in found)
    # A translation that ends at its limit is not cut; the end takes the place of a token.
    toy = Toy(8, loves=lambda said: {END: 99.0 if len(said) == limits[0] - 1 else -99.0})
    ((hypothesis,),) = search_all(toy, tasks[:1], SearchConfig(beam=beam, **changes))
    assert (len(hypothesis.tokens), hypothesis.ended) == (limits[0] - 1, True)


@torch.no_grad()
def test_a_translation_ends_at_its_end():
    model = make_model(tie="none", norm="pre")
    assert isinstance(model.decoder_norm, LayerNorm)
    model.decoder_norm.weight.zero_()
    model.decoder_norm.bias.fill_(1.0)  # the same state always, whatever was read
    model.output.weight.zero_()
    model.output.weight[7] = 1.0
    sources = sources_for(model, LENGTHS)
    config = SearchConfig(extra_tokens=2)
    assert as_lists(greedy_all(TorchEngine(model), [Task(source) for source in sources], config)) == [
        [7] * (length + 2) for length in LENGTHS
    ]
    model.output.weight[END] = 2.0
    assert as_lists(greedy_all(TorchEngine(model), [Task(source) for source in sources], config)) == [[]] * len(LENGTHS)


@torch.no_grad()
def test_padding_and_the_beginning_are_never_said():
    model = make_model(tie="none")
    strong = 100 * torch.randn(12, dtype=torch.float64)
    model.output.weight[PAD], model.output.weight[BEGIN] = strong, -strong  # one of them is always the most probable
    sources = sources_for(model, LENGTHS)
    outputs = greedy_all(TorchEngine(model), [Task(source) for source in sources], GREEDY)
    assert as_lists(outputs) == by_definition(model, sources, [length + 5 for length in LENGTHS])
    for config in (SearchConfig(beam=4, n_best=4, extra_tokens=4), SearchConfig(sample=True, n_best=4, extra_tokens=4)):
        for hypotheses in search_all(TorchEngine(model), [Task(source) for source in sources], config):
            assert len(hypotheses) == 4
            assert not {PAD, BEGIN, END} & {token for found in hypotheses for token in found.tokens.tolist()}


def test_learned_positions_end_a_translation_where_they_end():
    model = make_model(positions="learned", max_positions=8, seed=3)
    sources = sources_for(model, [8, 5, 1, 8])
    outputs = greedy_all(TorchEngine(model), [Task(source) for source in sources], replace(GREEDY, extra_tokens=6))
    assert as_lists(outputs) == by_definition(model, sources, [min(8, len(source) + 6) for source in sources])
    assert max(map(len, outputs)) == 8


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (
            [8, 9],
            "sentence 2 has 9 tokens, but the model has learned positions for only 8 (model.max_positions); split",
        ),
        (
            [3, 12, 8, 9, 70],
            "sentence 2 has 12 tokens (and 2 more like it), but the model has learned positions for only",
        ),
    ],
)
def test_a_source_longer_than_learned_positions_is_refused(lengths: list[int], message: str):
    model = make_model(positions="learned", max_positions=8)
    with pytest.raises(DataError, match=re.escape(message)):
        greedy_all(TorchEngine(model), [Task(source) for source in sources_for(model, lengths)], GREEDY)
    other = make_model(positions="rotary", d_k=4, max_positions=8)  # knows no such limit
    tasks = [Task(source) for source in sources_for(other, lengths)]
    assert len(greedy_all(TorchEngine(other), tasks, replace(GREEDY, extra_tokens=0))) == len(lengths)


def test_phrases_are_not_drawn():
    toy, phrase = Toy(), Task(np.array([END]), phrases=[[4]])
    with pytest.raises(ConfigError, match=re.escape("search.sample = true")):
        search_all(toy, [Task(np.array([END])), phrase], SearchConfig(sample=True))
    assert not toy.opened
