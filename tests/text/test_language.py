"""Lines in another language are found by the corpus alone, and each line is judged by itself."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.text import numbers
from transduce.text.clean import CleanConfig, Cleaner, HeldOut
from transduce.text.language import LEAST_LINES, Languages, count_swapped

PAIRS = numbers.corpus("train", 4000)
RIGHT = [pair for pair in numbers.corpus("dev") if min(len(side.encode()) for side in pair) >= 32]
Pairs = list[tuple[str, str]]


def learn(pairs: Pairs) -> Languages:
    """Learn what is usual in a corpus."""
    languages = Languages.learn([source for source, _ in pairs], [target for _, target in pairs])
    assert languages
    return languages


LANGUAGES = learn(PAIRS)


def babble(chance: random.Random) -> str:
    """Return a text that is neither English nor German."""
    return " ".join("".join(chance.choice("kvzjxqwy") + chance.choice("aouiy") for _ in range(4)) for _ in range(6))


def swap(pairs: Pairs, share: float) -> tuple[Pairs, np.ndarray]:
    """Return the pairs with a share of them the wrong way round, and which."""
    swapped = np.random.default_rng(1).random(len(pairs)) < share
    return [(b, a) if other else (a, b) for (a, b), other in zip(pairs, swapped)], swapped


def test_a_side_in_the_other_language_is_found_and_little_else() -> None:
    assert LANGUAGES.find_foreign(RIGHT, 5.0).mean() < 0.005
    others = [*RIGHT[1:], RIGHT[0]]
    for untranslated in (
        [(source, source) for source, _ in RIGHT],
        [(source, other) for (source, _), (other, _) in zip(RIGHT, others)],
        [(other, target) for (_, target), (_, other) in zip(RIGHT, others)],
    ):
        assert LANGUAGES.find_foreign(untranslated, 5.0).mean() > 0.95


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_swapped_pairs_are_found_in_the_corpus_that_has_them(share: float) -> None:
    pairs, swapped = swap(PAIRS, share)
    foreign = learn(pairs).find_foreign(pairs, 5.0)
    assert foreign[swapped].mean() > 0.9
    assert foreign[~swapped].mean() < 0.002


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_swapped_pairs_of_another_text_are_counted_by_a_few_lines(share: float) -> None:
    pairs, swapped = swap(RIGHT, share)
    source, target = zip(*PAIRS[:100])
    assert abs(count_swapped(source, target, pairs) - swapped.sum()) < 0.02 * len(pairs)


def test_no_side_is_swapped_where_both_are_in_one_language() -> None:
    source = [source for source, _ in PAIRS]
    count = count_swapped(source[::2], source[1::2], [(a, b) for (a, _), (b, _) in pairwise(RIGHT)])
    assert 0.3 < count / len(RIGHT) < 0.7


def test_short_sides_tell_together_that_they_are_swapped() -> None:
    short = [pair for pair in PAIRS if min(map(len, pair)) >= 10 and max(map(len, pair)) <= 20]
    assert len(short) > 50
    assert LANGUAGES.find_foreign(swap(short, 1.0)[0], 5.0).mean() > 0.9
    assert LANGUAGES.find_foreign(short, 5.0).mean() < 0.02


def test_what_stands_on_both_sides_does_not_count() -> None:
    """As in a manual with titles and code that are the same in its translation."""
    manual = [
        (f"{source} {title}", f"{target} {title}") if i % 3 == 0 else (source, target)
        for i, ((source, target), (title, _)) in enumerate(pairwise(PAIRS))
    ]
    languages = learn(manual)
    assert not languages.find_foreign([(f"see {title}", f"siehe {title}") for title, _ in RIGHT], 5.0).any()
    untranslated = [(f"see {title}", other) for (title, _), (other, _) in pairwise(RIGHT)]
    assert languages.find_foreign(untranslated, 5.0).mean() > 0.5


def test_sides_in_one_language_are_not_swapped() -> None:
    """As in a corpus of simplifications or corrections."""
    same = [(source, other) for (source, _), (other, _) in pairwise(PAIRS)]
    assert learn(same).find_foreign(same, 5.0).mean() < 0.002


def test_a_side_in_an_unknown_language_is_found_on_either_side() -> None:
    chance = random.Random(1)
    assert LANGUAGES.find_foreign([(source, babble(chance)) for source, _ in RIGHT], 5.0).mean() > 0.99
    assert LANGUAGES.find_foreign([(babble(chance), target) for _, target in RIGHT], 5.0).mean() > 0.99


def test_what_is_odd_on_both_sides_stays() -> None:
    chance = random.Random(2)
    odd = [(text, text) for text in (babble(chance) for _ in range(200))]
    assert not LANGUAGES.find_foreign(odd, 5.0).any()


def test_a_corpus_mixed_with_another_language_still_knows_its_own() -> None:
    chance = random.Random(3)
    mixed = [(source, babble(chance) if i % 25 == 0 else target) for i, (source, target) in enumerate(PAIRS)]
    pairs = [pair for pair in mixed if min(len(side.encode()) for side in pair) >= 32]
    foreign = learn(mixed).find_foreign(pairs, 5.0)
    is_babble = np.array([set(target) <= set("kvzjxqwyaoui ") for _, target in pairs])
    assert foreign[is_babble].mean() > 0.9
    assert foreign[~is_babble].mean() < 0.01


# Everyday sentences in three languages: who, does what, where and when.
SAID = {
    "en": (
        "my sister|the old man|nobody|our teacher|the children|his friends|a neighbour|she",
        "was waiting|has been singing|would like to stay|must not sleep|could not work|will have to wait",
        "in the kitchen|with all of them|without the dog|behind the big house|at the station",
        "until tomorrow|because of the rain|for the first time|every morning|after the holidays",
    ),
    "de": (
        "meine Schwester|der alte Mann|niemand|unser Lehrer|das Kind|sein Freund|ein Nachbar|sie",
        "wartete|hat gesungen|möchte gern noch bleiben|schläft nicht|kann nicht arbeiten|muss warten",
        "in der Küche|mit ihnen allen|ohne den Hund|hinter dem großen Haus|auf dem Bahnhof",
        "bis morgen|wegen des Regens|zum ersten Mal|an jedem Morgen|nach den Ferien",
    ),
    "fr": (
        "ma sœur|le vieil homme|personne|notre maître|l’enfant|son ami|un voisin|elle",
        "attendait|a chanté|voudrait rester|ne doit pas dormir|ne pouvait pas travailler|devra attendre",
        "dans la cuisine|avec eux tous|sans le chien|derrière la grande maison|à la gare",
        "jusqu’à demain|à cause de la pluie|pour la première fois|tous les matins|après les vacances",
    ),
}


def say(language: str, numbers: list[int]) -> str:
    """Return a sentence."""
    parts = [part.split("|") for part in SAID[language]]
    who, does, where, when = (part[number % len(part)] for part, number in zip(parts, numbers, strict=True))
    return f"{who} {does} {where} {when}." if numbers[0] % 2 else f"{where}, {when}: {who} {does}?"


def mix_in(languages: tuple[str, str], third: str, many: int = 3000) -> tuple[Pairs, np.ndarray]:
    """Return pairs among names and code, some with a target in a third language, and which."""
    chance = random.Random(4)
    pairs: Pairs = []
    others: list[bool] = []
    for _ in range(many):
        numbers = [chance.randrange(120) for _ in range(4)]
        others.append(chance.random() < 0.04)
        source, target = (say(language, numbers) for language in languages)
        name = "".join(chance.choice("abcdefghijklmnoprstuvwz_%") for _ in range(chance.randrange(40)))
        pairs.append((f"{source} {name}", f"{say(third, numbers) if others[-1] else target} {name}"))
    return pairs, np.array(others)


@pytest.mark.parametrize(
    ("languages", "third"), [(("en", "fr"), "de"), (("fr", "de"), "en"), (("de", "en"), "fr")], ids=str
)
def test_a_third_language_is_known_by_its_words(languages: tuple[str, str], third: str) -> None:
    """Where letters are only a little unusual, because those of the corpus vary a lot."""
    pairs, others = mix_in(languages, third)
    learned = learn(pairs)
    assert tuple(side.code for side in learned.sides) == languages
    foreign = learned.find_foreign(pairs, 5.0)
    assert not foreign[~others].any()
    # By letters alone fewer than half of these are found.
    blind = Languages(tuple(replace(side, code=None) for side in learned.sides))  # pyright: ignore[reportArgumentType]
    assert foreign[others].mean() > max(0.7, 2 * blind.find_foreign(pairs, 5.0)[others].mean())


def test_which_language_a_side_is_in_is_asked_of_the_corpus() -> None:
    chance = random.Random(5)
    numbers = [[chance.randrange(120) for _ in range(4)] for _ in range(1200)]
    odd = [(babble(chance), say("fr" if place % 3 else "de", some)) for place, some in enumerate(numbers)]
    # One that is not known; two, of which none is the side's own.
    assert [side.code for side in learn(odd).sides] == [None, None]
    assert [side.code for side in LANGUAGES.sides] == ["en", "de"]


def test_words_of_code_and_of_the_other_side_tell_nothing() -> None:
    pairs, _ = mix_in(("en", "de"), "de")
    code = "%de %la <les> que_des pour/le sans-le d1 n2"
    quoted = "Le vieil homme ne doit pas dormir"
    odd = [(f"{source} {code}", f"{target} {code}") for source, target in pairs[:200]]
    odd += [(f"{source}: {quoted}", f"{quoted} ({target})") for source, target in pairs[:200]]
    assert not learn(pairs).find_foreign(odd, 5.0).any()


@given(
    lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")), min_size=1, max_size=6)
)
@settings(max_examples=100, deadline=None)
def test_a_line_is_measured_by_itself(lines: list[str]) -> None:
    for side in (0, 1):
        together = np.array(LANGUAGES.measure(side, lines))
        alone = np.concatenate([np.array(LANGUAGES.measure(side, [line])) for line in lines], axis=1)
        assert together == pytest.approx(alone, abs=1e-9, nan_ok=True)


def test_very_short_lines_are_never_foreign() -> None:
    pairs = [("twenty", "xqzw kvyj vyxq zywq xyqv"), ("yxqv", "zwanzig"), ("fünf", "five"), ("", "")]
    assert not LANGUAGES.find_foreign(pairs, 5.0).any()


def test_from_few_lines_nothing_is_learned_and_nothing_is_foreign() -> None:
    source, target = [list(side) for side in zip(*PAIRS)]
    assert Languages.learn(source[: LEAST_LINES - 1], target) is None
    assert Languages.learn(source, [""] * 5000) is None
    assert not Cleaner(CleanConfig(), HeldOut()).find_foreign([("twenty", "x" * 50)]).any()
    assert LANGUAGES.find_foreign([], 5.0).shape == (0,)


def test_the_rule_can_be_switched_off() -> None:
    pairs = [("the train leaves at half past six", "xqkvzy wyjaqo kuvixa zyxaqu wikyzo")]
    assert Cleaner(CleanConfig(), HeldOut(), LANGUAGES).find_foreign(pairs).all()
    assert not Cleaner(CleanConfig(language=None), HeldOut(), LANGUAGES).find_foreign(pairs).any()
