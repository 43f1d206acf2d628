"""BLEU is sacreBLEU's own, with its signature."""

from importlib.metadata import version

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.scoring.bleu import corpus_bleu

WORDS = st.sampled_from(["the", "cat", "Cat", "sat.", "on", "mats", "1,000.5", "»so«", "猫", ""])
SENTENCES = st.lists(WORDS, max_size=9).map(" ".join)


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_score_is_sacrebleus(pairs: list[tuple[str, str]]):
    translations, references = [one for one, _ in pairs], [other for _, other in pairs]
    assert corpus_bleu(translations, references).score == sacrebleu.corpus_bleu(translations, [references]).score


def test_a_corpus_is_scored_as_a_whole():
    """Counts are summed before they are divided: it is not the mean of its sentences' scores."""
    translations = ["the cat sat on the mat", "a dog", ""]
    references = ["the cat sat on the mat", "the dog barked at the moon", "nothing"]
    score = corpus_bleu(translations, references).score
    assert score == sacrebleu.corpus_bleu(translations, [references]).score
    alone = [corpus_bleu([one], [other]).score for one, other in zip(translations, references)]
    assert abs(score - sum(alone) / 3) > 1
    assert corpus_bleu(references, references).score == pytest.approx(100)
    assert corpus_bleu(["", "", ""], references).score == 0
    assert corpus_bleu([""], [""]).score == 0


def test_the_signature_says_which_bleu_it_is():
    metric = sacrebleu.BLEU()
    metric.corpus_score(["a"], [["a"]])
    signature = corpus_bleu(["a b c d"], ["a b c d"]).signature
    assert signature == str(metric.get_signature())
    assert f"version:{version('sacrebleu')}" in signature.split("|")
    assert {"nrefs:1", "case:mixed", "tok:13a", "smooth:exp"} <= set(signature.split("|"))


def test_nothing_is_left_out_of_a_score_unseen():
    with pytest.raises(
        DataError, match=r"there are 1 translations and 2 references; BLEU wants one reference for each"
    ):
        corpus_bleu(["a"], ["a", "b"])
    with pytest.raises(DataError, match=r"there are 1,200 translations and 0 references"):
        corpus_bleu(["a"] * 1200, [])
    with pytest.raises(DataError, match="there are no translations to score"):
        corpus_bleu([], [])
