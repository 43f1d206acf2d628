"""Glossary terms are found where they stand in the source, and their translations stand there in the output."""

import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import run_job
from models import save_tiny
from sentencepiece import SentencePieceTrainer

from transduce.decoding.glossary import Glossary, check_terms, describe_terms, find_said, find_whole, read_glossary, say
from transduce.decoding.options import Request
from transduce.decoding.terms import cut, is_like
from transduce.decoding.translation import Lacks
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
        ("www.bank.com/account, me@account.com, http://account, C:\\account, <b>account</b>", []),
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
    assert [mention.translations[0] for mention in Glossary(TERMS).find(text)] == found


def test_where_terms_are_found():
    text = "Open a bank account (account) in the US"
    found = Glossary(TERMS).find(text)
    assert [text[slice(*mention.span)] for mention in found] == ["Open", "bank account", "account", "US"]
    assert [mention.several for mention in found] == [False, True, False, False]
    assert [mention.span[0] for mention in found] == [0, 7, 21, 37]


@pytest.mark.parametrize("order", [1, -1])
def test_a_term_that_is_written_so_comes_first(order: int):
    terms = {"turkey": ("Truthahn",), "Turkey": ("Türkei",)}
    glossary = Glossary(dict(list(terms.items())[::order]))
    assert [mention.translations[0] for mention in glossary.find("Turkey, turkey, TURKEY")] == [
        "Türkei",
        "Truthahn",
        "Truthahn",
    ]


def test_in_a_sentence_that_was_in_capitals_all_terms_are_found():
    found = Glossary(TERMS).find("the bank and the us", any_case=True)
    assert [mention.translations for mention in found] == [("die Bank",), ("die USA",)]


words = st.text("abA ", min_size=1, max_size=5).map(str.strip).filter(bool)


@given(terms=st.lists(words, min_size=1, max_size=4, unique=True), text=st.text("abA .", max_size=14))
def test_terms_are_found_as_by_trying_all(terms: list[str], text: str):
    """From left to right, the longest first, case as written; compared with regular expressions."""
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
    assert [mention.translations[0] for mention in glossary.find(text)] == [f"said {term}" for term in found]


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
        ("सन", "देसन में सन, सना और सन", ["सन", "सन"]),  # vowels are marks, and parts of words
        ("दे", "देना दे", ["दे"]),
        ("पुस्तक", "पुस्तकें", ["पुस्तकें"]),
    ],
)
def test_where_a_text_says_a_term(term: str, text: str, said: list[str]):
    assert [text[first:last] for first, last in find_said((term,), text)] == said


@pytest.mark.parametrize(
    ("phrase", "text", "places"),
    [("Rat", "Rat, Vorrat, Rats und Rat", [0, 22]), ("合同", "新合同书", [1]), ("C++", "C++11", [0])],
)
def test_where_whole_words_stand(phrase: str, text: str, places: list[int]):
    assert [first for first, _ in find_whole(phrase, text)] == places


def test_places_are_counted_once():
    assert len(find_said(("Konto", "Konten", "Kontos"), "des Kontos und die Konten")) == 2


