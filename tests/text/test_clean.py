"""Each rule drops what it says and spares what is similar, in several scripts; fast paths equal plain ones."""

import re
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.text.clean import (
    CHANGES,
    ROW,
    RULES,
    SCRIPTS,
    CleanConfig,
    Cleaned,
    Cleaner,
    HeldOut,
    SideFacts,
    _is_copied,
    clean_block,
    find_script,
    hash_text,
    make_side,
    normalise,
)
from transduce.text.corpus import Block, Format, Input

ALIGNED = Input(files=(Path("a.en"), Path("a.de")), format="lines")
NOTHING = HeldOut()
# As `prepare` takes dev and test sets.
ALL_OFF = CleanConfig(damaged=False, long=None, letters=None, repeated=None, copied=None, leak="off")


def clean(
    pairs: Iterable[tuple[str | bytes, str | bytes]],
    config: CleanConfig = CleanConfig(),  # noqa: B008
    held_out: HeldOut = NOTHING,
    all_dropped: bool = False,
) -> Cleaned:
    """Clean pairs, given as the first lines of two aligned files."""
    lines = [[side.encode() if isinstance(side, str) else side for side in pair] for pair in pairs]
    source, target = (b"".join(line[side] + b"\n" for line in lines) for side in (0, 1))
    block = Block(0, 1, len(lines), (source, target), 0)
    return clean_block(block, ALIGNED, Cleaner(config, held_out), all_dropped)


def verdict(source: str, target: str, config: CleanConfig = CleanConfig()) -> str | None:  # noqa: B008
    """Return the rule that drops a pair, or None."""
    cleaned = clean([(source, target)], config)
    assert len(cleaned.rows) + cleaned.dropped.total() == 1
    return next(iter(cleaned.dropped), None)


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{'abcdefghij'[n % 10]}" for n in range(count))


# ---- the rules, one by one ----

