"""The perplexity of the references under a model, per subword token."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import DataError


@dataclass(frozen=True)
class Likelihood:
    """The references under a model: the log-probability of each in nats, and its number of tokens, the end included."""

    log_probabilities: Sequence[float]
    tokens: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.log_probabilities) != len(self.tokens):
            raise DataError(
                f"there are {len(self.log_probabilities):,} log-probabilities and {len(self.tokens):,} lengths; "
                "a likelihood has one of each for a sentence"
            )

    @property
    def nats(self) -> float:
        """The mean negative log-probability of a token."""
        return -math.fsum(self.log_probabilities) / max(1, sum(self.tokens))

    @property
    def perplexity(self) -> float:
        """The exponential of that mean, as in Table 3 of the paper; infinite if it is too large for a float."""
        return math.exp(self.nats) if self.nats < 700 else math.inf


Measure = Callable[[Sequence[str], Sequence[str]], Likelihood]


def measure_with(path: Path) -> Measure:
    """Return a function that measures references under a run's model, a checkpoint or a model, loaded when called."""

    def measure(sources: Sequence[str], references: Sequence[str]) -> Likelihood:
        from transduce.decoding.translator import Translator

        found = Translator.load(path, precision="float32", engine="torch").score(list(zip(sources, references)))
        return Likelihood([float(scores.sum(dtype="float64")) for scores in found], [len(scores) for scores in found])

    return measure
