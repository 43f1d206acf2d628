"""Rules over the whole corpus: the first of equal pairs stays, what is usual is learned, the dev set is kept apart."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from transduce.text.clean import LEAK_CHARACTERS, ROW, RULES, CleanConfig, Cleaner, HeldOut, clean_block
from transduce.text.corpus import Block, Input
from transduce.text.select import CODES, DEV, KEPT, Selection, select

NAMES = {KEPT: "kept", DEV: "dev"} | {code: rule for rule, code in CODES.items()}
ALL_OFF = CleanConfig(
    damaged=False, long=None, letters=None, repeated=None, copied=None, leak="off", script=False, ratio=None,
    duplicate=False, near_duplicate=False, tokens=None,
)  # fmt: skip
Pairs = list[tuple[str, str]]


def rows_of(pairs: Pairs) -> np.ndarray:
    """Return the rows of facts about pairs that no earlier rule drops."""
    source, target = ("".join(f"{pair[side]}\n" for pair in pairs).encode() for side in (0, 1))
    given = Input(files=(Path("a.en"), Path("a.de")), format="lines")
    rows = clean_block(Block(0, 1, len(pairs), (source, target), 0), given, Cleaner(ALL_OFF, HeldOut()), False).rows
    assert len(rows) == len(pairs)
    return rows


def judge(pairs: Pairs, **settings: object) -> list[str]:
    """Return the verdict on each pair, with only these rules on."""
    config = replace(ALL_OFF, **settings)  # pyright: ignore[reportArgumentType]
    return [NAMES[code] for code in select(rows_of(pairs), config, 0, 1).verdicts.tolist()]


def test_every_rule_has_a_code_of_its_own():
    assert list(CODES) == list(RULES)
    assert len(NAMES) == len(RULES) + 2
    assert max(CODES.values()) < DEV < 256


# ---- duplicates ----

REPEATED = [
    ("Good morning!", "Guten Morgen!"),
    ("Good night.", "Gute Nacht."),
    ("Good morning!", "Guten Morgen!"),  # the same
    ("good morning", "Guten Morgen"),  # nearly
    ("Good morning!", "Moin!"),  # another translation
    ("GOOD MORNING", "guten morgen"),  # nearly
    ("good morning", "Guten Morgen"),  # the same as the fourth
    ("Morning!", "Guten Morgen!"),
]


@pytest.mark.parametrize(
    ("duplicate", "near_duplicate", "verdicts"),
    [
        (True, True, "kept kept duplicate near_duplicate kept near_duplicate duplicate kept"),
        (True, False, "kept kept duplicate kept kept kept duplicate kept"),
        (False, True, "kept kept near_duplicate near_duplicate kept near_duplicate near_duplicate kept"),
        (False, False, "kept kept kept kept kept kept kept kept"),
    ],
)
def test_the_first_of_equal_pairs_stays(duplicate: bool, near_duplicate: bool, verdicts: str):
    assert judge(REPEATED, duplicate=duplicate, near_duplicate=near_duplicate) == verdicts.split()


SIDE = st.text(st.sampled_from("aAb!. яЯ中"), min_size=1, max_size=3).map(lambda text: f"x{text}".strip())


@forall(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=30))
def test_duplicates_are_found_by_definition(pairs: Pairs):
    pairs = [(" ".join(source.split()), " ".join(target.split())) for source, target in pairs]
    expected: list[str] = []
    seen: set[tuple[str, str]] = set()
    seen_nearly: set[tuple[str, str]] = set()
    for pair in pairs:
        source, target = ("".join(filter(str.isalpha, side.lower())) for side in pair)
        expected.append(
            "duplicate" if pair in seen else "near_duplicate" if (source, target) in seen_nearly else "kept"
        )
        seen.add(pair)
        seen_nearly.add((source, target))
    assert judge(pairs, duplicate=True, near_duplicate=True) == expected


def test_lines_without_letters_are_near_duplicates_of_none():
    assert judge([("...", "!!!"), ("...", "???"), ("...", "!!!")], duplicate=True, near_duplicate=True) == [
        "kept",
        "kept",
        "duplicate",
    ]


# ---- scripts ----


def corpus_of(**counts: int) -> Pairs:
    """Return pairs with so many targets of each kind."""
    samples = {
        "latin": "Dobro jutro",
        "cyrillic": "Добро јутро",
        "hiragana": "おはようございます",
        "kanji": "図書館閉館中です",
        "katakana": "コンピューターゲーム",
        "chinese": "早上好",
        "hindi": "सुप्रभात",
        "arabic": "صباح الخير",
        "nothing": "1997",
    }
    return [(f"Good morning {kind} {n}", samples[kind]) for kind, count in counts.items() for n in range(count)]


@pytest.mark.parametrize(
    ("counts", "dropped", "scripts"),
    [
        ({"latin": 97, "cyrillic": 3}, {"cyrillic"}, ("Latin",)),
        ({"latin": 3, "cyrillic": 97}, {"latin"}, ("Cyrillic",)),
        ({"latin": 60, "cyrillic": 40}, set(), ("Latin", "Cyrillic")),  # Serbian is written in both
        ({"latin": 95, "cyrillic": 5}, set(), ("Latin", "Cyrillic")),
        ({"hiragana": 70, "kanji": 27, "katakana": 1, "latin": 2}, {"latin"}, ("CJK", "Hiragana", "Katakana")),
        ({"hiragana": 99, "kanji": 1, "hindi": 1}, {"hindi"}, ("CJK", "Hiragana", "Katakana")),
        ({"chinese": 98, "katakana": 1, "hiragana": 1}, {"hiragana", "katakana"}, ("CJK",)),
        ({"hindi": 98, "arabic": 2}, {"arabic"}, ("Devanagari",)),
        ({"arabic": 98, "nothing": 2}, set(), ("Arabic",)),
        ({"nothing": 50, "arabic": 1}, {"arabic"}, ()),
    ],
)
def test_a_line_in_another_script_than_the_corpus_is_dropped(
    counts: dict[str, int], dropped: set[str], scripts: tuple[str, ...]
):
    pairs = corpus_of(**counts)
    selection = select(rows_of(pairs), replace(ALL_OFF, script=True), 0, 1)
    found = {source.split()[2] for (source, _), code in zip(pairs, selection.verdicts) if code == CODES["script"]}
    assert found == dropped
    assert (selection.verdicts != KEPT).sum() == sum(counts[kind] for kind in dropped)
    assert selection.source_scripts == ("Latin",)
    assert tuple(name.upper() for name in selection.target_scripts) == tuple(name.upper() for name in scripts)
    mirrored = select(rows_of([(target, source) for source, target in pairs]), replace(ALL_OFF, script=True), 0, 1)
    assert mirrored.verdicts.tolist() == selection.verdicts.tolist()
    assert set(judge(pairs, script=False)) == {"kept"}


def test_the_main_script_of_a_line_counts():
    pairs = [("sentence", "Предложение номер один с OpenOffice")] * 99 + [("sentence", "OpenOffice и LibreOffice")]
    assert judge(pairs, script=True) == ["kept"] * 99 + ["script"]


# ---- ratios ----


@pytest.mark.parametrize("usual", [1 / 3, 1, 3])
def test_the_ratio_is_measured_against_the_corpus(usual: float):
    """What is usual in one corpus is not in another, such as one whose targets are three times as long."""
    length = 300
    common = [("x" * length, "y" * round(length * usual))] * 20
    odd = {1 / 3: "x" * length, 1: "y" * (3 * length), 3: "x" * length}[usual]
    pairs = [*common, ("x" * length, odd)]
    selection = select(rows_of(pairs), replace(ALL_OFF, ratio=2.0), 0, 1)
    assert [NAMES[code] for code in selection.verdicts.tolist()] == ["kept"] * 20 + ["ratio"]
    assert selection.ratio == pytest.approx((length * usual + 15) / (length + 15))


def test_the_ratio_is_bounded_on_both_sides_and_short_lines_vary_freely():
    common = [("x" * 85, "y" * 85)] * 9
    tried = {85: "kept", 185: "kept", 186: "ratio", 35: "kept", 34: "ratio", 1: "ratio"}  # (85 + 15) * 2 and / 2
    assert judge([*common, *(("x" * 85, "y" * n) for n in tried)], ratio=2.0)[9:] == list(tried.values())
    assert judge([*common, ("Yes", "Ja, natürlich")], ratio=2.0)[9:] == ["kept"]
    assert judge([*common, ("x" * 85, "y")], ratio=None)[9:] == ["kept"]


def test_very_long_lines_do_not_overflow():
    rows = rows_of([("x " * 40_000, "y " * 40_000), ("x" * 10, "y" * 10), ("x", "y" * 100_000)])
    assert rows["target_length"].tolist() == [65535, 10, 65535]
    selection = select(rows, replace(ALL_OFF, ratio=2.0), 0, 1)
    assert [NAMES[code] for code in selection.verdicts.tolist()] == ["kept", "kept", "ratio"]


def test_rules_are_tried_in_their_order():
    common = [("a short line", "eine kurze Zeile")] * 50
    both = ("a short line", "длинная строка " * 20)
    verdicts = judge([*common, both, both], script=True, ratio=2.0, duplicate=True)
    assert verdicts == ["kept"] + ["duplicate"] * 49 + ["script"] * 2
    verdicts = judge([*common, both, both], ratio=2.0, duplicate=True)
    assert verdicts == ["kept"] + ["duplicate"] * 49 + ["ratio"] * 2


# ---- the dev split ----


def split(pairs: Pairs, dev_pairs: int, seed: int = 1, **settings: object) -> Selection:
    config = replace(ALL_OFF, **settings)  # pyright: ignore[reportArgumentType]
    return select(rows_of(pairs), config, dev_pairs, seed)


DISTINCT = rows_of([(f"source {n}", f"target {n}") for n in range(200)])


@forall(st.integers(1, 250), st.integers(0, 5))
def test_a_dev_split_has_exactly_the_wanted_size(dev_pairs: int, seed: int):
    config = replace(ALL_OFF, leak="side")
    verdicts = select(DISTINCT, config, dev_pairs, seed).verdicts
    assert (verdicts == DEV).sum() == min(dev_pairs, 200)
    assert (verdicts == KEPT).sum() == 200 - min(dev_pairs, 200)
    assert verdicts.tolist() == select(DISTINCT, config, dev_pairs, seed).verdicts.tolist()


def test_the_seed_chooses_the_dev_split():
    choices = {tuple(np.flatnonzero(select(DISTINCT, ALL_OFF, 20, seed).verdicts == DEV)) for seed in range(20)}
    assert len(choices) == 20
    assert {place // 50 for choice in choices for place in choice} == {0, 1, 2, 3}


@forall(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=40), st.integers(1, 10), st.sampled_from(["side", "pair"]))
def test_nothing_of_the_dev_split_stays_in_training(pairs: Pairs, dev_pairs: int, leak: str):
    """Pairs, or long sides, that are equal but for case and punctuation are leaks; nothing else is lost."""
    pairs = [
        *pairs,
        *((f"{source} {'and so it goes' * 2}", f"{target}{' und so fort' * 2}") for source, target in pairs),
    ]
    verdicts = [NAMES[code] for code in split(pairs, dev_pairs, leak=leak).verdicts.tolist()]
    keys = [tuple("".join(filter(str.isalpha, side.lower())) for side in pair) for pair in pairs]
    dev = [(key, pair) for key, pair, name in zip(keys, pairs, verdicts) if name == "dev"]
    for (source, target), name in zip(keys, verdicts):
        leaks = (source, target) in [key for key, _ in dev]
        if leak == "side":
            leaks |= source in [key[0] for key, pair in dev if len(pair[0]) >= LEAK_CHARACTERS]
            leaks |= target in [key[1] for key, pair in dev if len(pair[1]) >= LEAK_CHARACTERS]
        assert name == "dev" or name == ("leak" if leaks else "kept")
    assert verdicts.count("dev") == min(dev_pairs, len(pairs))


def test_leaks_may_stay_if_told():
    verdicts = split([("same", "gleich")] * 10, 3, leak="off").verdicts
    assert Counter(verdicts.tolist()) == {DEV: 3, KEPT: 7}


def test_a_dev_split_is_taken_from_what_is_kept():
    pairs = [*corpus_of(latin=40), *corpus_of(latin=40), *corpus_of(cyrillic=2)]
    verdicts = [NAMES[code] for code in split(pairs, 30, duplicate=True, script=True, leak="pair").verdicts.tolist()]
    assert Counter(verdicts) == {"kept": 10, "dev": 30, "duplicate": 40, "script": 2}
    assert set(verdicts[40:]) == {"duplicate", "script"}


def test_counts_add_up_with_every_rule_on():
    pairs = [
        *((f"source {n}", f"Ziel {n}") for n in range(100)),
        *((f"Source, {n}!", f"Ziel {n}") for n in range(10)),
        *((f"source {n}", f"Ziel {n}") for n in range(10, 15)),
        *((f"other source {n}", f"Ziel {n}") for n in range(7)),
        ("source", "слово"),
        ("source", "Ziel " * 30),
    ]
    selection = select(rows_of(pairs), replace(CleanConfig(), long=None), 20, 3)
    counts = Counter(NAMES[code] for code in selection.verdicts.tolist())
    leaks = counts.pop("leak", 0)
    assert counts.pop("kept") == 107 - 20 - leaks
    assert counts == {"dev": 20, "near_duplicate": 10, "duplicate": 5, "script": 1, "ratio": 1}


def test_nothing_is_selected_from_nothing():
    selection = select(np.empty(0, ROW), CleanConfig(), 5, 1)
    assert len(selection.verdicts) == 0
    assert (selection.ratio, selection.source_scripts, selection.target_scripts) == (1.0, (), ())
