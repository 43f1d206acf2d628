"""Checkpoints: all that a run needs to resume exactly, in folders that are written whole or not at all.

    RUN/checkpoints/step-00001000/    a model's folder (`model/saved.py`), with the dev scores in its manifest
    …/resume.safetensors              the optimiser's moments; also the weights, if model.safetensors has their average

Random numbers need not be saved: each step seeds its own from the run's seed, the step and the process. Only the last
two checkpoints can be resumed. A checkpoint saved only because the run was asked to stop is not scored and serves for
nothing else, so that an interrupted run ends with the same model as any other.
"""

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import Config, TrainingConfig
from transduce.disk import describe_file, move, sync_folder
from transduce.errors import DataError
from transduce.model import saved
from transduce.model.transformer import Transformer
from transduce.text.batches import START, Position
from transduce.training.distributed import Processes, put, whole
from transduce.training.optimiser import MovingAverage, Optimiser

RESUME = "resume.safetensors"
RESUMABLE = 2  # checkpoints that keep the optimiser's state: the last, and one to fall back to
_NAME = re.compile(r"step-\d{8,}")


@dataclass(kw_only=True)
class State:
    """All that must survive a restart."""

    model: Transformer
    optimiser: Optimiser
    average: MovingAverage | None = None
    step: int = 0
    position: Position = START
    tokens: int = 0
    flops: float = 0.0  # as `training_work` counts them, up to the last line of the log
    seconds: float = 0.0
    skipped: int = 0
    best: float | None = None
    best_step: int = 0
    without_best: int = 0  # validations since the best one

    def counters(self) -> dict[str, Any]:
        """Return the fields that are plain numbers, for JSON."""
        names = [field.name for field in fields(self) if field.name not in ("model", "optimiser", "average")]
        return {name: getattr(self, name) for name in names}

    def restore_counters(self, counters: Mapping[str, Any]) -> None:
        """Restore those fields."""
        for name, value in counters.items():
            setattr(self, name, Position(*value) if name == "position" else value)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to translate with, the moving average if there is one; all processes must call."""
        named = self.average.weights if self.average else dict(self.model.named_parameters())
        return {name: whole(weight.detach()) for name, weight in named.items()}

    def resumable(self) -> dict[str, Tensor]:
        """Return the tensors that only a resumed run needs; all processes must call."""
        tensors = {name: whole(tensor) for name, tensor in self.optimiser.moments()}
        if self.average:
            tensors |= {f"weight.{name}": whole(w.detach()) for name, w in self.model.named_parameters()}
        return tensors

    def restore(self, weights: Mapping[str, Tensor], resumable: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        current = {n.removeprefix("weight."): t for n, t in resumable.items() if n.startswith("weight.")} or weights
        for name, weight in self.model.named_parameters():
            put(weight, current[name])
        if self.average:
            for name, weight in self.average.weights.items():
                put(weight, weights[name])
        self.optimiser.restore(resumable)


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, run: Path):
        self.folder = run / "checkpoints"

    def all(self) -> list[Path]:
        """Return their folders, the oldest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        named = (path for path in found if _NAME.fullmatch(path.name))
        return sorted(named, key=lambda path: int(path.name.removeprefix("step-")))

    def save(
        self, state: State, config: Config, subwords: saved.Vocabularies, about: dict[str, Any], rank: int
    ) -> Path:
        """Write a checkpoint, all or nothing; all processes must call, only the first writes."""
        folder = self.folder / f"step-{state.step:08d}"
        weights, resumable = state.weights(), state.resumable()
        if rank == 0:

            def write(partial: Path) -> None:
                saved.write_tensors(partial / RESUME, resumable)
                resume = {RESUME: describe_file(partial / RESUME)}
                more = {**about, "state": state.counters()}
                saved.write_model(partial, config, weights, subwords, more, resume=resume)

            saved.write_folder(folder, write)
        return folder

    def regular(self) -> list[Path]:
        """Return the checkpoints, the oldest first, except those saved only because the run was asked to stop."""
        found: list[Path] = []
        for folder in self.all():
            with suppress(DataError):
                if not saved.read_manifest(folder)["about"].get("interrupted"):
                    found.append(folder)
        return found

    def prune(self, last: int, best: int, best_by: str) -> None:
        """Remove checkpoints that are neither among the last nor the best; only the last two keep their optimiser."""
        everything = self.all()
        kept = {*everything[-RESUMABLE:], *self.regular()[-last:], *self.best(best, best_by)}
        for folder in everything:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)
        for folder in everything[:-RESUMABLE]:
            (folder / RESUME).unlink(missing_ok=True)
        saved.remove_leftovers(self.folder)
        if self.folder.is_dir():
            sync_folder(self.folder)

    def best(self, count: int, by: str) -> list[Path]:
        """Return the checkpoints with the best dev scores, the best first."""
        scored: list[tuple[float, Path]] = []
        for folder in self.all():
            with suppress(DataError):
                dev = saved.read_manifest(folder)["about"].get("dev")
                if dev and dev.get(by) is not None:
                    scored.append((rank_score(dev, by), folder))
        return [folder for _, folder in sorted(scored)[:count]]

    def newest_good(self) -> tuple[Path, list[str]] | None:
        """Return the newest checkpoint that is whole and can be resumed, and what is wrong with newer ones."""
        problems: list[str] = []
        for folder in reversed(self.all()):
            problem = find_damage(folder)
            if problem is None:
                return folder, problems
            problems.append(problem)
        if problems:
            remedy = "start a new run in another --out, with --from and a checkpoint whose weights are intact"
            raise DataError("\n".join([*problems, f"{self.folder}: no checkpoint can be resumed; {remedy}"]))
        return None

    def go_back(self, folder: Path) -> None:
        """Hide the damaged checkpoints after this one, so that none counts as the last; the next save removes them."""
        for damaged in self.all()[self.all().index(folder) + 1 :]:
            hidden = self.folder / f".old-{damaged.name}-damaged"
            shutil.rmtree(hidden, ignore_errors=True)
            move(damaged, hidden)


