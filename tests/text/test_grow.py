"""More trees from few: parts of trees and unions of neighbours, each a tree over words of the treebank."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from treebank import make_trees

from transduce.errors import ConfigError
from transduce.text.grow import MOST_JOINED, MOST_WORDS, choose_constituents, grow
from transduce.text.inputs import PARSING
from transduce.text.prepare import prepare
from transduce.text.trees import ROOT, Tree, parse_tree, to_sentence

TREES = make_trees(60, 1)
LINES = [(3 * number + 1, str(tree).encode()) for number, tree in enumerate(TREES)]


def parts_of(tree: Tree) -> list[Tree]:
    return [node for kind, node in tree.steps() if kind == "open" and node.label != ROOT]


def grown(constituents: int, joined: int, seed: int = 1) -> list[tuple[int, list[Tree]]]:
    """Return each line with the trees made of it, in order."""
    found: list[tuple[int, list[Tree]]] = []
    for line, raw in grow(LINES, constituents, joined, seed):
        if not found or found[-1][0] != line:
            found.append((line, []))
        found[-1][1].append(parse_tree(raw.decode()))
    assert [(line, str(made[0]).encode()) for line, made in found] == LINES
    return found


def test_nothing_is_made_unless_asked():
    assert list(grow(LINES, 0, 0, 1)) == LINES
    assert list(grow([], 2, 2, 1)) == []


def test_constituents_are_trees_of_their_own():
    sizes: list[int] = []
    for tree, (_, made) in zip(TREES, grown(3, 0)):
        whole = len(tree.words())
        possible = [part for part in parts_of(tree) if 2 <= len(part.words()) < whole]
        assert len(made) == 1 + min(3, len(possible))
        for part in made[1:]:
            (child,) = part.children
            possible.remove(child)  # each at most once
            sizes.append(len(child.words()))
    assert len(set(sizes)) > 2


def test_the_longer_the_likelier():
    two, four = Tree("NP", (Tree("NN", word="a"),) * 2), Tree("NP", (Tree("NN", word="a"),) * 4)
    tree = Tree(ROOT, (Tree("S", (two, four)), Tree(".", word=".")))
    counts = {2: 0, 4: 0, 6: 0}
    chance = Random(7)
    for _ in range(6000):
        counts[len(choose_constituents(tree, 1, chance)[0].words())] += 1
    # Chosen by their words, 2 : 4 : 6; 150 is four deviations of the most frequent.
    assert all(abs(count - 500 * words) < 150 for words, count in counts.items())


def test_neighbours_are_joined():
    numbers: list[int] = []
    for place, (_, made) in enumerate(grown(0, 2)):
        assert len(made) == (3 if place + 1 < len(TREES) else 1)
        for union in made[1:]:
            fitting = [n for n in range(2, MOST_JOINED + 1) if union == join(TREES[place : place + n])]
            numbers += fitting
            assert fitting
    assert set(numbers) == {2, 3}


def join(trees: list[Tree]) -> Tree:
    return Tree(ROOT, tuple(child for tree in trees for child in tree.children))


def test_no_union_is_too_long_to_train_on():
    long = Tree(ROOT, (Tree("NP", (Tree("NN", word="a"),) * MOST_WORDS),)), Tree(ROOT, (Tree("NN", word="b"),))
    lines = [(line, str(tree).encode()) for line, tree in enumerate(long)]
    assert list(grow(lines, 0, 5, 1)) == lines


def test_the_same_seed_gives_the_same_trees():
    assert grown(2, 1) == grown(2, 1)
    assert grown(2, 1) != grown(2, 1, seed=2)


def test_what_is_no_tree_is_passed_on():
    bad = [(1, b"(S (NP (NN a))"), (2, b"(S (NN \xff))")]
    assert [line for line in grow([*bad, *LINES[:1]], 2, 2, 1) if line in bad] == bad


def write(path: Path, trees: list[Tree]) -> Path:
    path.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return path


def test_a_data_set_holds_more_trees_to_train_on_and_the_same_dev_set(tmp_path: Path):
    config = replace(
        PARSING,
        trees=(write(tmp_path / "train.mrg", TREES),),
        dev_trees=(write(tmp_path / "dev.mrg", TREES[:10]),),
        subwords=replace(PARSING.subwords, size=300, coverage=1.0),
        workers=1,
        constituents=2,
        joined=1,
    )
    data, _ = prepare(tmp_path / "data", config)
    expected = [to_sentence(tree.words()) for _, made in grown(2, 1, config.seed) for tree in made]
    assert [data.text("train", "source", pair) for pair in range(data.splits["train"].pairs)] == expected
    assert data.splits["dev"].pairs == 10
    with pytest.raises(ConfigError, match="with constituents or joined give dev_trees"):
        replace(config, dev_trees=(), dev_split=5)
    with pytest.raises(ConfigError, match="cannot be negative"):
        replace(config, joined=-1)
