"""The paper's BLEU equals that of tensor2tensor's script with Moses' own scripts."""

import math
from collections import Counter
from importlib.metadata import version

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses.corpus import NonbreakingPrefixes
from systems import WORDS, damage, make_sentences, make_texts

from transduce.errors import UsageError
from transduce.scoring.metrics import MetricSettings, check_metrics, measure
from transduce.scoring.paper import LANGUAGES, SPLIT_COMPOUNDS, MosesTokens, make_paper_bleu, split_compounds


def multi_bleu(hypotheses: list[str], references: list[list[str]]) -> float:
    """Return BLEU as defined (Papineni 2002) on words between spaces: clipped n-grams, closest length, no smoothing."""
    matched, total = Counter[int](), Counter[int]()
    length = wanted = 0
    for line, *others in zip(hypotheses, *references):
        words = line.split()
        length += len(words)
        wanted += min((abs(len(other.split()) - len(words)), len(other.split())) for other in others)[1]
        for order in range(1, 5):
            most = Counter[tuple[str, ...]]()
            for other in others:
                most |= ngrams(other.split(), order)
            here = ngrams(words, order)
            matched[order] += (here & most).total()
            total[order] += here.total()
    if not all(matched[order] for order in range(1, 5)):
        return 0.0
    brevity = min(1.0, math.exp(1 - wanted / length))
    return 100 * brevity * math.exp(sum(math.log(matched[order] / total[order]) for order in range(1, 5)) / 4)


def ngrams(words: list[str], order: int) -> Counter[tuple[str, ...]]:
    """Count each n-gram."""
    return Counter(tuple(words[place : place + order]) for place in range(len(words) - order + 1))


LINES = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@given(st.lists(st.tuples(LINES, LINES, LINES), min_size=1, max_size=8), st.sampled_from(["de", "fr", "en"]))
@settings(max_examples=60, deadline=None)
def test_it_is_bleu_by_its_definition_on_moses_tokens(triples: list[tuple[str, str, str]], language: str):
    hypotheses, one, other = ([triple[place] for triple in triples] for place in range(3))
    tokens = MosesTokens(language)
    tokenised = [[tokens(line) for line in lines] for lines in (hypotheses, one, other)]
    score = make_paper_bleu(language, lowercase=False).corpus_score(hypotheses, [one, other]).score
    assert score == pytest.approx(multi_bleu(tokenised[0], tokenised[1:]), abs=1e-9)


def test_it_is_so_where_there_are_matches():
    references = make_sentences(60, seed=1, longest=20)
    hypotheses = damage(references, 0.2, seed=2)
    tokens = MosesTokens("de")
    expected = multi_bleu([tokens(line) for line in hypotheses], [[tokens(line) for line in references]])
    assert 20 < expected < 90
    [[found]] = measure(make_texts([hypotheses], [references]), ["paper"], MetricSettings(language="de"))
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.sentences is None


# What tokenizer.perl of May 2017 prints after replace-unicode-punctuation.perl, and the substitution after it.
@pytest.mark.parametrize(
    ("language", "sentence", "tokens"),
    [
        ("de", "Die Nettobestellungen fielen von 83 auf 26.", "Die Nettobestellungen fielen von 83 auf 26."),
        ("de", "Er sagte: „Nein“, z.B. am 3. Mai.", "Er sagte : „ Nein &quot; , z.B. am 3. Mai ."),
        ("de", "Science-Fiction & mehr…", "Science ##AT##-##AT## Fiction &amp; mehr ..."),
        ("de", "das 60-jährige E-Mail-Konto", "das 60 ##AT##-##AT## jährige E ##AT##-##AT## Mail ##AT##-##AT## Konto"),
        ("en", 'It\'s the well-known U.S. "rule".', "It &apos;s the well-known U.S. &quot; rule &quot; ."),
        ("fr", "L’homme qu'on a-t-il vu ?", "L&apos; homme qu&apos; on a-t-il vu ?"),
    ],
)
def test_the_tokens_are_those_of_moses(language: str, sentence: str, tokens: str):
    assert MosesTokens(language)(sentence) == tokens


def test_compounds_are_split_in_german_alone():
    assert {"de"} == SPLIT_COMPOUNDS
    assert "##AT##" in MosesTokens("de")("Kilo-Meter")
    assert not any("##AT##" in MosesTokens(language)("Kilo-Meter") for language in ("en", "fr", "nl"))


def test_a_letter_between_hyphens_goes_to_the_first():
    """As in the original, where a match begins at the end of the last one."""
    assert split_compounds("a-b-c-d") == "a ##AT##-##AT## b-c ##AT##-##AT## d"
    assert split_compounds("ab-cd-ef") == "ab ##AT##-##AT## cd ##AT##-##AT## ef"
    assert split_compounds("- a -b c- --") == "- a -b c- --"


def test_the_signature_names_the_tokens():
    texts = make_texts([["ein Haus am See"]], [["ein Haus am See"]])
    signatures = {
        language: measure(texts, ["paper"], MetricSettings(language=language))[0][0].signature.split("|")
        for language in ("de", "fr")
    }
    assert {"smooth:none", "case:mixed", f"tok:moses-de-compounds-{version('sacremoses')}"} <= set(signatures["de"])
    assert f"tok:moses-fr-{version('sacremoses')}" in signatures["fr"]
    [[lower]] = measure(texts, ["paper"], MetricSettings(language="de", lowercase=True))
    assert "case:lc" in lower.signature


def test_lower_case_is_an_option():
    texts = make_texts([["EIN haus am See hier"]], [["ein Haus am See hier"]])
    [[cased]], [[lower]] = (measure(texts, ["paper"], MetricSettings("13a", case, "de")) for case in (False, True))
    assert cased.value < lower.value
    assert lower.value == pytest.approx(100)


def test_the_languages_are_those_whose_abbreviations_are_known():
    assert set(NonbreakingPrefixes().available_langs.values()) == LANGUAGES
    with pytest.raises(UsageError, match=r"cannot tokenise the language dee; did you mean de\?"):
        MosesTokens("dee")
    with pytest.raises(UsageError, match=r"cannot tokenise the language xx; choose among as bn ca"):
        check_metrics(["paper"], MetricSettings(language="xx"))
    with pytest.raises(UsageError, match=r"tokenised by language; give that of the references, such as --language de"):
        check_metrics(["paper"], MetricSettings())
