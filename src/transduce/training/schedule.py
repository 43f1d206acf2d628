"""The learning rate (section 5.3, equation 3), and other ways to let it fall, or not."""

import math

from transduce.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, d_model: int, last_step: float | None = None) -> float:
    """The rate of a step, counted from 1: it rises evenly to its peak over the warm-up and falls from there on.

    What falls to zero does so at the last step: `training.steps`, or one before if another limit comes first.

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
    # From 0 at the peak to 1 where the rate is 0: one step after the last, so that the last one counts too.
    last_step = config.steps if last_step is None else last_step
    fallen = min(1.0, (step - config.warmup_steps) / max(1.0, last_step + 1 - config.warmup_steps))
    return peak * (1 - fallen) if config.schedule == "linear" else peak * 0.5 * (1 + math.cos(math.pi * fallen))
