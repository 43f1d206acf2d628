"""Beam search on toy models: the true best if the beam is wide enough, and the plain search otherwise."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toys import (
    Found,
    Said,
    Toy,
    as_found,
    assert_alike,
    assert_same,
    every_translation,
    log_probability,
    penalty,
    plain_beam,
    words,
)

from transduce.config import SearchConfig
from transduce.decoding.beams import Beams, length_penalty
from transduce.decoding.search import Task, search_all
from transduce.text.subwords import BEGIN, END, PAD

many = settings(max_examples=60, deadline=None)
SOURCE = np.array([5, 4, END], np.int32)
alphas = st.sampled_from([0.0, 0.6, 1.0, 4.0])
seeds = st.integers(0, 10_000)


def test_the_penalty_is_the_papers():
    lengths = torch.arange(1, 80)
    for alpha in (0.0, 0.6, 1.0, 2.0):
        expected = [penalty(length, alpha) for length in lengths.tolist()]
        np.testing.assert_allclose(length_penalty(lengths, alpha), expected, 1e-12)
    assert length_penalty(torch.tensor([1]), 0.6).item() == 1.0  # an end alone is not punished


# A beam as wide as the tree


@pytest.mark.parametrize("stop", ["exact", "full"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("n_best", [1, 3, 60])
def test_a_beam_as_wide_as_the_tree_finds_the_true_best(n_best: int, alpha: float, stop: Any):
    """With three words and four tokens, 40 translations end and 81 are cut; the last of the 60 are cut ones."""
    limit, beam = 4, 27 * 4
    longer = 0
    for seed in range(4):
        # "full" stops at `beam` ends; there are fewer, so it goes on to the limit and compares all translations.
        toy = Toy(6, seed=seed, loves=lambda said: {END: -1.0})
        config = SearchConfig(beam=beam, alpha=alpha, n_best=n_best, max_tokens=limit, stop=stop)
        (found,) = search_all(toy, [Task(SOURCE)], config)
        everything = every_translation(toy.tell(SOURCE.tolist()), words(6), alpha, limit)
        assert len(everything) == 40 + 81
        assert_same(found, everything[:n_best])
        longer += len(everything[0][0]) > 1
    assert longer or alpha < 3.0


@given(seed=seeds, alpha=st.floats(0.0, 2.0), n_best=st.integers(1, 10), limit=st.integers(1, 4))
@many
def test_an_exact_search_is_one_that_never_stops_early(seed: int, alpha: float, n_best: int, limit: int):
    toy = Toy(6, seed=seed, loves=lambda said: {END: float(len(said))})
    config = SearchConfig(beam=27 * 4, alpha=alpha, n_best=n_best, max_tokens=limit)
    (found,) = search_all(toy, [Task(SOURCE)], config)
    everything = every_translation(toy.tell(SOURCE.tolist()), words(6), alpha, limit)
    scores = [score for _, score, _ in everything[: n_best + 1]]
    assume(min((a - b for a, b in pairwise(scores) if a > b), default=1.0) > 1e-5)
    assert_same(found, everything[:n_best])


# Narrower ones


@given(
    seed=seeds,
    beam=st.integers(1, 6),
    alpha=alphas,
    stop=st.sampled_from(["exact", "full"]),
    vocabulary=st.integers(5, 12),
    limit=st.integers(1, 12),
    end=st.sampled_from([-3.0, -1.0, 0.0, 2.0, 5.0]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_a_beam_is_the_plain_search(
    seed: int, beam: int, alpha: float, stop: Any, vocabulary: int, limit: int, end: float, data: st.DataObject
):
    n_best = data.draw(st.integers(1, beam))
    toy = Toy(vocabulary, seed=seed, loves=lambda said: {END: end})
    config = SearchConfig(beam=beam, alpha=alpha, n_best=n_best, stop=stop, max_tokens=limit, extra_tokens=50)
    (found,) = search_all(toy, [Task(SOURCE)], config)
    tell = toy.tell(SOURCE.tolist())
    expected, gap = plain_beam(tell, beam=beam, alpha=alpha, limit=limit, n_best=n_best, stop=stop)
    assume(gap > 1e-5)
    assert_same(found, expected)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beam", [2, 3, 5])
def test_exactly_nothing_is_lost_by_stopping(beam: int, alpha: float):
    toy = Toy(9, loves=lambda said: {END: 3.0 if len(said) > 5 else 1.0})
    for number in range(9):
        source = np.array([4] * number + [END])
        (found,) = search_all(toy, [Task(source)], SearchConfig(beam=beam, alpha=alpha, max_tokens=15))
        assert_same(found, plain_beam(toy.tell(source.tolist()), beam=beam, alpha=alpha, limit=15, stop="never")[0])
    steps = [len(lines.advanced) for lines in toy.opened]
    assert max(steps) <= 15
    assert np.mean(steps) < (10 if alpha == 0.0 else 14)  # but time is won


def test_as_soon_as_a_beam_has_ended_something_may_be_lost():
    """Two short translations end at once; the same word four times would score better for its length."""

    def loves(said: Said) -> dict[int, float]:
        return (
            {4: math.log(0.6), END: math.log(0.4), 5: -50.0} if len(said) < 2 else {4 if len(said) < 4 else END: 50.0}
        )

    toy = Toy(6, spread=0.0, loves=lambda said: dict.fromkeys(range(6), -50.0) | loves(said))
    config = SearchConfig(beam=2, alpha=1.0)
    exact, full = (
        search_all(toy, [Task(SOURCE)], replace(config, stop=stop))[0][0].tokens.tolist() for stop in ("exact", "full")
    )
    assert (exact, full) == ([4] * 4, [])
    assert [len(lines.advanced) for lines in toy.opened] == [5, 2]


def test_where_every_line_would_rather_end_as_many_go_on():
    """Half of the 2 × beam candidates are ends; the length penalty makes the others worthwhile."""
    toy = Toy(6, spread=0.1, loves=lambda said: {END: 5.0 if len(said) < 4 else 0.0})
    for beam in (2, 3, 5):
        config = SearchConfig(beam=beam, n_best=beam, alpha=8.0, max_tokens=6)
        (found,) = search_all(toy, [Task(SOURCE)], config)
        expected, _ = plain_beam(toy.tell(SOURCE.tolist()), beam=beam, alpha=8.0, limit=6, n_best=beam)
        assert_same(found, expected)
        assert max(len(hypothesis.tokens) for hypothesis in found) > 3


# Scores


@given(seed=seeds, beam=st.integers(1, 5), alpha=alphas, limit=st.integers(1, 10))
@many
def test_scores_are_what_the_model_says(seed: int, beam: int, alpha: float, limit: int):
    toy = Toy(8, seed=seed)
    (found,) = search_all(toy, [Task(SOURCE)], SearchConfig(beam=beam, alpha=alpha, n_best=beam, max_tokens=limit))
    assert 1 <= len(found) <= beam
    for hypothesis in found:
        expected = log_probability(toy.tell(SOURCE.tolist()), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)
        assert hypothesis.token_scores.dtype == np.float32
        assert hypothesis.tokens.dtype == np.int32
        assert not {PAD, BEGIN, END} & set(hypothesis.tokens.tolist())
        assert hypothesis.log_probability == pytest.approx(math.fsum(expected), rel=1e-5, abs=1e-5)
        length = len(hypothesis.tokens) + hypothesis.ended
        assert len(hypothesis.token_scores) == length
        assert hypothesis.score * penalty(length, alpha) == pytest.approx(hypothesis.log_probability, rel=1e-5)
        assert length <= limit
        assert hypothesis.ended or length == limit
    assert len({(*hypothesis.tokens.tolist(), hypothesis.ended) for hypothesis in found}) == len(found)
    order = [(hypothesis.ended, hypothesis.score) for hypothesis in found]
    assert order == sorted(order, reverse=True)


def test_what_is_cut_comes_after_what_has_ended():
    """However much more probable it is."""
    toy = Toy(8, loves=lambda said: {4: 9.0} if 4 in said or not said else {END: 6.0, 5: 5.0})
    (found,) = search_all(toy, [Task(SOURCE)], SearchConfig(beam=4, n_best=4, max_tokens=5, alpha=0.0))
    assert [hypothesis.ended for hypothesis in found] == sorted((h.ended for h in found), reverse=True)
    cut = [hypothesis for hypothesis in found if not hypothesis.ended]
    assert cut
    assert found[0].ended
    assert cut[0].log_probability > found[0].log_probability
    assert cut[0].tokens.tolist() == [4] * 5


# Where there is little to say


@pytest.mark.parametrize("beam", [1, 2, 9])
def test_fewer_words_than_the_beam_is_wide(beam: int):
    """Of five tokens, three may be generated, one of them the end."""
    toy = Toy(5)
    (found,) = search_all(toy, [Task(SOURCE)], SearchConfig(beam=beam, n_best=beam, max_tokens=3, alpha=1.0))
    expected, _ = plain_beam(toy.tell(SOURCE.tolist()), beam=beam, alpha=1.0, limit=3, n_best=beam)
    assert_same(found, expected)
    assert len(found) == beam


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_where_nothing_may_be_said_a_translation_is_cut(steps: int, sample: bool):
    """Padding and the begin mark are never generated; a prefix that requires them has no continuation."""
    prefix = [*[4, 5, 4][:steps], PAD]
    config = SearchConfig(beam=3, n_best=3, sample=sample, alpha=1.0)
    toy = Toy(8)
    (found,) = search_all(toy, [Task(SOURCE, prefix=prefix)], config)
    assert len(found) == (3 if sample and steps else 1)
    assert {tuple(hypothesis.tokens.tolist()) for hypothesis in found} == {tuple(prefix[:-1])}
    for hypothesis in found:
        assert not hypothesis.ended
        expected = log_probability(toy.tell(SOURCE.tolist()), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)
        assert hypothesis.score == pytest.approx(math.fsum(expected) / penalty(steps, 1.0), rel=1e-5)


def test_the_same_again():
    toy, config = Toy(30, seed=3), SearchConfig(beam=5, n_best=5)
    tasks = [Task(np.array([4] * many + [END])) for many in range(6)]
    first, second = (search_all(toy, tasks, config) for _ in range(2))
    for one, other in zip(first, second):
        assert_alike(one, other)
        assert [hypothesis.score for hypothesis in one] == [hypothesis.score for hypothesis in other]


# What engines count on that take several steps before anybody looks


@pytest.mark.parametrize("stop", ["exact", "full"])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_what_is_done_stays_as_it_is_and_where_it_is(stop: Any, alpha: float):
    """While other sentences continue; the tensors remain those that a recorded step knows."""
    beam, limits = 3, [2, 9, 5, 7]
    beams = Beams(4, 9, SearchConfig(beam=beam, n_best=2, alpha=alpha, stop=stop), torch.device("cpu"))
    places = [part.data_ptr() for part in beams.state()]
    torch.manual_seed(0)
    for _ in range(3):
        beams.reset()
        assert beams.done.all()
        beams.begin([3, 1, 0, 2], limits)
        assert not beams.done.any()
        first: dict[int, list[Found]] = {}
        for step in range(1, 15):
            shares = torch.randn(4, beam, 9).log_softmax(-1)
            values, tokens = shares.topk(min(beams.candidates, 9))
            beams.choose(values, tokens.int())
            done = beams.done.nonzero().flatten().tolist()
            found = dict(zip(done, map(as_found, beams.results(done)))) if done else {}
            assert first.items() <= found.items()
            assert all(step <= limits[[3, 1, 0, 2].index(slot)] for slot in set(found) - set(first))
            first = found
        assert sorted(first) == [0, 1, 2, 3]
        assert all(len(hypotheses) == 2 for hypotheses in first.values())
        assert [part.data_ptr() for part in beams.state()] == places
