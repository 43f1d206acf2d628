"""The training loop (section 5): steps, log lines and validated checkpoints, until a limit is reached."""

import hashlib
import math
import re
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.config import Config
from transduce.errors import TransduceError
from transduce.model.transformer import Transformer
from transduce.text.batches import Batch, Batches, Loader
from transduce.text.shards import DataSet
from transduce.training.captured import CapturedStep
from transduce.training.checkpoint import Checkpoints, State, rank_score
from transduce.training.distributed import Processes, put, without_exchange
from transduce.training.events import EventFile
from transduce.training.live import Live
from transduce.training.meter import Meter, TakenStep
from transduce.training.metrics import DevMetrics, MetricsFile
from transduce.training.schedule import learning_rate
from transduce.training.stopping import Limits, Signals, describe_signal
from transduce.training.validate import DevScores, Validator

Scores = dict[str, Any]  # `DevScores` as JSON
# How oneDNN, which multiplies in bf16 on a CPU, reports that memory has run out. If that happens while it compiles a
# kernel, every later kernel in the same thread fails the same way.
_ONEDNN = re.compile(r"could not (create|execute) a (primitive|memory)(?! descriptor)")


@dataclass
class Run:
    """Everything that a training run works with; what must survive a restart is its `state`."""

    folder: Path
    config: Config
    data: DataSet
    batches: Batches
    processes: Processes
    state: State
    objective: nn.Module  # the model with its loss, wrapped for several processes
    autocast: AbstractContextManager[object]
    limits: Limits
    meter: Meter
    live: Live
    files: list[MetricsFile | EventFile]
    origin: dict[str, Any] = field(default_factory=dict)  # facts taken over from the model it began with
    captured: CapturedStep | None = None  # takes whole steps as one graph, where possible
    halved: int = 0  # how many batches were cut into more pieces to fit into memory
    begin: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)  # when the last checkpoint was made
    logged: tuple[int, float] | None = None  # step and time of the first log line

    def __post_init__(self) -> None:
        self.earlier = self.state.seconds
        self.checkpoints = Checkpoints(self.folder)
        self.validator = Validator(self.data, self.config, self.autocast)
        self.last_step = self.find_last_step()

    def describe(self) -> dict[str, Any]:
        """Return what a model records of where it comes from."""
        return {**self.origin, **self.data.describe()}

    def find_epoch(self) -> float:
        """Return how many passes over the data have been made, fractions included."""
        epoch, step = self.state.position
        return epoch + step / len(self.batches.plan(epoch))

    def step_seconds(self) -> float:
        """Return the mean seconds per step since the first log line, validation and all else included; 0 before it."""
        if self.logged is None or self.state.step == self.logged[0]:
            return 0.0
        step, seconds = self.logged
        return (time.monotonic() - seconds) / (self.state.step - step)

    def find_last_step(self) -> float:
        """Estimate the step at which the run will end."""
        epoch = self.find_epoch() if self.config.training.epochs is not None else 0.0
        return self.limits.last_step(self.state, epoch, self.step_seconds())


def train(run: Run) -> str:
    """Train until a limit is reached or the run is asked to stop; return the reason."""
    state, processes = run.state, run.processes
    reason = run.limits.reached(state)
    pin = processes.device.type == "cuda"
    with Signals() as signals, Loader(run.batches, state.position, share=processes.rank, pin=pin) as loader:
        for batch in loader if reason is None else ():
            run.meter.add(take_step(run, batch))
            signals.renew()
            late = not run.limits.seconds_left()
            asked, late, due, run.last_step = processes.highest(
                signals.asked or 0, late, checkpoint_due(run), run.find_last_step()
            )
            limit = run.limits.reached(state, late=bool(late))
            reason = limit or (describe_signal(int(asked)) if asked else None)
            if reason or due or run.meter.due():
                log(run)
            if reason or due:
                checkpoint(run, last=reason is not None, interrupted=not (limit or due))
                reason = reason or run.limits.reached(state)
            if reason:
                break
    return reason or ""


def take_step(run: Run, batch: Batch) -> TakenStep:
    """Make one update: the gradient of a whole batch's loss, over all processes, divided by its target tokens."""
    state = run.state
    numbers, rate = _update(run, batch)
    state.step += 1
    if state.average:
        state.average.update(state.model, state.step)
    state.tokens += run.batches.tokens(*batch.position)
    state.position = batch.next_position
    return TakenStep(state.step, batch, numbers, rate)


