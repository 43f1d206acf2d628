"""A training run from its settings to its model: set it up or resume it, train, choose the final weights."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce import strict
from transduce.config import Config, ModelConfig
from transduce.decoding.alignment import Place, find_places, write_places
from transduce.disk import LOCK, lock, write_json
from transduce.errors import ConfigError, DataError, GpuError, TransduceError
from transduce.model import saved
from transduce.model.device import choose_threads
from transduce.model.transformer import Transformer
from transduce.progress import format_seconds
from transduce.text.batches import Batches
from transduce.text.shards import SIDES, DataSet
from transduce.training.averaging import mean_weights
from transduce.training.captured import CapturedStep
from transduce.training.checkpoint import Checkpoints, State, rank_score, restore
from transduce.training.curve import write_curve
from transduce.training.distributed import Processes, join_processes
from transduce.training.events import EventFile
from transduce.training.hardware import captures, describe_long_steps, peak_rate, steps_take_long, uses_bf16
from transduce.training.live import Live, format_count, show_training
from transduce.training.loop import Run, score, train, validate
from transduce.training.loss import Objective
from transduce.training.meter import Meter
from transduce.training.metrics import BEST_BY, DevMetrics, MetricsFile, TrainMetrics, read_metrics
from transduce.training.optimiser import MovingAverage, Optimiser, freeze
from transduce.training.resume import refuse_differences
from transduce.training.stopping import Limits
from transduce.training.validate import check_trees_fit
from transduce.training.warm import Start, remembered

FOR_PLACES = 200  # dev pairs to choose from when looking for the heads that align words
BUSY = "another transduce train is writing this run; wait for it to end"
METRICS, CURVE, EVENTS, MODEL = "metrics.jsonl", "curve.html", "tensorboard", "model"


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """What `transduce train` was asked to do."""

    data: Path
    out: Path
    config: Config
    resume: bool = False
    start: Start | None = None
    seconds: float | None = None
    device: str = "auto"
    threads: int | None = None  # on a CPU; None: as many as are useful


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str
    summary: list[tuple[str, str]]

    @property
    def exit_code(self) -> int:
        """As a shell would give it: 128 plus the signal's number if one ended the run, else 0."""
        return 128 + int(self.reason.split()[1]) if self.reason.startswith("signal ") else 0


class _Silent:
    """Shows nothing, for all processes but the first."""

    def train(self, metrics: TrainMetrics, left: float) -> None: ...
    def dev(self, metrics: DevMetrics, seconds: float) -> None: ...
    def say(self, text: str) -> None: ...


def run_training(job: TrainJob) -> Outcome:
    """Set up or resume a run, train it, and write its model."""
    with join_processes(job.device) as processes, ExitStack() as held:
        with processes.together():
            data = DataSet.open(job.data)
            config = fit_to_data(job.config, data)
            if config.training.sharded and "RANK" not in os.environ:
                raise ConfigError(
                    "training.sharded splits the weights over several processes, but there is only one; start "
                    "several with: torchrun --standalone --nproc-per-node 8 -m transduce train …"
                )
            torch.set_num_threads(choose_threads(config.model, job.threads))
        found = None
        with processes.together():
            if processes.first:
                held.enter_context(_own(job.out))
                found = _find_checkpoint(job, config, data)
        checkpoint, problems = processes.share(found) or (None, [])
        with _set_up(job, config, data, checkpoint, processes) as run:
            for problem in problems:
                run.live.say(f"{problem}; falling back to {checkpoint and checkpoint.name}")
            try:
                if job.start and not job.start.encoder and checkpoint is None:
                    validate(run, counts=False)  # the scores to compare with
                reason = train(run)
            except torch.AcceleratorError as error:
                if "captur" in str(error):  # a bug of ours, not a fault of the GPU
                    raise
                raise GpuError(_describe_failure(run, error)) from error
        return _finish(run, reason)


