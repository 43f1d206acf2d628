"""Scores of sets, of sentences and of any choice of sentences are sacreBLEU's own."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from systems import WORDS, damage, make_sentences, make_texts, write

from transduce.errors import UsageError
from transduce.scoring import metrics
from transduce.scoring.metrics import METRICS, TITLES, Measured, MetricSettings, check_metrics, explain, measure
from transduce.scoring.parseval import Parseval

REFERENCES = make_sentences(40, seed=1)
OTHERS = damage(REFERENCES, 0.3, seed=2)
GOOD, BAD = damage(REFERENCES, 0.2, seed=3), damage(REFERENCES, 0.5, seed=4)
LINES = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
SACRE = ["bleu", "chrf", "chrf++", "ter"]


def sacre(name: str, *, lowercase: bool = False, single: bool = False) -> Any:
    """Return sacreBLEU's metric, made in its documented way."""
    match name:
        case "bleu":
            return BLEU(lowercase=lowercase, effective_order=single)
        case "chrf":
            return CHRF(lowercase=lowercase)
        case "chrf++":
            return CHRF(lowercase=lowercase, word_order=2)
        case _:
            return TER()


def check_against_sacrebleu(
    found: Measured, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]], *, lowercase: bool = False
) -> None:
    """Compare the scores of the set and of sentences, and the signature."""
    metric = sacre(found.name, lowercase=lowercase)
    assert found.value == pytest.approx(metric.corpus_score(list(hypotheses), references).score, abs=1e-9)
    assert found.signature == str(metric.get_signature())
    single = sacre(found.name, lowercase=lowercase, single=True)
    for line, hypothesis in enumerate(hypotheses):
        here = [some for reference in references if (some := reference[line]) is not None]
        assert found.sentences is not None
        assert found.sentences[line] == pytest.approx(single.sentence_score(hypothesis, here).score, abs=1e-9)


@given(st.lists(st.tuples(LINES, LINES, LINES), min_size=1, max_size=5), st.sampled_from(SACRE), st.booleans())
@settings(max_examples=60, deadline=None)
def test_scores_are_sacrebleus(triples: list[tuple[str, str, str]], name: str, lowercase: bool):
    hypotheses, one, other = ([triple[place] for triple in triples] for place in range(3))
    [[found]] = measure(make_texts([hypotheses], [one, other]), [name], MetricSettings(lowercase=lowercase))
    check_against_sacrebleu(found, hypotheses, [one, other], lowercase=lowercase)


def test_every_system_and_metric_has_its_own():
    found = measure(make_texts([GOOD, BAD], [REFERENCES]), SACRE[::-1], MetricSettings())
    for of_system, hypotheses in zip(found, (GOOD, BAD)):
        assert [some.name for some in of_system] == SACRE[::-1]
        for some in of_system:
            check_against_sacrebleu(some, hypotheses, [REFERENCES])


def test_a_sentence_may_have_fewer_references():
    some = [line if place % 3 else None for place, line in enumerate(OTHERS)]
    [found] = measure(make_texts([GOOD], [REFERENCES, some]), [*SACRE, "exact"], MetricSettings())
    for one in found[:-1]:
        assert "nrefs:var" in one.signature
        check_against_sacrebleu(one, GOOD, [REFERENCES, some])
    assert found[-1].signature == "nrefs:var|case:mixed"


@pytest.mark.parametrize("name", [*SACRE, "paper", "exact"])
def test_any_choice_of_sentences_has_the_score_of_a_set_of_them(name: str):
    """Even one that has a sentence several times."""
    settings = MetricSettings(language="de")
    [[found]] = measure(make_texts([GOOD], [REFERENCES, OTHERS]), [name], settings)
    chosen = random.Random(5).choices(range(len(GOOD)), k=25)
    hypotheses, one, other = ([lines[place] for place in chosen] for lines in (GOOD, REFERENCES, OTHERS))
    [[alone]] = measure(make_texts([hypotheses], [one, other]), [name], settings)
    assert found.score_of(found.counts[chosen]) == pytest.approx(alone.value, abs=1e-9)
    assert found.value != pytest.approx(alone.value, abs=0.01)


def test_exact_match_counts_equal_sentences():
    hypotheses = ["ein Haus", " ein Haus  ", "Ein Haus", "ein  Haus", "", "zwei"]
    one = ["ein Haus"] * 5 + ["drei"]
    other = ["x"] * 5 + ["zwei"]
    [[found]] = measure(make_texts([hypotheses], [one]), ["exact"], MetricSettings())
    assert found.value == pytest.approx(100 * 2 / 6)
    assert found.sentences is not None
    assert found.sentences.tolist() == [100, 100, 0, 0, 0, 0]
    [[found]] = measure(make_texts([hypotheses], [one, other]), ["exact"], MetricSettings(lowercase=True))
    assert found.value == pytest.approx(100 * 4 / 6)
    assert found.signature == "nrefs:2|case:lc"


def test_parts_of_a_set_make_the_whole(monkeypatch: pytest.MonkeyPatch):
    texts = make_texts([GOOD, BAD], [REFERENCES, OTHERS])
    names, settings = [*SACRE, "exact", "paper"], MetricSettings(language="de")
    whole = measure(texts, names, settings)
    monkeypatch.setattr(metrics, "SENTENCES", 7)
    for workers in (1, 2):
        for of_system, parts in zip(whole, measure(texts, names, settings, workers)):
            for one, other in zip(of_system, parts):
                assert (one.name, one.signature) == (other.name, other.signature)
                assert np.array_equal(one.counts, other.counts)


def test_the_command_line_of_sacrebleu_prints_the_same(tmp_path: Path):
    hypothesis, reference = write(tmp_path / "hypothesis", GOOD), write(tmp_path / "reference", REFERENCES)
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypothesis), "-m", "bleu", "chrf", "ter"]
    printed = subprocess.run([*command, "-b", "-w", "6"], capture_output=True, text=True, check=True).stdout
    [found] = measure(make_texts([GOOD], [REFERENCES]), ["bleu", "chrf", "ter"], MetricSettings())
    assert [f"{some.value:.6f}" for some in found] == printed.replace(",", " ").replace("[", " ").replace(
        "]", " "
    ).split()


def test_the_better_system_has_the_better_score():
    good, bad = measure(make_texts([GOOD, BAD], [REFERENCES]), METRICS, MetricSettings(language="de"))
    for one, other in zip(good, bad):
        assert one.sign * one.value > other.sign * other.value


def test_every_metric_says_what_it_is():
    for name in (*METRICS, *Parseval.names):
        assert TITLES[name]
        assert explain(name, MetricSettings(language="de"))
    assert TITLES["bleu"] != TITLES["paper"]
    assert "compounds split" in explain("paper", MetricSettings(language="de"))
    assert "compounds" not in explain("paper", MetricSettings(language="fr"))
    assert "lower is better" in explain("ter", MetricSettings())


def test_an_unknown_metric_is_named():
    with pytest.raises(UsageError, match=r"^unknown metric blue; did you mean bleu\?$"):
        check_metrics(["chrf", "blue"], MetricSettings())
    with pytest.raises(UsageError, match=r"^unknown metric xyz; choose among bleu, chrf, .*, paper, parseval$"):
        check_metrics(["xyz"], MetricSettings())
    with pytest.raises(UsageError, match="unknown tokenizer 13b"):
        check_metrics(["bleu"], MetricSettings(tokenize="13b"))
    check_metrics(METRICS, MetricSettings(language="de"))
