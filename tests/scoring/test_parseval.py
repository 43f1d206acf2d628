"""Labelled brackets: against cases counted by hand, and against EVALB's algorithm written out plainly."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treebank import make_trees

from transduce.cli import main
from transduce.errors import DataError, UsageError
from transduce.scoring.findings import ScoreJob
from transduce.scoring.parseval import Parseval, count_brackets
from transduce.scoring.score import score
from transduce.text.trees import Tree, parse_tree

GOLD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat)) (PP (IN in) (NP (NN town)))) (. .)))"


def scores(found: str, gold: str) -> dict[str, float]:
    metric = Parseval()
    counts = count_brackets(parse_tree(found), parse_tree(gold))
    return {name: round(metric.compute(name, counts), 2) for name in metric.names}


def test_the_same_tree_is_all_right():
    assert scores(GOLD, GOLD) == {
        "f1": 100, "precision": 100, "recall": 100, "complete": 100, "crossing": 0, "no_crossing": 100,
    }  # fmt: skip


def test_brackets_are_counted_with_their_labels():
    # Gold: S NP VP NP PP NP. Found: S NP VP NP(a cat in town) NP(a cat) PP NP: seven, of which six are gold's.
    found = "(S (NP (X the) (X dog)) (VP (X sees) (NP (NP (X a) (X cat)) (PP (X in) (NP (X town))))) (X .))"
    assert scores(found, GOLD) == {
        "f1": 92.31, "precision": 85.71, "recall": 100, "complete": 0, "crossing": 0, "no_crossing": 100,
    }  # fmt: skip
    # Another label, and one bracket less: 4 of 5 found, 4 of 6 wanted.
    found = "(S (NP (X the) (X dog)) (VP (X sees) (X a) (X cat) (ADVP (X in) (NP (X town)))) (X .))"
    assert scores(found, GOLD) | {"f1": 0} == {
        "f1": 0, "precision": 80, "recall": 66.67, "complete": 0, "crossing": 0, "no_crossing": 100,
    }  # fmt: skip


def test_crossing_brackets_are_counted_once_each():
    # (dog sees) crosses NP and VP, and counts once; (a cat in) crosses PP.
    found = "(S (X the) (VP (X dog) (X sees)) (NP (X a) (X cat) (X in)) (X town) (X .))"
    assert scores(found, GOLD)["crossing"] == 2
    assert scores(found, GOLD)["no_crossing"] == 0
    assert count_brackets(parse_tree(found), parse_tree(GOLD))[0] == 1  # S alone is right


def test_particles_are_adverbs_and_the_root_and_punctuation_are_not_counted():
    gold = "(TOP (S (NP (PRP he)) (VP (VBD gave) (PRT (RP up)) (, ,)) (. .)))"
    # The comma and the full stop stand elsewhere, under a bracket of their own; the root has another name.
    found = "(ROOT (S (NP (XX he)) (VP (XX gave) (ADVP (XX up))) (X (XX ,) (XX .))))"
    assert scores(found, gold)["f1"] == scores(found, gold)["complete"] == 100


def test_brackets_that_stand_twice_count_twice():
    assert scores("(NP (NP (NN a)))", "(NP (NP (NN a)))")["f1"] == 100
    assert scores("(NP (NN a))", "(NP (NP (NN a)))") | {"f1": 0} == {
        "f1": 0, "precision": 100, "recall": 50, "complete": 0, "crossing": 0, "no_crossing": 100,
    }  # fmt: skip
    assert scores("(NP (NP (NP (NN a))))", "(NP (NP (NN a)))")["precision"] == 66.67


def test_a_sentence_of_punctuation_is_left_out_and_one_without_brackets_is_complete():
    assert count_brackets(parse_tree("(X (XX .))"), parse_tree("(NP (. .))")) == [0] * 7
    assert count_brackets(parse_tree("(NN a)"), parse_tree("(NN a)")) == [0, 0, 0, 1, 1, 0, 1]


# ---- EVALB's way, written out: two lists of brackets, marked as they are matched ----


def evalb(found: Tree, gold: Tree) -> tuple[int, int, int, int]:
    """Return the matched brackets, the reference's, those found and those that cross, as EVALB counts them."""
    deleted = [leaf.label in (",", ":", "``", "''", ".") for leaf in gold.leaves()]

    def brackets(tree: Tree, first: int) -> Iterator[tuple[str, int, int]]:
        if tree.word is not None:
            return
        end = first + len(tree.leaves())
        begin_counted, end_counted = (sum(not gone for gone in deleted[:place]) for place in (first, end))
        if tree.label != "TOP" and begin_counted != end_counted:
            yield tree.label, begin_counted, end_counted
        for child in tree.children:
            yield from brackets(child, first)
            first += len(child.leaves())

    theirs, ours = list(brackets(gold, 0)), list(brackets(found, 0))
    taken: set[int] = set()
    for label, begin, end in theirs:
        for place, (other, first, last) in enumerate(ours):
            same = label == other or {label, other} == {"ADVP", "PRT"}
            if place not in taken and same and (begin, end) == (first, last):
                taken.add(place)
                break
    crossing = 0
    for _, first, last in ours:
        for _, begin, end in theirs:
            if begin < first < end < last or first < begin < last < end:
                crossing += 1
                break
    return len(taken), len(theirs), len(ours), crossing


