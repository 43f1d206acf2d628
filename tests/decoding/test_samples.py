"""Samples are drawn with their probabilities, and the same seed draws the same, whatever the neighbours."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from threads import always_one_thread as always_one_thread
from toys import Toy, assert_alike, every_translation, log_probability, log_softmax, penalty, plain_greedy, words
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from transduce.config import SearchConfig
from transduce.decoding.sampling import draw, make_key, random_numbers
from transduce.decoding.search import Task, search_all
from transduce.text.subwords import BEGIN, END, PAD

SOURCE = np.array([5, 4, END], np.int32)
SAMPLE = SearchConfig(sample=True)
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 100},
    {"top_p": 0.01},
    {"top_p": 0.5},
    {"top_p": 0.95},
    {"top_k": 4, "top_p": 0.8, "temperature": 0.7},
    {"top_k": 12, "top_p": 0.6},
]


def warped(logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0):
    """Return the probabilities that Hugging Face draws with."""
    scores: Any = TemperatureLogitsWarper(temperature)(None, logits)  # pyright: ignore[reportArgumentType]
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(None, scores)  # pyright: ignore[reportArgumentType]
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)  # pyright: ignore[reportArgumentType]
    return scores.double().softmax(-1)


@pytest.mark.parametrize("changes", WAYS, ids=str)
def test_tokens_are_drawn_as_often_as_hugging_face_would(changes: dict[str, Any]):
    """Numbers spaced evenly between 0 and 1 draw each token its share of times, give or take one."""
    torch.manual_seed(0)
    many = 2000
    numbers = (torch.arange(many, dtype=torch.float64) + 0.5) / many
    for row in 2 * torch.randn(4, 30):
        row[[0, 7, 29]] = -torch.inf
        drawn = draw(row.expand(many, -1), numbers, replace(SAMPLE, **changes))
        expected = warped(row[None], **changes)[0]
        counts = torch.bincount(drawn, minlength=30)
        assert (counts - many * expected).abs().max() <= 1
        assert not counts[expected == 0].any()


@pytest.mark.parametrize("changes", WAYS, ids=str)
@pytest.mark.parametrize("number", [0.0, 2**-64, 1 - 2**-53, 1.0])
def test_the_ends_of_the_numbers_draw_what_may_be_drawn(number: float, changes: dict[str, Any]):
    rows = 2 * torch.randn(50, 30)
    rows[:, [0, 1, 28, 29]] = -torch.inf
    drawn = draw(rows, torch.full((50,), number, dtype=torch.float64), replace(SAMPLE, **changes))
    assert (warped(rows, **changes).gather(1, drawn[:, None]) > 0).all()


def test_rows_are_drawn_apart():
    rows, numbers = torch.randn(20, 9), torch.rand(20, dtype=torch.float64)
    for config in (SAMPLE, replace(SAMPLE, top_k=3), replace(SAMPLE, top_p=0.7)):
        together = draw(rows, numbers, config)
        alone = torch.cat([draw(rows[[place]], numbers[[place]], config) for place in range(20)])
        assert torch.equal(together, alone)


@pytest.mark.parametrize("temperature", [0.01, 1e-37])
def test_as_cold_as_can_be_is_greedy(temperature: float):
    rows = torch.randn(50, 30)
    drawn = draw(rows, torch.rand(50, dtype=torch.float64), replace(SAMPLE, temperature=1e-4))
    assert torch.equal(drawn, rows.argmax(1))
    toy = Toy(20, seed=4, spread=90.0)  # so large that dividing by the lowest temperature overflows
    config = replace(SAMPLE, temperature=temperature, n_best=3, max_tokens=12)
    for number in range(4, 9):
        source = [number, END]
        (found,) = search_all(toy, [Task(np.array(source))], config)
        tokens, total, _ = plain_greedy(toy.tell(source), 12)
        for hypothesis in found:
            assert hypothesis.tokens.tolist() == tokens
            assert hypothesis.log_probability == pytest.approx(total, rel=1e-5, abs=1e-5)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Return how far counts are from the expected, in standard deviations (Wilson and Hilferty's)."""
    degrees = len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / (2 / (9 * degrees)) ** 0.5


def test_random_numbers_are_even_and_apart():
    numbers = np.array(
        [random_numbers(make_key(SOURCE, seed), step, 10) for seed in range(40) for step in range(25)]
    ).reshape(40, 25, 10)
    assert 0 <= numbers.min() < numbers.max() <= 1
    assert len(np.unique(numbers)) == numbers.size
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert abs(chi_square(counts, np.full(20, numbers.size / 20))) < 4
    for shift in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):  # of neighbouring seeds, steps and lines
        pairs = np.histogram2d(numbers.ravel(), np.roll(numbers, shift, (0, 1, 2)).ravel(), 5, ((0, 1), (0, 1)))[0]
        assert abs(chi_square(pairs.ravel(), np.full(25, numbers.size / 25))) < 4
    assert random_numbers(make_key(SOURCE, 3), 4, 9) == random_numbers(make_key(SOURCE, 3), 4, 10)[:9]


