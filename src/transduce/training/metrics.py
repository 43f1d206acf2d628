"""What training measures, and the file that keeps it: metrics.jsonl, one JSON object per line."""

import json
import math
import sys
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from transduce.disk import replace_file
from transduce.errors import DataError
from transduce.strict import to_dict

# What makes a checkpoint the best, by training.best_by.
BEST_BY = {"loss": "smoothed dev loss is lowest", "bleu": "dev BLEU is highest", "f1": "dev F1 is highest"}

T = TypeVar("T", "TrainMetrics", "DevMetrics")


@dataclass(frozen=True, kw_only=True)
class TrainMetrics:
    """Metrics of training over one logging interval."""

    step: int
    """Last optimiser step of the interval."""
    epoch: float
    """Passes over the data so far, with the fraction of the current one."""
    loss: float
    """Loss with label smoothing, in nats per target token, mean over the interval."""
    plain: float
    """Cross-entropy without label smoothing, in nats per target token, mean over the interval."""
    rate: float
    """Learning rate of the last step."""
    norm: float
    """Norm of the gradient before clipping, mean over the interval."""
    tokens: int
    """Source and target tokens since the run began."""
    tokens_per_second: float
    """Source and target tokens per second over the interval."""
    peak_share: float | None
    """Share of the hardware's peak arithmetic rate; None if that is unknown."""
    padding_saved: float
    """Share of the positions that padded batches would have wasted, from 0 to 1."""
    seconds: float
    """Training time since the run began, over all restarts."""
    skipped: int = 0
    """Updates skipped so far because they were not finite."""
    flops: float = 0.0
    """Floating-point operations of the matrix products since the run's beginning: the training cost of Table 2."""

    @property
    def perplexity(self) -> float:
        """Perplexity of the plain loss."""
        return _exp(self.plain)


@dataclass(frozen=True, kw_only=True)
class DevMetrics:
    """Scores of the model on the dev set, or on a set that is watched."""

    step: int
    """Optimiser step after which the model was scored."""
    loss: float
    """Loss with label smoothing, in nats per target token."""
    plain: float
    """Cross-entropy without label smoothing, in nats per target token."""
    bleu: float | None
    """BLEU of greedy translations; None if it was not measured."""
    signature: str | None
    """sacreBLEU's signature of that score."""
    seconds: float
    """Training time since the run began, over all restarts."""
    best: bool
    """Whether this is the best so far."""
    f1: float | None = None
    """Labelled F1 of greedy trees; None if it was not measured."""
    weights: str = "current"
    """Which weights were scored: `current`, or `average` for their moving average."""
    name: str = "dev"
    """Name of the set: `dev`, or one that is only watched."""

    @property
    def perplexity(self) -> float:
        """Perplexity of the plain loss."""
        return _exp(self.plain)

    @property
    def search_score(self) -> str:
        """Scores of a search, as text to follow the losses: `, BLEU 27.3`, `, F1 88.1` or nothing."""
        named = (("BLEU", self.bleu), ("F1", self.f1))
        return "".join(f", {name} {value:.1f}" for name, value in named if value is not None)

    def describe(self, by: str) -> str:
        """Return the score that decides what is best, with enough digits to tell rivals apart, and then the others."""
        match by:
            case "loss":
                return f"smoothed dev loss {self.loss:.4f}, perplexity {self.perplexity:.3f}{self.search_score}"
            case "bleu":
                return f"dev BLEU {self.bleu:.2f}, perplexity {self.perplexity:.3f}"
            case _:
                return f"dev F1 {self.f1:.2f}, perplexity {self.perplexity:.3f}"


class Journal:
    """A file that grows record by record; a full disk loses records, but never ends the training."""

    def __init__(self, path: Path):
        self.path, self.warned = path, False
        self.file = path.open("ab", buffering=0)
        self.end = self.file.tell()

    def append(self, record: bytes) -> None:
        """Write one record, whole or not at all."""
        rest = memoryview(record)
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
            self.end += len(record)
        except OSError as error:
            with suppress(OSError):
                self.file.truncate(self.end)  # half a record would damage the next one
            if not self.warned:
                self.warned = True
                warning = f"warning: {self.path}: cannot be written: {error.strerror}; training continues"
                with suppress(OSError):  # standard error may go to the same full disk
                    print(warning, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # nothing is buffered, so nothing is lost here
            self.file.close()


class MetricsFile:
    """The metrics.jsonl of a run."""

    def __init__(self, path: Path, *, after: int):
        # Drop what lies past the checkpoint that a run resumes from: it will be logged again.
        kept: list[bytes] = []
        if after and path.exists():
            kept = [line for line in path.read_bytes().splitlines() if _step(line) <= after]
        replace_file(path, b"".join(line + b"\n" for line in kept))
        self.journal = Journal(path)

    def write(self, metrics: TrainMetrics | DevMetrics) -> None:
        """Append one line, visible to readers of the file at once."""
        kind = "train" if isinstance(metrics, TrainMetrics) else "dev"
        values = {"kind": kind, **to_dict(metrics), "perplexity": metrics.perplexity}
        # JSON has no NaN and no infinity.
        finite = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}
        self.journal.append(json.dumps(finite, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self.journal.close()


class _LineError(ValueError):
    """A line that is JSON, but not metrics."""


def read_metrics(path: Path, name: str | None = "dev") -> tuple[list[TrainMetrics], list[DevMetrics]]:
    """Read metrics.jsonl: training, and one dev set (None: all); numbers that were not finite are returned as nan."""
    train: list[TrainMetrics] = []
    dev: list[DevMetrics] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            values = json.loads(line)
            match values:
                case {"kind": "train"}:
                    train.append(_read(TrainMetrics, values))
                case {"kind": "dev"}:
                    dev.append(_read(DevMetrics, values))
                case _:
                    raise _LineError('its "kind" is neither "train" nor "dev"')
        except ValueError as error:
            problem = error if isinstance(error, _LineError) else "it is not JSON"
            raise DataError(f"{path}: line {number} is damaged: {problem}; remove it") from None
    return train, [metrics for metrics in dev if name in (None, metrics.name)]


def _read(cls: type[T], values: dict[str, Any]) -> T:
    """Return the metrics of a line, or raise an error that says what is wrong with it."""
    given: dict[str, Any] = {}
    for field in fields(cls):
        value, kind = values.get(field.name, field.default), cast(type, field.type)
        if value is None and kind is float:
            value = math.nan
        if isinstance(value, int) and kind in (float, float | None):
            value = float(value)
        if not isinstance(value, kind):
            raise _LineError(f"{field.name} is {'missing' if value is MISSING else json.dumps(value)}")
        given[field.name] = value
    return cls(**given)


def _step(line: bytes) -> float:
    """Return the step of a line, or infinity if it is damaged, like the last line of a run that was killed."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return math.inf
    return step if isinstance(step, int) else math.inf


def _exp(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