DROPPED = {
    "empty": [
        ("", "Nichts."),
        ("Nothing.", ""),
        ("Nothing.", " \t \u3000 "),
        ("Nothing.", "\u200b\ufeff\u00ad"),
        ("Nothing.", "&nbsp;&#8203;&#x20;"),
        ("Nothing.", "\x00\x01\x1b"),
        ("Nothing.", "\r"),
    ],
    "damaged": [
        ("The street is closed.", "Die Stra\ufffde ist gesperrt."),
        ("The street is closed.", "Die Stra&#xFFFD;e ist gesperrt."),
        ("The street is closed.", "Die Stra&#0;e ist gesperrt."),
        ("For the moment", "FÃ¼r den Augenblick"),
        ("The street is closed.", "Die StraÃŸe ist gesperrt."),  # by way of Windows-1252
        ("The street is closed.", "Die StraÃ\x9fe ist gesperrt."),  # by way of Latin-1
        ("Over the hills", "Ãœber die Berge"),
        ("Over the hills", "Ã\x9cber die Berge"),
        ("Austria wins.", "Ã–sterreich gewinnt."),
        ("Austria wins.", "Ã\x96sterreich gewinnt."),
        ("The lake is here.", "El lago estÃ¡ aquÃ\xad."),
        ("He is there.", "Il est lÃ\xa0."),
        ("It costs 30 euros.", "Cela coÃ»te 30 euros."),
        ("The water's edge", "Le bord de lâ€™eau"),
        ("Water it twice.", "Arrosez deux fois, Ã\x81 midi."),
        ("It is 25 Â°C in the shade.", "Es hat 25 °C im Schatten."),
    ],
    "long": [
        (words(201), words(100, "Wort")),
        (words(100), words(201, "Wort")),
        (words(100), words(201, "слово")),
        (words(100), words(201, "शब्द")),
    ],
    "letters": [
        ("12.5 % / 13.7 % (2004)", "Zwölf Komma fünf Prozent"),
        ("Twelve point five", "12.5 — 13.7 !!!"),
        ("In the year 1997", "١٩٩٧ / ١٩٩٨ م"),  # Arabic digits
        ("In the year 1997", "१९९७ — १९९८ ई"),  # Devanagari digits
        ("Chapters", "Ⅰ、Ⅱ、Ⅲ、Ⅳ 章"),
        ("A smile", "😀😀😀😀 ja"),
        ("Nothing to see", "\u200d\u200d"),
        ("- - - - - - a", "Ein Strich"),
    ],
    "repeated": [
        ("N" + "o" * 13 + "!", "Nein!"),
        ("No", "Nein" + "!" * 13 + " sagte sie und ging"),
        ("So long", "Так долго" + "о" * 13 + " и так далеко"),
        ("Haha", "哈" * 13),
        ("So long", "وداعا" + "ا" * 13),
        ("Name: please fill in here " + "_" * 13, "Name: bitte hier ausfüllen"),
    ],
    "copied": [
        ("Hello world", "Hello world"),
        ("Hello, World!", "hello world"),
        ("Не переведено", "не переведено!"),
        ("没有翻译。", "没有翻译"),
        ("लिखा हुआ", "लिखा हुआ।"),
        ("The quick brown fox jumps over the lazy dog", "The quick brown fox jumps over the lazy Hund dog"),
    ],
}
KEPT = [
    ("The ship leaves the harbour at noon.", "Das Schiff verlässt mittags den Hafen."),
    ("The library is closed on Sundays.", "По воскресеньям библиотека закрыта."),
    ("The library is closed on Sundays.", "图书馆星期天不开门。"),
    ("The library is closed on Sundays.", "المكتبة مغلقة أيام الأحد."),
    ("The library is closed on Sundays.", "पुस्तकालय रविवार को बंद रहता है।"),
    ("The library is closed on Sundays.", "日曜日は図書館が閉まっています。"),
    ("The library is closed on Sundays.", "도서관은 일요일에 문을 닫습니다."),
    ("The library is closed on Sundays.", "Η βιβλιοθήκη είναι κλειστή τις Κυριακές."),
    # not damaged
    ("São Paulo tomorrow", "SÃO PAULO «AMANHû"),
    ("“Tomorrow” …", "“AMANHÔ E DEPOIS…"),
    ("Music", "Âm nhạc"),
    ("Soul", "ÂNIMO, Ânimo"),
    ("The age of reason", "L’Âge de raison"),
    ("He said â, not €", "Er sagte â, nicht €"),
    # not long
    (words(200), words(200, "Wort")),
    ("long", "很" + "长的文字" * 250),
    # letters enough
    ("Call 555-0134 now", "Jetzt 555-0134 anrufen"),
    ("1 January 1997", "一九九七年1月1日"),  # these numbers are letters
    ("Hindi vowels", "की की की की 12"),  # half of these letters are vowel signs
    ("In the year 1997", "في عام ١٩٩٧"),
    ("By night (1–0)", "مَدْرَسَة"),
    # not repeated too often
    ("N" + "o" * 12 + "!", "Nein!"),
    ("Haha", "哈" * 12),
    ("a a a a a a a a a a a a a a a", "immer wieder derselbe Buchstabe"),
    # not copied
    ("Angela Merkel in Berlin", "Angela Merkel in Berlin heute"),
    ("The quick brown fox jumps over the lazy dog", "The quick brown fox jumps over der faule Hund"),
    ("Windows XP Service Pack 2 for Home Edition", "Service Pack 2 für Windows XP Home"),
]


@pytest.mark.parametrize(("rule", "source", "target"), [(rule, *pair) for rule in DROPPED for pair in DROPPED[rule]])
def test_a_rule_drops(rule: str, source: str, target: str):
    assert verdict(source, target) == rule
    assert verdict(*KEPT[0]) is None


