"""The metrics (sacreBLEU's, exact match, brackets) for a whole set, for each sentence and for any choice of sentences.

Each metric counts something in every sentence (matching n-grams, edits) and computes its score from sums of these
counts. Counting is done once; the scores of the set, of its sentences and of its resamples all come from the counts.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from transduce.errors import UsageError, suggest
from transduce.progress import show_progress
from transduce.scoring.bleu import DEFAULT_TOKENIZER, make_bleu
from transduce.scoring.paper import SPLIT_COMPOUNDS, make_paper_bleu
from transduce.scoring.parseval import Parseval
from transduce.text.parallel import parallel_map, usable_cores

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

    from transduce.scoring.texts import Texts

METRICS = ("bleu", "chrf", "chrf++", "ter", "exact", "paper")
OF_TREES = ("parseval",)  # a metric with several scores
TITLES = {
    "bleu": "sacreBLEU",
    "chrf": "chrF2",
    "chrf++": "chrF2++",
    "ter": "TER",
    "exact": "exact match",
    "paper": "paper's BLEU",
    "comet": "COMET",
    "f1": "labelled F1",
    "precision": "labelled precision",
    "recall": "labelled recall",
    "complete": "complete match",
    "crossing": "crossing brackets",
    "no_crossing": "no crossing",
}
LOWER_IS_BETTER = frozenset({"ter", "crossing"})
# Approximate cost of a sentence, relative to BLEU's.
WORK = {"bleu": 1, "chrf": 3, "chrf++": 3, "ter": 25, "exact": 0, "paper": 2, "parseval": 3}
SENTENCES = 128  # counted at a time
WORKER = 10_000  # work that justifies one more process: a few seconds

References = Sequence[Sequence[str | None]]


@dataclass(frozen=True)
class MetricSettings:
    """Settings of the metrics: sacreBLEU's tokenizer, lower case, and the language of the paper's tokens."""

    tokenize: str = DEFAULT_TOKENIZER
    lowercase: bool = False
    language: str | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """What a metric found in one system's translations."""

    name: str
    signature: str
    counts: np.ndarray  # sentences × the numbers that the metric adds up
    compute: Callable[[list[float]], float]  # from their sums to a score
    sentences: np.ndarray | None = None  # the score of each sentence, if single sentences have one

    @property
    def title(self) -> str:
        """The name to show for the metric."""
        return TITLES[self.name]

    @property
    def decimals(self) -> int:
        """How many decimals to print: COMET goes from 0 to 1, the others to 100."""
        return 4 if self.name == "comet" else 2

    @property
    def sign(self) -> int:
        """1 if higher is better, −1 if lower is."""
        return -1 if self.name in LOWER_IS_BETTER else 1

    @property
    def value(self) -> float:
        """The score of the whole set."""
        return self.score_of(self.counts)

    def score_of(self, counts: np.ndarray) -> float:
        """Return the score of some sentences, given their counts."""
        return self.compute(counts.sum(axis=0).tolist())


def check_metrics(names: Sequence[str], settings: MetricSettings) -> None:
    """Refuse metrics that are unknown or cannot be set up, before any text is read."""
    for name in names:
        if name not in METRICS + OF_TREES:
            remedy = suggest(name, METRICS + OF_TREES) or f"; choose among {', '.join(METRICS + OF_TREES)}"
            raise UsageError(f"unknown metric {name}{remedy}")
        if name == "paper" and settings.language is None:
            raise UsageError(
                "the paper's BLEU is tokenised by language; give that of the references, such as --language de"
            )
    for name in names:
        _make(name, settings)


def explain(name: str, settings: MetricSettings) -> str:
    """Say in a few words what a score is."""
    match name:
        case "bleu":
            return "on plain text with sacreBLEU's own tokens: to compare with papers that give a signature"
        case "paper" if settings.language in SPLIT_COMPOUNDS:
            return "on Moses tokens with compounds split: to compare with Table 2 of the paper"
        case "paper":
            return "on Moses tokens: to compare with Table 2 of the paper"
        case "chrf" | "chrf++":
            return "F-score of character n-grams" + (" and words" if name == "chrf++" else "")
        case "ter":
            return "edits per 100 words of the reference; lower is better"
        case "exact":
            return "translations that equal a reference, in %"
        case "f1":
            return "brackets with their labels, by EVALB's rules: to compare with Table 4 of the paper"
        case "precision" | "recall":
            whose = "found" if name == "precision" else "of the reference"
            return f"brackets {whose} that are right, in %"
        case "complete":
            return "sentences with all brackets right, in %"
        case "crossing":
            return "brackets of a sentence that cross the reference's; lower is better"
        case "no_crossing":
            return "sentences without such brackets, in %"
        case _:
            return "a learned metric that reads the source as well"