def rank_score(dev: Mapping[str, Any], by: str) -> float:
    """Return a dev score as a number that is smaller when it is better.

    The loss is the smoothed one, which training minimises: the plain one also falls when a model grows too confident.
    """
    return dev["loss"] if by == "loss" else -dev[by]


def find_damage(folder: Path) -> str | None:
    """Say why a checkpoint cannot be resumed; return None if it can."""
    try:
        manifest = saved.read_manifest(folder)
    except DataError as error:
        return str(error)
    resume = manifest.get("resume", {})
    if RESUME not in resume:
        return f"{folder}: was saved without what resuming needs"
    if not (folder / RESUME).exists():
        return f"{folder / RESUME}: is missing (only the last {RESUMABLE} checkpoints keep it)"
    return saved.find_damage(folder, {"files": {**manifest["files"], **resume}})


def restore(state: State, folder: Path, processes: Processes, training: TrainingConfig) -> None:
    """Restore the state from a checkpoint: the first process reads it and sends it to the others.

    The best score so far is forgotten if `best_by` or the label smoothing has changed.
    """
    counters: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    resumable: dict[str, Tensor] = {}
    if processes.first:
        counters = saved.read_manifest(folder)["about"]["state"]
        before = saved.read_config(folder).training
        if (before.best_by, before.label_smoothing) != (training.best_by, training.label_smoothing):
            counters |= {"best": None, "best_step": 0, "without_best": 0}
        weights, resumable = saved.read_tensors(folder / saved.WEIGHTS), saved.read_tensors(folder / RESUME)
    state.restore(processes.share_tensors(weights), processes.share_tensors(resumable))
    state.restore_counters(processes.share(counters))
