"""Make more trees out of few: constituents become trees of their own, and neighbouring trees are joined.

The hard part for a model that writes trees is to keep its place in the sentence. Constituents, being short, teach it
what a place is; joined trees teach it places that few sentences of a treebank reach.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from random import Random

from transduce.text.trees import ROOT, Tree, TreeError, parse_tree

MOST_JOINED = 3  # trees in one union
MOST_WORDS = 120  # in one union; longer ones are not made

Line = tuple[int, bytes]


def grow(trees: Iterable[Line], constituents: int, joined: int, seed: int) -> Iterator[Line]:
    """Yield each raw tree with its line, then `constituents` of its parts and `joined` unions with the next trees.

    A tree that cannot be read is passed on as it is; `decode_block` reports what is wrong with it.
    """
    chance = Random(seed)
    for (line, raw), *following in _windows(trees, MOST_JOINED):
        yield line, raw
        tree = _read(raw)
        if tree is None:
            continue
        for part in choose_constituents(tree, constituents, chance):
            yield line, str(Tree(ROOT, (part,))).encode()
        for _ in range(joined if following else 0):
            more = [_read(other) for _, other in following[: chance.randint(1, len(following))]]
            union = Tree(ROOT, sum((each.children for each in more if each), tree.children))
            if len(union.words()) <= MOST_WORDS:
                yield line, str(union).encode()


def choose_constituents(tree: Tree, most: int, chance: Random) -> list[Tree]:
    """Choose at most `most` constituents of two or more words but not the whole tree; longer ones are likelier."""
    found = [(len(node.words()), node) for kind, node in tree.steps() if kind == "open"]
    whole = found[0][0]
    parts = [(words, node) for words, node in found if 2 <= words < whole]
    # The items with the largest u^(1/w) are a sample without replacement by weights w (Efraimidis and Spirakis 2006).
    parts.sort(key=lambda part: chance.random() ** (1 / part[0]), reverse=True)
    return [node for _, node in parts[:most]]


def _windows(trees: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Yield each tree with those that follow it, at most `size` together."""
    held: deque[Line] = deque()
    for tree in trees:
        held.append(tree)
        if len(held) == size:
            yield list(held)
            held.popleft()
    while held:
        yield list(held)
        held.popleft()


def _read(raw: bytes) -> Tree | None:
    try:
        return parse_tree(raw.decode())
    except (TreeError, UnicodeDecodeError):
        return None