def measure(
    texts: "Texts", names: Sequence[str], settings: MetricSettings, workers: int | None = None
) -> list[list[Measured]]:
    """Measure each system by each metric, on as many processes as help; return a list of results for each system."""
    counts: dict[tuple[int, str], list[list[float]]] = {}
    parts = list(_cut(texts, names))
    total = sum(WORK[part.name] * len(part.hypotheses) for part in parts)
    workers = workers or max(1, min(usable_cores(), total // WORKER))
    with (
        show_progress("score", total, "sentences") as task,
        closing(parallel_map(_Counter, (settings,), parts, workers)) as counted,
    ):
        done = sentences = 0
        for part, found in zip(parts, counted):
            counts.setdefault((part.system, part.name), []).extend(found)
            done += WORK[part.name] * len(part.hypotheses)
            sentences += len(part.hypotheses)
            task.update(done, sentences)
    numbers = {len(texts.references_of(line)) for line in range(texts.sentences)}
    several = numbers.pop() if len(numbers) == 1 else -1  # as sacreBLEU marks a number that varies
    made = {name: _make(name, settings) for name in names}
    return [
        [found for name in names for found in _finish(name, made[name], counts[number, name], several)]
        for number in range(len(texts.systems))
    ]


def mean_of(name: str, signature: str, values: Sequence[float] | np.ndarray, scale: float = 1.0) -> Measured:
    """Return the result of a metric whose score is the mean of its sentences' scores."""
    counts = np.stack([np.asarray(values, float), np.ones(len(values))], axis=1)
    return Measured(name, signature, counts, _Mean(scale), counts[:, 0] * scale)


@dataclass(frozen=True)
class _Mean:
    scale: float

    def __call__(self, sums: list[float]) -> float:
        return self.scale * sums[0] / max(1.0, sums[1])


@dataclass(frozen=True)
class _Part:
    """Some sentences of one system for one metric."""

    name: str
    system: int
    hypotheses: list[str]
    references: list[list[str | None]]


def _cut(texts: "Texts", names: Sequence[str]) -> Iterator[_Part]:
    # The slowest first, so that workers finish together.
    for name in sorted(names, key=lambda name: -WORK[name]):
        for number, system in enumerate(texts.systems):
            for first in range(0, texts.sentences, SENTENCES):
                some = slice(first, first + SENTENCES)
                yield _Part(name, number, system.lines[some], [reference[some] for reference in texts.references])


@dataclass
class _Counter:
    """Counts for all metrics; every worker process has one."""

    settings: MetricSettings
    made: dict[str, "_Sacre | _Exact | Parseval"] = field(default_factory=dict)

    def __call__(self, part: _Part) -> list[list[float]]:
        if part.name not in self.made:
            self.made[part.name] = _make(part.name, self.settings)
        return self.made[part.name].count(part.hypotheses, part.references)


class _Sacre:
    """A metric of sacreBLEU, used through private methods, as there is no other way to its counts."""

    def __init__(self, metric: "Metric", single: "Metric | None"):
        self.metric = metric
        self.single = single  # the metric for one sentence

    def count(self, hypotheses: list[str], references: References) -> list[list[float]]:
        return self.metric._extract_corpus_statistics(hypotheses, references)  # pyright: ignore[reportArgumentType]

    def compute(self, sums: list[float]) -> float:
        return float(self.metric._compute_score_from_stats(sums).score)

    def compute_single(self, counts: list[float]) -> float:
        assert self.single
        return float(self.single._compute_score_from_stats(counts).score)

    def signature(self, references: int) -> str:
        self.metric.num_refs = references
        return str(self.metric.get_signature())


class _Exact:
    """Whether a translation equals one of its references, ignoring space around it."""

    single = True

    def __init__(self, lowercase: bool):
        self.lowercase = lowercase

    def count(self, hypotheses: list[str], references: References) -> list[list[float]]:
        wanted = [{self._plain(some) for some in others if some is not None} for others in zip(*references)]
        return [[float(self._plain(line) in some), 1.0] for line, some in zip(hypotheses, wanted)]

    def compute(self, sums: list[float]) -> float:
        return _Mean(100.0)(sums)

    compute_single = compute

    def signature(self, references: int) -> str:
        number = references if references > 0 else "var"
        return f"nrefs:{number}|case:{'lc' if self.lowercase else 'mixed'}"

    def _plain(self, line: str) -> str:
        return line.strip().lower() if self.lowercase else line.strip()


def _make(name: str, settings: MetricSettings) -> _Sacre | _Exact | Parseval:
    if name == "parseval":
        return Parseval()
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    lowercase = settings.lowercase
    match name:
        case "bleu":
            # A short sentence is scored on the n-grams that it has, as sacreBLEU advises.
            single = make_bleu(settings.tokenize, lowercase=lowercase, effective_order=True)
            return _Sacre(make_bleu(settings.tokenize, lowercase=lowercase), single)
        case "chrf" | "chrf++":
            chrf = CHRF(word_order=2 if name == "chrf++" else 0, lowercase=lowercase)
            return _Sacre(chrf, chrf)
        case "ter":
            ter = TER()
            return _Sacre(ter, ter)
        case "paper":
            assert settings.language
            # Without smoothing, a sentence without a matching 4-gram has no score.
            return _Sacre(make_paper_bleu(settings.language, lowercase=lowercase), None)
        case _:
            return _Exact(lowercase)


def _finish(
    name: str, made: _Sacre | _Exact | Parseval, counts: list[list[float]], references: int
) -> Iterator[Measured]:
    if isinstance(made, Parseval):
        for one in made.names:
            compute = partial(made.compute, one)
            sentences = np.array([compute(some) for some in counts])
            yield Measured(one, made.signature(), np.array(counts, float), compute, sentences)
        return
    sentences = np.array([made.compute_single(some) for some in counts]) if made.single else None
    yield Measured(name, made.signature(references), np.array(counts, float), made.compute, sentences)
