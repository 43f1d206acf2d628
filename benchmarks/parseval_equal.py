"""Our labelled brackets beside EVALB's, on real trees and on damaged copies of them.

    python benchmarks/parseval_equal.py EVALB COLLINS.prm dev.mrg [more.mrg …]

EVALB is the program built from its public source; for long sentences, first enlarge its arrays (MAX_WORD_IN_SENT,
MAX_BRACKET_IN_SENT, match_j, the line buffers). Damaged copies have brackets dropped, relabelled, added, doubled, and
moved so that they cross. For every sentence, the matched, gold, found and crossing brackets are compared.
"""

import argparse
import random
import re
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np

from transduce.scoring.parseval import CROSSING, FOUND, GOLD, MATCHED, Parseval, count_brackets
from transduce.tables import print_table
from transduce.text.corpus import Input, read_blocks
from transduce.text.trees import ROOT, Tree, check_trees

LABELS = ["NP", "VP", "PP", "S", "ADJP", "ADVP", "PRT", "SBAR", "NML"]
ALL = ("drop", "label", "add", "double", "move")
KINDS = [("none", (), 0.0), *((kind, (kind,), 0.15) for kind in ALL), ("all", ALL, 0.15), ("all, often", ALL, 0.5)]
SUMMARY = {
    "f1": "Bracketing FMeasure",
    "precision": "Bracketing Precision",
    "recall": "Bracketing Recall",
    "complete": "Complete match",
    "crossing": "Average crossing",
    "no_crossing": "No crossing",
}


def damage(tree: Tree, kinds: Iterable[str], rate: float, chance: random.Random) -> list[Tree]:
    """Return a damaged copy of a tree, or several parts if its own bracket is dropped."""
    if tree.word is not None:
        return [tree]
    parts = [part for child in tree.children for part in damage(child, kinds, rate, chance)]
    if tree.label == ROOT:
        return [Tree(ROOT, tuple(parts))]
    hit = {kind for kind in kinds if chance.random() < rate}
    if "drop" in hit:
        return parts
    if "add" in hit and len(parts) > 2:
        first = chance.randrange(len(parts) - 1)
        end = chance.randrange(first + 1, len(parts)) + 1
        parts[first:end] = [Tree(chance.choice(LABELS), tuple(parts[first:end]))]
    if "move" in hit:
        place = next((n for n in range(1, len(parts)) if len(parts[n].children) > 1), None)
        if place is not None:
            left, right = parts[place - 1 : place + 1]
            taken = (*left.children, right.children[0]) if left.word is None else (left, right.children[0])
            label = left.label if left.word is None else "NP"
            parts[place - 1 : place + 1] = [Tree(label, taken), Tree(right.label, right.children[1:])]
    label = chance.choice(LABELS) if "label" in hit else tree.label
    if "double" in hit:
        parts = [Tree(label, tuple(parts))]
    return [Tree(label, tuple(parts))]


def run_evalb(program: Path, rules: Path, gold: Path, found: Path) -> tuple[list[tuple[int, ...]], dict[str, float]]:
    """Return EVALB's matched, gold, found and crossing brackets of each sentence, and its summary."""
    command = [str(program), "-e", "1000000", "-p", str(rules), str(gold), str(found)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [row for line in printed.splitlines() if len(row := line.split()) == 12 and row[0].isdigit()]
    summary = printed.split("-- All --")[1].split("-- len")[0]
    values = {name: float(re.findall(rf"{title}\s+=\s+([\d.]+)", summary)[0]) for name, title in SUMMARY.items()}
    return [tuple(int(row[place]) for place in (5, 6, 7, 8)) for row in rows], values


def main() -> None:
    """Compare the counts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evalb", type=Path)
    parser.add_argument("rules", type=Path)
    parser.add_argument("trees", type=Path, nargs="+")
    given = parser.parse_args()
    table: list[tuple[str, ...]] = []
    sentences = differing = 0
    metric = Parseval()
    for path in given.trees:
        with closing(read_blocks(0, Input(files=(path,), format="trees"))) as blocks:
            cut = [(b.line(row), text) for b in blocks for row, text in enumerate(b.raw[0].split(b"\n")[:-1])]
        gold = [tree for _, tree in check_trees(cut, str(path))]
        for number, (name, kinds, rate) in enumerate(KINDS):
            chance = random.Random(number)
            found = [damage(tree, kinds, rate, chance)[0] for tree in gold]
            with tempfile.TemporaryDirectory() as folder:
                files = Path(folder) / "gold", Path(folder) / "found"
                for file, trees in zip(files, (gold, found)):
                    file.write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
                rows, theirs = run_evalb(given.evalb, given.rules, *files)
            counts = np.array([count_brackets(one, other) for one, other in zip(found, gold)])
            ours = [tuple(int(row[place]) for place in (MATCHED, GOLD, FOUND, CROSSING)) for row in counts]
            sentences += len(gold)
            differing += sum(one != other for one, other in zip(ours, rows, strict=True))
            scores = {name: metric.compute(name, counts.sum(axis=0).tolist()) for name in SUMMARY}
            most = max(abs(scores[name] - theirs[name]) for name in SUMMARY)
            shown = [f"{scores[key]:.2f} / {theirs[key]:.2f}" for key in ("f1", "complete", "crossing")]
            table.append((path.parent.name, name, f"{len(gold):,}", *shown, f"{most:.4f}"))
    print_table(
        ("treebank", "damage", "trees", "F1, ours / EVALB", "complete", "crossing", "largest difference"), table
    )
    print(f"{sentences:,} sentences; sentences with other counts: {differing}")


if __name__ == "__main__":
    main()
