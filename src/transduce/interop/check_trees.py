"""Whether an exported parser finds the trees that ours finds."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from transduce.decoding.brackets import Brackets
from transduce.decoding.parser import Parser
from transduce.errors import DataError
from transduce.interop.check import DIFFERENT, Check, choose_text, find_data, judge
from transduce.model.saved import Loaded
from transduce.progress import show_progress
from transduce.scoring.texts import read_treebank
from transduce.text.shards import DataSet
from transduce.text.trees import Tree, TreeError, escape_word, from_sequence

BEAM, WITH_BEAM = 4, 100  # the beam, and most sentences that are parsed with it: a large one takes long on a CPU


@dataclass(frozen=True)
class Trees:
    """Sentences in words to check with, where they come from, and their trees if there are any."""

    origin: str
    lines: list[str]
    gold: list[Tree] | None = None
    why: str | None = None
    """why they are made up"""


def check_parser(loaded: Loaded, folder: Path, given: Path | None, most: int, *, exact: bool) -> Check:
    """Parse with both, greedily and with a small beam; in int8 the greedy trees are judged by the right ones."""
    trees = choose_trees(loaded, given, most)
    ours, theirs = Parser.load(loaded.folder, device="cpu", precision="float32"), Parser.load(folder, device="cpu")
    pair = (("old", ours), ("new", theirs))
    found = [f"{len(trees.lines):,} sentences ({trees.origin}), parsed by the new model and by the old one"]
    if trees.why:
        found.append(f"{trees.why}, so they are made up; --check TREES takes trees of yours")
    good = True
    for beam, lines in ((1, trees.lines), (min(BEAM, ours.search.beam), trees.lines[:WITH_BEAM])):
        expected, said = (_parse(parser, lines, beam, f"check {name}") for name, parser in pair)
        same = sum(one == other for one, other in zip(said, expected))
        name = "greedily" if beam == 1 else f"with beam {beam}"
        found.append(f"{name}: {same:,} of {len(lines):,} the same")
        good = good and (len(lines) - same <= len(lines) // DIFFERENT or not exact)
        if beam == 1 and not exact:
            line, good = judge(expected, said, None if trees.gold is None else list(map(str, trees.gold)), "parseval")
            found.append(line)
    return Check(tuple(found), good)


def choose_trees(loaded: Loaded, given: Path | None, most: int) -> Trees:
    """The trees of a file, or else of the dev set that the model was validated on, or else words of random subwords."""
    if given:
        gold = [tree for _, tree in read_treebank(given)][:most]
        if not gold:
            raise DataError(f"{given}: has no trees to check with")
        return Trees(str(given), [" ".join(tree.words()) for tree in gold], gold)
    data = find_data(loaded)
    if isinstance(data, DataSet):
        symbols = Brackets.find(data.subwords["target"].pieces(range(len(data.subwords["target"])))).symbols
        gold = []
        for pair in range(min(data.dev.pairs, most)):
            words = [escape_word(word) for word in data.text("dev", "source", pair).split()]
            with suppress(TreeError):  # a label that no training tree has
                gold.append(from_sequence([symbols[token] for token in data.dev.tokens("target", pair)[:-1]], words))
        if gold:
            return Trees(f"the dev set of {data.folder}", [" ".join(tree.words()) for tree in gold], gold)
    text = choose_text(loaded, None, None, most)
    return Trees(text.origin, text.lines, why=text.why)


def _parse(parser: Parser, lines: Sequence[str], beam: int, name: str) -> list[str]:
    with show_progress(name, len(lines), "sentences") as progress:
        parses = parser.stream(
            lines, tokenised=True, beam=beam, n_best=1, done=lambda found, _: progress.update(found, found)
        )
        return [str(parse.tree) for parse in parses]
