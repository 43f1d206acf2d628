"""Required phrases are in every translation, whatever the beam and other rules, and optimally if the beam is wide."""

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toys import (
    Said,
    Toy,
    all_texts,
    assert_alike,
    assert_same,
    contains,
    every_translation,
    log_probability,
    runs,
    words,
)

from transduce.config import SearchConfig
from transduce.decoding.phrases import Phrases
from transduce.decoding.rules import Spellings
from transduce.decoding.search import Task, search_all
from transduce.text.subwords import BEGIN, END, PAD

SOURCE = np.array([5, 4, END], np.int32)
seeds = st.integers(0, 10_000)
phrase = st.lists(st.integers(4, 7), min_size=1, max_size=4)
some_phrases = st.lists(phrase, min_size=1, max_size=3)


def total(phrases: Sequence[Sequence[int]]) -> int:
    return sum(map(len, {tuple(phrase) for phrase in phrases}))


# What counts as said


# Few, so that words continue one another in all ways; the bytes make é, À, Ó and –, of which – is not a letter.
PIECES = [
    *("<pad>", "<unk>", "<s>", "</s>", "▁a", "▁b", "a", "b", "▁", "!", "▁a!", "ab"),
    *("<0xC3>", "<0xA9>", "<0xE2>", "<0x80>", "<0x93>", "▁猫", "猫"),
]
spelled_texts = st.lists(st.integers(4, len(PIECES) - 1), max_size=9)
spelled_phrase = st.builds(
    lambda first, rest: [first, *rest],
    st.sampled_from([PIECES.index(piece) for piece in ("▁a", "▁b", "▁a!", "▁", "▁猫")]),
    st.lists(st.sampled_from([PIECES.index(piece) for piece in ("▁a", "▁b", "a", "b", "!", "ab", "猫")]), max_size=3),
)


def spell(tokens: Sequence[int]) -> str:
    """Return the text of subwords; bytes that are no character become signs that are not letters."""
    pieces = [PIECES[token] for token in tokens]
    texts = [bytes.fromhex(piece[3:5]) if piece.startswith("<0x") else piece.encode() for piece in pieces]
    return b"".join(texts).decode(errors="replace").replace("▁", " ")


