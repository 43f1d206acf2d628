"""Lines in another language are found by the corpus alone, and each line is judged by itself."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.text import numbers
from transduce.text.clean import CleanConfig, Cleaner, HeldOut
from transduce.text.language import LEAST_LINES, Language, find_foreign

PAIRS = numbers.corpus("train", 4000)
ENGLISH, GERMAN = (Language.learn([pair[place] for pair in PAIRS]) for place in (0, 1))


def babble(chance: random.Random) -> str:
    """Something that is neither English nor German."""
    return " ".join("".join(chance.choice("kvzjxqwy") + chance.choice("aouiy") for _ in range(4)) for _ in range(6))


def long_enough(line: str) -> bool:
    return len(line.encode()) >= 32


def test_a_side_in_the_other_language_is_found_and_little_else() -> None:
    right = [pair for pair in numbers.corpus("dev") if long_enough(pair[0]) and long_enough(pair[1])]
    swapped = [(source, source) for source, _ in right]
    assert find_foreign(ENGLISH, GERMAN, right, 5.0).mean() < 0.005
    assert find_foreign(ENGLISH, GERMAN, swapped, 5.0).mean() > 0.95


def test_a_side_in_an_unknown_language_is_found_on_either_side() -> None:
    chance = random.Random(1)
    right = [pair for pair in numbers.corpus("dev") if long_enough(pair[0]) and long_enough(pair[1])]
    assert find_foreign(ENGLISH, GERMAN, [(source, babble(chance)) for source, _ in right], 5.0).mean() > 0.99
    assert find_foreign(ENGLISH, GERMAN, [(babble(chance), target) for _, target in right], 5.0).mean() > 0.99


def test_what_is_odd_on_both_sides_stays() -> None:
    chance = random.Random(2)
    odd = [(text, text) for text in (babble(chance) for _ in range(200))]
    assert not find_foreign(ENGLISH, GERMAN, odd, 5.0).any()


def test_a_corpus_mixed_with_another_language_still_knows_its_own() -> None:
    chance = random.Random(3)
    mixed = [babble(chance) if i % 25 == 0 else target for i, (_, target) in enumerate(PAIRS)]
    learned = Language.learn(mixed)
    pairs = [
        (source, target) for (source, _), target in zip(PAIRS, mixed) if long_enough(source) and long_enough(target)
    ]
    foreign = find_foreign(ENGLISH, learned, pairs, 5.0)
    is_babble = np.array([set(target) <= set("kvzjxqwyaoui ") for _, target in pairs])
    assert foreign[is_babble].mean() > 0.9
    assert foreign[~is_babble].mean() < 0.01


@given(
    lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")), min_size=1, max_size=6)
)
@settings(max_examples=100, deadline=None)
def test_a_line_is_measured_by_itself(lines: list[str]) -> None:
    assert ENGLISH
    together = ENGLISH.measure(lines)
    alone = [ENGLISH.measure([line])[0] for line in lines]
    assert together.tolist() == pytest.approx(alone, abs=1e-9, nan_ok=True)


def test_short_lines_are_never_foreign() -> None:
    assert not find_foreign(ENGLISH, GERMAN, [("twenty", "xqzw kvyj vyxq zywq xyqv"), ("yxqv", "zwanzig")], 5.0).any()


def test_from_few_lines_nothing_is_learned_and_nothing_is_foreign() -> None:
    assert Language.learn([pair[0] for pair in PAIRS[: LEAST_LINES - 1]]) is None
    assert Language.learn([""] * 5000) is None
    assert not find_foreign(None, GERMAN, [("twenty", "x" * 50)], 5.0).any()


def test_the_rule_can_be_switched_off() -> None:
    pairs = [("the train leaves at half past six", "xqkvzy wyjaqo kuvixa zyxaqu wikyzo")]
    assert Cleaner(CleanConfig(), HeldOut(), (ENGLISH, GERMAN)).find_foreign(pairs).all()
    assert not Cleaner(CleanConfig(language=None), HeldOut(), (ENGLISH, GERMAN)).find_foreign(pairs).any()
