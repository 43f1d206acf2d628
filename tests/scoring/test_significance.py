"""Resampling is sacreBLEU's; the p-value is small by chance as often as it says."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest
from systems import damage, make_sentences, make_texts

from transduce.scoring import significance
from transduce.scoring.metrics import Measured, MetricSettings, mean_of, measure
from transduce.scoring.significance import SAMPLES, SEED, Comparison, compare, find_interval, resample

REFERENCES = make_sentences(120, seed=1)
GOOD, BAD = damage(REFERENCES, 0.15, seed=2), damage(REFERENCES, 0.4, seed=3)
NAMES = ["bleu", "chrf", "ter"]


def compare_both(first: Measured, second: Measured, samples: int = 500, seed: int = 1) -> Comparison:
    """Compare two findings."""
    return compare(first.value, second.value, *resample([first, second], samples, seed))


def test_resamples_are_those_of_sacrebleu():
    """The same means and intervals for its default seed and number, for every metric and system."""
    good, bad = measure(make_texts([GOOD, BAD], [REFERENCES]), NAMES, MetricSettings())
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    _, found = PairedTest([("good", GOOD), ("bad", BAD)], metrics, [REFERENCES], test_type="bs")()
    resampled = resample([*good, *bad], SAMPLES, SEED)
    for place, name in enumerate(metrics):
        for number in (0, 1):
            theirs, ours = found[name][number], find_interval(resampled[3 * number + place])
            assert not isinstance(theirs, str)
            assert ours.mean == pytest.approx(theirs.mean, abs=1e-3)  # they add up in single precision
            assert ours.half == pytest.approx(theirs.ci, abs=1e-3)


def test_a_system_does_not_differ_from_itself():
    [first], [second] = measure(make_texts([GOOD, list(GOOD)], [REFERENCES]), ["bleu"], MetricSettings())
    assert compare_both(first, second) == Comparison(0.0, 0.0, 0.0, 1.0)


def test_a_much_better_system_differs():
    good, bad = measure(make_texts([GOOD, BAD], [REFERENCES]), NAMES, MetricSettings())
    for one, other in zip(good, bad):
        found = compare_both(one, other, samples=200)
        assert found.p_value == 1 / 201
        assert found.difference == other.value - one.value
        assert found.low < found.difference < found.high
        assert found.low * found.high > 0  # zero is outside
        back = compare_both(other, one, samples=200)
        assert (back.difference, back.p_value) == (-found.difference, found.p_value)
        assert (back.low, back.high) == (-found.high, -found.low)


def test_a_difference_is_found_by_chance_as_often_as_the_p_value_says():
    """Of equally good systems, 5 in 100 differ at p < 0.05, and half at p < 0.5."""
    random = np.random.default_rng(0)
    p_values = np.array(
        [
            compare_both(*(mean_of("exact", "", random.normal(size=80)) for _ in range(2)), samples=150).p_value
            for _ in range(600)
        ]
    )
    assert 0.03 < (p_values < 0.05).mean() < 0.08
    assert 0.42 < (p_values < 0.5).mean() < 0.58


def test_pairs_are_resampled_together():
    """A small difference that is the same in every sentence is certain, however much the sentences differ."""
    values = np.random.default_rng(0).normal(size=200)
    first, second = mean_of("exact", "", values), mean_of("exact", "", values + 0.01)
    found = compare_both(first, second)
    assert found.p_value < 0.01
    assert found.difference == pytest.approx(0.01)
    assert found.high - found.low < 1e-9
    assert find_interval(resample([first], 500, 1)[0]).half > 0.05


def test_the_interval_holds_the_truth_95_times_in_100():
    random = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        found = find_interval(resample([mean_of("exact", "", random.normal(size=100))], 200, 1)[0])
        held += abs(found.mean) < found.half
    assert 0.91 < held / 400 < 0.98


def test_the_seed_decides_and_memory_does_not(monkeypatch: pytest.MonkeyPatch):
    [[found]] = measure(make_texts([GOOD], [REFERENCES]), ["bleu"], MetricSettings())
    scores = resample([found], 50, 0)[0]
    assert np.array_equal(scores, resample([found], 50, 0)[0])
    assert not np.array_equal(scores, resample([found], 50, 1)[0])
    monkeypatch.setattr(significance, "DRAWN", 7 * len(GOOD))
    assert np.array_equal(scores, resample([found], 50, 0)[0])
    assert len(scores) == 50
