"""`Translator`: texts in, texts out, whatever is in them and whatever their neighbours."""

import itertools
import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import SEARCH, learn_subwords, learn_tagged, save_tiny

from transduce import strict
from transduce.config import SearchConfig
from transduce.decoding import translator as module
from transduce.decoding.beams import Hypothesis
from transduce.decoding.force import score_pairs
from transduce.decoding.options import Options, Request
from transduce.decoding.translation import Alternative, Sentence, Translation
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError, UsageError
from transduce.model.saved import WEIGHTS, load_model, read_tensors
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.text.sentences import Layout, lay_out
from transduce.text.subwords import END, Subwords, SubwordsConfig, learn

PARAGRAPHS = """\
The first sentence is here. The second one follows it!\tAnd a third?

   Another paragraph.   It has  odd   spaces.
\u2028* * *\r
Nine euros."""
WORDS = ["two", "euros", "Mr.", "3.5", "!", "…", "—", "\u2028", "\n", "\n\n", "\r\n", "  ", "\t", "\0", "\x1b[0m", "🙂"]
WORDS += ["Straße", "日本語。", "\ufeff", "e\u0301", "&amp;", "\u2581", "<s>", "twenty-three", "."]


def texts(most: int = 12) -> st.SearchStrategy[str]:
    """Draw texts of words and odd characters, with or without spaces."""
    joined = st.tuples(st.lists(st.sampled_from(WORDS), max_size=most), st.sampled_from(["", " "]))
    return st.one_of(joined.map(lambda pair: pair[1].join(pair[0])), st.text(max_size=20))


def breaks(text: str) -> list[str]:
    """Return the line breaks of a text, of all kinds."""
    return re.findall(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text)


# ---- texts ----


def test_a_text_gives_one_translation_and_a_list_one_for_each(translator: Translator):
    one = translator.translate("two euros")
    assert isinstance(one, Translation)
    assert one.source == "two euros"
    assert str(one) == one.text != ""
    assert translator.translate(["two euros", "", "two euros"]) == [one, translator.translate(""), one]
    assert translator.translate([]) == []
    assert list(translator.stream(iter(["two euros"]))) == [one]


def test_it_can_be_called_as_a_pipeline_of_hugging_face(translator: Translator):
    one, other = (translator.translate(text).text for text in ("nine euros", "two"))
    assert translator("nine euros") == [{"translation_text": one}]
    assert translator(["nine euros", "two"], beam=2) == [{"translation_text": one}, {"translation_text": other}]
    assert translator([]) == []


