"""Statistics of the steps between two lines of the log, without making a GPU wait at every step."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.text.batches import Batch, Batches
from transduce.text.shards import SIDES
from transduce.training.checkpoint import State
from transduce.training.hardware import training_work
from transduce.training.metrics import TrainMetrics

# A GPU works ahead of Python; Python waits for it at most this often.
SECONDS = 1.0


@dataclass(frozen=True)
class TakenStep:
    """One step; `numbers` are the sums of both losses, the target tokens and the norm, still on the device."""

    step: int
    batch: Batch
    numbers: Tensor
    rate: float


class Meter:
    """Gathers steps until it is time to log them."""

    def __init__(self, model: ModelConfig, batches: Batches, peak: float | None, world: int, passes: int = 1):
        self.model, self.batches, self.peak, self.world, self.passes = model, batches, peak, world, passes
        self.restart()

    def restart(self) -> None:
        """Begin a new interval."""
        self.begin = time.monotonic()
        self.steps: list[TakenStep] = []
        self.tokens = self.padded = 0
        self.work = 0.0

    def add(self, taken: TakenStep) -> None:
        """Add a step to the interval."""
        self.steps.append(taken)
        # Count the whole batch, not this process's share, with lengths as in the data set, before BPE-dropout.
        epoch, step = taken.batch.position
        pairs = np.concatenate(self.batches.plan(epoch).share(step, 0, 1))
        source, target = (self.batches.lengths[side][pairs].astype(float) for side in SIDES)
        squares = (float(source @ source), float(target @ target), float(source @ target))
        self.work += self.passes * training_work(self.model, int(source.sum()), int(target.sum()), squares)
        self.tokens += int(source.sum() + target.sum())
        self.padded += int(len(pairs) * (source.max(initial=0) + target.max(initial=0)))

    def due(self) -> bool:
        """Return whether it is time to log."""
        return bool(self.steps) and time.monotonic() - self.begin >= SECONDS

    def pace(self) -> float:
        """Return the seconds per step in this interval."""
        return (time.monotonic() - self.begin) / max(1, len(self.steps))

    def read(self) -> list[list[float]]:
        """Wait for the device and return for each step the sums of both losses, the target tokens and the norm."""
        return torch.stack([taken.numbers for taken in self.steps]).tolist() if self.steps else []

    def metrics(self, state: State, epoch: float, seconds: float) -> TrainMetrics:
        """Return the metrics of the interval; skipped steps do not count in its mean loss and norm."""
        rows = [row for row in self.read() if all(map(math.isfinite, row))]
        elapsed = max(1e-9, time.monotonic() - self.begin)
        targets = sum(row[2] for row in rows)
        return TrainMetrics(
            step=state.step,
            epoch=epoch,
            loss=sum(row[0] for row in rows) / targets if targets else math.nan,
            plain=sum(row[1] for row in rows) / targets if targets else math.nan,
            rate=self.steps[-1].rate,
            norm=sum(row[3] for row in rows) / len(rows) if rows else math.nan,
            tokens=state.tokens,
            tokens_per_second=self.tokens / elapsed,
            peak_share=self.work / elapsed / (self.world * self.peak) if self.peak else None,
            padding_saved=max(0.0, 1 - self.tokens / self.padded) if self.padded else 0.0,
            seconds=seconds,
            skipped=state.skipped,
            flops=state.flops,
        )