@pytest.mark.parametrize(("source", "target"), KEPT)
def test_a_similar_pair_is_kept(source: str, target: str):
    assert verdict(source, target) is None
    assert verdict(target, source) is None


def test_every_rule_that_needs_one_pair_is_tested_here():
    """The others are in test_language.py and test_select.py, but for `tokens`, which needs subwords."""
    elsewhere = {"language", "script", "ratio", "duplicate", "near_duplicate", "tokens"}
    assert DROPPED.keys() | {"utf8", "format", "leak"} | elsewhere == RULES.keys()


@pytest.mark.parametrize("rule", ["damaged", "long", "letters", "repeated", "copied"])
def test_a_rule_switched_off_drops_nothing(rule: str):
    off = replace(CleanConfig(), **{rule: False if rule == "damaged" else None})
    assert [verdict(*pair, off) for pair in DROPPED[rule]] == [None] * len(DROPPED[rule])
    others = [(name, pair) for name in DROPPED if name != rule for pair in DROPPED[name]]
    assert [verdict(*pair, off) for _, pair in others] == [name for name, _ in others]


def test_the_limits_are_the_ones_in_the_settings():
    assert verdict("one two three", "eins", CleanConfig(long=3)) is None
    assert verdict("one two three four", "eins", CleanConfig(long=3)) == "long"
    assert verdict("abc", "ab12", CleanConfig(letters=0.5)) is None
    assert verdict("abc", "ab123", CleanConfig(letters=0.5)) == "letters"
    assert verdict("abb", "ab", CleanConfig(repeated=1)) == "repeated"
    assert verdict("abab", "ba", CleanConfig(repeated=1)) is None
    assert verdict("abbba", "ba", CleanConfig(repeated=2)) == "repeated"
    assert verdict("a b c d e", "a b x y z", CleanConfig(copied=0.3)) == "copied"
    assert verdict("a b c d e", "a b x y z", CleanConfig(copied=0.4)) is None


def test_rules_are_tried_in_their_order():
    """A pair with every fault is dropped by one rule after the other as they are switched off."""
    text = "\ufffd " + "7" * 50 + " " + "9 " * 300 + "a"
    faults = (text, text)
    held_out = HeldOut()
    held_out.add_rows(clean([faults], ALL_OFF).rows)
    config, named = CleanConfig(), []
    while rule := next(iter(clean([faults], config, held_out).dropped), None):
        named.append(rule)
        config = replace(config, **{rule: {"damaged": False, "leak": "off"}.get(rule)})
    assert named == ["damaged", "long", "letters", "repeated", "copied", "leak"]
    assert named == [rule for rule in RULES if rule in named]
    assert verdict("", text) == "empty"


@pytest.mark.parametrize(
    "settings", [{"letters": 0.0}, {"letters": 1.5}, {"copied": -1.0}, {"ratio": 1.0}, {"long": 0}, {"tokens": 70_000}]
)
def test_settings_that_cannot_be_meant_are_errors(settings: dict[str, float]):
    with pytest.raises(ConfigError, match=rf"clean\.{next(iter(settings))} = "):
        CleanConfig(**settings)  # pyright: ignore[reportArgumentType]


# ---- lines that are not UTF-8 ----