def test_alternatives_are_different_texts(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    """Two hypotheses are the same text in other subwords: the better one stays, and others follow it."""
    target = translator.subwords["target"]
    whole = target.encode("two")
    split = [translator.pieces.index(f"<0x{byte:02X}>") for byte in b"two"]
    assert target.decode(whole) == target.decode(split)
    assert whole != split
    said = [whole, split, target.encode("nine"), target.encode("euros")]
    asked: list[int] = []

    def find(engine: Any, tasks: list[Any], config: SearchConfig, pieces: Any, records: Any):
        asked.append(config.n_best)
        for number in range(len(tasks)):
            yield (
                number,
                [
                    Hypothesis(np.array(tokens), np.full(len(tokens) + 1, -1.0), -place, True)
                    for place, tokens in enumerate(said[: config.n_best])
                ],
            )

    monkeypatch.setattr(module, "search", find)
    found = {
        many: [one.text for one in translator.translate("x", beam=4, n_best=many).sentences[0].alternatives]
        for many in (1, 2, 3, 4)
    }
    assert asked == [1, 4, 4, 4]
    assert found[1] == ["two"]
    assert found[2] == ["two", "nine"]
    assert found[3] == found[4] == ["two", "nine", "euros"]
    drawn = translator.translate("x", sample=True, n_best=3).sentences[0].alternatives
    assert [one.text for one in drawn] == ["two", "two", "nine"]  # each was drawn


@pytest.mark.parametrize("text", ["two euros", "nine dollars and three cents", "Mr."])
def test_fewer_alternatives_are_the_first_of_more(translator: Translator, text: str):
    lists = [translator.translate(text, beam=6, n_best=many).sentences[0].alternatives for many in range(1, 7)]
    for many, some in enumerate(lists, 1):
        assert [one.text for one in some] == [one.text for one in lists[-1][:many]]
        assert len({one.text for one in some}) == len(some)


@pytest.mark.parametrize("blank", ["", " ", "\n", " \t\r\n", "\u2028\u3000\ufeff", "\n\n\n"])
def test_what_is_blank_stays_as_it_is(translator: Translator, blank: str):
    found = translator.translate(blank)
    assert (found.text, found.score, found.sentences) == (blank, 0.0, ())
    assert isinstance(found.score, float)
    assert found.alternatives() == [(blank, 0.0)]


@pytest.mark.parametrize("marks", ["!", "…  —\u00a0?", "* * *", "\0", "🙂🙂", "e\u0301"[1:], "\u2581"])
def test_what_has_no_letters_is_copied_to_the_letter(translator: Translator, marks: str):
    found = translator.translate(f" {marks}\n")
    assert found.text == f" {marks}\n"
    assert found.sentences == (Sentence(marks, (Alternative(marks, 0.0, 0.0, True, (), ()),)),)
    assert found.score == 0.0


@pytest.mark.parametrize("asked", [{"prefix": "neun"}, {"require": ["neun"]}, {"forbid": ["!"]}])
def test_what_has_no_letters_is_translated_if_more_is_asked_for(translator: Translator, asked: dict[str, list[str]]):
    found = translator.translate(Request("!!", **asked))  # pyright: ignore[reportArgumentType]
    assert found.sentences[0].alternatives[0].tokens
    assert "!" not in found.text or "forbid" not in asked
    assert translator.translate(Request("!!", forbid=("?",))).text == "!!"


CAPITALS = "TWENTY-THREE EUROS"  # the subwords were learnt from small letters


def test_capitals_that_a_model_could_only_spell_are_translated_in_small_letters(translator: Translator):
    """And written in capitals: all alternatives, no two of which are the same."""
    small = translator.translate(CAPITALS.lower(), beam=4, n_best=4, alignments=True)
    both = translator.translate([CAPITALS, CAPITALS.lower()], beam=4, n_best=4, alignments=True)
    assert both[1] == small
    found = both[0]
    assert found.source == CAPITALS
    assert found.text == small.text.upper() != small.text
    assert found.sentences[0].source == CAPITALS.lower()  # as the model was given it
    best, expected = found.sentences[0].alternatives[0], small.sentences[0].alternatives[0]
    assert (best.score, best.alignment, best.tokens) == (expected.score, expected.alignment, expected.tokens)
    texts = [text for text, _ in found.alternatives()]
    assert texts == list(dict.fromkeys(text.upper() for text, _ in small.alternatives()))


@pytest.mark.parametrize("form", [str.upper, str.lower, str.title])
def test_what_is_forbidden_of_capitals_is_forbidden_in_any_case(translator: Translator, form: Callable[[str], str]):
    """A sentence in capitals is still translated in lower case; its neighbour in lower case does not change."""
    free = translator.translate(CAPITALS)
    for word in free.text.split():
        found = translator.translate(Request(CAPITALS, forbid=(form(word),)))
        assert found.sentences[0].source == CAPITALS.lower()
        assert found.text == found.text.upper()
        assert word not in re.findall(r"\w+", found.text)
        small = Request(CAPITALS.lower(), forbid=(form(word),))
        assert translator.translate([Request(CAPITALS, forbid=small.forbid), small])[1] == translator.translate(small)


@pytest.mark.parametrize(
    ("prefix", "require", "expected"),
    [
        ("Vier", (), r"Vier"),
        ("Vier Euro und ne", (), r"Vier Euro und ne"),
        ("", ("Vier Euro", "EU"), r".*\b(Vier Euro\b.*\bEU|EU\b.*\bVier Euro)\b"),
        ("42", ("é",), r"42.*\bé\b"),
    ],
)
def test_what_was_asked_for_of_capitals_stays_as_it_was_typed(
    translator: Translator, prefix: str, require: tuple[str, ...], expected: str
):
    """All else is what the sentence in lower case becomes, in capitals."""
    request = Request(CAPITALS, prefix, require)
    found = translator.translate(request, beam=4, n_best=2, extra_tokens=40)
    small = translator.translate(replace(request, text=CAPITALS.lower()), beam=4, n_best=2, extra_tokens=40)
    assert found.sentences[0].source == CAPITALS.lower()
    assert found.text.casefold() == small.text.casefold()
    assert re.match(expected, found.text)
    rest = found.text.removeprefix(prefix)
    for phrase in require:
        rest = re.sub(rf"\b{phrase}\b", "", rest)
    assert rest == rest.upper()


def test_alternatives_that_differ_in_capitals_alone_are_one(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    some = [Alternative(text, -score, -score, True, (), ()) for score, text in enumerate(["Ja", "Nein", "ja"])]
    monkeypatch.setattr(Translator, "_describe", lambda *_: [tuple(some)])
    assert translator.translate(CAPITALS, beam=3, n_best=3).alternatives() == [("JA", 0), ("NEIN", -1)]


@pytest.mark.parametrize(
    ("request_", "settings"),
    [
        (Request(CAPITALS), {"capitals": False}),
        (Request(CAPITALS, prefix="DREIUNDZWANZIG"), {}),
        (Request(CAPITALS, require=("vier", "DREIUNDZWANZIG")), {}),
        (Request(CAPITALS, prefix="Vier", forbid=("vier",)), {}),
        (Request("Twenty-Three Euros"), {}),
        (Request("TWO"), {}),
    ],
)
def test_other_capitals_are_left_as_they_are(translator: Translator, request_: Request, settings: dict[str, Any]):
    """If it is switched off, if they may be a name or an abbreviation, or if what is asked for is in capitals too."""
    found = translator.translate(request_, **settings)
    assert found.sentences[0].source == request_.text
    assert found == translator.translate(request_, capitals=False)


def test_capitals_that_a_model_knows_are_left_as_they_are(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    source = translator.subwords["source"]
    usual = source.encode
    monkeypatch.setattr(source, "encode", lambda text: usual(text.lower()))
    assert translator.translate(CAPITALS).sentences[0].source == CAPITALS


@pytest.mark.parametrize("split", ["long", "always", "never"])
def test_paragraphs_keep_their_layout(translator: Translator, split: str):
    found = translator.translate(PARAGRAPHS, split=split, split_over=45)
    pieces = {"long": 6, "always": 7, "never": 4}[split]
    assert len(found.sentences) == pieces
    assert breaks(found.text) == breaks(PARAGRAPHS)
    assert found.text == found.layout.join([sentence.alternatives[0].text for sentence in found.sentences])
    assert found.score == pytest.approx(sum(sentence.alternatives[0].score for sentence in found.sentences))
    alone = [translator.translate(sentence.source).text for sentence in found.sentences]
    assert found.text == found.layout.join(alone)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(texts(), max_size=8))
def test_a_translation_does_not_depend_on_the_other_texts(translator: Translator, mixture: list[str]):
    found = translator.translate(mixture, split="always")
    assert [each.source for each in found] == mixture
    for text, each in zip(mixture, found):
        assert breaks("".join(each.layout.gaps)) == breaks(text)
        assert each.text == each.layout.join([sentence.alternatives[0].text for sentence in each.sentences])
        assert each == translator.translate(text, split="always")
        for sentence in each.sentences:
            assert all(alternative.complete or alternative.token_scores for alternative in sentence.alternatives)


def test_texts_that_repeat_are_searched_for_once(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    searched: list[int] = []
    usual = module.search

    def search(engine: object, tasks: list[object], *more: object) -> object:
        searched.append(len(tasks))
        return usual(engine, tasks, *more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(module, "search", search)
    told: list[tuple[int, int]] = []
    texts = ["two euros", "nine", "two euros", Request("two euros", forbid=("x",)), "!", Request("nine")]
    found = list(translator.stream(texts, done=lambda *counts: told.append(counts)))
    asked: list[dict[str, Any]] = [{}, {"prefix": "neun"}, {"require": ["acht"]}, {"forbid": ["a"]}, {"prefix": "acht"}]
    alone = [translator.translate(Request("two euros", **each)) for each in asked]
    assert translator.translate([Request("two euros", **each) for each in asked]) == alone
    del searched[1:]
    assert searched == [3]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found[0] == found[2]
    assert found[1] == found[5]


def test_any_number_of_texts_is_translated_a_window_at_a_time(translator: Translator, monkeypatch: pytest.MonkeyPatch):
    expected = translator.translate([f"{number} euros" for number in range(23)])
    for name, value in (("WINDOW_TEXTS", 5), ("WINDOW_TOKENS", 8)):  # of about four characters
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            given: list[int] = []
            texts = (given.append(number) or f"{number} euros" for number in range(23))
            stream = translator.stream(texts)
            assert next(stream) == expected[0]
            assert len(given) == 5
            assert list(stream) == expected[1:]


def test_several_threads_get_what_one_gets(tiny: Path):
    for engine in ("native", "torch"):
        shared = Translator.load(tiny, device="cpu", engine=engine, threads=2)
        asked = [[f"{number} euros and {other} dollars." for number in range(9)] for other in range(4)]
        alone = [shared.translate(texts, n_best=2) for texts in asked]
        found: dict[int, list[Translation]] = {}
        begin = threading.Barrier(4)

        def work(number: int, shared: Translator = shared, begin: threading.Barrier = begin) -> None:
            begin.wait()
            for _ in range(3):
                found[number] = shared.translate(asked[number], n_best=2)  # noqa: B023 - the threads end below

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[number] for number in range(4)] == alone


# ---- long texts ----


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["two", "euros.", "Nine", "x" * 40, "—", "日本語"]), min_size=1, max_size=60))
def test_no_sentence_is_longer_than_the_longest(translator: Translator, words: list[str]):
    text = " ".join(words)
    found = translator.translate(text, longest=7, beam=1)
    subwords = translator.subwords["source"]
    assert all(len(subwords.encode(sentence.source)) <= 7 for sentence in found.sentences)
    # Nothing is cut off: the pieces are the text.
    assert found.layout.join([sentence.source for sentence in found.sentences]).split() == text.split() or "語" in text


