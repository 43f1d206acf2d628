"""One sentence in detail: what is shown is what the search found, with the model's own probabilities."""

import json

import numpy as np
import pytest

from transduce.decoding.alignment import number_words
from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.seeing.kinds import KINDS
from transduce.seeing.sentence import LONGEST, RIVALS, Seen, see

TEXT = "two euros and nine dollars"


def look(translator: Translator, text: str = TEXT, target: str | None = None) -> Seen:
    return see(translator, Request(text), translator.search, target)


@pytest.mark.parametrize("text", [TEXT, "one", "日本語 🙂", "a\u2581b", "the  third\tof\u00a0May"])
def test_it_is_the_translation_that_is_found(translator: Translator, text: str):
    seen = look(translator, text)
    (sentence,) = translator.translate(text, alignments=True).sentences
    best = sentence.alternatives[0]
    assert (seen.source, seen.target, seen.complete) == (sentence.source, best.text, best.complete)
    assert seen.said_pieces[:-1] == best.tokens == seen.taken_pieces[1:]
    assert seen.links == best.alignment
    assert seen.log_probability == pytest.approx(best.log_probability, abs=1e-3)
    for step, score in zip(seen.steps, best.token_scores):
        assert step.probability == pytest.approx(np.exp(score), abs=1e-4)
        assert step.piece not in [rival.piece for rival in step.rivals]
        assert len(step.rivals) == RIVALS
    assert any(step.rank for step in seen.steps)  # what a beam finds is among the most probable
    taken = [piece for node, piece in zip(seen.tree, seen.tree_pieces) if node.taken]
    assert taken == [*best.tokens, *(["⟨end⟩"] if best.complete else [])]
    assert not seen.given


def test_a_translation_that_is_given_is_forced(translator: Translator):
    seen = look(translator, target="neun  Dollar")
    (scores,) = translator.score([(TEXT, "neun  Dollar")])
    assert seen.given
    assert seen.tree == ()
    assert seen.target == "neun Dollar" or seen.target == "neun  Dollar"
    np.testing.assert_allclose([step.probability for step in seen.steps], np.exp(scores), atol=1e-5)
    assert seen.log_probability == pytest.approx(float(scores.sum()), abs=1e-4)


def test_rivals_are_the_most_probable_others(translator: Translator):
    seen = look(translator, target="zwei Euro")
    ranks = set()
    for step in seen.steps:
        shares = [rival.probability for rival in step.rivals]
        assert len(shares) == RIVALS
        assert shares == sorted(shares, reverse=True)
        assert step.piece not in [rival.piece for rival in step.rivals]
        assert sum(shares) + step.probability <= 1 + 1e-6
        better = sum(share > step.probability for share in shares)
        assert step.rank == (better + 1 if better < RIVALS or step.rank else None)
        ranks.add(step.rank)
    assert None in ranks  # a model that has learned nothing does not expect this


def test_a_translation_may_be_nothing(translator: Translator):
    seen = look(translator, target="")
    assert seen.said_pieces == ("⟨end⟩",)
    assert seen.taken_pieces == ("⟨begin⟩",)
    assert seen.links == []
    assert json.loads(json.dumps(seen.to_dict(), allow_nan=False))["target"]["words"] == []


def test_json_is_what_the_page_needs(translator: Translator):
    seen = look(translator)
    data = json.loads(json.dumps(seen.to_dict(), allow_nan=False))
    source, said, taken = data["source"]["pieces"], data["target"]["said"], data["target"]["taken"]
    shapes = {"encoder": (source, source), "decoder": (taken, taken), "cross": (said, source)}
    for kind in KINDS:
        own, other = shapes[kind]
        table = np.array(data["attention"][kind])
        assert table.shape == (2, 2, len(own), len(other))
        assert seen.labels(kind) == (tuple(own), tuple(other))
        np.testing.assert_allclose(table, np.stack(seen.attention.of(kind)), atol=1e-6)
        np.testing.assert_allclose(table.sum(-1), 1, atol=1e-4)
    assert data["source"]["words"] == number_words(source[:-1]).tolist()
    assert len(data["target"]["words"]) == len(said) - 1
    assert [step["piece"] for step in data["steps"]] == said
    assert max(target for _, target in data["alignment"]) == max(data["target"]["words"])
    assert all(-1 <= node["parent"] < place for place, node in enumerate(data["tree"]))
    short = seen.to_dict(3)["attention"]["cross"]
    assert all(round(share, 3) == share for layer in short for head in layer for row in head for share in row)


@pytest.mark.parametrize(
    ("text", "target", "wrong"),
    [
        ("", None, "the sentence is empty"),
        (" \t", None, "the sentence is empty"),
        ("one " * (LONGEST + 1), None, f"the sentence has .* at most {LONGEST} are shown"),
        (TEXT, "ein " * (LONGEST + 1), f"the translation has .* at most {LONGEST} are shown"),
        ("a\ud800", None, "the sentence: character 2 is half of a surrogate pair"),
        (TEXT, "a\udfff", "the translation: character 2 is half of a surrogate pair"),
    ],
)
def test_what_cannot_be_shown_is_refused(translator: Translator, text: str, target: str | None, wrong: str):
    with pytest.raises(DataError, match=wrong):
        look(translator, text, target)