def test_lines_that_are_not_utf8_stop_or_are_dropped():
    pairs = [("a book", "ein Buch"), (b"f\xfcr", b"f\xfcr"), ("a day", b"ein T\xe4g"), ("a tree", "ein Baum")]
    stopped = clean(pairs)
    assert [(problem.file, problem.line) for problem in stopped.problems] == [("a.en", 2), ("a.de", 2), ("a.de", 3)]
    dropped = clean(pairs, CleanConfig(utf8="drop"))
    assert dropped.problems == []
    assert dropped.dropped == {"utf8": 2}
    assert dropped.text.decode() == "a book\tein Buch\na tree\tein Baum\n"
    assert dropped.rows["line"].tolist() == [1, 4]


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("tsv", [b"a book\tein Buch", b"one column", b"a day\tein T\xe4g", b"one", b"\xff", b"a tree\tein Baum"]),
        (
            "jsonl",
            [
                b'{"source": "a book", "target": "ein Buch"}',
                b"{}",
                b'{"source": "a day", "target": "ein T\xe4g"}',
                b"3",
                b'{"source": "a day", "target": "\\udfff"}',
                b'{"source": "a tree", "target": "ein Baum"}',
            ],
        ),
    ],
)
def test_rows_that_cannot_be_read_stop_or_are_dropped(format: Format, lines: list[bytes]):
    given = Input(files=(Path("a"),), format=format)
    block = Block(0, 1001, len(lines), (b"\n".join([*lines, b""]),), 0)

    def cleaned(config: CleanConfig) -> Cleaned:
        return clean_block(block, given, Cleaner(config, NOTHING), True)

    some = cleaned(CleanConfig(utf8="drop"))
    assert [problem.line for problem in some.problems] == [1002, 1004]
    assert some.dropped == {"utf8": 2}
    others = cleaned(CleanConfig(format="drop"))
    assert [problem.line for problem in others.problems] == [1003, 1005]
    assert others.dropped == {"format": 2}
    both = cleaned(CleanConfig(utf8="drop", format="drop"))
    assert not both.problems
    assert both.dropped == {"utf8": 2, "format": 2}
    assert both.rows["line"].tolist() == [1001, 1006]
    shown = {rule: [(example.where, example.source) for example in both.examples[rule]] for rule in both.examples}
    text = [" ".join(line.decode(errors="replace").split()) for line in lines]
    assert shown == {
        rule: [(f"a:{1001 + row}", text[row]) for row in rows] for rule, rows in (("format", (1, 3)), ("utf8", (2, 4)))
    }
    assert both.read == 6


def test_a_rule_that_dropped_nothing_is_not_counted():
    assert clean([KEPT[0]], CleanConfig(utf8="drop")).dropped.keys() == set()


# ---- leaks ----

DEV = ("The ship leaves the harbour.", "Das Schiff verlässt den Hafen.")


@pytest.mark.parametrize(
    ("source", "target", "side", "pair"),
    [
        (*DEV, "leak", "leak"),
        ("the ship leaves — the harbour", "DAS SCHIFF VERLÄSST DEN HAFEN", "leak", "leak"),
        (DEV[0], "Das Boot läuft aus.", "leak", None),
        ("The boat departs.", DEV[1], "leak", None),
        ("The ship leaves the port.", "Das Schiff verlässt die Stadt.", None, None),
        ("A picture of Das Schiff", "The ship leaves the harbour.", None, None),  # a source is no target
    ],
)
def test_what_is_held_out_is_dropped_by_side_or_by_pair(source: str, target: str, side: str, pair: str):
    held_out = HeldOut()
    held_out.add_rows(clean([DEV, ("Good morning.", "Guten Morgen.")], ALL_OFF).rows)
    for leak, rule in (("side", side), ("pair", pair), ("off", None)):
        cleaned = clean([(source, target)], CleanConfig(leak=leak), held_out)  # pyright: ignore[reportArgumentType]
        assert next(iter(cleaned.dropped), None) == rule


def test_sides_of_different_held_out_pairs_are_no_pair():
    held_out = HeldOut()
    held_out.add_rows(clean([DEV, ("Good morning.", "Guten Morgen.")], ALL_OFF).rows)
    crossed = (DEV[0], "Guten Morgen.")
    assert clean([crossed], CleanConfig(leak="side"), held_out).dropped == {"leak": 1}
    assert clean([crossed], CleanConfig(leak="pair"), held_out).dropped == {}


