"""Terms of a glossary are found where they stand, and their translations are said there."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import run_job
from models import save_tiny
from sentencepiece import SentencePieceTrainer

from transduce.config import SearchConfig
from transduce.decoding.glossary import Glossary, missing, read_glossary
from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError, DataError
from transduce.text.subwords import Subwords

# ---- finding ----

TERMS = {
    "account": ("Konto",),
    "bank account": ("Bankkonto",),
    "Bank": ("die Bank",),
    "open": ("öffnen", "eröffnen"),
    "US": ("die USA",),
    "C++": ("C++",),
    ".net": (".NET",),
    "文": ("Text",),
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My account is open.", ["Konto", "öffnen"]),
        ("Account: OPEN", ["Konto", "öffnen"]),  # small letters are found in any case
        ("A bank account", ["Bankkonto"]),  # the longest, and nothing within it
        ("A bank", []),  # a capital is meant
        ("The Bank and the US", ["die Bank", "die USA"]),
        ("He told us", []),
        ("accounts, account2, reaccount", []),  # whole words
        ("account-holder", ["Konto"]),
        ("C++ and C", ["C++"]),
        ("C++11", ["C++"]),  # no word goes on behind a sign
        ("ASP.NET", [".NET"]),
        ("account account", ["Konto"]),  # once is enough
        ("中文字", ["Text"]),  # no spaces there
        ("", []),
    ],
)
def test_terms_are_found_as_whole_words(text: str, found: list[str]):
    assert [term[0] for term in Glossary(TERMS).find(text)] == found


def test_in_a_sentence_that_was_in_capitals_all_terms_are_found():
    assert Glossary(TERMS).find("the bank and the us", any_case=True) == [("die Bank",), ("die USA",)]


words = st.text("abA ", min_size=1, max_size=5).map(str.strip).filter(bool)


@given(terms=st.lists(words, min_size=1, max_size=4, unique=True), text=st.text("abA .", max_size=14))
def test_terms_are_found_as_by_trying_all(terms: list[str], text: str):
    """From left to right, the longest first; by regular expressions."""
    patterns = [
        (term, re.compile(re.escape(term), re.I if term == term.lower() else 0))
        for term in sorted(terms, key=len, reverse=True)
    ]
    found: list[str] = []
    place = 0
    while place < len(text):
        here = [
            term
            for term, pattern in patterns
            if pattern.match(text, place)
            and not re.search(r"\w$", text[:place])
            and not re.match(r"\w", text[place + len(term) :])
        ]
        found += here[:1]
        place += len(here[0]) if here else 1
    glossary = Glossary({term: [f"said {term}"] for term in terms})
    assert glossary.find(text) == [(f"said {term}",) for term in dict.fromkeys(found)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Das Konto ist neu.", [("öffnen", "eröffnen")]),
        ("Konten öffnen", [("Konto",)]),
        ("Eröffnen Sie das Konto!", []),  # as at the beginning of a sentence
        ("ein Kontostand", [("Konto",), ("öffnen", "eröffnen")]),
    ],
)
def test_which_terms_a_translation_does_not_say(text: str, left: list[tuple[str, ...]]):
    assert missing([("Konto",), ("öffnen", "eröffnen")], text) == left


# ---- files ----


def test_a_file(tmp_path: Path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffaccount\tKonto\r\n\n open \t öffnen | eröffnen\naccount\tRechnung\nTom\tTom\n".encode())
    assert read_glossary(path) == {"account": ("Konto", "Rechnung"), "open": ("öffnen", "eröffnen"), "Tom": ("Tom",)}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\tb\naccount Konto\n", ":2: has no tab: 'account Konto'; write the term, a tab and its translation"),
        (b"a\tb\tc\n", ":1: is no term with a translation"),
        (b"a\t\n", ":1: is no term with a translation"),
        (b"\tb\n", ":1: is no term with a translation"),
        (b"a\tb||c\n", ":1: is no term with a translation"),
        (b"a\tb\nc\t\xe4\n", ":2: not UTF-8; convert the text with: iconv"),
        (b" \n\n", ": holds no term; write one to a line"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_line(tmp_path: Path, content: bytes, problem: str):
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_glossary(path)
    assert str(error.value).startswith(f"{path}{problem}")


# ---- translating ----

ROOM = 40


def load(tiny: Path, **terms: tuple[str, ...]) -> Translator:
    return Translator.load(tiny, device="cpu", glossary={name.replace("_", " "): own for name, own in terms.items()})


def test_terms_are_said_where_they_stand_and_nowhere_else(tiny: Path, translator: Translator):
    texts = ["two euros", "nine dollars", "Two Euros and two pounds"]
    plain = [one.text for one in translator.translate(texts, extra_tokens=ROOM)]
    assert not any("Groschen" in text or "Kreuzer" in text for text in plain)
    # One that the model says by itself, and one that it does not.
    found = [
        one.text
        for one in load(tiny, euros=("Groschen", "Kreuzer"), nine=(plain[1],)).translate(texts, extra_tokens=ROOM)
    ]
    assert found[1] == plain[1]
    for text in (found[0], found[2]):
        assert re.search(r"(^|\W)(Groschen|Kreuzer)(\W|$)", text), text


def test_of_a_long_text_each_sentence_has_its_own_terms(tiny: Path):
    """Texts may be split: a term concerns the sentence that it stands in."""
    found = load(tiny, euros=("Groschen",)).translate("Two euros.\nNine dollars.", extra_tokens=ROOM)
    assert ["Groschen" in sentence.alternatives[0].text for sentence in found.sentences] == [True, False]


def test_all_of_an_n_best_list_say_it_and_none_is_there_twice(tiny: Path):
    found = load(tiny, euros=("Groschen",)).translate("two euros", beam=3, n_best=3, extra_tokens=ROOM)
    texts = [text for text, _ in found.alternatives()]
    assert len(set(texts)) == len(texts) > 1
    assert all(not missing([("Groschen",)], text) for text in texts)


def test_with_what_else_must_be_said(tiny: Path):
    found = load(tiny, euros=("Groschen",)).translate(
        Request("two euros", prefix="neun", require=("drei",), forbid=("acht",)), extra_tokens=ROOM
    )
    assert found.text.startswith("neun")
    assert not missing([("drei",), ("Groschen",)], found.text)
    assert missing([("acht",)], found.text)


def test_a_sentence_in_capitals(tiny: Path, translator: Translator):
    text = "TWENTY-THREE EUROS"
    assert translator.translate(text).text.isupper()
    ours = load(tiny, EUROS=("Groschen",)).translate(text, extra_tokens=ROOM).text
    assert ours.isupper()
    assert not missing([("GROSCHEN",)], ours)


def test_what_cannot_be(tiny: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="draws at random, and what a glossary says is searched for"):
        load(tiny, euros=("Groschen",)).translate("two euros", sample=True)
    bare = save_tiny(tmp_path / "bare", subwords=without_bytes())
    with pytest.raises(DataError, match="bare has no subwords to say '猫'"):
        load(bare, cat=("猫",))


def without_bytes() -> Subwords:
    """Subwords of letters alone, as those of models that were made elsewhere."""
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["two euros and nine dollars", "zwei Euro und neun Dollar"] * 20),
        model_writer=written,
        vocab_size=40,
        model_type="bpe",
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return Subwords(written.getvalue())


def test_the_search_is_told_how_far_it_is(tiny: Path):
    """What is searched for again counts."""
    told: list[tuple[int, int]] = []
    texts = ["two euros", "nine dollars", "three euros"]
    ours = load(tiny, euros=("Groschen",), three=("a",))
    list(ours.stream(texts, done=lambda found, wanted: told.append((found, wanted)), extra_tokens=ROOM))
    assert [found for found, _ in told] == sorted(found for found, _ in told)
    assert told[-1] == (5, 5)


def test_from_the_command_line(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    terms, source, out = tmp_path / "terms.tsv", tmp_path / "in.txt", tmp_path / "out.txt"
    terms.write_text("euros\tGroschen\n")
    source.write_text("two euros\nnine dollars\n")
    flags = ("--glossary", str(terms), "--extra-tokens", "40")
    assert run_job(tiny, *flags, "--out", str(out), source=source) == 0
    expected = load(tiny, euros=("Groschen",)).translate(["two euros", "nine dollars"], extra_tokens=ROOM)
    assert out.read_text().splitlines() == [one.text for one in expected]
    capfd.readouterr()
    terms.write_text("euros Groschen\n")
    assert run_job(tiny, *flags, source=source) == 1
    assert f"{terms}:1: has no tab" in capfd.readouterr().err


def test_a_wider_beam_is_asked_for_where_terms_are_said(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    import transduce.decoding.translator as module

    asked: list[tuple[int, int]] = []
    search = module.search

    def note(engine: Any, tasks: Any, config: SearchConfig, pieces: Any) -> Any:
        asked.append((len(tasks), config.beam))
        return search(engine, tasks, config, pieces)

    monkeypatch.setattr(module, "search", note)
    load(tiny, euros=("Groschen",)).translate(["two euros", "nine dollars"], beam=3, extra_tokens=ROOM)
    assert asked == [(2, 3), (1, 6)]
