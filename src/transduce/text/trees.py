"""Constituency trees (section 6.3): read from brackets, checked, written again, and as sequences for the model.

A tree is kept without traces, empty constituents and function tags, under a root TOP. Its sequence is its brackets: `(`
or `(NP` opens a constituent, `)NP` closes it, and XX stands for each word with its tag. To rebuild the tree, words are
taken from the sentence, but tags are lost: words get the tag XX, punctuation its own. Tags are kept if they stand for
words, alone (`NN`) or followed by the word (`NN =(dog`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from transduce.errors import DataError

OPEN, CLOSE, LEAF = "(", ")", "XX"
WORD = "=("  # begins a word that follows its tag; no label and no word of a tree has such a bracket
ROOT = "TOP"
ROOTS = frozenset({"", "TOP", "ROOT", "S1"})  # its names in treebanks
TRACE = "-NONE-"
SHOWN_PROBLEMS = 5
DEEPEST = 300  # nested brackets; no real sentence has a tenth as many

_TOKEN = re.compile(r"[()]|[^\s()]+")
_PLAIN = re.compile(r"[^-=]+(?=[-=])")  # NP of NP-SBJ-1 and NP=2; not in a label that begins with a hyphen, as -LRB-
# The treebank's tags of punctuation, which programs that score trees rely on.
_TAGS = {
    **dict.fromkeys([".", "?", "!"], "."),
    **dict.fromkeys([":", ";", "--", "...", "–", "—", "…"], ":"),
    **dict.fromkeys(["``", "`", "“", "‘"], "``"),
    **dict.fromkeys(["''", '"', "”", "’"], "''"),
    **dict.fromkeys(["-LRB-", "-LSB-", "-LCB-", "[", "{"], "-LRB-"),
    **dict.fromkeys(["-RRB-", "-RSB-", "-RCB-", "]", "}"], "-RRB-"),
    ",": ",",
}

Leaves = Literal["plain", "tags", "words"]
TreeStep = tuple[Literal["open", "word", "close"], "Tree"]


class TreeError(ValueError):
    """What is wrong with a tree, in a few words; whatever reads the file adds its name and line."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent with its parts, or a tag with its word."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def steps(self) -> Iterator[TreeStep]:
        """Yield the tree from left to right: where constituents open, words, and where constituents close."""
        waiting: list[tuple[Tree, bool]] = [(self, False)]
        while waiting:
            node, is_open = waiting.pop()
            if node.word is not None:
                yield "word", node
            elif is_open:
                yield "close", node
            else:
                yield "open", node
                waiting.append((node, True))
                waiting.extend((child, False) for child in reversed(node.children))

    def leaves(self) -> list["Tree"]:
        """Return its tags with their words."""
        return [node for kind, node in self.steps() if kind == "word"]

    def words(self) -> list[str]:
        """Return its words."""
        return [node.word or "" for node in self.leaves()]

    def spans(self) -> list[tuple[str, int, int]]:
        """Return its constituents: label, number of the first word, number of the word after the last."""
        found: list[tuple[str, int, int]] = []
        begun: list[int] = []
        word = 0
        for kind, node in self.steps():
            if kind == "word":
                word += 1
            elif kind == "open":
                begun.append(len(found))
                found.append((node.label, word, word))
            else:
                place = begun.pop()
                found[place] = (*found[place][:2], word)
        return found

    def with_tags(self, other: "Tree") -> "Tree":
        """Return the tree with the tags of another over the same words, where its own tag is XX."""
        tags = iter(other.leaves())
        built: list[list[Tree]] = [[]]
        for kind, node in self.steps():
            if kind == "open":
                built.append([])
            elif kind == "close":
                children = tuple(built.pop())
                built[-1].append(Tree(node.label, children))
            else:
                tag = next(tags).label
                built[-1].append(Tree(tag, word=node.word) if node.label == LEAF else node)
        return built[0][0]

    def __str__(self) -> str:
        """Return the tree in brackets, on one line."""
        parts: list[str] = []
        for kind, node in self.steps():
            if kind == "close":
                parts[-1] += ")"
            else:
                parts.append(f"({node.label} {node.word})" if kind == "word" else f"({node.label}")
        return " ".join(parts)


@dataclass
class _Bracket:
    """An open bracket, while a tree is read."""

    label: str | None = None
    word: str | None = None
    children: list[Tree] = field(default_factory=list)
    traces: bool = False


