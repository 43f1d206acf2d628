"""The training loop (section 5): batches in, steps, log lines, validated checkpoints, until a limit is reached."""

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
from transduce.training.meter import Meter, Seen
from transduce.training.metrics import DevMetrics, MetricsFile
from transduce.training.schedule import learning_rate
from transduce.training.stopping import Limits, Signals, describe_signal
from transduce.training.validate import DevScores, Validator

Scores = dict[str, Any]  # DevScores, as JSON has them
# How oneDNN, which multiplies in bf16 on a CPU, says that there is no memory. Where it has run out of it while it
# compiled a kernel, it says so of every later one in the same thread.
_ONEDNN = re.compile(r"could not (create|execute) a (primitive|memory)(?! descriptor)")


@dataclass
class Run:
    """Everything a training run works with; what must survive a restart is its `state`."""

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
    origin: dict[str, Any] = field(default_factory=dict)  # what is known from the model it began with
    captured: CapturedStep | None = None  # what takes whole steps, where it can
    halved: int = 0  # batches that did not fit into memory
    begin: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)  # when the last checkpoint was
    logged: tuple[int, float] | None = None  # the step of the first log line, and when that was

    def __post_init__(self) -> None:
        self.earlier = self.state.seconds
        self.checkpoints = Checkpoints(self.folder)
        self.validator = Validator(self.data, self.config, self.autocast)
        self.last_step = self.find_last_step()

    def describe(self) -> dict[str, Any]:
        """What a model says about where it comes from."""
        return {**self.origin, **self.data.describe()}

    def find_epoch(self) -> float:
        """How many passes over the data were made."""
        epoch, step = self.state.position
        return epoch + step / len(self.batches.plan(epoch))

    def step_seconds(self) -> float:
        """How long a step takes in the mean, with all that comes between; 0 before the first line of the log."""
        if self.logged is None or self.state.step == self.logged[0]:
            return 0.0
        step, seconds = self.logged
        return (time.monotonic() - seconds) / (self.state.step - step)

    def find_last_step(self) -> float:
        """The step with which the run will end, as far as one can tell."""
        epoch = self.find_epoch() if self.config.training.epochs is not None else 0.0
        return self.limits.last_step(self.state, epoch, self.step_seconds())


def train(run: Run) -> str:
    """Train until a limit is reached or somebody asks to stop; return the reason."""
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


def take_step(run: Run, batch: Batch) -> Seen:
    """One update: the gradient of the loss of a whole batch, over all processes, divided by its target tokens."""
    state = run.state
    numbers, rate = _update(run, batch)
    state.step += 1
    if state.average:
        state.average.update(state.model, state.step)
    state.tokens += run.batches.tokens(*batch.position)
    state.position = batch.next_position
    return Seen(state.step, batch, numbers, rate)


def _update(run: Run, batch: Batch) -> tuple[Tensor, float]:
    """The sums of both losses, the number of targets and the gradient's norm; and the learning rate."""
    optimiser, processes, step = run.state.optimiser, run.processes, run.state.step + 1
    rate = learning_rate(step, run.config.training, run.config.model.d_model, run.last_step)
    if run.captured:
        try:
            return run.captured(batch, step_seed(run.config.training.seed, run.state.step, processes.rank), rate), rate
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
        # The error knew all that the step had made.
        run.live.say(f"out of memory at step {step:,}: steps are captured no more, for in pieces they may fit")
        run.captured = None
        _forget(run)
    targets = processes.add(torch.tensor(float(batch.target_tokens)).to(processes.device, non_blocking=True))
    sums = processes.add(backward(run, batch, targets))
    norm = optimiser.update(rate, sums[0])
    return torch.stack((*sums, targets, norm)), rate


