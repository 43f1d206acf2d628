"""BLEU by sacreBLEU, with the signature that says which BLEU it is."""

from collections.abc import Sequence
from typing import NamedTuple

from transduce.errors import DataError


class Bleu(NamedTuple):
    """A score with its signature."""

    score: float
    signature: str


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """Score translations of a whole set against one reference each."""
    # sacreBLEU would score as many as there are of both.
    if len(translations) != len(references):
        raise DataError(
            f"there are {len(translations):,} translations and {len(references):,} references; "
            "BLEU wants one reference for each translation"
        )
    if not translations:
        raise DataError("there are no translations to score; BLEU wants one or more")
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(list(translations), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))