def parse_tree(text: str) -> Tree:
    """Read one tree; traces, constituents left empty by them and function tags are removed."""
    open_brackets: list[_Bracket] = []
    found: Tree | None = None
    done = False
    for token in _TOKEN.findall(text):
        if done:
            raise TreeError(f"{_shorten(token)} follows the end of the tree; put each tree on lines of its own")
        if token == OPEN:
            open_brackets.append(_Bracket())
            if len(open_brackets) > DEEPEST:
                raise TreeError(f"more than {DEEPEST} nested brackets")
        elif not open_brackets:
            what = "a closing bracket has no opening one" if token == CLOSE else f"{_shorten(token)} is in no bracket"
            raise TreeError(what)
        elif token != CLOSE:
            _add(open_brackets[-1], token)
        else:
            closed = open_brackets.pop()
            above = open_brackets[-1] if open_brackets else None
            node = _close(closed, is_root=above is None)
            if above is None:
                found, done = node, True
            elif node:
                above.children.append(node)
                above.label = above.label or ""
            else:
                above.traces = True
    if open_brackets:
        raise TreeError(f"the tree is not closed; closing brackets missing: {len(open_brackets)}")
    if found is None:
        raise TreeError("the tree has no words")
    return found


def _add(bracket: _Bracket, token: str) -> None:
    if bracket.label is None and not bracket.traces:
        bracket.label = token
    elif bracket.children or bracket.traces:
        raise TreeError(f"the word {_shorten(token)} stands beside constituents without a tag; add one, as in (NN dog)")
    elif bracket.word is not None:
        raise TreeError(f"one bracket holds the words {_shorten(bracket.word)} and {_shorten(token)}; give each a tag")
    else:
        bracket.word = token


def _close(bracket: _Bracket, *, is_root: bool) -> Tree | None:
    """Return the constituent of a closed bracket; None if it held only traces."""
    label = strip_function(bracket.label or "")
    if bracket.word is not None and bracket.children:
        raise TreeError(
            f"the word {_shorten(bracket.word)} stands beside constituents without a tag; add one, as in (NN dog)"
        )
    if bracket.word is not None:
        if label == TRACE:
            return None
        leaf = Tree(label, word=bracket.word)
        if is_root and label in ROOTS:
            raise TreeError(f"the word {_shorten(bracket.word)} has no tag")
        return Tree(ROOT, (leaf,)) if is_root else leaf
    if not bracket.children:
        if bracket.traces:
            return None
        raise TreeError(f"the bracket ({label} is empty")
    children = tuple(bracket.children)
    if is_root:
        return Tree(ROOT, children if label in ROOTS else (Tree(label, children),))
    if not label:
        raise TreeError("a bracket within the tree has no label")
    if label in ROOTS:
        raise TreeError(f"{label} occurs inside a tree; is a closing bracket missing before it?")
    return Tree(label, children)


def strip_function(label: str) -> str:
    """Return a label without its function tags and numbers: NP for NP-SBJ-1."""
    found = _PLAIN.match(label)
    return found[0] if found else label