def _describe_failure(run: Run, error: Exception) -> str:
    """Say what a failed GPU reported, where the run was, and how to continue."""
    said = str(error).splitlines()[0]
    logged = run.meter.steps[0].step if run.meter.steps else run.state.step
    where = f"the GPU failed between steps {logged:,} and {run.state.step + 1:,}: {said}"
    kept = run.checkpoints.all()
    remedy = f"repeat the command with --resume to continue from {kept[-1].name}" if kept else "start the run again"
    again = (
        "if it fails again: keep other programs off this GPU, look for Xid in the kernel's log (dmesg), and report it "
        "with the output of transduce doctor"
    )
    return f"{where}\n{remedy}\n{again}"


def fit_to_data(config: Config, data: DataSet) -> Config:
    """Return the settings with the data set's vocabulary; refuse those that do not fit the data."""
    subwords = data.subwords
    joint = subwords["source"].numbers_like(subwords["target"])
    if not joint and config.model.tie == "all":
        raise ConfigError(
            f'{data.folder}: its two sides have separate subwords, but model.tie = "all" shares one matrix; '
            "use --model.tie output, or prepare with --subwords.joint"
        )
    measured = "f1" if data.manifest["config"].get("task") == "parsing" else "bleu"
    if config.training.best_by not in ("loss", measured):
        raise ConfigError(
            f'training.best_by = "{config.training.best_by}" is not measured on {data.folder}; use loss or {measured}'
        )
    source = None if joint else len(subwords["source"])
    model = replace(config.model, vocabulary=len(subwords["target"]), source_vocabulary=source)
    _check_positions(model, data)
    return replace(config, model=model)


def _check_positions(model: ModelConfig, data: DataSet) -> None:
    longest = max(int(split.lengths(side).max(initial=0)) for split in data.splits.values() for side in SIDES)
    if model.positions == "learned" and longest > model.max_positions:
        raise ConfigError(
            f"{data.folder}: its longest sentence has {longest} tokens, but there are only model.max_positions = "
            f"{model.max_positions} learned positions; use --model.max-positions {longest}"
        )


