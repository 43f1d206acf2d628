"""More trees out of few: constituents as trees of their own, and neighbours as one tree.

The hard part for a model that writes trees is to keep its place in the sentence. Constituents, being short, teach it
what a place is; neighbours together teach it places that few sentences of a treebank reach.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from random import Random

from transduce.text.trees import ROOT, Tree, TreeError, parse_tree

MOST_JOINED = 3  # trees, itself counted
MOST_WORDS = 120  # of trees together; longer ones are left alone

Line = tuple[int, bytes]


def grow(trees: Iterable[Line], constituents: int, joined: int, seed: int) -> Iterator[Line]:
    """The raw trees with their lines; behind each so many of its constituents, and so many unions with what follows.

    A tree that cannot be read is passed on as it is: whoever decodes it says what is wrong.
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
    """Some of the constituents with two words or more that are not the whole; the longer the likelier."""
    found = [(len(node.words()), node) for kind, node in tree.steps() if kind == "open"]
    whole = found[0][0]
    parts = [(words, node) for words, node in found if 2 <= words < whole]
    # The largest of u^(1/w) are a sample without replacement by the weights w (Efraimidis and Spirakis 2006).
    parts.sort(key=lambda part: chance.random() ** (1 / part[0]), reverse=True)
    return [node for _, node in parts[:most]]


def _windows(trees: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Each tree with those that follow it."""
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
