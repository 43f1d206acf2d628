"""Trees in brackets: a token is allowed exactly if some whole tree continues with it, and every search ends in one."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Toy

from transduce.config import SearchConfig
from transduce.decoding.brackets import Brackets, OpenTrees
from transduce.decoding.search import Task, search_all
from transduce.errors import DataError
from transduce.text.subwords import END, UNKNOWN
from transduce.text.trees import TreeError, from_sequence

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
VOCABULARIES = {
    "plain": [*SPECIAL, "▁XX", "▁(", "▁)A", "▁)B"],
    "labelled": [*SPECIAL, "▁)B", "▁(A", "▁XX", "▁(B", "▁)A"],
    "tags": [*SPECIAL, "▁NN", "▁(", "▁)A", "▁,"],
    "words": [*SPECIAL, "▁NN", "▁(", "▁)A", "▁=(dog", "▁=(cat"],
}
# The words of the sentences, some of which are symbols of the vocabulary.
WORDS = ["dog", "bird", "cat", "dog", "dog", "fish", "cat"]
Said = tuple[int, ...]


def is_tree(pieces: list[str], said: Said, words: int) -> bool:
    names = {"<unk>": "=(bird"} if "▁=(dog" in pieces else {}
    symbols = [names.get(pieces[token], pieces[token].removeprefix("▁")) for token in said]
    try:
        from_sequence(symbols, WORDS[:words])
    except TreeError:
        return False
    wanted = ["=(" + (word if word in ("dog", "cat") else "bird") for word in WORDS[:words]]
    return not names or [symbol for symbol in symbols if symbol.startswith("=(")] == wanted


def tokens_of(pieces: list[str], words: int) -> list[int]:
    return Brackets.find(pieces).find_words(WORDS[:words])


@cache
def whole_trees(kind: str, words: int, limit: int) -> frozenset[Said]:
    """Return all trees over `words` words with at most so many tokens, the end included, by trying everything."""
    pieces = VOCABULARIES[kind]
    tokens = [*range(len(SPECIAL), len(pieces)), *([UNKNOWN] if kind == "words" else [])]
    lengths = range(words, limit)
    return frozenset(
        said for length in lengths for said in product(tokens, repeat=length) if is_tree(pieces, said, words)
    )


@pytest.mark.parametrize(
    ("kind", "words", "limit"),
    [
        ("plain", 1, 2),
        ("plain", 1, 6),
        ("plain", 2, 8),
        ("plain", 3, 7),
        ("labelled", 1, 6),
        ("labelled", 2, 7),
        ("tags", 2, 7),
        ("words", 1, 3),
        ("words", 1, 7),
        ("words", 2, 7),
    ],
)
def test_what_may_be_said_is_what_some_tree_says(kind: str, words: int, limit: int) -> None:
    trees = whole_trees(kind, words, limit)
    assert len(trees) >= (1 if limit in (words + 1, 3) else 3)
    following: dict[Said, set[int]] = {}
    for tree in trees:
        for place, token in enumerate((*tree, END)):
            following.setdefault(tree[:place], set()).add(token)
    brackets = Brackets.find(VOCABULARIES[kind])
    for said, wanted in following.items():
        # The hypothesis moves between the slot's two lines, as in a search.
        lines = OpenTrees(brackets, 3, 2, limit, torch.device("cpu"))
        lines.begin([1], [tokens_of(VOCABULARIES[kind], words)], [limit])
        at = 0
        for token in said:
            parents, tokens = torch.zeros((3, 2), dtype=torch.int64), torch.full((3, 2), END, dtype=torch.int32)
            parents[1], tokens[1, 1 - at] = at, token
            lines.go_on(parents, tokens)
            at = 1 - at
        logits = torch.randn(2, len(VOCABULARIES[kind]))
        found, tokens = (part[at] for part in lines.choices(logits, np.array([1])))
        may = {token: value for value, token in zip(found.tolist(), tokens.tolist()) if value > -math.inf}
        assert may == {token: float(logits[at, token]) for token in wanted}, said
        assert len(found) == lines.many


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_tree_that_is_found_is_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(VOCABULARIES)))
    pieces = VOCABULARIES[kind]
    hates_the_end = data.draw(st.booleans())
    toy = Toy(
        len(pieces),
        seed=data.draw(st.integers(0, 1000)),
        spread=data.draw(st.sampled_from([0.5, 2.0, 8.0])),
        loves=lambda said: {END: -9.0, 5: 9.0} if hates_the_end else {},
        rows=data.draw(st.sampled_from([1, 8, 64])),
    )
    beam = data.draw(st.sampled_from([1, 2, 5, 21]))
    sample = data.draw(st.booleans())
    config = SearchConfig(
        beam=beam,
        n_best=data.draw(st.integers(1, beam)),
        alpha=data.draw(st.sampled_from([0.0, 0.3, 1.0])),
        extra_tokens=data.draw(st.sampled_from([0, 1, 2, 5, 30])),
        stop=data.draw(st.sampled_from(["exact", "full"])),
        sample=sample,
    )
    words = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    # As many source tokens as words and the end, at least.
    least = 2 if kind == "words" else 1
    sources = [np.arange(least * many + data.draw(st.integers(0, 3)) + 1) % 3 + 4 for many in words]
    tasks = [Task(source, words=tokens_of(pieces, many)) for source, many in zip(sources, words)]
    for source, many, found in zip(sources, words, search_all(toy, tasks, config, pieces)):
        assert found
        for hypothesis in found:
            assert hypothesis.ended
            assert is_tree(pieces, tuple(hypothesis.tokens.tolist()), many)
            assert len(hypothesis.tokens) < len(source) + config.extra_tokens


@pytest.mark.parametrize(("kind", "share"), [*((kind, 1.0) for kind in sorted(VOCABULARIES)), ("words", 0.3)])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_tree_there_is(kind: str, share: float, seed: int) -> None:
    pieces, words, limit = VOCABULARIES[kind], 2, 7
    toy = Toy(len(pieces), seed=seed)
    source = np.array([4, 5, END])
    tell = toy.tell(source.tolist())

    def score(said: Said) -> float:
        whole = (*said, END)
        leaf = pieces.index("▁NN") if kind == "words" else -1
        behind = [share if place and whole[place - 1] == leaf else 1.0 for place in range(len(whole))]
        return sum(part * float(tell(whole[:place])[whole[place]]) for place, part in enumerate(behind))

    trees = whole_trees(kind, words, limit)
    best = max(trees, key=score)
    config = SearchConfig(beam=len(trees), alpha=0.0, extra_tokens=limit - len(source), word_share=share)
    (found,) = search_all(toy, [Task(source, words=tokens_of(pieces, words))], config, pieces)
    assert tuple(found[0].tokens.tolist()) == best
    # Its score is the model's own, whatever was forbidden on the way.
    assert found[0].log_probability == pytest.approx(score(best), abs=1e-4)


def test_without_the_rule_a_random_model_says_no_trees() -> None:
    pieces = VOCABULARIES["plain"]
    tasks = [Task(np.array([4 + number % 3, *([5] * 5), END])) for number in range(20)]
    found = search_all(Toy(len(pieces), seed=3), tasks, SearchConfig(beam=4), pieces)
    assert sum(is_tree(pieces, tuple(some[0].tokens.tolist()), 5) for some in found) < 10


def test_a_bracket_that_nothing_closes_is_never_opened() -> None:
    pieces = [*SPECIAL, "▁XX", "▁(A", "▁)A", "▁(B"]
    toy = Toy(len(pieces), loves=lambda said: {7: 20.0})
    (found,) = search_all(toy, [Task(np.array([4, 5, END]), words=[1, 1])], SearchConfig(beam=3, n_best=3), pieces)
    assert [is_tree(pieces, tuple(one.tokens.tolist()), 2) for one in found] == [True] * 3


def test_a_tree_that_cannot_fit_is_refused() -> None:
    pieces = VOCABULARIES["plain"]
    task = Task(np.array([4, 5, 6, END]), words=[1, 1, 1], max_tokens=3)
    with pytest.raises(DataError, match="sentence 1: has 3 words, but its tree may have only 3 tokens"):
        search_all(Toy(len(pieces)), [task], SearchConfig(), pieces)


@pytest.mark.parametrize(
    "pieces",
    [[*SPECIAL, "▁the", "▁dog"], [*SPECIAL, "▁XX", "▁(", "▁)NP", "▁dog", "s"], SPECIAL, [*SPECIAL, "▁(", "▁)"]],
)
def test_a_vocabulary_of_words_is_no_parsers(pieces: list[str]) -> None:
    with pytest.raises(DataError, match="the vocabulary is not one of trees; prepare trees with"):
        Brackets.find(pieces)
