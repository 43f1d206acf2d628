"""Checkpoints: all that a run needs to go on exactly, in folders that are whole or not there.

    RUN/checkpoints/step-00001000/    a model's folder (`model/saved.py`), with the dev scores in its manifest
    …/resume.safetensors              Adam's moments; also the weights, where model.safetensors holds their average

Random numbers need no place of their own: those of a step are drawn from a seed made of the run's seed, the step and
the process. Only the last two checkpoints keep what is needed to resume. A checkpoint made because somebody asked the
run to stop is not scored and counts for nothing else, so that an interrupted run ends with the same model as any other.
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
RESUMABLE = 2  # how many checkpoints keep the optimiser: the last, and one to fall back to
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
        """What is no tensor, as JSON can hold it."""
        names = [field.name for field in fields(self) if field.name not in ("model", "optimiser", "average")]
        return {name: getattr(self, name) for name in names}

    def restore_counters(self, counters: Mapping[str, Any]) -> None:
        """Put those back."""
        for name, value in counters.items():
            setattr(self, name, Position(*value) if name == "position" else value)

    def weights(self) -> dict[str, Tensor]:
        """The weights to translate with: the moving average if there is one; all processes must call."""
        named = self.average.weights if self.average else dict(self.model.named_parameters())
        return {name: whole(weight.detach()) for name, weight in named.items()}

    def resumable(self) -> dict[str, Tensor]:
        """What only a resumed run needs; all processes must call."""
        tensors = {name: whole(tensor) for name, tensor in self.optimiser.moments()}
        if self.average:
            tensors |= {f"weight.{name}": whole(w.detach()) for name, w in self.model.named_parameters()}
        return tensors

    def restore(self, weights: Mapping[str, Tensor], resumable: Mapping[str, Tensor]) -> None:
        """Put the tensors of a checkpoint in place."""
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
        """Their folders, the oldest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        named = (path for path in found if _NAME.fullmatch(path.name))
        return sorted(named, key=lambda path: int(path.name.removeprefix("step-")))

    def save(
        self, state: State, config: Config, subwords: saved.Vocabularies, about: dict[str, Any], rank: int
    ) -> Path:
        """Write a checkpoint, all or nothing; all processes must call, the first one writes."""
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
        """Those that were due or the last of their run, the oldest first; not those of a run asked to stop."""
        found: list[Path] = []
        for folder in self.all():
            with suppress(DataError):
                if not saved.read_manifest(folder)["about"].get("interrupted"):
                    found.append(folder)
        return found

    def prune(self, last: int, best: int, best_by: str) -> None:
        """Remove checkpoints that are neither among the last nor among the best; older ones lose their optimiser."""
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
        """The checkpoints with the best dev scores, the best first."""
        scored: list[tuple[float, Path]] = []
        for folder in self.all():
            with suppress(DataError):
                dev = saved.read_manifest(folder)["about"].get("dev")
                if dev and dev.get(by) is not None:
                    scored.append((rank_score(dev, by), folder))
        return [folder for _, folder in sorted(scored)[:count]]

    def newest_good(self) -> tuple[Path, list[str]] | None:
        """The newest checkpoint that is whole and can be resumed, and what is wrong with the newer ones."""
        problems: list[str] = []
        for folder in reversed(self.all()):
            problem = find_damage(folder)
            if problem is None:
                return folder, problems
            problems.append(problem)
        if problems:
            remedy = "begin a new run in another --out, with --from and a checkpoint whose weights are whole"
            raise DataError("\n".join([*problems, f"{self.folder}: no checkpoint can be resumed; {remedy}"]))
        return None

    def go_back(self, folder: Path) -> None:
        """Hide the damaged checkpoints after this one, so that none passes for the last; the next save removes them."""
        for damaged in self.all()[self.all().index(folder) + 1 :]:
            hidden = self.folder / f".old-{damaged.name}-damaged"
            shutil.rmtree(hidden, ignore_errors=True)
            move(damaged, hidden)


def rank_score(dev: Mapping[str, Any], by: str) -> float:
    """A dev score that is smaller when it is better.

    The loss is the smoothed one, which training makes small: the plain one also falls when a model grows too sure.
    """
    return dev["loss"] if by == "loss" else -dev[by]


def find_damage(folder: Path) -> str | None:
    """Say why a checkpoint cannot be resumed, or nothing."""
    try:
        manifest = saved.read_manifest(folder)
    except DataError as error:
        return str(error)
    resume = manifest.get("resume", {})
    if RESUME not in resume:
        return f"{folder}: was not made to be resumed"
    if not (folder / RESUME).exists():
        return f"{folder / RESUME}: is not there (only the last {RESUMABLE} checkpoints keep it)"
    return saved.find_damage(folder, {"files": {**manifest["files"], **resume}})


def restore(state: State, folder: Path, processes: Processes, training: TrainingConfig) -> None:
    """Put a checkpoint's contents into the state: the first process reads, the others are sent them.

    What was best until now counts for nothing if it is to be judged by another score from now on.
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