def backward(run: Run, batch: Batch, targets: Tensor) -> Tensor:
    """Add up the gradients of a batch, in pieces; where memory does not suffice, in pieces half as large."""
    pieces = wanted = run.config.training.accumulate
    while True:
        parts = batch.split(pieces) if pieces > 1 or batch.tiles is None else [batch]
        # Each attempt begins with the same seed: halved or cut into as many pieces from the start, it is the same step.
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
                f"--training.accumulate {pieces} does so from the start (said once, others may follow)"
            )
        run.halved += 1
    return sums


def _forget(run: Run) -> None:
    """Give back the memory of a step that did not fit, and what is kept for validation."""
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
            # Gradients are averaged over the processes, and a sum is wanted.
            (losses[0] / targets * run.processes.world).backward()
        sums += losses.detach()
    return sums


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether that was it, or what led to it: an end of capturing has its own error."""
    if error is None:
        return False
    # What torch does not ask for itself, such as the graph of a captured step, has an error of another kind.
    known = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    at_once = isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in known)
    return at_once or bool(_ONEDNN.search(str(error))) or _out_of_memory(error.__context__)


def _refuse_to_halve(run: Run, parts: list[Batch], error: Exception) -> None:
    single = all(part.sentences <= 1 for part in parts)
    if single and _ONEDNN.search(str(error)):
        raise TransduceError(
            f"out of memory at step {run.state.step + 1:,}, and products in bf16 fail from then on ({error}); give the "
            f"same command with --resume and --training.accumulate {2 * run.config.training.accumulate}"
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
            f"gradients, so it cannot go on alone; use --training.accumulate {2 * len(parts)} and --resume"
        ) from error


def log(run: Run) -> None:
    """Look at the steps since the last line: stop at one that is not finite, or count it, and write the rest down."""
    state = run.state
    bad = [seen for seen, row in zip(run.meter.steps, run.meter.read()) if not all(map(math.isfinite, row))]
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


def _describe_bad(run: Run, seen: Seen) -> str:
    smoothed, _, _, norm = seen.numbers.tolist()
    epoch, number = seen.batch.position
    pairs = ", ".join(map(str, seen.batch.pairs[:5]))
    return (
        f"step {seen.step:,} (epoch {epoch}, batch {number}, pairs {pairs}, …): the loss is {smoothed}, the gradient's "
        f"norm {norm}; the update was not applied, and the checkpoints are from before it. A lower "
        "--training.peak-rate, more --training.warmup-steps or --training.clip 1 may help; "
        "--training.not-finite skip passes over such updates"
    )


def checkpoint_due(run: Run) -> bool:
    """Whether it is time for a checkpoint: by steps if they are given, else by the clock of the first process."""
    training = run.config.training
    if training.checkpoint_steps is not None:
        return run.state.step % training.checkpoint_steps == 0
    assert training.checkpoint_minutes is not None
    return run.processes.first and time.monotonic() - run.saved >= 60 * training.checkpoint_minutes


def checkpoint(run: Run, *, last: bool, interrupted: bool = False) -> None:
    """Validate and save; a disk that is full costs this checkpoint, not the run.

    Who interrupts a run may not wait long, so then it is saved without being validated.
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
                f"the last checkpoint, of step {state.step:,}, could not be saved: {error.strerror or error}; those "
                "before it are whole: make room and give the same command with --resume"
            ) from error
        run.live.say(
            f"the checkpoint of step {state.step:,} could not be saved: {error.strerror or error}; training goes on"
        )
    run.saved = time.monotonic()
    run.meter.restart()


def validate(run: Run, *, counts: bool = True) -> dict[str, Scores]:
    """Score the present weights on the dev set and on those that are watched, show and keep it; all processes call.

    What the dev set says counts for what is best, except of weights that the run has only begun with.
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
    """Scores on a dev set of the present weights, or of those given."""
    model = run.state.model
    if weights is not None:
        model = Transformer(run.config.model).to(run.processes.device)
        for name, weight in model.named_parameters():
            put(weight, weights[name])
    return run.validator(model, split)


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of all random numbers of one step in one process, so that none need to be saved."""
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