def test_too_long_a_sentence_is_refused_by_name(translator: Translator):
    subwords = translator.subwords["source"]
    text = "two euros and two dollars"
    tokens = len(subwords.encode(text))
    assert len(translator.translate(text, split="never", longest=tokens).sentences) == 1
    refused = f"text 2: a sentence that may not be split has {tokens} tokens, and at most {tokens - 1} are translated "
    with pytest.raises(DataError, match=re.escape(refused)) as error:
        translator.translate(["nine", text], split="never", longest=tokens - 1)
    assert f"raise longest = {tokens - 1}: '{text}' …" in str(error.value)
    spelled = subwords.encode("日")  # the space before it, and its bytes
    assert len(spelled) == 4
    with pytest.raises(DataError, match="has 4 tokens, and at most 3 are translated"):
        translator.translate("日", split="never", longest=3)
    with pytest.raises(DataError, match=r"^the text: a text with a prefix or a required phrase has"):
        translator.translate(Request(text, prefix="zwei"), longest=tokens - 1)


def test_what_comes_before_an_error_is_translated(translator: Translator):
    def texts():
        yield from ("nine", "ten")
        raise DataError("no more")

    long = "two euros and two dollars"
    for source, message in ((texts(), "no more"), (["nine", "ten", long, "two"], "text 3: a sentence")):
        stream = translator.stream(source, split="never", longest=5)
        assert [next(stream).source, next(stream).source] == ["nine", "ten"]
        with pytest.raises(DataError, match=message):
            next(stream)