def test_short_sides_are_no_leaks_by_themselves():
    held_out = HeldOut()
    held_out.add_rows(clean([("Yes.", "Aber ja.")]).rows)
    assert clean([("Yes!", "Ja!")], CleanConfig(), held_out).dropped == {}
    assert clean([("yes", "aber, ja")], CleanConfig(), held_out).dropped == {"leak": 1}


def test_nothing_held_out_leaks_nothing():
    held_out = HeldOut()
    held_out.add_rows(clean([]).rows)
    for leak in ("side", "pair"):
        assert clean([DEV], CleanConfig(leak=leak), held_out).dropped == {}


# ---- normalisation ----


@pytest.mark.parametrize(
    ("text", "normal", "changes"),
    [
        ("nothing to do: AT&T & Söhne", "nothing to do: AT&T & Söhne", []),
        ("f&#40;x&#41; &lt; &quot;1&quot;", 'f(x) < "1"', ["entities"]),
        ("&auml;&#x4E2D;&#20013;", "ä中中", ["entities"]),
        ("&amp;amp;amp;lt;", "<", ["entities"]),
        ("?page=1&region=de&copy=2&currency=EUR", "?page=1&region=de&copy=2&currency=EUR", []),
        ("&unknown; &region; &; &#; &#x;", "&unknown; &region; &; &#; &#x;", []),
        ("&#" + "1" * 5000 + ";", "&#" + "1" * 5000 + ";", []),
        ("a&#10;b&#9;c", "a b c", ["entities", "control"]),
        ("a&#13;&NewLine;", "a", ["entities", "control", "spaces"]),
        ("a&nbsp;&nbsp;b", "a b", ["entities", "spaces"]),
        ("&am\u200bp;", "&", ["control", "entities"]),
        ("u\u0308ber", "über", ["unicode"]),
        ("e\u200b\u0301", "é", ["control", "unicode"]),  # what kept them apart is gone first
        ("\u0915\u093c", "\u0915\u093c", []),  # this one has no composed form
        ("\u1112\u1161\u11ab", "한", ["unicode"]),
        ("a\u00adb\ufeffc\u2060d\u202ee\u061cf", "abcdef", ["control"]),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", []),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937", []),  # joiners are spelling
        ("👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧", []),
        ("bell\x07 and \x1b[1mbold", "bell and [1mbold", ["control"]),
        ("don\x92t say \x93no\x94", "don’t say “no”", ["control"]),  # Windows-1252 read as Latin-1
        ("a\x85b", "a b", ["control"]),
        ("a\tb\x0cc\u2028d", "a b c d", ["control", "spaces"]),
        ("  two  spaces\u3000wide ", "two spaces wide", ["spaces"]),
        ("Windows line\r", "Windows line", []),
        ("", "", []),
    ],
)
def test_text_is_normalised(text: str, normal: str, changes: list[str]):
    assert normalise(text, CleanConfig()) == (normal, changes)


def test_normalisation_follows_the_settings():
    assert normalise("ﬁ½Ａ①", CleanConfig()) == ("ﬁ½Ａ①", [])
    assert normalise("ﬁ½Ａ①", CleanConfig(unicode="NFKC")) == ("fi1⁄2A1", ["unicode"])
    assert normalise("＆ａｍｐ；", CleanConfig(unicode="NFKC")) == ("&", ["unicode", "entities"])
    assert normalise("u\u0308", CleanConfig(unicode="off")) == ("u\u0308", [])
    assert normalise("a&#10;&lt;", CleanConfig(entities=False)) == ("a&#10;&lt;", [])


