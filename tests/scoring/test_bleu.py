"""BLEU is sacreBLEU's own, with its signature."""

import builtins
import logging
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.tokenizers import tokenizer_spm

from transduce.errors import DataError, TransduceError, UsageError
from transduce.scoring import bleu
from transduce.scoring.bleu import TOKENIZER_OF, UNSPACED, choose_tokenizer, corpus_bleu

WORDS = st.sampled_from(["the", "cat", "Cat", "sat.", "on", "mats", "1,000.5", "»so«", "猫", ""])
SENTENCES = st.lists(WORDS, max_size=9).map(" ".join)


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_score_is_sacrebleus(pairs: list[tuple[str, str]]):
    translations, references = [one for one, _ in pairs], [other for _, other in pairs]
    assert corpus_bleu(translations, references).score == sacrebleu.corpus_bleu(translations, [references]).score


@given(
    st.lists(st.tuples(SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=6),
    st.sampled_from(["13a", "intl", "zh", "char", "none"]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_the_options_are_sacrebleus(triples: list[tuple[str, str, str]], tokenize: str, lowercase: bool):
    translations, one, other = ([triple[place] for triple in triples] for place in range(3))
    metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase)
    score = metric.corpus_score(translations, [one, other]).score
    assert corpus_bleu(translations, one, other, tokenize=tokenize, lowercase=lowercase) == (
        score,
        str(metric.get_signature()),
    )


def test_a_corpus_is_scored_as_a_whole():
    """Counts are summed before they are divided, so it is not the mean of its sentences' scores."""
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
    other = corpus_bleu(["a b"], ["a b"], ["a c"], ["a d"], tokenize="char", lowercase=True).signature
    assert {"nrefs:3", "case:lc", "tok:char"} <= set(other.split("|"))


def test_nothing_is_left_out_of_a_score_unseen():
    with pytest.raises(
        DataError, match=r"there are 1 translations and 2 references; BLEU needs one reference for each"
    ):
        corpus_bleu(["a"], ["a", "b"])
    with pytest.raises(DataError, match=r"there are 1 translations and 2 references"):
        corpus_bleu(["a"], ["a"], ["a", "b"])
    with pytest.raises(DataError, match=r"there are 1,200 translations and 0 references"):
        corpus_bleu(["a"] * 1200, [])
    with pytest.raises(DataError, match=r"there are 1 translations and 0 references"):
        corpus_bleu(["a"])
    with pytest.raises(DataError, match="there are no translations to score"):
        corpus_bleu([], [])


LINES = {
    "zh": ["今天天气很好，我们去公园。", "他在学习中文"],
    "ja": ["今日は天気がいいから散歩しましょう。", "東京都渋谷区", "これはペンです"],
    "ko": ["오늘은 날씨가 좋아요.", "서울에 갑니다"],
    "th": ["วันนี้อากาศดีมาก", "ฉันไปโรงเรียน"],
    "lo": ["ມື້ນີ້ອາກາດດີ"],
    "km": ["ថ្ងៃនេះអាកាសធាតុល្អ"],
    "my": ["ဒီနေ့ ရာသီဥတု ကောင်းတယ်"],
    "bo": ["དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག།"],
}


def test_the_tokenizer_of_a_language_is_sacrebleus_choice_if_it_has_one():
    theirs = sacrebleu.BLEU._TOKENIZER_MAP
    assert {language: TOKENIZER_OF[language] for language in theirs} == theirs
    others = {language: name for language, name in TOKENIZER_OF.items() if language not in theirs}
    assert others == dict.fromkeys(UNSPACED - theirs.keys(), "char")


@pytest.mark.parametrize("installed", [True, False])
def test_a_tokenizer_is_chosen_by_the_language_or_else_by_the_script(installed: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bleu, "_is_installed", lambda tokenize: installed)
    expected = TOKENIZER_OF | ({} if installed else {"ja": "char", "ko": "13a"})
    for language, name in expected.items():
        for code in (language, language.upper(), f"{language}-XX", f"{language}_xx"):
            assert choose_tokenizer(code) == name
    for language, lines in LINES.items():
        mixed = [*lines, *["Angela Merkel 2024", "42", "?!"][: len(lines) - 1]]
        for told in ("", "en-x", "mul"):
            assert choose_tokenizer(told, mixed) == expected[language]
    # A name in another script does not make a text one without spaces.
    assert choose_tokenizer("", ["Sie heißt 东京.", "東京", "So ist es.", "Das ist gut."]) == "13a"
    assert choose_tokenizer("", []) == choose_tokenizer("de") == choose_tokenizer("", ["…", "42"]) == "13a"
    assert choose_tokenizer("th", LINES["zh"]) == "char"  # what is said counts


def test_what_sacrebleu_cannot_load_counts_as_not_installed(monkeypatch: pytest.MonkeyPatch):
    for language in ("ja", "ko"):
        module = __import__(f"sacrebleu.tokenizers.tokenizer_{language}_mecab", fromlist=["MeCab"])
        monkeypatch.setattr(module, "MeCab", None)
    assert (choose_tokenizer("ja"), choose_tokenizer("ko"), choose_tokenizer("zh")) == ("char", "13a", "zh")


def test_a_line_without_spaces_is_more_than_one_word():
    """One character more is wrong in each line, so no line is right as a whole, but nearly all characters are."""
    for language in UNSPACED - {"dz"}:
        lines = [line.replace(" ", "") * 3 for line in LINES[language]]  # Burmese may have some, between phrases
        name = choose_tokenizer("", lines)
        assert corpus_bleu([line + "X" for line in lines], lines).score < 30
        assert corpus_bleu([line + "X" for line in lines], lines, tokenize=name).score > 75


def test_an_unknown_tokenizer_is_named():
    with pytest.raises(UsageError, match=r"^unknown tokenizer 13b; did you mean 13a\?$"):
        corpus_bleu(["a"], ["a"], tokenize="13b")
    with pytest.raises(UsageError, match=r"^unknown tokenizer xyzzy; choose among 13a, char, "):
        corpus_bleu(["a"], ["a"], tokenize="xyzzy")


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_a_tokenizer_without_its_package_says_what_to_install(language: str, monkeypatch: pytest.MonkeyPatch):
    module = __import__(f"sacrebleu.tokenizers.tokenizer_{language}_mecab", fromlist=["MeCab"])
    monkeypatch.setattr(module, "MeCab", None)  # as it is where the package is not installed
    with pytest.raises(
        TransduceError,
        match=rf"the tokenizer {language}-mecab needs .*; pip install 'sacrebleu\[{language}\]', or choose",
    ):
        corpus_bleu(["a"], ["a"], tokenize=f"{language}-mecab")


def test_a_tokenizer_that_cannot_be_downloaded_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", refuse)
    with pytest.raises(TransduceError, match=r"flores200 needs a subword model .* could not download.*no network.*13a"):
        corpus_bleu(["a"], ["a"], tokenize="flores200")


def test_a_subword_tokenizer_without_sentencepiece_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    original = builtins.__import__

    def missing(name: str, *arguments: Any) -> ModuleType:
        if name == "sentencepiece":
            raise ImportError(name)
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(TransduceError, match="pip install 'sentencepiece'"):
        corpus_bleu(["a"], ["a"], tokenize="flores200")


def test_sacrebleu_does_not_guess_aloud(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        corpus_bleu(["a b ."] * 200, ["a b ."] * 200)
    assert not caplog.records
