"""Terms of a glossary are found where they stand, and their translations are said there."""

import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jobs import run_job
from models import save_tiny
from sentencepiece import SentencePieceTrainer

from transduce.decoding.glossary import Glossary, check_terms, describe_terms, find_said, read_glossary, say
from transduce.decoding.options import Request
from transduce.decoding.terms import cut, is_like
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
    "user's guide": ("Handbuch",),
    "e-mail": ("Post",),
    "42": ("zwei",),
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
        ("account-holder, sub-account, account_id, my.account", []),  # these are other words
        ("www.bank.com/account, me@account.com, http://account", []),
        ("account. Open", ["Konto", "öffnen"]),
        ("account/bank account", ["Konto", "Bankkonto"]),
        ("C++ and C", ["C++"]),
        ("C++11", ["C++"]),  # no word goes on behind a sign
        ("ASP.NET", [".NET"]),
        ("account account", ["Konto", "Konto"]),
        ("the user’s guide, e‑mail", ["Handbuch", "Post"]),  # signs that look alike are one
        ("42.5 and 1,042 and 42", ["zwei"]),
        ("中文字", ["Text"]),  # no spaces there
        ("", []),
    ],
)
def test_terms_are_found_as_whole_words(text: str, found: list[str]):
    assert [mention.term[0] for mention in Glossary(TERMS).find(text)] == found


def test_where_terms_are_found():
    found = Glossary(TERMS).find("Open a bank account (account) in the US")
    assert found == [(0, 0, ("öffnen", "eröffnen")), (2, 3, ("Bankkonto",)), (4, 4, ("Konto",)), (7, 7, ("die USA",))]


@pytest.mark.parametrize("order", [1, -1])
def test_a_term_that_is_written_so_comes_first(order: int):
    terms = {"turkey": ("Truthahn",), "Turkey": ("Türkei",)}
    glossary = Glossary(dict(list(terms.items())[::order]))
    assert [mention.term[0] for mention in glossary.find("Turkey, turkey, TURKEY")] == [
        "Türkei",
        "Truthahn",
        "Truthahn",
    ]


def test_in_a_sentence_that_was_in_capitals_all_terms_are_found():
    found = Glossary(TERMS).find("the bank and the us", any_case=True)
    assert [mention.term for mention in found] == [("die Bank",), ("die USA",)]


words = st.text("abA ", min_size=1, max_size=5).map(str.strip).filter(bool)


@given(terms=st.lists(words, min_size=1, max_size=4, unique=True), text=st.text("abA .", max_size=14))
def test_terms_are_found_as_by_trying_all(terms: list[str], text: str):
    """From left to right, the longest first, and those that are written so; by regular expressions."""
    patterns = [
        (term, re.compile(rf"(?<!\w)(?<!\w\.){re.escape(term)}(?!\w)(?!\.\w)", re.I if term == term.lower() else 0))
        for term in sorted(terms, key=lambda term: (-len(term), term == term.lower()))
    ]
    found: list[str] = []
    place = 0
    while place < len(text):
        here = [term for term, pattern in patterns if pattern.match(text, place)]
        found += here[:1]
        place += len(here[0]) if here else 1
    glossary = Glossary({term: (f"said {term}",) for term in terms})
    assert [mention.term[0] for mention in glossary.find(text)] == [f"said {term}" for term in found]


@pytest.mark.parametrize(
    ("term", "text", "said"),
    [
        ("Vertrag", "Der Vertrag, ein vertrag", ["Vertrag"]),
        ("Vertrag", "mit Verträgen und des Vertrags", ["Verträgen", "Vertrags"]),  # inflected
        ("Vertrag", "Vertragsbedingungen im Mietvertrag", ["Vertragsbedingungen", "vertrag"]),  # in compounds
        ("vertrag", "Vertrag vertrag", ["Vertrag", "vertrag"]),
        ("Rat", "Der Rat riet zum Vorrat. Rate!", ["Rat"]),  # short ones are whole words
        ("die", "Die Dienste, die", ["Die", "die"]),
        ("iPhone", "IPhone-Verkäufe von iPhones", ["iPhones"]),
        ("NATO", "nato NATO", ["NATO"]),
        ("befristeter Vertrag", "ein befristeter  Vertrag", ["befristeter  Vertrag"]),
        ("Windows 11", "Windows 11 und Windows 110", ["Windows 11"]),
        ("C++", "in C++11 und C+", ["C++"]),
        ("合同", "新合同书", ["合同"]),
        ("été", "Été, étés", ["Été"]),
    ],
)
def test_where_a_text_says_a_term(term: str, text: str, said: list[str]):
    assert [text[first:last] for first, last in find_said((term,), text)] == said


def test_places_are_counted_once():
    assert len(find_said(("Konto", "Konten", "Kontos"), "des Kontos und die Konten")) == 2