def test_changes_are_counted_by_pair_with_one_example():
    cleaned = clean(
        [
            ("plain text", "einfacher Text"),
            ("a  b  &#40;c&#41;", "ä  b  &#40;c&#41;"),
            ("cafe\u0301 and\u200bso", "u\u0308ber"),
            ("one  more", "noch einer"),
        ],
        ALL_OFF,
        all_dropped=True,
    )
    assert cleaned.changed == {"entities": 1, "spaces": 2, "unicode": 1, "control": 1}
    assert cleaned.changed.keys() == CHANGES.keys()
    assert {name: [example.where for example in examples] for name, examples in cleaned.examples.items()} == {
        "entities": ["a.en:2"],
        "spaces": ["a.en:2"],
        "unicode": ["a.en:3"],
        "control": ["a.en:3"],
    }
    # What was changed is shown as it was.
    assert cleaned.examples["unicode"][0].target == "u\u0308ber"
    assert cleaned.text.decode().split("\n")[1] == "a b (c)\tä b (c)"


# Pieces that make references, accents, spaces and doubly encoded text when they meet, and text of any other kind.
REFERENCES = st.lists(st.sampled_from(["&", "&amp;", "am", "p;", "#38;", "#x26;", "&#8203;", "\u200b", "＆", "\u037e"]))
ACCENTS = st.lists(
    st.sampled_from(["e", "\u0301", "\u0327", "\u200b", "\u00ad", "&shy;", "가", "ᆨ", "¨", "\ufb01", "İ"])
)
SPACES = st.lists(
    st.sampled_from(["a", " ", "\t", "\r", "&#10;", "&nbsp;", "\x85", "\x92", "\u1680", "\u2028", "\u200b"])
)
ODD_TEXT = (REFERENCES | ACCENTS | SPACES).map("".join) | st.text(st.characters(codec="utf-8"))


@forall(
    ODD_TEXT,
    st.builds(CleanConfig, unicode=st.sampled_from(["NFC", "NFKC", "off"]), entities=st.booleans()),
)
def test_normal_text_is_normal(text: str, config: CleanConfig):
    normal, changes = normalise(text, config)
    assert normalise(normal, config) == (normal, [])
    assert len(changes) == len(set(changes))
    assert set(changes) <= CHANGES.keys()
    if not changes:
        assert normal == text.rstrip("\r")
    assert normal == " ".join(normal.split())
    assert not any(unicodedata.category(character) == "Cc" for character in normal)
    assert not re.search("[\t\n\r\v\f\u2028\u2029\u200b\ufeff\u202e]", normal)
    if config.unicode != "off":
        assert unicodedata.is_normalized(config.unicode, normal)


def test_references_within_references_end():
    deep = "&"
    for _ in range(1100):
        deep = f"&a{deep}#8203;mp;"
    assert normalise(deep, CleanConfig()) == ("&", ["entities", "control"])


# ---- what is measured of a side ----


def plain_side(text: str) -> tuple[str, int]:
    """Return letters, marks and numbers in lower case, and how many of these are not numbers, by the definition."""
    key = [character for character in text.lower() if unicodedata.category(character)[0] in "LMN"]
    return "".join(key) or text, sum(unicodedata.category(character)[0] != "N" for character in key)


LETTERS_AND_NUMBERS = st.text(st.sampled_from("aÄİß中三९१क\u093f١ع1½²Ⅳ①… "))


@forall(st.text(st.characters(max_codepoint=255)) | st.text(st.characters(codec="utf-8")) | LETTERS_AND_NUMBERS)
def test_a_side_is_measured_by_definition(text: str):
    side = make_side(text)
    assert (side.key, side.letters) == plain_side(text)
    assert (side.script == 0) == (not any(map(str.isalpha, side.key)))