@pytest.mark.parametrize(
    ("phrase", "begins", "said"),
    [
        ("der Rat", True, "Der Rat"),
        ("der Rat", False, "der Rat"),
        ("iPhone", True, "iPhone"),
        ("Rat", True, "Rat"),
        ("სახლი", True, "სახლი"),
    ],
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
        (b"a\t\n", ":1: is not a term with a translation"),
        (b"\tb\n", ":1: is not a term with a translation"),
        (b"a\tb||c\n", ":1: is not a term with a translation"),
        (b"a\tb\nc\t\xe4\n", ":2: not UTF-8; convert the text with: iconv"),
        (b" \n\n", ": has no terms; write one to a line"),
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
        ({"contract": []}, "wanted a term with its translation or a list of translations"),
        ({"contract": None}, "wanted a term with its translation or a list of translations"),
        ({"contract": [3]}, "wanted a term with its translation or a list of translations"),
        ({3: "drei"}, "wanted a term with its translation or a list of translations"),
        ({"contract": "Vertrag|Abkommen"}, "has | in a translation; give several translations as a list"),
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
    with pytest.raises(DataError, match="or its translation has no text"):
        Translator.load(tiny, device="cpu", glossary=terms)


def test_what_tells_glossaries_apart():
    assert describe_terms({}) == "none"
    first, second, third = ({"a": ("b",)}, {"a": ("c",)}, {"a": ("b",), "c": ("d",)})
    assert describe_terms(first).startswith("1 terms (")
    assert len({describe_terms(one) for one in (first, second, third)}) == 3
    assert describe_terms({"c": ("d",), "a": ("b",)}) == describe_terms(third)


# ---- translating ----

TERMS_OF_OURS = {"contract": "Vereinbarung", "car": "Fahrzeug", "vehicle": "Fahrzeug", "dog": "Vierbeiner"}
TERMS_OF_OURS |= {"cat": "Samtpfote", "house": "Gebäude"}
BOX = Path("en-de")


@pytest.fixture(scope="module")
def plain() -> Translator:
    """The translator in the box."""
    return Translator.load(BOX, device="cpu")


@pytest.fixture(scope="module")
def box(plain: Translator) -> Translator:
    """The same with terms, which it would translate otherwise."""
    return Translator(plain.loaded, plain.engine, TERMS_OF_OURS)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The details of the contract are secret.", ["Vereinbarung"]),
        ("We need a new contract with them.", ["Vereinbarung"]),
        ("The contract is new. The contract is old.", ["Vereinbarung", "Vereinbarung"]),
        ("The dog saw the cat.", ["Vierbeiner", "Samtpfote"]),
        ("The child saw the dog, the cat and the house.", ["Vierbeiner", "Samtpfote", "Gebäude"]),
        ("The car hit a vehicle.", ["Fahrzeug", "Fahrzeug"]),
        ("They signed it (the contract).", ["Vereinbarung"]),
        ('She said: "The contract is old!"', ["Vereinbarung"]),
        ("Who has seen the contract?", ["Vereinbarung"]),  # the verb stands right behind it
    ],
)
def test_a_term_takes_the_place_of_what_the_model_would_say(
    plain: Translator, box: Translator, text: str, terms: list[str]
):
    said = box.translate(text)
    assert re.findall("Vereinbarung|Fahrzeug|Vierbeiner|Samtpfote|Gebäude", said.text) == terms
    assert not re.search("Vertrag|Auto|Hund|Katze|Haus", said.text)
    assert said.sentences[0].unsaid == ()
    # The other words and all signs remain, but for forms of articles and adjectives.
    before, now = (re.findall(r"\w+|[^\w\s]", one) for one in (plain.translate(text).text, said.text))
    assert len(before) == len(now)
    changed = [(old, new) for old, new in zip(before, now) if old != new and new not in terms]
    assert all(old[0] == new[0] for old, new in changed), changed


def test_what_goes_with_a_term_agrees_with_it(box: Translator):
    assert box.translate("We need a new contract with them.").text == "Wir brauchen eine neue Vereinbarung mit ihnen."


def test_what_has_no_terms_stays_as_it_was(plain: Translator, box: Translator):
    texts = ["Good morning!", "The contract.", "This is our subcontractor.", "Have a look at https://contract.com/car."]
    one, other = plain.translate(texts, n_best=2), box.translate(texts, n_best=2)
    assert [found == same for found, same in zip(one, other)] == [True, False, True, True]


def test_a_term_that_is_inflected_or_in_a_compound_is_said(plain: Translator):
    ours = Translator(plain.loaded, plain.engine, {"contracts": "Verträge", "contract": "Vertrag"})
    texts = ["The employees with contracts are happy.", "Contract work is badly paid."]
    before = [one.text for one in plain.translate(texts)]
    assert [one.text for one in ours.translate(texts)] == before
    assert "Verträgen" in before[0]
    assert "Vertrags" in before[1]
    assert [one.unsaid for one in ours.translate(texts)] == [(), ()]


def test_what_no_word_stands_for_alone_stays_and_is_named(plain: Translator):
    ours = Translator(plain.loaded, plain.engine, {"election": "Abstimmung"})
    texts = ["Election campaigns are expensive.", "Good morning!"]
    found = ours.translate(texts)
    assert [one.text for one in found] == [one.text for one in plain.translate(texts)]
    assert [sentence.unsaid for one in found for sentence in one.sentences] == [("Abstimmung",), ()]
    both, lacks = ours.translate(" ".join([*texts, texts[0]]), split="always"), Lacks()
    assert [sentence.unsaid for sentence in both.sentences] == [("Abstimmung",), (), ("Abstimmung",)]
    assert both.unsaid == ("Abstimmung",)
    for one in (*found, both):
        lacks.count(one)
    assert (lacks.unsaid, lacks.empty) == (3, 0)


def test_of_a_long_text_each_sentence_has_its_own_terms(box: Translator):
    found = box.translate("The contract is old.\nThe house is new.")
    assert [[word in one.alternatives[0].text for word in ("Vereinbarung", "Gebäude")] for one in found.sentences] == [
        [True, False],
        [False, True],
    ]


def test_all_of_an_n_best_list_say_it_and_none_is_there_twice(box: Translator):
    found = box.translate("We have a new contract for the cat.", beam=6, n_best=5)
    texts = [text for text, _ in found.alternatives()]
    assert len(set(texts)) == len(texts) > 1
    assert all("Vereinbarung" in text and "Samtpfote" in text for text in texts), texts