@pytest.mark.parametrize(
    ("phrase", "begins", "said"),
    [("der Rat", True, "Der Rat"), ("der Rat", False, "der Rat"), ("iPhone", True, "iPhone"), ("Rat", True, "Rat")],
)
def test_how_a_term_is_written(phrase: str, begins: bool, said: str):
    assert say(phrase, begins=begins) == said


# ---- files ----


def test_a_file(tmp_path: Path):
    path = tmp_path / "terms.tsv"
    lines = [
        "\ufeff# of the bank\r\naccount\tKonto\r\n\n open \t öffnen | eröffnen\taus dem Haus\r",
        'account\tRechnung\nTom\tTom\t\n"5"" disk"\t"Diskette"\n#1\tNummer eins\n',
    ]
    path.write_bytes("".join(lines).encode())
    assert read_glossary(path) == {
        "account": ("Konto", "Rechnung"),
        "open": ("öffnen", "eröffnen"),
        "Tom": ("Tom",),
        '5" disk': ("Diskette",),
        "#1": ("Nummer eins",),
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\tb\naccount Konto\n", ":2: has no tab: 'account Konto'; write the term, a tab and its translation"),
        ("a\tb\n".encode("utf-16"), ": is UTF-16; save it as UTF-8"),
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


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ("contract", "glossary = 'contract', wanted a file or"),
        (["contract"], r"glossary = \['contract'\], wanted a file or"),
        ({"contract": []}, "wanted a term with its translation, or with a list of several"),
        ({"contract": None}, "wanted a term with its translation, or with a list of several"),
        ({"contract": [3]}, "wanted a term with its translation, or with a list of several"),
        ({3: "drei"}, "wanted a term with its translation, or with a list of several"),
        ({"contract": "Vertrag|Abkommen"}, "has | in a translation; give several as a list"),
    ],
)
def test_terms_from_python_that_are_wrong(terms: Any, problem: str):
    with pytest.raises(ConfigError, match=problem.replace("|", r"\|")):
        check_terms(terms)


def test_terms_from_python():
    assert check_terms({"contract": "Vertrag", "sign": ["zeichnen", "zeichnet"]}) == {
        "contract": ("Vertrag",),
        "sign": ("zeichnen", "zeichnet"),
    }


@pytest.mark.parametrize("terms", [{" ": ("a",)}, {"a": ("\u200b",)}])
def test_nothing_is_no_term(tiny: Path, terms: dict[str, tuple[str, ...]]):
    with pytest.raises(DataError, match="nothing is left of"):
        Translator.load(tiny, device="cpu", glossary=terms)


def test_what_tells_glossaries_apart():
    assert describe_terms({}) == "none"
    first, second, third = ({"a": ("b",)}, {"a": ("c",)}, {"a": ("b",), "c": ("d",)})
    assert describe_terms(first).startswith("1 terms (")
    assert len({describe_terms(one) for one in (first, second, third)}) == 3
    assert describe_terms({"c": ("d",), "a": ("b",)}) == describe_terms(third)


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
        assert find_said(("Groschen", "Kreuzer"), text), text


def test_of_a_long_text_each_sentence_has_its_own_terms(tiny: Path):
    """Texts may be split: a term concerns the sentence that it stands in."""
    found = load(tiny, euros=("Groschen",)).translate("Two euros.\nNine dollars.", extra_tokens=ROOM)
    assert ["Groschen" in sentence.alternatives[0].text for sentence in found.sentences] == [True, False]


def test_all_of_an_n_best_list_say_it_and_none_is_there_twice(tiny: Path):
    found = load(tiny, euros=("Groschen",)).translate("two euros", beam=3, n_best=3, extra_tokens=ROOM)
    texts = [text for text, _ in found.alternatives()]
    assert len(set(texts)) == len(texts) > 1
    assert all(find_said(("Groschen",), text) for text in texts)


def test_with_what_else_must_be_said(tiny: Path):
    found = load(tiny, euros=("Groschen",)).translate(
        Request("two euros", prefix="neun", require=("drei",), forbid=("acht",)), extra_tokens=ROOM
    )
    assert found.text.startswith("neun")
    assert all(find_said((term,), found.text) for term in ("drei", "Groschen"))
    assert not find_said(("acht",), found.text)


def test_a_sentence_in_capitals(tiny: Path, translator: Translator):
    text = "TWENTY-THREE EUROS"
    assert translator.translate(text).text.isupper()
    ours = load(tiny, EUROS=("Groschen",)).translate(text, extra_tokens=ROOM).text
    assert ours.isupper()
    assert "GROSCHEN" in ours


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


# ---- where they are said ----