@forall(st.text(st.characters(max_codepoint=255)))
def test_lines_in_latin1_are_measured_like_others(text: str):
    """A curly quote takes the line off the fast path, and is itself neither letter nor number."""
    fast, general = make_side(text), make_side(text + "’")
    assert (fast.letters, fast.script) == (general.letters, general.script)
    if fast.key != text:
        assert fast.key == general.key


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Straße, 12 €", "LATIN"),
        ("Łódź", "LATIN"),
        ("Tiếng Việt", "LATIN"),
        ("Привет, world!", "CYRILLIC"),
        ("Добро", "CYRILLIC"),
        ("图书馆", "CJK"),
        ("これはテストです", "HIRAGANA"),
        ("コーヒー", "KATAKANA"),
        ("ーヒーコー", "KATAKANA"),
        ("도서관", "HANGUL"),
        ("المكتبة", "ARABIC"),
        ("רִפְיָה", "HEBREW"),
        ("पुस्तकालय", "DEVANAGARI"),
        ("ห้องสมุด", "THAI"),
        ("ᚠᚢᚦ", "OTHER"),
        ("1997 — …", "NONE"),
        ("१९९७", "NONE"),
        ("\u0301\u0327", "NONE"),
        ("²³¼", "NONE"),
        ("", "NONE"),
    ],
)
def test_the_script_is_that_of_most_letters(text: str, script: str):
    assert SCRIPTS[make_side(text).script] == script


@forall(st.text(st.sampled_from("aäœфяのカ中הا가क१1\u093f")))
def test_the_script_is_the_most_frequent_one(key: str):
    names = [unicodedata.name(letter).split(" ")[0] for letter in key if letter.isalpha()]
    found = SCRIPTS[find_script(key)]
    assert found in [name for name in names if names.count(name) == max(map(names.count, names))] or (
        not names and found == "NONE"
    )


def test_the_key_is_the_same_for_near_duplicates():
    assert make_side("«Schöne» Grüße, 2 Uhr!").key == make_side("schöne GRÜSSE 2 uhr".replace("SS", "ß")).key
    assert make_side("پایان.").key == make_side("پایان").key
    assert make_side("क्या?").key == "क्या"  # vowel signs belong to the word
    assert make_side("...").key != make_side("!!!").key