def test_with_what_else_must_and_must_not_be_said(box: Translator):
    text = "We need a new contract with them."
    forced = box.translate(Request(text, prefix="Wir benötigen")).text
    assert forced.startswith("Wir benötigen")
    assert "Vereinbarung" in forced
    kept = box.translate(Request(text, prefix="Wir brauchen einen Vertrag"))
    assert kept.text.startswith("Wir brauchen einen Vertrag")
    assert kept.sentences[0].unsaid == ("Vereinbarung",)
    required = box.translate(Request(text, require=("einen neuen Vertrag",)))
    assert "einen neuen Vertrag" in required.text
    assert required.sentences[0].unsaid == ("Vereinbarung",)
    for phrase in ("neue", "eine neue", "neue Vereinbarung"):
        other = box.translate(Request(text, forbid=(phrase,))).text
        assert not find_whole(phrase, other)
        assert "Vereinbarung" in other


def test_a_sentence_in_capitals(box: Translator):
    said = box.translate("WE NEED A NEW CONTRACT WITH THEM.").text
    assert said.isupper()
    assert "VEREINBARUNG" in said


def test_a_translation_that_was_cut_is_left_as_it_is(plain: Translator, box: Translator):
    text = "We need a new contract with them."
    assert box.translate(text, max_tokens=4).text == plain.translate(text, max_tokens=4).text
    whole = len(plain.translate(text).sentences[0].alternatives[0].tokens) + 1
    long = Translator(plain.loaded, plain.engine, {"contract": "Vereinbarung über die Zusammenarbeit beider Häuser"})
    assert long.translate(text, max_tokens=whole).text == plain.translate(text, max_tokens=whole).text


def test_what_cannot_be(tiny: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match="draws at random, but a glossary needs a search"):
        Translator.load(tiny, device="cpu", glossary={"euros": "Groschen"}).translate("two euros", sample=True)
    bare = save_tiny(tmp_path / "bare", subwords=without_bytes())
    with pytest.raises(DataError, match="bare has no subwords for '猫'"):
        Translator.load(bare, device="cpu", glossary={"cat": "猫"})


def without_bytes() -> Subwords:
    """Subwords without bytes, as models made elsewhere have."""
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


def test_from_the_command_line(box: Translator, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    terms, others, source, out = (tmp_path / name for name in ("terms.tsv", "others.tsv", "in.txt", "out.txt"))
    terms.write_text("contract\tVereinbarung\n")
    others.write_text("house\tGebäude\n")
    source.write_text("The contract is old.\nContract work in a house.\n")
    flags = ("--device", "cpu", "--glossary", str(terms), "--glossary", str(others))
    assert run_job(BOX, *flags, "--out", str(out), source=source) == 0
    said = capfd.readouterr().err
    assert out.read_text().splitlines() == [one.text for one in box.translate(source.read_text().splitlines())]
    assert "note: in a sentence, terms are missing, as no word stands for them alone; --json names them" in said
    assert run_job(BOX, *flags, "--json", source=source) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["sentences"][0].get("unsaid") for line in lines] == [None, ["Vereinbarung"]]
    page = tmp_path / "page.html"
    page.write_text("<p>The contract is old.</p><p>Contract work.</p><p>Contract work in a <b>house</b>.</p>")
    assert run_job(BOX, *flags, "--input", str(page), source=source) == 0
    assert "note: in 2 sentences, terms are missing" in capfd.readouterr().err
    terms.write_text("contract Vereinbarung\n")
    assert run_job(BOX, *flags, source=source) == 1
    assert f"{terms}:1: has no tab" in capfd.readouterr().err


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(["two", "nine", "euros", "and", "dollars."]), min_size=1, max_size=7),
    said=st.lists(st.sampled_from(["ja", "Groschen", "der Kreuzer", "é", "7", "x-y"]), min_size=5, max_size=5),
)
def test_each_term_is_said_or_named(tiny: Path, words: list[str], said: list[str]):
    """Whatever the model's output, for this one is untrained."""
    terms = dict(zip(["two", "nine", "euros", "and", "dollars"], said))
    translator = Translator.load(tiny, device="cpu", glossary=terms)
    text = " ".join(words)
    found = translator.translate(text, extra_tokens=30)
    for mention in translator.glossary.find(text):
        assert find_said(mention.translations, found.text) or mention.translations[0] in found.sentences[0].unsaid


def test_what_is_forbidden_cannot_be_said(plain: Translator, box: Translator):
    with pytest.raises(DataError, match="'Vereinbarung' is in the glossary and forbidden; drop one of them"):
        box.translate(Request("A contract.", forbid=("Vereinbarung",)))
    assert "Vereinbarung" not in box.translate(Request("A house.", forbid=("Vereinbarung",))).text
    two = Translator(plain.loaded, plain.engine, {"contract": ["Vereinbarung", "neues Abkommen"]})
    assert "neues Abkommen" in two.translate(Request("This is our contract.", forbid=("Vereinbarung",))).text
    with pytest.raises(DataError, match="'ein Haus' is required and 'Haus' forbidden; drop one of them"):
        plain.translate(Request("A house.", require=("ein Haus",), forbid=("Haus",)))


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
        (" Dieser", " Diese", True),
        (" Spijkenisse", " Spijkenes", False),
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
