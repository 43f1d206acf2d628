"""The numbers between two lines of the log: counted by hand, and the same for any number of processes."""

import json
import math
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from runs import metrics

from transduce.config import BatchConfig, ModelConfig, TrainingConfig
from transduce.model import saved
from transduce.model.transformer import Transformer
from transduce.text.batches import Batches
from transduce.text.shards import DataSet
from transduce.training import meter
from transduce.training.checkpoint import State
from transduce.training.hardware import training_work
from transduce.training.meter import Meter, TakenStep
from transduce.training.metrics import TrainMetrics
from transduce.training.optimiser import Optimiser

MODEL = ModelConfig(vocabulary=340, layers=1, d_model=8, d_ff=12, heads=2)
BATCH = BatchConfig(source_tokens=800, target_tokens=800, parts=8, similar_lengths=False)
PEAK = 1e9


class Clock:
    """Seconds that pass only when told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture(scope="module")
def state() -> State:
    model = Transformer(MODEL)
    return State(model=model, optimiser=Optimiser(model, TrainingConfig()), step=77, tokens=12345, skipped=3)


def make_batches(data: Path, world: int = 1, **changes: Any) -> Batches:
    return Batches(DataSet.open(data), replace(BATCH, **changes), shares=world)


def watch(batches: Batches, world: int = 1, rank: int = 0, peak: float | None = PEAK) -> Meter:
    """Return the meter of one process that has seen its shares of a whole epoch."""
    watching = Meter(MODEL, batches, peak, world)
    for step in range(len(batches.plan(0))):
        numbers = torch.tensor([2.0, 1.0, 1.0, 4.0])
        watching.add(TakenStep(step + 1, batches.batch(0, step, share=rank), numbers, rate=0.1))
    return watching


def measure(watching: Meter, clock: Clock, state: State, seconds: float = 2.0) -> TrainMetrics:
    clock.now = watching.begin + seconds
    return watching.metrics(state, epoch=1.5, seconds=60.0)


def lengths_of(batches: Batches, epoch: int = 0) -> list[list[tuple[int, int]]]:
    """Return source and target lengths of an epoch's pairs, batch by batch, from the batches' own rows."""
    assert batches.shares == 1
    found: list[list[tuple[int, int]]] = []
    for batch in (batches.batch(epoch, step) for step in range(len(batches.plan(epoch)))):
        sides = [np.diff(offsets)[: batch.sentences] for offsets in (batch.source_offsets, batch.target_offsets)]
        found.append(list(zip(sides[0].tolist(), sides[1].tolist())))
    return found


def test_tokens_padding_and_work_are_counted_by_hand(data: Path, clock: Clock, state: State):
    batches = make_batches(data)
    lengths = lengths_of(batches)
    assert len(lengths) > 5
    shown = measure(watch(batches), clock, state)
    tokens = sum(source + target for batch in lengths for source, target in batch)
    padded = sum(len(batch) * (max(s for s, _ in batch) + max(t for _, t in batch)) for batch in lengths)
    work = sum(training_work(MODEL, s, t, (s * s, t * t, s * t)) for batch in lengths for s, t in batch)
    assert shown.tokens_per_second == pytest.approx(tokens / 2.0, rel=1e-12)
    assert shown.padding_saved == pytest.approx(1 - tokens / padded, rel=1e-12)
    assert 0.1 < shown.padding_saved < 0.9
    assert shown.peak_share == pytest.approx(work / 2.0 / PEAK, rel=1e-12)
    assert measure(watch(batches, peak=None), clock, state).peak_share is None
    similar = watch(make_batches(data, similar_lengths=True))
    assert measure(similar, clock, state).padding_saved < shown.padding_saved


def test_the_cost_of_a_training_is_the_work_of_all_its_steps(data: Path, whole: Path):
    """In the log so far, and at its end in the unit of the paper's Table 2."""
    config = saved.read_config(whole)
    batches, epochs = Batches(DataSet.open(data), config.batch, seed=config.training.seed), range(2)
    lengths = [pairs for epoch in epochs for pairs in lengths_of(batches, epoch)][: config.training.steps]
    steps = [sum(training_work(config.model, s, t, (s * s, t * t, s * t)) for s, t in pairs) for pairs in lengths]
    shown = [line["flops"] for line in metrics(whole) if line["kind"] == "train"]
    assert shown == pytest.approx(list(accumulate(steps)), rel=1e-12)
    trained = json.loads((whole / "summary.json").read_text())["trained"]
    assert float(trained.split(", ")[-1].removesuffix(" FLOPs")) == pytest.approx(shown[-1], rel=0.05)