def _update(run: Run, batch: Batch) -> tuple[Tensor, float]:
    """Make an update; return its numbers (the sums of both losses, the targets, the norm) and the learning rate."""
    optimiser, processes, step = run.state.optimiser, run.processes, run.state.step + 1
    rate = learning_rate(step, run.config.training, run.config.model.d_model, run.last_step)
    if run.captured:
        try:
            return run.captured(batch, step_seed(run.config.training.seed, run.state.step, processes.rank), rate), rate
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
        # The error, which keeps the step's tensors alive, is gone only after the `except` block.
        run.live.say(
            f"out of memory at step {step:,}: steps are no longer captured, so that batches can be cut into pieces"
        )
        run.captured = None
        _forget(run)
    targets = processes.add(torch.tensor(float(batch.target_tokens)).to(processes.device, non_blocking=True))
    sums = processes.add(backward(run, batch, targets))
    norm = optimiser.update(rate, sums[0])
    return torch.stack((*sums, targets, norm)), rate


def backward(run: Run, batch: Batch, targets: Tensor) -> Tensor:
    """Add up the gradients of a batch, in pieces; while they do not fit into memory, halve the pieces."""
    pieces = wanted = run.config.training.accumulate
    while True:
        parts = batch.split(pieces) if pieces > 1 or batch.tiles is None else [batch]
        # Each attempt begins with the same seed, so halving gives the same step as that many pieces from the start.
        torch.manual_seed(step_seed(run.config.training.seed, run.state.step, run.processes.rank))
        try:
            sums = _backward(run, parts or [batch], targets)
            break
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            _refuse_to_halve(run, parts, error)
        pieces *= 2
        _forget(run)
    if pieces > wanted:
        if not run.halved:
            run.live.say(
                f"out of memory at step {run.state.step + 1:,}: its batch was computed in {pieces} pieces instead; "
                f"--training.accumulate {pieces} does so from the start (reported only once)"
            )
        run.halved += 1
    return sums


def _forget(run: Run) -> None:
    """Free the memory of a step that did not fit, and what is kept for validation."""
    run.validator.forget()
    run.state.optimiser.zero_grad()
    if run.processes.device.type == "cuda":
        torch.cuda.empty_cache()


def _backward(run: Run, parts: list[Batch], targets: Tensor) -> Tensor:
    sums = torch.zeros(2, device=run.processes.device)
    for number, part in enumerate(parts, 1):
        if run.processes.device.type == "cuda" and part.tiles is None:
            part = part.tile()
        part = part.to(run.processes.device)
        with without_exchange(run.objective, number < len(parts)):
            with run.autocast:
                rows = part.source, part.source_offsets, part.target_input, part.target_offsets, part.target
                losses = run.objective(*rows, part.tiles)
            # Gradients are averaged over the processes; multiplying by their number gives the sum.
            (losses[0] / targets * run.processes.world).backward()
        sums += losses.detach()
    return sums


def _out_of_memory(error: BaseException | None) -> bool:
    """Return whether memory ran out in this error or one that led to it: a failed capture raises its own."""
    if error is None:
        return False
    # Memory that torch does not allocate itself, like the graph of a captured step, fails with another kind of error.
    known = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    at_once = isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in known)
    return at_once or bool(_ONEDNN.search(str(error))) or _out_of_memory(error.__context__)


def _refuse_to_halve(run: Run, parts: list[Batch], error: Exception) -> None:
    single = all(part.sentences <= 1 for part in parts)
    if single and _ONEDNN.search(str(error)):
        raise TransduceError(
            f"out of memory at step {run.state.step + 1:,}, and products in bf16 fail from then on ({error}); repeat "
            f"the command with --resume and --training.accumulate {2 * run.config.training.accumulate}"
        ) from error
    if single:
        longest = max(part.source_tokens + part.target_tokens for part in parts)
        raise TransduceError(
            f"out of memory on a single sentence pair of {longest:,} tokens at step {run.state.step + 1:,}; "
            "use a smaller model, or prepare the data with a smaller --clean.tokens"
        ) from error
    if run.processes.world > 1:
        raise TransduceError(
            f"out of memory in process {run.processes.rank} at step {run.state.step + 1:,}; the others wait for its "
            f"gradients, so it cannot split its batch alone; use --training.accumulate {2 * len(parts)} and --resume"
        ) from error