def random_tree(chance: random.Random, leaves: list[Tree]) -> Tree:
    """Return a random tree over some words."""

    def build(some: list[Tree], depth: int) -> list[Tree]:
        if len(some) == 1 and (depth > 5 or chance.random() < 0.6):
            return some
        cuts = sorted(chance.sample(range(1, len(some)), chance.randrange(len(some))))
        parts = [some[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(some)])]
        children = tuple(node for part in parts for node in (build(part, depth + 1) if depth < 6 else part))
        return [Tree(chance.choice(["NP", "VP", "ADVP", "PRT", "S"]), children)]

    return Tree("TOP", tuple(build(leaves, 0)))


@given(st.integers(0, 10**6), st.lists(st.sampled_from(["NN", "DT", ",", ".", "``"]), min_size=1, max_size=12))
def test_counts_are_evalbs(seed: int, tags: list[str]):
    chance = random.Random(seed)
    leaves = [Tree(tag, word=f"w{place}") for place, tag in enumerate(tags)]
    gold = random_tree(chance, leaves)
    found = random_tree(chance, [Tree("XX", word=leaf.word) for leaf in leaves])
    counts = count_brackets(found, gold)
    if all(tag in ",.``" for tag in tags):
        assert counts == [0] * 7
        return
    matched, theirs, ours, crossing = evalb(found, gold)
    assert counts == [matched, theirs, ours, 1, matched == theirs == ours, crossing, crossing == 0]


# ---- the verb ----


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Gold trees spread over lines, with function tags and traces, and a system's trees, one per line."""
    trees = make_trees(30, 5)
    spread = [str(tree).replace("(NP ", "(NP-SBJ-1 ").replace(" (VP", " (NP (-NONE- *))\n  (VP") for tree in trees]
    (tmp_path / "gold.mrg").write_text("\n".join(spread), encoding="utf-8")
    flat = [tree if number % 3 else Tree("TOP", tuple(tree.leaves())) for number, tree in enumerate(trees)]
    (tmp_path / "ours.trees").write_text("".join(f"{tree}\n" for tree in flat), encoding="utf-8")
    (tmp_path / "same.trees").write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return tmp_path


def job(bank: Path, *systems: str, **changes: object) -> ScoreJob:
    paths = tuple(bank / name for name in systems)
    given = {"metrics": ("parseval",), "samples": 0, **changes}
    return ScoreJob(systems=paths, references=(bank / "gold.mrg",), **given)  # pyright: ignore[reportArgumentType]


