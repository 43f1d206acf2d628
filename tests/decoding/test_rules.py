"""What a translation may not contain: each rule by its definition, and as in Hugging Face."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from toys import Said, Tell, Toy, assert_alike, assert_same, log_probability, log_softmax, plain_beam, runs, words
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from transduce.config import SearchConfig
from transduce.decoding.rules import Forbidden, NoRepeat, Spellings, make_rules, penalise_repetition
from transduce.decoding.search import Task, search_all
from transduce.text.subwords import BEGIN, END, PAD, SPACE, UNKNOWN, Subwords, SubwordsConfig, learn

SOURCE = np.array([5, 4, END], np.int32)
VOCABULARY = 9
seeds = st.integers(0, 10_000)
beams = st.integers(1, 4)


# As others have them


@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_what_would_repeat_a_run_is_forbidden_as_hugging_face_does(many: int):
    random = np.random.default_rng(many)
    forbidden = 0
    for length in range(1, 30):
        said = random.integers(0, 4, (3, length))
        logits = torch.randn(3, 9)
        expected = NoRepeatNGramLogitsProcessor(many)(torch.from_numpy(said), logits.clone())  # pyright: ignore[reportArgumentType]
        NoRepeat(many).forbid(logits, said)
        assert torch.equal(logits, expected)
        forbidden += int(logits.isinf().sum())
    assert forbidden > 10


@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.2, 3.0])
def test_repetition_is_punished_as_hugging_face_does(penalty: float):
    random = np.random.default_rng(0)
    for length in range(9):
        said = random.integers(0, 9, (4, length))
        logits = torch.randn(4, 12)
        expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.from_numpy(said), logits.clone())  # pyright: ignore[reportArgumentType]
        penalise_repetition(logits, said, penalty)
        torch.testing.assert_close(logits, expected, rtol=0, atol=0)


# By definition: the plain search, told which tokens may follow


def only(tell: Tell, may: Callable[[Said, int], bool]) -> Tell:
    """Forbid tokens to a model; the others keep their probabilities."""

    def told(said: Said) -> np.ndarray:
        shares = tell(said)
        return np.array([share if may(said, token) else -np.inf for token, share in enumerate(shares.tolist())])

    return told


def punished(toy: Toy, penalty: float) -> Tell:
    """Make tokens that a model has already generated less probable."""

    def told(said: Said) -> np.ndarray:
        logits = toy.logits(SOURCE.tolist(), said).copy()
        for token in set(said):
            logits[token] = logits[token] * penalty if logits[token] < 0 else logits[token] / penalty
        return log_softmax(logits)

    return told


@given(
    seed=seeds,
    beam=beams,
    alpha=st.sampled_from([0.0, 1.0]),
    least=st.integers(0, 9),
    no_repeat=st.sampled_from([None, 1, 2, 3]),
    penalty=st.sampled_from([1.0, 1.5]),
    prefix=st.lists(st.sampled_from(words(VOCABULARY)), max_size=5),
    limit=st.integers(5, 12),
)
@settings(max_examples=100, deadline=None)
def test_searches_under_rules_are_plain_searches_without_what_is_forbidden(
    seed: int,
    beam: int,
    alpha: float,
    least: int,
    no_repeat: int | None,
    penalty: float,
    prefix: list[int],
    limit: int,
):
    toy = Toy(VOCABULARY, seed=seed, loves=lambda said: {END: 1.0, 4: 3.0, 5: 2.0})
    config = SearchConfig(
        beam=beam,
        n_best=beam,
        alpha=alpha,
        min_tokens=least,
        no_repeat=no_repeat,
        repetition_penalty=penalty,
        max_tokens=20,
        stop="full",
    )
    (found,) = search_all(toy, [Task(SOURCE, prefix=prefix, max_tokens=limit)], config)

    def may(said: Said, token: int) -> bool:
        if len(said) < len(prefix):
            return token == prefix[len(said)]
        if token == END:
            return len(said) >= least
        said = (*said, token)
        return no_repeat is None or runs(said, no_repeat)[-1:] not in [[run] for run in runs(said[:-1], no_repeat)]

    tell = only(punished(toy, penalty), may)
    expected, gap = plain_beam(tell, beam=beam, alpha=alpha, limit=limit, n_best=beam, stop="full")
    assume(gap > 1e-5)
    if expected:  # else every word has been used and none may be repeated: the output so far is kept
        assert_same(found, expected)
    for hypothesis in found:
        said = hypothesis.tokens.tolist()
        assert said[: len(prefix)] == prefix[: len(said)]
        assert len(said) >= least or not hypothesis.ended
        if no_repeat and not prefix:
            assert len(runs(said, no_repeat)) == len(set(runs(said, no_repeat)))
        expected_scores = log_probability(punished(toy, penalty), hypothesis)
        np.testing.assert_allclose(hypothesis.token_scores, expected_scores, 1e-4, 1e-5)


@given(
    seed=seeds, beam=beams, least=st.integers(1, 9), limit=st.integers(5, 12), stop=st.sampled_from(["exact", "full"])
)
@settings(max_examples=40, deadline=None)
def test_so_many_tokens_are_said_at_least(seed: int, beam: int, least: int, limit: int, stop: Any):
    """The one rule that does not depend on what has been generated."""
    toy = Toy(VOCABULARY, seed=seed, loves=lambda said: {END: 3.0})
    config = SearchConfig(beam=beam, n_best=beam, min_tokens=least, stop=stop)
    (found,) = search_all(toy, [Task(SOURCE, max_tokens=limit)], config)
    tell = only(toy.tell(SOURCE.tolist()), lambda said, token: token != END or len(said) >= least)
    expected, gap = plain_beam(tell, beam=beam, alpha=0.6, limit=limit, n_best=beam, stop=stop)
    assume(gap > 1e-5)
    assert_same(found, expected)


def test_the_rules_make_a_difference():
    """Otherwise the comparison above would show less than it seems to."""
    toy = Toy(VOCABULARY, loves=lambda said: {END: 1.0, 4: 3.0, 5: 2.0})
    plain = SearchConfig(beam=2, max_tokens=12)
    results = {
        tuple(search_all(toy, [Task(SOURCE, prefix=prefix)], config)[0][0].tokens.tolist())
        for config, prefix in [
            (plain, []),
            (plain, [6, 7]),
            (replace(plain, min_tokens=9), []),
            (replace(plain, min_tokens=9, no_repeat=2), []),
            (replace(plain, min_tokens=9, no_repeat=3), []),
            (replace(plain, min_tokens=9, repetition_penalty=1.5), []),
        ]
    }
    assert len(results) > 4


@given(seed=seeds, beam=beams, prefix=st.lists(st.sampled_from(words(VOCABULARY)), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_after_a_prefix_the_search_is_one_that_has_come_there(seed: int, beam: int, prefix: list[int]):
    toy = Toy(VOCABULARY, seed=seed)
    (found,) = search_all(toy, [Task(SOURCE, prefix=prefix)], SearchConfig(beam=beam, n_best=beam, extra_tokens=6))
    expected, gap = plain_beam(
        toy.tell(SOURCE.tolist()), beam=beam, alpha=0.6, limit=9, n_best=beam, begun=tuple(prefix)
    )
    assume(gap > 1e-5)
    assert_same(found, expected)


def test_a_prefix_that_would_be_found_anyway_changes_nothing():
    for seed in range(10):
        toy = Toy(VOCABULARY, seed=seed, loves=lambda said: {END: -1.0})
        config = SearchConfig(beam=3, extra_tokens=6)
        ((best,),) = search_all(toy, [Task(SOURCE)], config)
        # A beam that holds the best line alone at the beginning may only do better.
        ((again,),) = search_all(toy, [Task(SOURCE, prefix=best.tokens[:3].tolist())], config)
        assert again.score >= best.score - 1e-6
        whole = [*best.tokens.tolist(), *([END] if best.ended else [])]
        assert_alike(search_all(toy, [Task(SOURCE, prefix=whole)], config)[0], [best])


@pytest.mark.parametrize("beam", [1, 3])
def test_a_prefix_longer_than_the_limit_is_cut(beam: int):
    config = SearchConfig(beam=beam, max_tokens=3)
    ((found,),) = search_all(Toy(VOCABULARY), [Task(SOURCE, prefix=[4, 4, 5, 6, 7])], config)
    assert (found.tokens.tolist(), found.ended) == ([4, 4, 5], False)


# Forbidden phrases, in the subwords of a model

TEXT = [
    "the cat sat on the mat (the cat) and the other cats were in the cathedral",
    "no new york today, but new yorkers come from york and from newcastle in 2010, 2020.",
    "it costs 10, 20 or 100% of 10.5 and (10) is 10% of 100: see 10, 10 and 10.",
    "größe über straße und weiß, größer als groß; naïve café",
] * 5


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return Subwords(learn(TEXT, SubwordsConfig(size=420, coverage=0.981)))


@pytest.fixture(scope="module")
def pieces(subwords: Subwords) -> list[str]:
    return subwords.pieces(range(len(subwords)))


def whole_places(text: str, phrase: str) -> list[int]:
    """Return where a phrase occurs in a text, but not within longer words."""
    found = [place for place in range(len(text)) if text.startswith(phrase, place)]
    around = [(text[:place][-1:] + phrase[0], phrase[-1] + text[place + len(phrase) :][:1]) for place in found]
    # A Chinese character is a word beside any letter.
    words = [any(len(pair) == 2 and pair.isalnum() and "猫" not in pair for pair in sides) for sides in around]
    return [place for place, within in zip(found, words) if not within]


def says(text: str, phrase: str) -> bool:
    return bool(whole_places(text, phrase))


def test_what_a_whole_phrase_is():
    for text in ("cat", "the cat", "cat,", "(cat)", "a-cat-b", "cat cats", "cats cat", "catcat cat"):
        assert says(text, "cat"), text
    for text in ("cats", "tomcat", "concatenate", "cat1", "Cat", "c at", "café", "cät"):
        assert not says(text, "cat"), text
    assert says("100%", "%")
    assert says("dog's", "'s")
    assert not says("10% of", "0%")


PHRASES = [
    "cat",
    "new york",
    "10",
    "10,",
    "%",
    "größe",
    "the",
    "naïve café",
    "(the cat) and",
    "2010, 2020.",
    "ß",
    "猫",
    "s",
]


def test_the_subwords_are_as_hard_as_they_get(subwords: Subwords, pieces: list[str]):
    """Some hold digits and marks together, and some characters are spelled in bytes."""
    assert any(piece[:-1].strip(SPACE).isdigit() and not piece[-1].isalnum() for piece in pieces)
    assert any(piece.strip(SPACE).startswith("(") and piece[-1].isdigit() for piece in pieces)
    assert any(piece.startswith("<0x") for piece in subwords.pieces(subwords.encode("größe über 猫")))


def spelled(pieces: list[str]) -> list[bytes]:
    """Return subwords as the bytes of their text, with spaces as spaces."""
    return [
        bytes.fromhex(piece[3:5]) if piece.startswith("<0x") else piece.replace(SPACE, " ").encode() for piece in pieces
    ]


def in_letters(text: str, pieces: list[str]) -> list[int]:
    """Spell a text by its characters, and those that are not subwords in bytes."""
    return [
        token
        for letter in text.replace(" ", SPACE)
        for token in ([pieces.index(letter)] if letter in pieces else in_bytes(letter, pieces))
    ]


def in_bytes(text: str, pieces: list[str]) -> list[int]:
    """Spell a text in bytes."""
    return [pieces.index(f"<0x{byte:02X}>") for byte in text.encode()]


@pytest.mark.parametrize("phrase", PHRASES)
def test_what_would_complete_a_phrase_is_forbidden_and_nothing_else(subwords: Subwords, pieces: list[str], phrase: str):
    """For every subword after beginnings of all kinds, by the text that would result."""
    rule = Forbidden([phrase], Spellings(pieces))
    front = pieces.index("<0x28>")  # so that a space at the beginning is not lost

    def text_of(tokens: Sequence[int]) -> str:
        return subwords.decode([front, *tokens])[1:]

    random = np.random.default_rng(0)
    spellings = [
        spelling
        for text in (phrase, f" {phrase}", f"x{phrase}")
        for spelling in (subwords.encode(text), in_letters(text, pieces), in_bytes(text, pieces))
    ]
    beginnings = {
        (*before, *spelling[:many])
        for spelling in spellings
        for many in {0, len(spelling) // 2, max(0, len(spelling) - 2), len(spelling) - 1}
        for before in ([], random.integers(4, len(pieces), 2).tolist())
    }
    completed = 0
    for said in beginnings:
        logits = torch.zeros(2, len(pieces))
        rule.forbid(logits[:1], np.array([said], np.int64).reshape(1, -1))
        assert not logits[1].any()
        # A character of which bytes are missing is not yet part of the text.
        before = len(text_of(said).rstrip("\ufffd"))
        forbidden = logits[0].isinf().tolist()
        for token in range(len(pieces)):
            text = text_of([*said, token])
            completes = any(place + len(phrase) > before for place in whole_places(text, phrase))
            assert forbidden[token] == completes, (said, pieces[token], text)
            completed += completes
    assert completed > 5


def adversary(pieces: list[str], phrases: Sequence[str]) -> Toy:
    """Return a model that tries to produce the phrases in any spelling, over and over."""
    texts = spelled(pieces)

    def loves(said: Said) -> dict[int, float]:
        text = b"".join(texts[token] for token in said)
        bonus = {PAD: -99.0, UNKNOWN: -99.0, BEGIN: -99.0, END: 6.0 if len(said) > 7 else -9.0}
        for phrase in (f" {phrase}".encode() for phrase in phrases):
            begun = max(many for many in range(len(phrase)) if text.endswith(phrase[:many]))
            bonus |= {token: 9.0 for token, own in enumerate(texts) if own and phrase[begun:].startswith(own)}
        return bonus

    return Toy(len(pieces), seed=1, loves=loves)


@pytest.mark.parametrize(
    "phrases", [["cat"], ["new york", "cat"], ["10"], ["größe"], ["%", "(the cat)"], ["猫"]], ids=str
)
def test_a_model_that_loves_a_phrase_cannot_say_it(subwords: Subwords, pieces: list[str], phrases: list[str]):
    tasks = [Task(np.array([number, END])) for number in range(4, 7)]
    forbidding = [replace(task, forbidden=phrases) for task in tasks]
    toy = adversary(pieces, phrases)
    loved: list[Said] = []
    for config in (
        SearchConfig(beam=1, max_tokens=12),
        SearchConfig(beam=4, n_best=4, max_tokens=12),
        SearchConfig(sample=True, n_best=6, max_tokens=12),
    ):
        for hypotheses in search_all(toy, tasks, config, pieces):
            for tokens in (hypothesis.tokens.tolist() for hypothesis in hypotheses):
                loved += [tuple(tokens)] if any(says(subwords.decode(tokens), phrase) for phrase in phrases) else []
        for hypotheses in search_all(toy, forbidding, config, pieces):
            assert len(hypotheses) == config.n_best
            for hypothesis in hypotheses:
                text = subwords.decode(hypothesis.tokens)
                assert not any(says(text, phrase) for phrase in phrases), text
                assert len(hypothesis.tokens) > 7
    assert len(loved) > 20  # of 33
    assert len(set(loved)) > 10  # in many spellings


@pytest.mark.parametrize("spelling", [["▁cats"], ["▁cathe", "dral"], ["om", "ca", "t"], ["▁", "c", "at"]], ids="".join)
def test_within_longer_words_it_may_stand(pieces: list[str], spelling: list[str]):
    """Unless the word is spelled by the phrase and its rest."""
    wanted = [*map(pieces.index, spelling), END]
    toy = Toy(len(pieces), spread=0.0, loves=lambda said: {wanted[min(len(said), len(spelling))]: 50.0})
    ((found,),) = search_all(toy, [Task(SOURCE, forbidden=["cat"])], SearchConfig(), pieces)
    assert ([*found.tokens.tolist(), END] == wanted) == ("".join(spelling) != "▁cat")


@pytest.mark.parametrize("phrases", [[""], [" "], ["", "cat "], [" cat"]], ids=str)
def test_spaces_around_a_phrase_mean_nothing(subwords: Subwords, pieces: list[str], phrases: list[str]):
    rule = Forbidden(phrases, Spellings(pieces))
    logits = torch.zeros(1, len(pieces))
    rule.forbid(logits, np.empty((1, 0), np.int64))
    wanted = [f"{SPACE}cat", "cat"] if "cat" in "".join(phrases) else []
    assert {pieces[token] for token in logits[0].isinf().nonzero().flatten().tolist()} == {
        piece for piece in wanted if piece in pieces
    }


def test_the_end_is_never_part_of_a_phrase(subwords: Subwords, pieces: list[str]):
    """Although it is written with letters."""
    rule = Forbidden(["s", "pad", "unk", "/"], Spellings(pieces))
    logits = torch.zeros(1, len(pieces))
    rule.forbid(logits, np.array([[UNKNOWN]]))
    assert not logits[0, [PAD, UNKNOWN, BEGIN, END]].isinf().any()


def test_an_unknown_word_stands_between_others(pieces: list[str]):
    spellings, ca, t = Spellings(pieces), pieces.index("ca"), pieces.index("t")
    logits = torch.zeros(3, len(pieces))
    Forbidden(["cat"], spellings).forbid(logits, np.array([[UNKNOWN, ca], [ca, UNKNOWN], [t, ca]]))
    assert logits[:, t].isinf().tolist() == [True, False, False]


def test_letters_spelled_in_bytes_are_letters(pieces: list[str]):
    c, a, t = map(pieces.index, "cat")
    logits = torch.zeros(1, len(pieces))
    for letter, apart in (("x", False), ("ö", False), ("猫", True), ("𝟜", False), ("“", True), ("😀", True)):
        logits.zero_()
        Forbidden(["cat"], Spellings(pieces)).forbid(logits, np.array([[*in_bytes(letter, pieces), c, a]]))
        assert bool(logits[0, t].isinf()) == apart, letter


@pytest.mark.parametrize("phrase", ["CAT", "cat", "The Cat", "GRÖSSE", "größe"])
def test_capitals_and_small_letters_may_be_the_same(phrase: str):
    spelled = ["", "", "", "", "▁the", "▁The", "▁cat", "▁C", "AT", "at", "▁größe", "▁GRÖ", "SSE", "ße", "s"]
    (rule,) = make_rules(SearchConfig(), [], [phrase], Spellings(spelled), in_any_case=True)

    def may(said: list[int], token: int) -> bool:
        logits = torch.zeros(1, len(spelled))
        rule.forbid(logits, np.array([said], np.int64).reshape(1, -1))
        return not logits[0, token].isinf()

    splits = {"the cat": [4, 6], "The CAT": [5, 7, 8], "The Cat": [5, 7, 9], "größe": [10], "GRÖSSE": [11, 12]}
    splits |= {"Größe": [11, 13], "mat": [9]}
    for text, tokens in splits.items():
        allowed = all(may(tokens[:place], token) for place, token in enumerate(tokens))
        assert allowed == (phrase.casefold() not in text.casefold()), text


@given(
    said=st.lists(st.integers(4, 12), max_size=8),
    phrase=st.lists(st.sampled_from(["a", "b", " ", "1", "%"]), min_size=1, max_size=4).map("".join),
)
@settings(max_examples=200, deadline=None)
@example(said=[4, 5], phrase="aab")
@example(said=[], phrase="a")
def test_any_phrase_of_few_letters(said: list[int], phrase: str):
    """So few that phrases overlap with themselves and with one another in all ways."""
    spelled = ["", "", "", "", "a", "b", "▁", "▁a", "ab", "1%", "ba▁b", "<0x61>", "ba▁a"]
    texts = [piece.replace("<0x61>", "a").replace(SPACE, " ") for piece in spelled]
    phrase = phrase.strip()
    assume(phrase)
    logits = torch.zeros(1, len(spelled))
    Forbidden([phrase], Spellings(spelled)).forbid(logits, np.array([said], np.int64).reshape(1, -1))
    before = "".join(texts[token] for token in said)
    for token, own in enumerate(texts[4:], 4):
        completes = any(place + len(phrase) > len(before) for place in whole_places(before + own, phrase))
        assert bool(logits[0, token].isinf()) == completes, (before, own, phrase)
    assert not logits[0, [PAD, BEGIN, END]].any()
