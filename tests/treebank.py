"""A treebank of our own: sentences of a small grammar, with the ambiguities that make parsing worth its name."""

import random

from transduce.text.trees import ROOT, Tree

NOUNS = ["dog", "cat", "garden", "telescope", "house", "girl", "letter", "tree"]
VERBS = ["sees", "finds", "likes", "follows"]


def make_trees(count: int, seed: int) -> list[Tree]:
    """Return random trees; a preposition tells what its phrase attaches to."""
    chance = random.Random(seed)
    return [_sentence(chance) for _ in range(count)]


def _leaf(tag: str, word: str) -> Tree:
    return Tree(tag, word=word)


def _noun_phrase(chance: random.Random, depth: int = 0) -> Tree:
    plain = Tree("NP", (_leaf("DT", chance.choice(["the", "a"])), _leaf("NN", chance.choice(NOUNS))))
    if depth < 2 and chance.random() < 0.3:
        return Tree("NP", (plain, Tree("PP", (_leaf("IN", "of"), _noun_phrase(chance, depth + 1)))))
    return plain


def _verb_phrase(chance: random.Random) -> Tree:
    parts = [_leaf("VBZ", chance.choice(VERBS)), _noun_phrase(chance)]
    if chance.random() < 0.4:
        parts.append(Tree("PP", (_leaf("IN", chance.choice(["with", "in"])), _noun_phrase(chance))))
    if chance.random() < 0.3:
        parts.append(Tree("ADVP", (_leaf("RB", "often"),)))
    return Tree("VP", tuple(parts))


def _sentence(chance: random.Random) -> Tree:
    parts = [_noun_phrase(chance), _verb_phrase(chance), _leaf(".", ".")]
    if chance.random() < 0.2:
        parts.insert(0, Tree("ADVP", (_leaf("RB", "today"),)))
        parts.insert(1, _leaf(",", ","))
    return Tree(ROOT, (Tree("S", tuple(parts)),))