@contextmanager
def _own(out: Path) -> Iterator[None]:
    """Make the run's folder and keep other processes from writing to it."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file; name a folder for --out")
    foreign = sorted(set(os.listdir(out)) - _OWN_NAMES) if out.exists() else []
    if foreign and not _is_run(out):
        raise DataError(f"{out}: holds other files ({foreign[0]}) but no run; name a new or empty folder for --out")
    out.mkdir(parents=True, exist_ok=True)
    with lock(out, BUSY):
        yield


_OWN_NAMES = {LOCK, "checkpoints", saved.CONFIG, METRICS, CURVE, EVENTS, MODEL, "summary.json"}


def _is_run(out: Path) -> bool:
    try:
        # A model has a config.json too, but also a manifest.
        return bool(Checkpoints(out).all()) or (not (out / saved.MANIFEST).exists() and bool(saved.read_config(out)))
    except TransduceError:
        return False  # another program's config.json


def _find_checkpoint(job: TrainJob, config: Config, data: DataSet) -> tuple[Path, list[str]] | None:
    """Return the checkpoint to resume from, if there is one, and what is wrong with those after it."""
    checkpoints = Checkpoints(job.out)
    if checkpoints.all() and not job.resume:
        newest = checkpoints.all()[-1].name
        raise DataError(f"{job.out}: holds a run ({newest}); --resume continues it, or name another --out")
    if not checkpoints.all() and (job.out / MODEL).exists():
        raise DataError(f"{job.out}: holds a model but no checkpoints to resume from; name another --out")
    found = checkpoints.newest_good() if job.resume else None
    if found:
        refuse_differences(found[0], config, data, job.start)
        checkpoints.go_back(found[0])
        if job.start:
            flag = "--encoder-from" if job.start.encoder else "--from"
            note = f"{flag} {job.start.path} applies only to the start of a run: ignored"
            print(note, file=sys.stderr)
    return found


@contextmanager
def _set_up(
    job: TrainJob, config: Config, data: DataSet, checkpoint: Path | None, processes: Processes
) -> Iterator[Run]:
    """Put together the model, optimiser, batches and log files."""
    training = config.training
    with processes.together():
        torch.manual_seed(training.seed)
        model = Transformer(config.model)
        notes = check_trees_fit(data, config)
        origin = remembered(saved.read_manifest(checkpoint)["about"]) if checkpoint else {}
        if job.start and checkpoint is None:
            origin, of_start = job.start.begin(model, data)
            notes += of_start
        model.to(processes.device)
        frozen = freeze(model, training.freeze)
        if frozen:
            notes.append(f"{len(frozen)} weights are frozen (training.freeze)")
        bf16 = uses_bf16(training, config.model, processes.device)
        batches = Batches(data, config.batch, seed=training.seed, shares=processes.world)
    longest = batches.longest["source"], batches.longest["target"]
    objective = Objective(model, training.label_smoothing, longest, training.agreement)
    wrapped = processes.wrap(objective, training.sharded)
    average = MovingAverage(model, training.average_decay) if training.average_decay else None
    state = State(model=model, optimiser=Optimiser(model, training), average=average)
    if checkpoint:
        restore(state, checkpoint, processes, training)
        notes.append(f"resumed {checkpoint.name}: epoch {state.position.epoch}, batch {state.position.step}")
    with ExitStack() as stack:
        live: Live = _Silent()
        files: list[MetricsFile | EventFile] = []
        if processes.first:
            write_json(job.out / "config.json", strict.to_dict(config))
            files = [
                MetricsFile(job.out / METRICS, after=state.step),
                EventFile(job.out / EVENTS, after=state.step),
            ]
            for file in files:
                stack.callback(file.close)
            precision = "bf16" if bf16 else "float32"
            print(
                f"model: {config.model.parameters():,} parameters, {config.model.vocabulary:,} subwords\n"
                f"data: {data.train.pairs:,} pairs, {len(batches.plan(0)):,} batches an epoch of at most "
                f"{config.batch.source_tokens:,} + {config.batch.target_tokens:,} tokens\n"
                f"on {processes.world} × {processes.device.type} in {precision}",
                file=sys.stderr,
            )
            if steps_take_long(config, processes.device):
                notes.append(describe_long_steps(config))
            until = None if job.seconds is None else state.seconds + job.seconds
            others = {"epochs": training.epochs, "tokens": training.tokens}
            live = stack.enter_context(show_training(training.steps, state.step, until, **others))
            if "dev" not in data.splits or data.dev.pairs == 0:
                notes.append(
                    "the data set has no dev set: checkpoints are not validated; prepare with --dev-split 2000"
                )
        for note in notes:
            live.say(note)
        autocast = _autocast(processes.device, bf16)
        captured = None
        if captures(training, config.model, processes):
            captured = CapturedStep(objective, state.optimiser, autocast)
        yield Run(
            folder=job.out,
            config=config,
            data=data,
            batches=batches,
            processes=processes,
            state=state,
            objective=wrapped,
            origin=origin,
            autocast=autocast,
            limits=Limits(training, job.seconds),
            meter=Meter(
                config.model,
                batches,
                peak_rate(processes.device, bf16),
                processes.world,
                passes=2 if training.agreement else 1,
            ),
            live=live,
            files=files,
            captured=captured,
        )


def _autocast(device: torch.device, bf16: bool) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()


def _finish(run: Run, reason: str) -> Outcome:
    """Choose the final weights unless the run was interrupted, and write the summary and the curves."""
    state, out = run.state, run.folder
    if not run.processes.first:
        return Outcome(reason, [])
    summary = [
        ("ended", f"{reason} at step {state.step:,}"),
        (
            "trained",
            f"{format_count(state.tokens)} tokens in {format_seconds(state.seconds)}, {_power(state.flops)} FLOPs",
        ),
    ]
    try:
        if reason.startswith("signal "):
            summary.append(("go on", "the same command with --resume"))
        else:
            summary += _choose_model(run)
        train_metrics, dev_metrics = read_metrics(out / METRICS, name=None)
        write_json(out / "summary.json", dict(summary))
        write_curve(out / CURVE, train_metrics, dev_metrics, out.name, summary)
    except OSError as error:
        raise TransduceError(
            f"{out}: {reason}, but model, summary and curve could not all be written: {error.strerror or error}; the "
            "checkpoints are intact: free disk space, and repeat the command with --resume"
        ) from error
    summary.append(("curve", str(out / CURVE)))
    return Outcome(reason, summary)


def _power(number: float) -> str:
    """Format a large number as in the paper's Table 2: 3.3e18."""
    return f"{number:.1e}".replace("e+", "e")