def test_the_numbers_depend_on_the_seed_and_the_sentence_alone():
    assert make_key(SOURCE, 1) == make_key(SOURCE.astype(np.int64), 1) == make_key(SOURCE.astype(np.uint16), 1)
    others = [make_key(SOURCE, 2), make_key(SOURCE[1:], 1), make_key(SOURCE[::-1], 1), make_key(SOURCE, 1 << 100)]
    assert len({make_key(SOURCE, 1), *others}) == 5


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.6}, {"top_k": 2}, {"top_p": 0.7}], ids=str)
def test_translations_are_drawn_as_often_as_they_are_probable(changes: dict[str, Any]):
    """Whole translations, of which there are few: each as often as the product of its tokens' shares."""
    toy, limit = Toy(6, seed=2, spread=0.8), 3

    def tell(said: tuple[int, ...]) -> np.ndarray:
        logits = torch.from_numpy(toy.logits(SOURCE.tolist(), said)).float()
        logits[[PAD, BEGIN]] = -torch.inf
        with np.errstate(divide="ignore"):
            return np.log(warped(logits[None], **changes)[0].numpy())

    shares = {
        (tuple(tokens), ended): np.exp(score) for tokens, score, ended in every_translation(tell, words(6), 0.0, limit)
    }
    assert sum(shares.values()) == pytest.approx(1.0)
    counts: Counter[Any] = Counter()
    for seed in range(3):
        config = replace(SAMPLE, n_best=700, max_tokens=limit, sample_seed=seed, **changes)
        (found,) = search_all(toy, [Task(SOURCE)], config)
        assert len(found) == 700
        counts.update((tuple(hypothesis.tokens.tolist()), hypothesis.ended) for hypothesis in found)
    assert set(counts) <= {place for place, share in shares.items() if share > 0}
    often = [place for place, share in shares.items() if share * 2100 >= 5]
    expected = np.array([shares[place] * 2100 for place in often])
    expected = np.append(expected, max(2100 - expected.sum(), 1e-9))
    seen = np.array([counts[place] for place in often])
    seen = np.append(seen, 2100 - seen.sum())
    if expected[-1] < 5:
        seen, expected = seen[:-1], expected[:-1]
    assert len(seen) > 4
    assert abs(chi_square(seen, expected)) < 4


@given(
    seed=st.integers(0, 999),
    n_best=st.integers(1, 6),
    changes=st.sampled_from(WAYS),
    alpha=st.sampled_from([0.0, 1.0]),
    rules=st.sampled_from([{}, {"min_tokens": 4}, {"no_repeat": 2}]),
    prefix=st.sampled_from([[], [4, 5]]),
)
@settings(max_examples=60, deadline=None)
def test_scores_are_the_models_own(
    seed: int, n_best: int, changes: dict[str, Any], alpha: float, rules: dict[str, Any], prefix: list[int]
):
    """Not those of the warmed or cut distribution they were drawn from; the best come first."""
    toy = Toy(9, seed=seed)
    config = SearchConfig(sample=True, sample_seed=seed, n_best=n_best, alpha=alpha, max_tokens=9, **changes, **rules)
    (found,) = search_all(toy, [Task(SOURCE, prefix=prefix)], config)
    assert len(found) == n_best
    for hypothesis in found:
        expected = log_probability(toy.tell(SOURCE.tolist()), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)
        length = len(expected)
        assert hypothesis.score == pytest.approx(sum(expected) / penalty(length, alpha), rel=1e-4)
        tokens = hypothesis.tokens.tolist()
        assert tokens[: len(prefix)] == prefix
        assert length == 9 or hypothesis.ended
        assert len(tokens) >= rules.get("min_tokens", 0)
        assert not {PAD, BEGIN, END} & set(tokens)
    order = [(hypothesis.ended, hypothesis.score) for hypothesis in found]
    assert order == sorted(order, reverse=True)


def test_the_same_seed_draws_the_same_and_another_seed_others():
    toy = Toy(60, seed=1, spread=1.0, loves=lambda said: {END: -2.0})
    tasks = [Task(np.array([number, END])) for number in range(4, 9)]
    config = replace(SAMPLE, n_best=4, max_tokens=12)
    first = search_all(toy, tasks, config)
    for one, other in zip(first, search_all(toy, tasks, config)):
        assert_alike(one, other)
    texts = [
        tuple(hypothesis.tokens.tolist())
        for seed in range(4)
        for hypotheses in search_all(toy, tasks, replace(config, sample_seed=seed))
        for hypothesis in hypotheses
    ]
    assert len(set(texts)) > 0.95 * len(texts)  # samples differ from one another, between seeds and between sentences


def test_neighbours_and_more_samples_do_not_matter():
    toy = Toy(60, seed=1, spread=1.0)
    tasks = [Task(np.array([*range(4, 4 + number), END])) for number in range(9)]
    config = replace(SAMPLE, n_best=3, max_tokens=9)
    alone = [search_all(toy, [task], config)[0] for task in tasks]
    toy.rows = 9
    for one, other in zip(alone, reversed(search_all(toy, tasks[::-1], config))):
        assert_alike(one, other)
    more = [search_all(toy, [task], replace(config, n_best=6))[0] for task in tasks]
    for few, many in zip(alone, more):
        assert {tuple(one.tokens.tolist()) for one in few} <= {tuple(one.tokens.tolist()) for one in many}


def test_the_plain_distribution_is_the_models():
    """The search's own normaliser is over all tokens; those never generated are left out of the draw."""
    toy = Toy(7, seed=3)
    config = replace(SAMPLE, n_best=3000, max_tokens=1)
    (found,) = search_all(toy, [Task(SOURCE)], config)
    shares = np.exp(log_softmax(toy.logits(SOURCE.tolist(), ())))
    shares[[PAD, BEGIN]] = 0
    shares /= shares.sum()
    said = [hypothesis.tokens.tolist()[0] if not hypothesis.ended else END for hypothesis in found]
    counts = np.bincount(said, minlength=7)
    assert np.abs(counts / 3000 - shares).sum() < 0.06
