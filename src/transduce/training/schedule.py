"""The learning rate (section 5.3, equation 3), with other schedules after the warm-up."""

import math

from transduce.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, d_model: int, last_step: float | None = None) -> float:
    """Return the rate of a step, counted from 1: it rises linearly over the warm-up, then follows the schedule.

    A linear or cosine fall reaches zero just after the last step: `training.steps`, or an earlier one if another limit
    comes first.

    With the default peak, (d_model · warmup_steps)^-0.5, the inverse square root is equation 3:
    d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5).
    """
    peak = config.peak_rate or (d_model * config.warmup_steps) ** -0.5
    if step < config.warmup_steps:
        return peak * step / config.warmup_steps
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse-sqrt":
        return peak * (config.warmup_steps / step) ** 0.5
    # From 0 at the peak to 1 where the rate is 0: one step after the last, so that the last step still counts.
    last_step = config.steps if last_step is None else last_step
    fallen = min(1.0, (step - config.warmup_steps) / max(1.0, last_step + 1 - config.warmup_steps))
    return peak * (1 - fallen) if config.schedule == "linear" else peak * 0.5 * (1 + math.cos(math.pi * fallen))