@pytest.fixture(scope="module")
def box() -> Translator:
    """The model that comes along, with terms that it calls otherwise."""
    terms = {"contract": "Vereinbarung", "car": "Fahrzeug", "vehicle": "Fahrzeug", "dog": "Vierbeiner"}
    return Translator.load("en-de", device="cpu", glossary=terms | {"cat": "Samtpfote", "house": "Gebäude"})


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The details of the contract are secret.", ["Vereinbarung"]),
        ("We need a new contract with them.", ["Vereinbarung"]),
        ("The contract is new. The contract is old.", ["Vereinbarung", "Vereinbarung"]),
        ("The dog saw the cat.", ["Vierbeiner", "Samtpfote"]),
        ("The child saw the dog, the cat and the house.", ["Vierbeiner", "Samtpfote", "Gebäude"]),
        ("The car hit a vehicle.", ["Fahrzeug", "Fahrzeug"]),
    ],
)
def test_a_term_takes_the_place_of_what_the_model_would_say(box: Translator, text: str, terms: list[str]):
    plain = Translator(box.loaded, box.engine).translate(text).text
    said = box.translate(text).text
    assert re.findall("Vereinbarung|Fahrzeug|Vierbeiner|Samtpfote|Gebäude", said) == terms
    assert not re.search("Vertrag|Auto|Hund|Katze|Haus", said)
    # The other words remain, but for forms of articles and adjectives.
    before, now = (re.findall(r"\w+|[^\w\s]", one) for one in (plain, said))
    assert len(before) == len(now)
    changed = [(old, new) for old, new in zip(before, now) if old != new and new not in terms]
    assert all(old[0] == new[0] for old, new in changed), changed


def test_what_goes_with_a_term_agrees_with_it(box: Translator):
    assert box.translate("We need a new contract with them.").text == "Wir brauchen eine neue Vereinbarung mit ihnen."


def test_a_term_that_is_inflected_is_said(box: Translator):
    ours = Translator(box.loaded, box.engine, {"contracts": "Verträge", "contract": "Vertrag"})
    texts = ["The employees with contracts are happy.", "Contract work is badly paid."]
    plain = [one.text for one in Translator(box.loaded, box.engine).translate(texts)]
    assert [one.text for one in ours.translate(texts)] == plain
    assert "Verträgen" in plain[0]
    assert "Vertrags" in plain[1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(["two", "nine", "euros", "and", "dollars."]), min_size=1, max_size=7),
    said=st.lists(st.sampled_from(["ja", "Groschen", "der Kreuzer", "é", "7", "x-y"]), min_size=5, max_size=5),
)
def test_all_terms_are_said(tiny: Path, words: list[str], said: list[str]):
    """Whatever the model would say, for this one knows nothing."""
    translator = load(tiny, **dict(zip(["two", "nine", "euros", "and", "dollars"], ((one,) for one in said))))
    text = " ".join(words)
    found = translator.translate(text, extra_tokens=200)
    assume(found.sentences[0].alternatives[0].complete)  # else there may be no room for them
    assert all(find_said(mention.term, found.text) for mention in translator.glossary.find(text)), found.text


def test_what_is_forbidden_cannot_be_said(box: Translator, tiny: Path):
    with pytest.raises(DataError, match="'Vereinbarung' is in the glossary and forbidden; give up one of them"):
        box.translate(Request("A contract.", forbid=("Vereinbarung",)))
    assert "Vereinbarung" not in box.translate(Request("A house.", forbid=("Vereinbarung",))).text
    other = load(tiny, euros=("Groschen", "neue Kreuzer")).translate(Request("two euros", forbid=("Groschen",)))
    assert find_said(("neue Kreuzer",), other.text)


@pytest.mark.parametrize(
    ("old", "new", "like"),
    [
        (" der", " die", True),
        (" einen", " eine", True),
        (" neuen", " neue", True),
        (" el", " la", True),  # short: how probable they are has to tell
        (" sah", " hat", False),
        (" sah", " sieht", False),
        (" das", " dieses", False),
        (" ein", " einen", True),
        (" den", " und", False),
        (" kaufte", " verkaufte", False),
        (" zwei", " drei", False),
        (" der", "die", False),  # a word of its own, or a part of one
        ("Der", "die", False),
        (" der", " der", False),
        (" ,", " die", False),
    ],
)
def test_which_words_are_forms_of_others(old: str, new: str, like: bool):
    assert is_like(old, new) == like


@given(st.text("abé .(-文字", max_size=20))
def test_words_are_parts_of_what_was_said(tiny: Path, text: str):
    target = Translator.load(tiny, device="cpu").subwords["target"]
    tokens = target.encode(text)
    words = cut(tokens, target)
    assert words.text.split() == target.decode(tokens).split()
    assert words.places == sorted(words.places)
    parts = [words.text[first:end] for first, end in pairwise(words.places)]
    assert "".join(parts) == words.text
    assert [words.tokens[first:end] for first, end in pairwise(words.first)] == [
        tokens[first:end] for first, end in pairwise(words.first)
    ]
    assert all(re.fullmatch(r"\s*\S+\s*", part) for part in parts[:-1]), parts