@forall(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_hashes_tell_texts_apart(one: str, other: str):
    assert (hash_text(one) == hash_text(other)) == (one == other)
    assert 0 <= hash_text(one) < 2**64


# ---- what is fast equals what is plain ----

RUNS = st.lists(st.tuples(st.sampled_from("abé中.…😀 "), st.integers(1, 25)), max_size=6)


@forall(RUNS.map(lambda runs: "".join(character * count for character, count in runs)), st.integers(1, 22))
def test_runs_are_found_by_definition(text: str, limit: int):
    longest = max((len([*run]) for character, run in groupby(text) if not character.isspace()), default=0)
    assert Cleaner(CleanConfig(repeated=limit), NOTHING).has_run(text) == (longest > limit)


@forall(st.text(st.characters(codec="utf-8") | st.sampled_from("aa\n")), st.integers(1, 4))
def test_runs_are_found_in_any_text(text: str, limit: int):
    longest = max((len([*run]) for character, run in groupby(text) if not character.isspace()), default=0)
    assert Cleaner(CleanConfig(repeated=limit), NOTHING).has_run(text) == (longest > limit)


SENTENCES = st.lists(st.sampled_from("a an ana Banana banana, ÄPFEL äpfel die Die das".split()), max_size=14).map(
    " ".join
)


def plain_is_copied(source: SideFacts, target: SideFacts, share: Fraction) -> bool:
    """Whether keys are equal, or more than a share of five or more words are on the other side: the definition."""
    found = [word in target.text.lower().split() for word in source.text.lower().split()]
    return source.key == target.key or (len(found) >= 5 and Fraction(sum(found), len(found)) > share)


@forall(SENTENCES, SENTENCES, st.sampled_from("0.1 0.25 0.5 0.6 0.75 0.8 0.9 1.0".split()))
def test_copies_are_found_by_definition(source: str, target: str, share: str):
    sides = make_side(source), make_side(target)
    assert _is_copied(*sides, float(share)) == plain_is_copied(*sides, Fraction(share))


@forall(SENTENCES, st.lists(st.booleans(), min_size=14, max_size=14))
def test_copies_with_some_words_translated_are_found_by_definition(source: str, translated: list[bool]):
    target = " ".join(f"{word}x" if other else word for word, other in zip(source.split(), translated))
    sides = make_side(source), make_side(target)
    assert _is_copied(*sides, 0.9) == plain_is_copied(*sides, Fraction("0.9"))


# ---- a block ----


def test_a_block_gives_lines_and_a_row_of_facts_for_each():
    pairs = [("The  ship", "Das Schiff"), ("", "leer"), ("图书馆", "Bücherei"), ("same", "same"), ("Да", "Oh ja!")]
    cleaned = clean(pairs)
    assert cleaned.text.decode() == "The ship\tDas Schiff\n图书馆\tBücherei\nДа\tOh ja!\n"
    assert cleaned.rows.dtype == ROW
    assert cleaned.rows["line"].tolist() == [1, 3, 5]
    assert cleaned.rows["source_length"].tolist() == [8, 3, 2]
    assert cleaned.rows["target_length"].tolist() == [10, 8, 6]
    assert [SCRIPTS[code] for code in cleaned.rows["source_script"]] == ["LATIN", "CJK", "CYRILLIC"]
    assert cleaned.rows["source"].tolist() == [hash_text(key) for key in ("theship", "图书馆", "да")]
    assert cleaned.rows["target"].tolist() == [hash_text(key) for key in ("dasschiff", "bücherei", "ohja")]
    assert cleaned.rows["check"].tolist() == [zlib.crc32(line) for line in cleaned.text.splitlines(keepends=True)]
    assert (cleaned.read, cleaned.dropped) == (5, {"empty": 1, "copied": 1})


def test_a_block_keeps_one_example_a_rule_or_every_dropped_pair():
    pairs = [("", "a"), ("b", "c"), ("d", ""), ("e", "e")]
    some, every = (clean(pairs, all_dropped=all_dropped).examples for all_dropped in (False, True))
    assert {rule: [example.where for example in some[rule]] for rule in some} == {
        "empty": ["a.en:1"],
        "copied": ["a.en:4"],
    }
    assert [tuple(example) for example in every["empty"]] == [("a.en:1", "", "a"), ("a.en:3", "d", "")]


def test_a_block_of_dropped_pairs_is_empty():
    cleaned = clean([("", "")])
    assert (cleaned.text, len(cleaned.rows), cleaned.rows.dtype) == (b"", 0, ROW)


def test_a_very_long_line_is_measured_up_to_a_limit():
    config = replace(CleanConfig(), long=None, repeated=None)
    cleaned = clean([("ab " * 500_000, "中文" * 300_000), ("a", "b")], config)
    assert cleaned.rows["source_length"].tolist() == [65535, 1]
    assert cleaned.rows["target_length"].tolist() == [65535, 1]
    assert clean([("ab " * 500_000, "x")]).dropped == {"long": 1}


LINE = ODD_TEXT.map(lambda text: text.replace("\n", " "))


@forall(st.lists(st.tuples(LINE, LINE), max_size=5), st.sampled_from([CleanConfig(), ALL_OFF]))
def test_any_text_is_kept_or_dropped_and_stays_two_columns(pairs: list[tuple[str, str]], config: CleanConfig):
    cleaned = clean(pairs, config, all_dropped=True)
    lines = cleaned.text.decode().split("\n")[:-1]
    assert len(lines) + cleaned.dropped.total() == cleaned.read == len(pairs)
    assert len(lines) == len(cleaned.rows)
    expected = [tuple(normalise(side, config)[0] for side in pair) for pair in pairs]
    assert [tuple(line.split("\t")) for line in lines] == [expected[line - 1] for line in cleaned.rows["line"]]
    dropped = [example for rule in cleaned.dropped for example in cleaned.examples[rule]]
    assert len(dropped) == cleaned.dropped.total()
    for where, *sides in dropped:
        assert tuple(sides) == expected[int(where.removeprefix("a.en:")) - 1]
