"""Check that an exported parser finds the same trees as ours."""

from collections.abc import Sequence
from pathlib import Path

from transduce.decoding.brackets import trees_of
from transduce.decoding.parser import Parser
from transduce.errors import DataError
from transduce.interop.check import DIFFERENT, WORSE_BY, Check, CheckText, check_quality, choose_text, find_data
from transduce.model.saved import Loaded
from transduce.progress import show_progress
from transduce.scoring.texts import read_treebank
from transduce.text.shards import DataSet

BEAM, WITH_BEAM = 4, 100  # the beam, and the most sentences to parse with it: a large beam is slow on a CPU


def check_parser(loaded: Loaded, folder: Path, given: Path | None, most: int, *, exact: bool) -> Check:
    """Parse with both, greedily and with a small beam; if not `exact` (int8), judge the greedy trees by their F1."""
    trees = choose_trees(loaded, given, most)
    ours, theirs = Parser.load(loaded.folder, device="cpu", precision="float32"), Parser.load(folder, device="cpu")
    pair = (("old", ours), ("new", theirs))
    found = [f"{len(trees.lines):,} sentences ({trees.origin}), parsed by the new model and by the old one"]
    if trees.why:
        found.append(f"{trees.why}, so they are made up; --check TREES uses your own trees")
    wrong: list[str] = []
    for beam, lines in ((1, trees.lines), (min(BEAM, ours.search.beam), trees.lines[:WITH_BEAM])):
        expected, said = (_parse(parser, lines, beam, f"check {name}") for name, parser in pair)
        same = sum(one == other for one, other in zip(said, expected))
        name = "greedily" if beam == 1 else f"with beam {beam}"
        found.append(f"{name}: {same:,} of {len(lines):,} the same")
        others, most = len(lines) - same, len(lines) // DIFFERENT
        if exact and others > most:
            wrong.append(f"{name}, {others:,} of {len(lines):,} trees differ, and at most {most} may")
        if beam == 1 and not exact:
            line, good = check_quality(expected, said, trees.references, "parseval")
            found.append(line)
            wrong += [] if good else [WORSE_BY.format("F1")]
    return Check(tuple(found), tuple(wrong))


def choose_trees(loaded: Loaded, given: Path | None, most: int) -> CheckText:
    """Return trees of the given file, or else of the model's dev set, or else sentences of random subwords."""
    data = find_data(loaded)
    if given:
        origin, gold = str(given), [tree for _, tree in read_treebank(given)][:most]
        if not gold:
            raise DataError(f"{given}: has no trees to check with")
    elif isinstance(data, DataSet) and (held := [tree for _, tree in trees_of(data, "dev", most)]):
        origin, gold = f"the dev set of {data.folder}", held
    else:
        return choose_text(loaded, None, None, most)
    return CheckText(origin, [" ".join(tree.words()) for tree in gold], list(map(str, gold)))


def _parse(parser: Parser, lines: Sequence[str], beam: int, name: str) -> list[str]:
    with show_progress(name, len(lines), "sentences") as progress:
        parses = parser.stream(
            lines, tokenised=True, beam=beam, n_best=1, done=lambda found, _: progress.update(found, found)
        )
        return [str(parse.tree) for parse in parses]