def test_a_model_with_learned_positions_takes_what_it_knows(tmp_path: Path, tiny: Path):
    learned = save_tiny(tmp_path / "learned", positions="learned", max_positions=12)
    for paths in ([learned], [tiny, learned]):
        found = Translator.load(*paths, device="cpu").translate("two euros " * 30, beam=1)
        counts = [len(learn_subwords().encode(sentence.source)) for sentence in found.sentences]
        assert max(counts) <= 11
        assert len(counts) > 5
    with pytest.raises(DataError, match=r"and at most 11 are translated at once; split it: 'two"):
        Translator.load(learned, device="cpu").translate("two euros " * 30, split="never")


# ---- what is asked for ----


def test_a_request_with_everything(translator: Translator):
    plain = translator.translate("two euros and nine dollars", beam=4, min_tokens=3)
    avoid = plain.sentences[0].alternatives[0].text.split()[-1]
    request = Request("two euros and nine dollars", prefix="Neun  Euro ", require=["zwei"], forbid=[avoid])  # pyright: ignore[reportArgumentType]
    found = translator.translate(request, beam=6, n_best=3, alignments=True, extra_tokens=20)
    assert request.require == ("zwei",)
    sentence = found.sentences[0]
    assert len(sentence.alternatives) == 3
    for one in sentence.alternatives:
        assert one.text.startswith("Neun Euro")
        assert " zwei" in one.text
        assert avoid not in one.text.split()
        assert one.alignment is not None
    assert found.sentences[0].source == request.text


def test_a_prefix_and_phrases_are_for_one_sentence(translator: Translator):
    two = "The first one. The second one."
    found = translator.translate(Request(two, prefix="neun"), split="always")
    assert [sentence.source for sentence in found.sentences] == [two]
    assert found.text.startswith("neun")
    for asked in ({"prefix": "neun"}, {"require": ("neun",)}):
        with pytest.raises(DataError, match=r"^the text: has 2 lines, but a prefix or a required phrase is for one"):
            translator.translate(Request("one\ntwo", **asked))  # pyright: ignore[reportArgumentType]
    assert translator.translate(Request("", prefix="neun")).text == ""
    assert len(translator.translate(Request(two, forbid=("x",)), split="always").sentences) == 2