def says(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    """Whether a phrase's tokens are in the output and not part of a longer word."""
    places = [place for place, run in enumerate(runs(tokens, len(phrase))) if run == tuple(phrase)]
    around = [spell(phrase)[-1] + spell(tokens[place + len(phrase) :])[:1] for place in places]
    return any(not re.fullmatch("[abÀÓé]{2}", pair) for pair in around)


@given(phrases=some_phrases, said=st.lists(st.integers(4, 7), max_size=9))
@settings(max_examples=200, deadline=None)
def test_how_much_is_said_and_what_is_wanted(phrases: list[list[int]], said: list[int]):
    """Without subwords, a phrase is its tokens."""
    known = Phrases(phrases, Spellings(()))
    missing = {tuple(phrase) for phrase in phrases if not contains(said, phrase)}
    begun = {
        phrase: max(many for many in range(len(phrase)) if many == 0 or tuple(said[-many:]) == phrase[:many])
        for phrase in missing
    }
    # Completing one phrase may complete others, which then count too.
    others = [
        [other for other in missing if not contains([*said, *phrase[begun[phrase] :]], other)] for phrase in missing
    ]
    needed = [len(phrase) - begun[phrase] + total(left) for phrase, left in zip(missing, others) if begun[phrase]]
    text = "".join(map(chr, said))
    counted = total(phrases) - min([total(list(missing)), *needed])
    assert known.said(text) == counted
    assert known.wanted(text) == {phrase[place] for phrase in missing for place in (0, begun[phrase])}
    if missing:  # there is always a token that brings it nearer
        assert max(known.said(text + chr(token)) for token in known.wanted(text)) > counted


@given(phrases=st.lists(spelled_phrase, min_size=1, max_size=3), said=spelled_texts)
@settings(max_examples=600, deadline=None)
def test_what_goes_on_with_the_last_word_of_a_phrase_takes_it_back(phrases: list[list[int]], said: list[int]):
    known = Phrases(phrases, Spellings(PIECES))
    text = "".join(map(chr, said))
    missing = [phrase for phrase in phrases if not says(said, phrase)]
    assert {tuple(map(ord, phrase)) for phrase in known.missing(text)} == set(map(tuple, missing))
    counted = known.said(text)
    assert 0 <= counted <= total(phrases)
    assert (counted == total(phrases)) == (not missing)
    assert counted >= total(phrases) - total(missing)
    if missing:  # there is always a token that brings it nearer
        assert max(known.said(text + chr(token)) for token in known.wanted(text)) > counted
    shares = np.zeros(len(PIECES))
    apart = known.apart(text, shares, len(PIECES)).tolist()
    joining = {
        token
        for token in range(4, len(PIECES))
        if any(says(said, phrase) and not says([*said, token], phrase) for phrase in phrases)
    }
    # No subword that would break a phrase; if there are any such subwords, all the others.
    assert not joining & set(apart)
    if joining:
        assert {END, *range(4, len(PIECES))} - joining <= set(apart)


def test_the_beam_is_shared_by_how_much_is_said():
    """The best of the hypotheses with most of the phrases, then of those with less, and so on in turns."""
    known = Phrases([[4, 5]], Spellings(()))
    lines = [[6], [7], [4], [4, 5]]
    scores = np.array([-1.0, -2.0, -30.0, -40.0])
    shares = np.full((4, 8), -np.inf)
    shares[:, 4:] = -np.array([[0.1, 0.2, 0.3, 0.4]])
    tokens = np.tile(np.arange(4, 8), (4, 1))
    step = known.choose(lines, scores, shares, tokens)
    kept = [(line, token) for _, line, token in step.going]
    # Both tokens of the phrase: line 3 with any, line 2 with its second; one: any line with its first; none: the rest.
    assert kept == [(2, 5), (0, 4), (0, 5), (3, 4)]
    assert [score for score, *_ in step.going] == pytest.approx([-30.2, -1.1, -1.2, -40.1])
    assert step.ended == []


def test_an_end_counts_only_among_the_best_and_where_all_is_said():
    known = Phrases([[4]], Spellings(()))
    shares = np.full((2, 8), -np.inf)
    shares[:, [END, 5, 6]] = np.log([0.3, 0.6, 0.1])
    tokens = np.tile([5, END, 6], (2, 1))
    complete, missing = [[4], [4, 6]], [[5], [6]]
    assert known.choose(missing, np.zeros(2), shares, tokens).ended == []
    step = known.choose(complete, np.array([0.0, -5.0]), shares, tokens)
    assert [(line, token) for _, line, token in step.ended] == [(0, END)]
    assert [(line, token) for _, line, token in step.going] == [(0, 5), (0, 6)]
    shares[:, END] = np.log(0.05)
    assert known.choose(complete, np.array([0.0, -5.0]), shares, tokens).ended == []


# Searches


@given(
    seed=seeds,
    phrases=st.lists(spelled_phrase, min_size=1, max_size=3),
    beam=st.integers(1, 6),
    spare=st.integers(0, 6),
    full=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_all_phrases_are_always_said_as_whole_words(
    seed: int, phrases: list[list[int]], beam: int, spare: int, full: bool
):
    """By a model that likes to extend every word, in all of an n-best list, and with just enough room."""
    longer = [PIECES.index(piece) for piece in ("a", "b", "ab", "<0xC3>", "<0xA9>")]
    toy = Toy(len(PIECES), seed=seed, loves=lambda said: dict.fromkeys(longer, 12.0))
    config = SearchConfig(beam=beam, n_best=beam, max_tokens=total(phrases) + spare, stop="full" if full else "exact")
    (found,) = search_all(toy, [Task(SOURCE, phrases=phrases)], config, PIECES)
    assert found
    for hypothesis in found:
        assert all(says(hypothesis.tokens.tolist(), phrase) for phrase in phrases), spell(hypothesis.tokens.tolist())
        expected = log_probability(toy.tell(SOURCE.tolist()), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("phrases", [[[4]], [[4], [4, 5]]], ids=str)
@pytest.mark.parametrize("pieces", [["▁a", "b", "!"], ["▁a", "▁b", "b"], ["▁a", "<0xC3>", "<0xA9>"]], ids=str)
def test_a_beam_as_wide_as_the_tree_finds_the_true_best_that_says_whole_words(
    pieces: list[str], phrases: list[list[int]]
):
    """Whatever follows: a sign, a space, or a letter in bytes, whose first byte alone is none."""
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *pieces]
    numbers = [PIECES.index(piece) for piece in pieces]

    def may(said: Said) -> bool:
        return all(says([numbers[t] for t in said], [numbers[t] for t in phrase]) for phrase in phrases)

    for seed in range(4):
        toy = Toy(len(pieces), seed=seed)
        config = SearchConfig(beam=4**4, n_best=30, max_tokens=4)
        (found,) = search_all(toy, [Task(SOURCE, phrases=phrases)], config, pieces)
        everything = every_translation(toy.tell(SOURCE.tolist()), words(len(pieces)), config.alpha, 4, may)
        assert_same(found, everything[:30])


@given(seed=seeds, phrases=some_phrases, beam=st.integers(1, 6), spare=st.integers(0, 6), stop=st.booleans())
@settings(max_examples=80, deadline=None)
def test_all_phrases_are_always_said(seed: int, phrases: list[list[int]], beam: int, spare: int, stop: bool):
    """Several, overlapping, repeated, longer than the beam; and with just enough room."""
    # The model does not like them, and likes to end.
    toy = Toy(12, seed=seed, loves=lambda said: {4: -6.0, 5: -6.0, 6: -6.0, 7: -6.0, END: 2.0})
    config = SearchConfig(beam=beam, n_best=beam, max_tokens=total(phrases) + spare, stop="full" if stop else "exact")
    (found,) = search_all(toy, [Task(SOURCE, phrases=phrases)], config)
    assert found
    for hypothesis in found:
        assert all(contains(hypothesis.tokens.tolist(), phrase) for phrase in phrases)
        assert not {PAD, BEGIN, END} & set(hypothesis.tokens.tolist())
        expected = log_probability(toy.tell(SOURCE.tolist()), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected, 1e-4, 1e-5)
    assert len({(*hypothesis.tokens.tolist(), hypothesis.ended) for hypothesis in found}) == len(found)


@pytest.mark.parametrize(
    "phrases", [[[4]], [[4, 5]], [[4], [5]], [[4, 4]], [[4, 5], [5, 4]], [[4, 5, 4]], [[4], [4], [4, 5]]], ids=str
)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_beam_as_wide_as_the_tree_finds_the_true_best_that_says_them(phrases: list[list[int]], alpha: float):
    """Here too, translations that are cut come last."""
    limit, n_best = 4, 30
    for seed in range(4):
        toy = Toy(6, seed=seed)
        config = SearchConfig(beam=27 * 4, alpha=alpha, n_best=n_best, max_tokens=limit)
        (found,) = search_all(toy, [Task(SOURCE, phrases=phrases)], config)
        everything = every_translation(
            toy.tell(SOURCE.tolist()),
            words(6),
            alpha,
            limit,
            lambda said: all(contains(said, phrase) for phrase in phrases),
        )
        assert_same(found, everything[:n_best])


@given(seed=seeds, beam=st.integers(1, 5), data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_already_said_changes_nothing(seed: int, beam: int, data: st.DataObject):
    """If a prefix contains the phrases, the search is the same as without them."""
    prefix = data.draw(st.lists(st.integers(4, 8), min_size=1, max_size=6))
    first = data.draw(st.integers(0, len(prefix) - 1))
    phrases = [prefix[first : first + data.draw(st.integers(1, 3))]]
    toy = Toy(9, seed=seed)
    config = SearchConfig(beam=beam, n_best=beam, max_tokens=len(prefix) + 6, no_repeat=3)
    plain, phrased = search_all(
        toy, [Task(SOURCE, prefix=prefix), Task(SOURCE, prefix=prefix, phrases=phrases)], config
    )
    assert_alike(phrased, plain)


@given(seed=seeds, phrases=some_phrases)
@settings(max_examples=30, deadline=None)
def test_a_wide_beam_finds_what_it_would_have_found_anyway(seed: int, phrases: list[list[int]]):
    """A model that likes the phrases produces them unasked; requiring them does not change the best."""
    liked = [token for phrase in phrases for token in phrase]
    toy = Toy(
        9,
        seed=seed,
        loves=lambda said: {END: 9.0} if len(said) == len(liked) else {liked[min(len(said), len(liked) - 1)]: 6.0},
    )
    config = SearchConfig(beam=24, max_tokens=len(liked) + 2)
    (plain,), (phrased,) = search_all(toy, [Task(SOURCE), Task(SOURCE, phrases=phrases)], config)
    assume(all(contains(plain.tokens.tolist(), phrase) for phrase in phrases))
    assert_alike([phrased], [plain])


def test_the_model_chooses_where():
    """A phrase comes where it fits, not at once, if the beam is wide enough to wait."""

    def loves(said: Said) -> dict[int, float]:
        ready = list(said[:2]) == [8, 9]
        return {(8, 9)[len(said)]: 6.0} if len(said) < 2 else {4: 2.0 if ready and len(said) == 2 else -4.0, END: 2.0}

    toy = Toy(12, spread=0.3, loves=lambda said: {4: -6.0, 5: -1.0} | loves(said))
    ((found,),) = search_all(toy, [Task(SOURCE, phrases=[[4, 5]])], SearchConfig(beam=6))
    assert found.tokens.tolist() == [8, 9, 4, 5]
    assert found.ended


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_less_room_than_the_phrases_take(beam: int):
    """The output is cut at the maximum length; each such length is tried."""
    for limit in range(1, 8):
        toy = Toy(12, seed=limit)
        config = SearchConfig(beam=beam, n_best=beam, max_tokens=limit)
        (found,) = search_all(toy, [Task(SOURCE, phrases=[[4, 5, 6], [7, 4, 8]])], config)
        assert len(found) >= 1
        for hypothesis in found:
            assert len(hypothesis.tokens) == limit or hypothesis.ended
            assert hypothesis.ended <= (limit > 5)
            if limit >= 6:
                assert contains(hypothesis.tokens.tolist(), [4, 5, 6])
                assert contains(hypothesis.tokens.tolist(), [7, 4, 8])


@given(
    seed=seeds,
    phrases=some_phrases,
    beam=st.integers(1, 5),
    prefix=st.lists(st.integers(4, 9), max_size=3),
    least=st.integers(0, 12),
    forbidden=st.lists(st.sampled_from(["i", "j", "i j"]), max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_with_other_rules(
    seed: int, phrases: list[list[int]], beam: int, prefix: list[int], least: int, forbidden: list[str]
):
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"▁{letter}" for letter in "efghijkl")]
    toy = Toy(12, seed=seed)
    config = SearchConfig(beam=beam, n_best=beam, min_tokens=least, max_tokens=len(prefix) + total(phrases) + 14)
    (found,) = search_all(toy, [Task(SOURCE, prefix=prefix, phrases=phrases, forbidden=forbidden)], config, pieces)
    assert found
    for hypothesis in found:
        said = hypothesis.tokens.tolist()
        assert said[: len(prefix)] == prefix
        assert all(contains(said, phrase) for phrase in phrases)
        assert len(said) >= least or not hypothesis.ended
        text = " ".join(pieces[token].strip("▁") for token in said[len(prefix) :])
        assert not any(f" {word} " in f" {text} " for word in forbidden)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_may_not_be_said_is_not_waited_for(beam: int):
    """Phrases that other rules forbid are missing, and the search ends at its limit."""
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"▁{letter}" for letter in "efghijkl")]
    for task, config in [
        (Task(SOURCE, phrases=[[4]], forbidden=["e"]), SearchConfig(beam=beam, max_tokens=9)),
        (Task(SOURCE, phrases=[[6, 4, 5]], forbidden=["e f"]), SearchConfig(beam=beam, max_tokens=9)),
        (Task(SOURCE, phrases=[[4, 4]]), SearchConfig(beam=beam, max_tokens=6, no_repeat=1)),
    ]:
        ((found,),) = search_all(Toy(12), [task], config, pieces)
        assert not found.ended
        assert len(found.tokens) == config.max_tokens
        assert not any(contains(found.tokens.tolist(), phrase) for phrase in task.phrases)


def test_phrases_in_all_orders_and_overlaps():
    """Every pair of phrases of up to two tokens of two kinds, at the narrowest beam, with the least room."""
    toy = Toy(8)
    for first, second in product([text for text in all_texts((4, 5), 2) if text], repeat=2):
        config = SearchConfig(beam=1, max_tokens=total([first, second]))
        ((found,),) = search_all(toy, [Task(SOURCE, phrases=[first, second])], config)
        assert contains(found.tokens.tolist(), first)
        assert contains(found.tokens.tolist(), second)
        assert len(runs(found.tokens.tolist(), 1)) <= total([first, second])


def test_an_empty_phrase_asks_for_nothing():
    config = SearchConfig(beam=3, n_best=3, max_tokens=6)
    plain, phrased = search_all(Toy(9), [Task(SOURCE), Task(SOURCE, phrases=[[]])], config)
    assert_alike(phrased, plain)
