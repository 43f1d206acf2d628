"""What `transduce score` is asked for, and its results."""

from dataclasses import dataclass
from pathlib import Path

from transduce.scoring.metrics import Measured, MetricSettings
from transduce.scoring.perplexity import Likelihood
from transduce.scoring.significance import SAMPLES, SEED, Comparison, Confidence
from transduce.scoring.texts import STANDARD_INPUT, Texts, name_of

EXAMPLES = 20


@dataclass(frozen=True, kw_only=True)
class ScoreJob:
    """What to score, against what and how, and which files to write."""

    systems: tuple[Path, ...]
    references: tuple[Path, ...]
    source: Path | None = None
    metrics: tuple[str, ...] = ()
    language: str | None = None
    tokenize: str | None = None
    lowercase: bool = False
    samples: int = SAMPLES
    seed: int = SEED
    comet: str | None = None
    sentences: Path | None = None
    report: Path | None = None
    examples: int = EXAMPLES
    workers: int | None = None
    json: bool = False
    leave_out: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Score:
    """One metric's score of one system, its confidence interval, and the comparison with the first system's score."""

    measured: Measured
    confidence: Confidence | None = None
    comparison: Comparison | None = None

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.measured.name

    @property
    def value(self) -> float:
        """The score of the whole set."""
        return self.measured.value

    @property
    def signature(self) -> str:
        """What exactly was computed, so that others can repeat it."""
        return self.measured.signature


@dataclass(frozen=True)
class ScoreReport:
    """All results: for each system a list of scores, with the same metrics in each."""

    job: ScoreJob
    settings: MetricSettings
    texts: Texts
    scores: list[list[Score]]
    likelihood: Likelihood | None = None

    @property
    def reference_names(self) -> str:
        """The names of the reference files."""
        return " + ".join(path.name if path != STANDARD_INPUT else name_of(path) for path in self.job.references)