@pytest.mark.parametrize("name", ["text", "prefix", "require", "forbid"])
def test_what_is_no_text_is_refused(translator: Translator, name: str):
    wrong = {"text": "nine", name: "a\ud800" if name in ("text", "prefix") else ("ok", "a\ud800")}
    with pytest.raises(DataError, match=r"^text 2: character 2 is half of a surrogate pair"):
        translator.translate(["one", Request(**wrong)])  # pyright: ignore[reportArgumentType]
    argument = b"Stra\xdfe".decode("utf-8", "surrogateescape")  # as it comes from a command line
    with pytest.raises(DataError, match=r"character 5 is .*, or byte 0xDF of text that is not UTF-8"):
        translator.translate(argument)
    wrong[name] = 5 if name in ("text", "prefix") else "letters"  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=rf"^{name} = .*, wanted a "):
        Request(**wrong)  # pyright: ignore[reportArgumentType]
    if name in ("require", "forbid"):
        for nothing in ("", " ", "\u200b"):
            with pytest.raises(DataError, match="has no words to require or forbid"):
                translator.translate(Request("nine", **{name: (nothing,)}))  # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigError, match="wanted a list of strings"):
            Request("nine", **{name: [3]})  # pyright: ignore[reportArgumentType]


def test_a_text_must_be_a_string(translator: Translator):
    with pytest.raises(ConfigError, match=r"^text = 5, wanted a string"):
        translator.translate([5])  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("wrong", [None, 3, b"two euros"])
def test_texts_must_be_strings(translator: Translator, wrong: Any):
    with pytest.raises(ConfigError, match="wanted a string or a list of strings"):
        translator.translate(wrong)


@pytest.mark.parametrize("wrong", ["two", ("two euros",), ("two euros", 2), ("two euros", "zwei", "Euro"), None])
def test_what_is_scored_are_pairs(translator: Translator, wrong: Any):
    with pytest.raises(ConfigError, match=r"^pair 2 = .*, wanted a sentence and its translation$"):
        translator.score([("two euros", "zwei Euro"), wrong])
    with pytest.raises(DataError, match=r"^pair 1: character 1 is half of a surrogate pair"):
        translator.score([("two euros", "\ud800")])


def test_at_a_prompt_it_shows_what_matters(translator: Translator):
    found = translator.translate("two euros")
    assert repr(translator) == "Translator(tiny)"
    assert repr(found) == f"Translation(source='two euros', text={found.text!r}, score={found.score!r})"


def test_settings_with_typos_are_named_with_the_nearest(translator: Translator):
    with pytest.raises(ConfigError) as error:
        translator.translate("nine", beem=3, alignment=True, xyzzy=1)
    assert str(error.value).splitlines() == [
        "settings: unknown key beem; did you mean beam?",
        "settings: unknown key alignment; did you mean alignments?",
        "settings: unknown key xyzzy",
    ]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"beam": "x"}, 'settings: beam = "x", wanted a whole number'),
        ({"n_best": 9}, "settings: search.n_best = 9 is more than search.beam = 2; use a beam of 9"),
        ({"longest": 0}, "settings: longest = 0 is out of range; use 1 or more"),
        ({"split": "nver"}, 'settings: split = "nver", wanted "long" or "always" or "never"'),
    ]
    for wrong, message in cases:
        with pytest.raises(ConfigError, match=re.escape(message)):
            translator.translate("nine", **wrong)


def test_settings_are_laid_over_the_models_own_and_over_options(translator: Translator):
    options = Options(split="always", alignments=True)
    found = translator.translate("One. Two.", options, n_best=2)
    assert len(found.sentences) == 2
    assert all(len(sentence.alternatives) == 2 for sentence in found.sentences)
    assert all(one.alignment is not None for sentence in found.sentences for one in sentence.alternatives)
    assert len(translator.translate("One. Two.", options, split="never").sentences) == 1
    assert translator.translate("One.").sentences[0].alternatives[0].alignment is None
    assert translator.search == SEARCH


# ---- scores ----


