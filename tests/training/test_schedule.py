"""The learning rate is equation 3, and the other schedules come down as promised."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TrainingConfig
from transduce.presets import get
from transduce.training.schedule import learning_rate

STEPS = st.integers(1, 10**7)


@given(step=STEPS, warmup=st.integers(1, 10**6), steps=STEPS, d_model=st.integers(1, 10**5))
def test_the_rate_is_equation_3(step: int, warmup: int, steps: int, d_model: int):
    config = TrainingConfig(warmup_steps=warmup, steps=steps)
    expected = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert learning_rate(step, config, d_model) == pytest.approx(expected, rel=1e-12, abs=0)


@given(step=STEPS, warmup=st.integers(1, 10**6), peak=st.floats(1e-6, 1), d_model=st.integers(1, 10**5))
def test_a_given_peak_scales_equation_3(step: int, warmup: int, peak: float, d_model: int):
    config = TrainingConfig(warmup_steps=warmup, peak_rate=peak)
    expected = peak * min((warmup / step) ** 0.5, step / warmup)
    assert learning_rate(step, config, d_model) == pytest.approx(expected, rel=1e-12, abs=0)
    assert learning_rate(warmup, config, d_model) == peak


def test_the_paper_base_model_has_its_peak_at_step_4000():
    base = get("base").config
    rates = {step: learning_rate(step, base.training, base.model.d_model) for step in range(1, 20_000)}
    assert max(rates, key=lambda step: rates[step]) == 4000
    assert rates[4000] == pytest.approx((512 * 4000) ** -0.5, rel=1e-12)
    assert round(rates[4000], 6) == 0.000699
    assert rates[1] == pytest.approx(rates[4000] / 4000, rel=1e-12)
    assert rates[16_000] == pytest.approx(rates[4000] / 2, rel=1e-12)


@given(
    schedule=st.sampled_from(["linear", "cosine"]),
    warmup=st.integers(1, 60),
    fall=st.integers(1, 60),
    peak=st.none() | st.floats(1e-5, 1),
)
def test_linear_and_cosine_fall_to_zero_after_the_last_step(schedule: Any, warmup: int, fall: int, peak: float | None):
    config = TrainingConfig(schedule=schedule, warmup_steps=warmup, steps=warmup + fall, peak_rate=peak)
    rates = [learning_rate(step, config, 64) for step in range(1, config.steps + 1)]
    top = peak or (64 * warmup) ** -0.5
    assert rates[:warmup] == pytest.approx([top * step / warmup for step in range(1, warmup + 1)])
    assert rates[warmup - 1] == max(rates) == top
    assert all(later < earlier for earlier, later in pairwise(rates[warmup - 1 :]))
    assert rates[-1] > 0
    for after in (1, 2, 1000):
        assert learning_rate(config.steps + after, config, 64) == 0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("linear", [0.75, 0.5, 0.25]), ("cosine", [(1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])],
)
def test_linear_falls_evenly_and_cosine_slowly_at_both_ends(schedule: Any, expected: list[float]):
    config = TrainingConfig(schedule=schedule, warmup_steps=1, steps=200, peak_rate=1.0)
    assert [learning_rate(step, config, 64) for step in (51, 101, 151)] == pytest.approx(expected)