def test_the_verb_prints_all_scores_with_their_rules(bank: Path, capsys: pytest.CaptureFixture[str]):
    flags = ["--reference", str(bank / "gold.mrg"), "--metrics", "parseval", "--samples", "20"]
    systems = [str(bank / "ours.trees"), str(bank / "same.trees")]
    page, sentences = bank / "page.html", bank / "sentences.jsonl"
    assert main(["score", *systems, *flags, "--report", str(page), "--sentences", str(sentences)]) == 0
    shown = capsys.readouterr().out
    for title in ("labelled F1", "labelled precision", "labelled recall", "complete match", "crossing brackets"):
        assert title in shown
    assert "rules:evalb-collins|punctuation:by-reference" in shown
    assert "labelled F1" in page.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in sentences.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 60
    assert {line["f1"] for line in lines if line["system"] == "same.trees"} == {100.0}
    assert lines[0]["source"] == " ".join(make_trees(1, 5)[0].words())


def test_scores_are_sums_over_sentences(bank: Path):
    (found,) = score(job(bank, "ours.trees")).scores
    values = {one.name: one.value for one in found}
    trees = make_trees(30, 5)
    total = sum(len(tree.spans()) - 1 for tree in trees)
    right = sum(len(tree.spans()) - 1 for number, tree in enumerate(trees) if number % 3)
    assert values["precision"] == 100
    assert values["recall"] == pytest.approx(100 * right / total)
    assert values["complete"] == pytest.approx(100 * 20 / 30)
    assert values["f1"] == pytest.approx(200 * right / (right + total))


def test_other_words_are_an_error_that_names_the_tree(bank: Path):
    trees = (bank / "same.trees").read_text(encoding="utf-8").splitlines()
    words = parse_tree(trees[3]).words()
    trees[3] = trees[3].replace(f" {words[1]})", " horse)", 1)
    trees[5] = "(TOP (NN dog))"
    (bank / "other.trees").write_text("\n".join(trees), encoding="utf-8")
    with pytest.raises(DataError) as error:
        score(job(bank, "other.trees"))
    first, second, remedy = str(error.value).splitlines()
    assert first.startswith(f"{bank / 'other.trees'}:4: its word 2 is horse, but that of {bank / 'gold.mrg'}:")
    assert second.startswith(f"{bank / 'other.trees'}:6: has 1 words, but {bank / 'gold.mrg'}:")
    assert "the same words" in remedy


def test_a_tree_too_few_or_a_bad_one_is_an_error(bank: Path):
    trees = (bank / "same.trees").read_text(encoding="utf-8").splitlines()
    (bank / "few.trees").write_text("\n".join(trees[:-1]), encoding="utf-8")
    with pytest.raises(DataError, match=r"few\.trees has 29 trees but .*gold\.mrg has 30 trees; tree n of one file"):
        score(job(bank, "few.trees"))
    (bank / "bad.trees").write_text("\n".join([*trees[:7], trees[7][:-1], *trees[8:]]), encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.trees:8: the tree is not closed"):
        score(job(bank, "bad.trees"))


def test_sentences_of_other_trees_can_be_left_out(bank: Path):
    trees = make_trees(30, 5)
    (bank / "seen.mrg").write_text("\n".join(map(str, trees[:10])), encoding="utf-8")
    seen = {tuple(tree.words()) for tree in trees[:10]}
    kept = [number for number, tree in enumerate(trees) if tuple(tree.words()) not in seen]
    report = score(job(bank, "ours.trees", leave_out=(bank / "seen.mrg",)))
    assert report.texts.sentences == len(kept) <= 20
    complete = next(one.value for one in report.scores[0] if one.name == "complete")
    assert complete == pytest.approx(100 * sum(number % 3 > 0 for number in kept) / len(kept))
    with pytest.raises(DataError, match="all 30 sentences are in the trees to leave out"):
        score(job(bank, "ours.trees", leave_out=(bank / "same.trees",)))
    with pytest.raises(UsageError, match="--leave-out is for trees"):
        score(job(bank, "ours.trees", metrics=("bleu",), leave_out=(bank / "seen.mrg",)))


def test_trees_have_no_other_scores(bank: Path):
    for changes in (
        *({"metrics": ("parseval", "bleu")}, {"source": bank / "gold.mrg"}, {"comet": "some"}),
        *({"lowercase": True}, {"tokenize": "char"}, {"language": "de"}),
    ):
        with pytest.raises(UsageError, match=r"parseval (scores trees|compares brackets)"):
            score(job(bank, "ours.trees", **changes))