def test_scores_are_the_models(translator: Translator):
    sentences = [each.sentences[0] for each in translator.translate(["two euros", "nine dollars"], beam=6, n_best=6)]
    assert {one.complete for sentence in sentences for one in sentence.alternatives} == {True, False}
    for sentence in sentences:
        source = translator.tokens(sentence.source, "source")
        for one in sentence.alternatives:
            assert sum(one.token_scores) == pytest.approx(one.log_probability, abs=1e-4)
            said = len(one.tokens) + one.complete
            assert len(one.token_scores) == said
            assert one.score == pytest.approx(one.log_probability / ((5 + said) / 6) ** 0.6, rel=1e-5)
            tokens = [translator.subwords["target"].processor.piece_to_id(piece) for piece in one.tokens]
            forced = score_pairs(translator.loaded[0].model, [(source, np.array([*tokens, END]))])[0]
            np.testing.assert_allclose(one.token_scores, forced[:said], atol=1e-4)
        for complete in (True, False):
            scores = [one.score for one in sentence.alternatives if one.complete is complete]
            assert scores == sorted(scores, reverse=True)
    cut = translator.translate("two euros", max_tokens=1, min_tokens=1).sentences[0].alternatives[0]
    assert not cut.complete
    assert len(cut.tokens) == len(cut.token_scores) == 1


def test_given_translations_are_scored_in_the_form_of_the_training_text(translator: Translator):
    plain, odd = translator.score([("two euros", "zwei Euro für"), (" two\t euros\r", "zwei  Euro fu\u0308r ")])
    np.testing.assert_array_equal(plain, odd)
    assert len(plain) == len(translator.subwords["target"].encode("zwei Euro für")) + 1
    kept = Translator(translator.loaded, translator.engine)
    assert kept.score([]) == []


def test_a_tag_that_was_learned_is_given_to_every_sentence(tmp_path: Path):
    config = SubwordsConfig(size=330, coverage=1.0, symbols=(">>de<<", "<b>"))
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    model = Translator.load(save_tiny(tmp_path / "model", subwords=Subwords(learn(lines, config))), device="cpu")
    one, two = "Twenty-one euros.", "The twenty-first of June."
    found = model.translate(f" >>de<< {one} {two}", split="always")
    assert [sentence.source for sentence in found.sentences] == [f">>de<< {one}", f">>de<< {two}"]
    # What is no tag, or none that is known, stands where it stands.
    for mark in ("<b>", ">>fr<<"):
        found = model.translate(f"{mark} {one} {two}", split="always")
        assert [sentence.source for sentence in found.sentences] == [f"{mark} {one}", two]


def save_tagged(folder: Path) -> Path:
    """Save a model with random weights that has two language tags."""
    return save_tiny(folder, subwords=learn_tagged("de", "fr"))


def test_a_translators_tag_is_put_before_texts_that_have_none(tmp_path: Path):
    folder = save_tagged(tmp_path / "many")
    plain, tagged = Translator.load(folder, device="cpu"), Translator.load(folder, device="cpu", tag="fr")
    for tag in ("fr", ">>fr<<", "FR", "fr_CA", "fr-CA"):  # a region's tag is that of the language, as with --to
        assert Translator(plain.loaded, plain.engine, tag=tag).tag == ">>fr<<"
    texts = ["Twenty-one euros.", "The twenty-first of June", "nine dollars"]
    for text in texts:
        (wanted,) = plain.translate(f">>fr<< {text}", alignments=True).sentences
        found = tagged.translate(text, alignments=True)
        (sentence,) = found.sentences
        (before,), (after,) = ([replace(one, alignment=None) for one in s.alternatives] for s in (wanted, sentence))
        assert before == after
        assert sentence.source == text  # words are counted in the text as it was given
        there = wanted.alternatives[0].alignment
        assert there is not None
        assert sentence.alternatives[0].alignment == [(word - 1, said) for word, said in there if word]
        assert found.versions()[0].links == sentence.alternatives[0].alignment
        assert plain.translate(text).text != found.text == plain.translate(f">>fr<< {text}").text
        np.testing.assert_array_equal(tagged.score([(text, "neun")])[0], plain.score([(f">>fr<< {text}", "neun")])[0])
    whole = tagged.translate(" ".join(texts[:2]), split="always")
    assert [sentence.source for sentence in whole.sentences] == texts[:2]
    assert [s.alternatives[0].text for s in whole.sentences] == [one.text for one in tagged.translate(texts[:2])]
    assert tagged.translate(">>de<< nine dollars").text == plain.translate(">>de<< nine dollars").text
    with pytest.raises(DataError, match=r"tag = 'ka': is not a language tag of many; its tags are >>de<<, >>fr<<"):
        Translator.load(folder, device="cpu", tag="ka")
    with pytest.raises(DataError, match=r"tag = 'fr': is not a language tag of none; it has none"):
        Translator.load(save_tiny(tmp_path / "none"), device="cpu", tag="fr")