@pytest.mark.parametrize("world", [2, 3, 8])
def test_the_numbers_are_those_of_all_processes_together(data: Path, clock: Clock, state: State, world: int):
    """Shares differ: of 8 parts, 3 processes have 3, 3 and 2, and an epoch's last batch may have none for some."""
    alone = measure(watch(make_batches(data)), clock, state)
    batches = make_batches(data, world)
    last = len(batches.plan(0)) - 1
    assert len({batches.batch(0, last, share=rank).source_tokens for rank in range(world)}) > 1
    for rank in range(world):
        shown = measure(watch(batches, world, rank), clock, state)
        assert shown.tokens_per_second == alone.tokens_per_second
        assert shown.padding_saved == alone.padding_saved
        assert shown.peak_share is not None
        assert alone.peak_share is not None
        assert shown.peak_share == pytest.approx(alone.peak_share / world)  # of `world` times the hardware


def test_where_subwords_are_split_anew_tokens_are_those_of_the_data_set(data: Path, clock: Clock, state: State):
    """So that they agree with the total number of tokens so far, which limits are compared with."""
    batches = make_batches(data, subword_dropout=0.3)
    sampled = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    tokens = sum(batches.tokens(0, step) for step in range(len(batches.plan(0))))
    assert sampled > 1.05 * tokens
    watching = watch(batches)
    assert measure(watching, clock, state).tokens_per_second == pytest.approx(tokens / 2.0, rel=1e-12)
    assert measure(watching, clock, state).padding_saved > 0.1
    assert watching.pace() == pytest.approx(2.0 / len(watching.steps))


def test_means_are_weighted_by_target_tokens(data: Path, clock: Clock, state: State):
    batches = make_batches(data)
    watching = Meter(MODEL, batches, None, 1)
    rows = [(30.0, 20.0, 10.0, 1.0), (400.0, 300.0, 90.0, 3.0), (1.0, 0.5, 100.0, 8.0)]
    for step, row in enumerate(rows):
        watching.add(TakenStep(step + 75, batches.batch(0, step), torch.tensor(row), rate=0.25 * step))
    shown = measure(watching, clock, state)
    assert shown.loss == pytest.approx(431 / 200)
    assert shown.plain == pytest.approx(320.5 / 200)
    assert shown.norm == pytest.approx(4.0)  # of the steps
    assert shown.rate == 0.5  # of the last one
    assert shown.perplexity == pytest.approx(math.exp(320.5 / 200))
    assert (shown.step, shown.epoch, shown.tokens, shown.seconds, shown.skipped) == (77, 1.5, 12345, 60.0, 3)
    assert watching.read() == [list(row) for row in rows]


def test_steps_that_were_skipped_are_in_no_mean(data: Path, clock: Clock, state: State):
    batches = make_batches(data)
    watching = Meter(MODEL, batches, None, 1)
    for step, row in enumerate([(30.0, 20.0, 10.0, 1.0), (math.nan, 5.0, 10.0, 1.0), (7.0, 5.0, 10.0, math.inf)]):
        watching.add(TakenStep(step, batches.batch(0, step), torch.tensor(row), rate=0.1))
    shown = measure(watching, clock, state)
    assert (shown.loss, shown.plain, shown.norm) == (3.0, 2.0, 1.0)
    watching.steps = watching.steps[1:]
    shown = measure(watching, clock, state)
    assert all(map(math.isnan, (shown.loss, shown.plain, shown.norm)))


def test_it_is_due_a_second_after_it_began_if_there_was_a_step(data: Path, clock: Clock, state: State):
    batches = make_batches(data)
    watching = Meter(MODEL, batches, None, 1)
    clock.now += 5
    assert not watching.due()
    assert watching.read() == []
    watching.restart()
    watching.add(TakenStep(1, batches.batch(0, 0), torch.ones(4), rate=0.1))
    clock.now += meter.SECONDS - 0.01
    assert not watching.due()
    clock.now += 0.02
    assert watching.due()
    watching.restart()
    assert not watching.due()
    watching.add(TakenStep(2, batches.batch(0, 1), torch.ones(4), rate=0.1))
    assert measure(watching, clock, state).tokens_per_second == batches.tokens(0, 1) / 2.0  # of what came since