def log(run: Run) -> None:
    """Log the steps since the last line; stop at one that is not finite, or count it as skipped."""
    state = run.state
    bad = [taken for taken, row in zip(run.meter.steps, run.meter.read()) if not all(map(math.isfinite, row))]
    if bad and run.config.training.not_finite == "stop":
        raise TransduceError(_describe_bad(run, bad[0]))
    state.skipped += len(bad)
    state.flops += run.meter.work
    state.seconds = run.earlier + time.monotonic() - run.begin
    metrics = run.meter.metrics(state, run.find_epoch(), state.seconds)
    if bad:
        run.live.say(
            f"skipped {len(bad)} of {len(run.meter.steps)} updates up to step {state.step:,}: not finite "
            f"(the last at step {bad[-1].step:,}; {state.skipped:,} since the run began)"
        )
    for file in run.files:
        file.write(metrics)
    run.logged = run.logged or (state.step, time.monotonic())
    left = (run.last_step - state.step) * (run.step_seconds() or run.meter.pace())
    run.live.train(metrics, max(0.0, min(left, run.limits.seconds_left())))
    run.meter.restart()


def _describe_bad(run: Run, taken: TakenStep) -> str:
    smoothed, _, _, norm = taken.numbers.tolist()
    epoch, number = taken.batch.position
    pairs = ", ".join(map(str, taken.batch.pairs[:5]))
    return (
        f"step {taken.step:,} (epoch {epoch}, batch {number}, pairs {pairs}, …): the loss is {smoothed}, the "
        f"gradient's norm {norm}; the update was not applied, and the checkpoints are from before it. A lower "
        "--training.peak-rate, more --training.warmup-steps or --training.clip 1 may help; "
        "--training.not-finite skip passes over such updates"
    )


def checkpoint_due(run: Run) -> bool:
    """Return whether a checkpoint is due: by steps if these are set, else by the first process's clock."""
    training = run.config.training
    if training.checkpoint_steps is not None:
        return run.state.step % training.checkpoint_steps == 0
    assert training.checkpoint_minutes is not None
    return run.processes.first and time.monotonic() - run.saved >= 60 * training.checkpoint_minutes


def checkpoint(run: Run, *, last: bool, interrupted: bool = False) -> None:
    """Validate and save; a full disk costs this checkpoint, not the run, unless it is the last one.

    An interrupted run is saved without validation, because whoever stops it may not wait long.
    """
    state, training = run.state, run.config.training
    scores = {} if interrupted else validate(run)
    dev = scores.get("dev")
    better = state.best_step == state.step and dev is not None
    state.seconds = run.earlier + time.monotonic() - run.begin
    about = {
        "dev": dev,
        "best": better,
        "interrupted": interrupted,
        "data": {name: run.data.manifest[name] for name in ("fingerprint", "made_from")},
        **run.describe(),
    }
    if watched := {name: scores[name] for name in run.data.watched if name in scores}:
        about["watched"] = watched
    try:
        run.checkpoints.save(state, run.config, run.data.subwords, about, run.processes.rank)
        if run.processes.first:
            run.checkpoints.prune(training.average_checkpoints, training.keep_best, training.best_by)
    except OSError as error:
        if last:
            raise TransduceError(
                f"the last checkpoint, of step {state.step:,}, could not be saved: {error.strerror or error}; earlier "
                "ones are intact: free disk space, and repeat the command with --resume"
            ) from error
        run.live.say(
            f"the checkpoint of step {state.step:,} could not be saved: {error.strerror or error}; training continues"
        )
    run.saved = time.monotonic()
    run.meter.restart()


def validate(run: Run, *, counts: bool = True) -> dict[str, Scores]:
    """Score the current weights on the dev and watched sets; show and record the scores; all processes must call.

    Only the dev set decides what is best. `counts=False` excludes these weights from that, as those a run begins with.
    """
    state, training = run.state, run.config.training
    weights = state.weights() if state.average or training.sharded else None
    found: dict[str, Scores] = {}
    for split in ("dev", *run.data.watched):
        begin = time.monotonic()
        scores = run.processes.share(score(run, weights, split) if run.processes.first else None)
        if scores is None:
            continue
        found[split] = asdict(scores)
        rank = rank_score(found[split], training.best_by)
        better = counts and split == "dev" and (state.best is None or rank < state.best)
        if counts and split == "dev":
            state.without_best = 0 if better else state.without_best + 1
        if better:
            state.best, state.best_step = rank, state.step
        metrics = DevMetrics(
            step=state.step,
            **found[split],
            seconds=state.seconds,
            best=better,
            weights="average" if state.average else "current",
            name=split,
        )
        for file in run.files:
            file.write(metrics)
        run.live.dev(metrics, time.monotonic() - begin)
    return found


def score(run: Run, weights: dict[str, Tensor] | None, split: str = "dev") -> DevScores | None:
    """Score the current weights, or those given, on a dev set."""
    model = run.state.model
    if weights is not None:
        model = Transformer(run.config.model).to(run.processes.device)
        for name, weight in model.named_parameters():
            put(weight, weights[name])
    return run.validator(model, split)


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed for all random numbers of one step in one process, so that no generator need be saved."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