@pytest.mark.parametrize("gap", [" ", "\n", "\n\n  "])
@pytest.mark.parametrize("before", [">>fr<< ", "\n >>fr<<  ", ">>fr<<\n"])
def test_links_of_a_text_with_a_tag_count_the_words_of_that_text(tmp_path: Path, before: str, gap: str):
    """Each sentence has the tag before it, but the text has it once."""
    folder = save_tagged(tmp_path / "many")
    plain, tagged = Translator.load(folder, device="cpu"), Translator.load(folder, device="cpu", tag="fr")
    text = gap.join(["Twenty-one euros.", "The twenty-first of June.", "They paid nine dollars."])
    asked = Options(split="always", alignments=True)
    (found,), (wanted,) = (
        one.versions() for one in (plain.translate(before + text, asked), tagged.translate(text, asked))
    )
    assert found.text.strip() == wanted.text.strip()
    assert wanted.links is not None
    assert found.links == [(word + 1, said) for word, said in wanted.links] != []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=4),
    st.lists(st.sampled_from([" ", "", "\n ", "\u200b"]), min_size=5, max_size=5),
    st.sampled_from(["", ">>de<<", ">>de<<  "]),
)
def test_links_of_a_text_name_its_words(sizes: list[tuple[int, int]], gaps: list[str], tag: str):
    """Also where sentences stand together without a space, as in Chinese, and share a word."""
    sides = [[[f"{n}.{m}" for m in range(many)] for n, many in enumerate(side)] for side in zip(*sizes)] or [[], []]
    links = [[(m % len(source), m) for m in range(len(target))] for source, target in zip(*sides)]
    sentences = tuple(
        Sentence(
            " ".join([tag.strip(), *source] if tag else source),
            (Alternative(" ".join(target), 0, 0, True, (), (), own),),
        )
        for source, target, own in zip(*sides, [[(s + bool(tag), t) for s, t in own] for own in links])
    )
    layout = Layout(tuple(gaps[: len(sizes) + 1]), frozenset(), tag)
    text = tag + layout.join([" ".join(source) for source in sides[0]])
    (version,) = Translation(text, "", 0.0, sentences, layout).versions()
    assert version.links is not None
    wanted = [(sides[0][n][s], sides[1][n][t]) for n, own in enumerate(links) for s, t in own]
    for (s, t), (source, target) in zip(version.links, wanted, strict=True):
        assert source in text.split()[s]
        assert target in version.text.split()[t]


def test_text_is_normalised_as_the_training_text_was(tmp_path: Path):
    for form, same in (("NFC", False), ("NFKC", True), ("off", False)):
        model = Translator.load(save_tiny(tmp_path / form, about={"unicode": form}), device="cpu")
        one, other = model.translate(["ﬁve", "five"])
        assert (one.text == other.text) is same
        composed, apart = model.translate(["\u00e9 a", "e\u0301 a"])
        assert (composed.text == apart.text) is (form != "off")
        assert apart.source == "e\u0301 a"
        assert apart.sentences[0].source == ("e\u0301 a" if form == "off" else "\u00e9 a")
    assert model.translate("a &lt; b").sentences[0].source == "a &lt; b"  # text as people have it, not HTML


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-9, 0), min_size=1, max_size=4).map(lambda some: sorted(some)[::-1]), max_size=5),
    st.lists(st.sampled_from([" ", "", "\n"]), min_size=6, max_size=6),
)
def test_alternatives_of_a_text_are_the_best_combinations(scores: list[list[float]], gaps: list[str]):
    sentences = tuple(
        Sentence(f"s{n}", tuple(Alternative(f"{n}.{m}", score, 0, True, (), ()) for m, score in enumerate(some)))
        for n, some in enumerate(scores)
    )
    layout = Layout(tuple(gaps[: len(scores) + 1]), frozenset())
    best = layout.join([f"{n}.0" for n in range(len(scores))])
    found = Translation("x", best, 0.0, sentences, layout).alternatives()
    totals = sorted((math.fsum(choice) for choice in itertools.product(*scores)), reverse=True)
    many = max(map(len, scores), default=1)
    assert [score for _, score in found] == pytest.approx(totals[:many])
    assert found[0][0] == best
    assert len({text for text, _ in found}) == len(found) == min(many, len(totals))
    for text, score in found:  # each text has the score of its own parts
        chosen = [next(m for m in range(4) if f"{n}.{m}" in text) for n in range(len(scores))]
        assert sum(some[m] for some, m in zip(scores, chosen)) == pytest.approx(score)