def _choose_model(run: Run) -> list[tuple[str, str]]:
    """Write the run's model: the best on the dev set among the mean of the last checkpoints, the best and the last."""
    training = run.config.training
    checkpoints = Checkpoints(run.folder)
    newest, best = checkpoints.all()[-1:], checkpoints.best(1, training.best_by)
    last = checkpoints.regular()[-training.average_checkpoints :]
    whole = {folder for folder in {*newest, *best, *last} if _is_whole(folder)}
    last = [folder for folder in last if folder in whole]
    candidates: list[tuple[float, str, list[Path], dict[str, Any] | None]] = []
    lines: list[tuple[str, str]] = []
    for name, folders in (
        ("the last checkpoint", newest),
        ("the best checkpoint", best),
        (f"the mean of the last {len(last)} checkpoints", last if len(last) > 1 else []),
    ):
        if not folders or not whole.issuperset(folders):
            continue
        dev = _dev_scores(run, folders)
        if dev is None:
            candidates.append((-len(folders), name, folders, None))  # without dev scores, the mean, as in the paper
            continue
        candidates.append((rank_score(dev, training.best_by), name, folders, dev))
        metrics = DevMetrics(step=0, seconds=0, best=False, **dev)
        lines.append((name, f"{_step_names(folders)}: {metrics.describe(training.best_by)}"))
    if not candidates:
        raise DataError(f"{checkpoints.folder}: all checkpoints are damaged, so there is no model to write")
    _, name, folders, dev = min(candidates, key=lambda candidate: candidate[0])
    about = {"made_from": [folder.name for folder in folders], "what": name, "dev": dev, **run.describe()}
    weights = mean_weights(folders)
    for split in run.data.watched:
        if found := score(run, weights, split):
            about.setdefault("watched", {})[split] = asdict(found)
            metrics = DevMetrics(step=0, seconds=0, best=False, **asdict(found))
            lines.append((split, f"perplexity {metrics.perplexity:.3f}{metrics.search_score} of {name}"))
    if places := _find_places(run, weights):
        about["alignment"] = write_places(places)
    saved.save_model(run.folder / MODEL, run.config, weights, run.data.subwords, about)
    why = f", whose {BEST_BY[training.best_by]}" if dev else ""
    return [*lines, ("model", f"{run.folder / MODEL} is {name}{why}")]


def _find_places(run: Run, weights: Mapping[str, Tensor]) -> list[Place]:
    """Return the heads that align words best on the dev set; none for trees, or if the dev set is too small to tell."""
    if "dev" not in run.data.splits or run.data.manifest["config"].get("task") == "parsing":
        return []
    model = Transformer(run.config.model).eval()  # on the CPU, so that the choice does not depend on the device
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])
    held = run.data.dev
    pairs = [(held.tokens("source", pair), held.tokens("target", pair)) for pair in held.spread(FOR_PLACES)]
    return find_places(model, pairs, run.data.subwords)


def _is_whole(folder: Path) -> bool:
    try:
        damage = saved.find_damage(folder, saved.read_manifest(folder))
    except DataError as error:
        damage = str(error)
    if damage:
        print(f"{damage}; {folder.name} is left out of the final model", file=sys.stderr)
    return damage is None


def _dev_scores(run: Run, folders: list[Path]) -> dict[str, Any] | None:
    known = saved.read_manifest(folders[0])["about"]["dev"] if len(folders) == 1 else None
    if known and known.get(run.config.training.best_by) is not None:
        return known
    scores = score(run, mean_weights(folders))
    return scores and asdict(scores)


def _step_names(folders: list[Path]) -> str:
    return " to ".join(dict.fromkeys(folder.name for folder in (folders[0], folders[-1])))
