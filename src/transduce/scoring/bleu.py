"""BLEU by sacreBLEU, with the signature that says which BLEU it is."""

from collections.abc import Sequence
from typing import NamedTuple


class Bleu(NamedTuple):
    """A score with its signature."""

    score: float
    signature: str


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """Score translations of a whole set against one reference each."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(list(translations), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))