def test_alternatives_of_a_very_long_text_take_no_time(translator: Translator):
    one = Alternative("a", -1.0, -1, True, (), ()), Alternative("b", -2.0, -2, True, (), ())
    _, layout = lay_out("a " * 20_000, len, 1, "always")
    whole = Translation("x", "x", 0.0, (Sentence("a", one),) * 20_000, layout)
    assert [score for _, score in whole.alternatives()] == [-20_000.0, -20_001.0]


# ---- models ----


def test_models_that_are_not_there_or_damaged_are_named(tmp_path: Path, tiny: Path):
    with pytest.raises(ConfigError, match="needs the folder of a run"):
        Translator.load()
    with pytest.raises(DataError, match=r"no/where: does not exist; name a run"):
        Translator.load(tmp_path / "no" / "where")
    with pytest.raises(DataError, match="contains no model; name a run"):
        Translator.load(str(tmp_path))
    damaged = save_tiny(tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match=r"model.safetensors: does not match its checksum; the model is"):
        Translator.load(damaged)
    for setting in ({"precision": "fp16"}, {"engine": "nativ"}, {"device": "tpu"}):
        with pytest.raises(UsageError, match="is not known; use "):
            Translator.load(tiny, **setting)  # pyright: ignore[reportArgumentType]


def test_an_ensemble_means_its_models(tmp_path: Path, tiny: Path, translator: Translator):
    twice = Translator.load(tiny, str(tiny), device="cpu")
    texts = ["two euros", "nine dollars and ten"]
    for one, two in zip(translator.translate(texts), twice.translate(texts)):
        assert one.text == two.text
        assert one.score == pytest.approx(two.score, abs=1e-4)
    other = Translator.load(tiny, save_tiny(tmp_path / "other", seed=2), device="cpu")
    found = other.translate("two euros", max_tokens=1, min_tokens=1).sentences[0].alternatives[0]
    token = translator.subwords["target"].processor.piece_to_id(found.tokens[0])
    source = translator.tokens("two euros", "source")
    each = [score_pairs(one.model, [(source, np.array([token]))])[0][0] for one in other.loaded]
    assert found.log_probability == pytest.approx(np.logaddexp(*each) - np.log(2), abs=1e-4)
    with pytest.raises(DataError, match=r"odd: cannot form an ensemble with .*tiny: its subwords differ"):
        Translator.load(tiny, save_tiny(tmp_path / "odd", subwords=learn_subwords(331)))


def test_what_only_samples_have_is_refused_where_none_are_drawn(translator: Translator, tmp_path: Path):
    """But not a model's own settings for sampling, nor values that change nothing."""
    settings: list[tuple[str, Any]] = [("temperature", 0.5), ("top_k", 3), ("top_p", 0.5), ("sample_seed", 2)]
    for name, value in settings:
        with pytest.raises(ConfigError, match=rf"only samples take search.{name} = {value}"):
            translator.translate("two", **{name: value})
        assert translator.translate("two", sample=True, **{name: value})
    own = save_tiny(tmp_path / "own", search=replace(SEARCH, temperature=0.5, top_k=3))
    model = Translator.load(own, device="cpu")
    assert model.translate("two", **strict.to_dict(model.search)) == model.translate("two")
    assert model.translate("two", temperature=0.5)
    with pytest.raises(ConfigError, match=r"only samples take search\.temperature = 1\.0"):
        model.translate("two", temperature=1.0)


def test_a_models_own_settings_of_search_are_used(tmp_path: Path):
    model = Translator.load(save_tiny(tmp_path / "own", search=SearchConfig(beam=3, n_best=3, max_tokens=2)))
    found = model.translate("two euros").sentences[0].alternatives
    assert len(found) == 3
    assert max(len(one.tokens) for one in found) <= 2


def test_a_loaded_model_is_the_one_that_was_saved(tmp_path: Path):
    """It is built without memory and without random numbers; nothing may be left unloaded."""
    kinds: list[dict[str, Any]] = [{}, {"positions": "learned", "max_positions": 9}, {"norm": "pre"}]
    for number, changes in enumerate(kinds):
        folder = save_tiny(tmp_path / str(number), **changes)
        before = torch.random.get_rng_state()
        model = load_model(folder).model
        assert torch.equal(before, torch.random.get_rng_state())
        assert not any(part.is_meta for part in [*model.parameters(), *model.buffers()])
        assert not model.training
        source = torch.tensor([5, 6, END]), torch.tensor([0, 3])
        torch.manual_seed(number)
        drawn = Transformer(model.config).eval()  # as it is made elsewhere, with memory and with drawing
        drawn.load_state_dict(read_tensors(folder / WEIGHTS))
        assert torch.equal(model(*source, *source), drawn(*source, *source))