def cut_trees(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the raw text of each tree, on one line, with the number of the line it begins on.

    A tree ends with the line on which its brackets are closed. If brackets are missing in a file with one tree per
    line, or at the end of any file, a line that begins with a bracket begins a tree, so that only broken trees fail.
    """
    held: list[tuple[int, bytes]] = []
    depth, single, some = 0, True, False  # all trees so far had one line each; there have been trees
    for number, line in enumerate(lines, 1):
        text = line.rstrip()
        if not text:
            continue
        change = text.count(b"(") - text.count(b")")
        if held and some and single and change <= 0 and text.startswith(b"("):
            yield _join(held)
            held, depth = [], 0
        held.append((number, text))
        depth += change
        if depth <= 0:
            single, some = single and len(held) == 1, True
            yield _join(held)
            held, depth = [], 0
    begins = [place for place, (_, line) in enumerate(held) if place == 0 or line.startswith(b"(")]
    for begin, end in zip(begins, [*begins[1:], len(held)]):
        yield _join(held[begin:end])


def _join(held: Sequence[tuple[int, bytes]]) -> tuple[int, bytes]:
    return held[0][0], b" ".join(part.strip() for _, part in held)


def check_trees(cut: Iterable[tuple[int, bytes]], name: str) -> list[tuple[int, Tree]]:
    """Parse the trees of a file, cut with their line numbers; what is not a tree is an error with file and line."""
    found: list[tuple[int, Tree]] = []
    problems: list[str] = []
    for line, text in cut:
        try:
            found.append((line, parse_tree(text.decode())))
        except UnicodeDecodeError:
            problems.append(f"{name}:{line}: not UTF-8")
        except TreeError as error:
            problems.append(f"{name}:{line}: {error}")
    if more := problems[SHOWN_PROBLEMS:]:
        problems[SHOWN_PROBLEMS:] = [f"and {len(more):,} more trees like these"]
    if problems:
        raise DataError("\n".join([*problems, "fix these trees, or leave them out of all files"]))
    return found


def to_sequence(tree: Tree, *, labelled: bool = False, leaves: Leaves = "plain") -> list[str]:
    """Return a tree as symbols: its brackets, without those of the root, and what stands for each word."""
    symbols: list[str] = []
    for kind, node in tree.steps():
        if kind == "open":
            symbols.append(OPEN + node.label if labelled else OPEN)
        elif kind == "close":
            symbols.append(CLOSE + node.label)
        else:
            symbols.append(LEAF if leaves == "plain" else node.label)
            if leaves == "words":
                symbols.append(say_word(node.word or ""))
    return symbols[1:-1]


def say_word(word: str) -> str:
    """Return a word as a symbol, without U+2581, which SentencePiece takes for a space."""
    return WORD + word.replace("\u2581", "_")


def from_sequence(symbols: Sequence[str], words: Sequence[str]) -> Tree:
    """Return the tree of a sequence over the words of its sentence; a malformed sequence is an error."""
    above: list[tuple[str, list[Tree]]] = [("", [])]
    left = iter(words)
    says_words = any(symbol.startswith(WORD) for symbol in symbols)
    tag = ""  # of the word that comes next
    for symbol in symbols:
        if says_words and symbol.startswith(WORD) != bool(tag):
            raise TreeError(f"the tag {tag} has no word" if tag else f"{symbol} has no tag")
        if symbol.startswith(OPEN):
            above.append((symbol[1:], []))
        elif symbol.startswith(CLOSE):
            label, children = above.pop()
            if not above:
                raise TreeError("a closing bracket has no opening one")
            if label not in ("", symbol[1:]) or symbol == CLOSE:
                raise TreeError(f"({label} is closed by {symbol}")
            if not children:
                raise TreeError(f"{symbol} closes an empty constituent")
            above[-1][1].append(Tree(symbol[1:], tuple(children)))
        elif says_words and not tag:
            tag = symbol
        else:
            word = next(left, None)
            if word is None:
                raise TreeError(f"there are more leaves than the {len(words)} words")
            leaf, tag = tag or symbol, ""
            above[-1][1].append(Tree(tag_of(word) if leaf == LEAF else leaf, word=word))
    if len(above) > 1:
        raise TreeError(f"unclosed brackets: {len(above) - 1}")
    if tag:
        raise TreeError(f"the tag {tag} has no word")
    if next(left, None) is not None:
        raise TreeError(f"there are fewer leaves than the {len(words)} words")
    if not above[0][1]:
        raise TreeError("the tree has no words")
    return Tree(ROOT, tuple(above[0][1]))


def choose_symbols(counts: Counter[str], most_words: int) -> list[str]:
    """Choose the symbols that get a token: all brackets and tags, and at most `most_words` words that are repeated."""
    words = [symbol for symbol, count in counts.most_common() if symbol.startswith(WORD) and count > 1][:most_words]
    return [*(symbol for symbol, _ in counts.most_common() if not symbol.startswith(WORD)), *words]


def tag_of(word: str) -> str:
    """Return the tag that a word gets in a tree made from a sequence: its own for punctuation, else XX."""
    return _TAGS.get(word, LEAF)


def escape_word(word: str) -> str:
    """Return a word as trees can hold it: round brackets are spelled -LRB- and -RRB-."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def to_sentence(words: Iterable[str]) -> str:
    """Join the words of a tree as the model reads them, with plain round brackets; `escape_word` undoes that."""
    return " ".join(word.replace("-LRB-", "(").replace("-RRB-", ")") for word in words)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:29] + "…")
