"""`transduce inspect`: its numbers are those that a plain loop over the data finds."""

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.cli import main
from transduce.text import numbers
from transduce.text.inspect import BINS, BUDGET, inspect, measure_padding
from transduce.text.shards import SIDES, DataSet

TRAIN = numbers.corpus("train", 700)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two inputs, one with a weight, and a character that must be spelled in bytes."""
    folder = tmp_path_factory.mktemp("inspect")
    for name, pairs in (
        ("a", [*TRAIN[:400], ("a rare ☃ stands there", "ein seltener ☃ steht da, ein ☃")]),
        ("b", TRAIN[400:]),
    ):
        lines = (f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    flags = ["--pairs", str(folder / "a.tsv"), str(folder / "b.tsv"), "--weight", "1", "2.5", "--dev-split", "30"]
    assert main(["prepare", str(folder / "out"), *flags, "--subwords", "400", "--workers", "1"]) == 0
    return folder / "out"


@pytest.fixture
def found(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert main(["inspect", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


def sentences(out: Path, split: str, side: str) -> list[list[int]]:
    """Return the tokens on disk, read without transduce."""
    parts = out / json.loads((out / "manifest.json").read_text(encoding="utf-8"))["parts"]
    tokens, offsets = (np.load(parts / f"{split}.000.{side}.{kind}.npy").tolist() for kind in ("tokens", "offsets"))
    return [tokens[begin:end] for begin, end in pairwise(offsets)]


def label(length: int) -> str:
    return next((f"≤ {edge}" for edge in BINS[:-1] if length <= edge), "more")


def test_json_is_what_inspect_returns(out: Path, found: dict[str, Any]):
    assert found == json.loads(json.dumps(inspect(DataSet.open(out))))


def test_lengths(out: Path, found: dict[str, Any]):
    for split, pairs in (("train", 671), ("dev", 30)):
        assert found["splits"][split]["pairs"] == pairs
        for side in SIDES:
            lengths = [len(sentence) for sentence in sentences(out, split, side)]
            assert found["splits"][split][side] == {
                "tokens": sum(lengths),
                "mean": round(sum(lengths) / len(lengths), 1),
                "median": int(median(lengths)),
                "longest": max(lengths),
                "lengths": dict(sorted(Counter(map(label, lengths)).items(), key=lambda entry: int(entry[0][2:]))),
            }
            assert sum(found["splits"][split][side]["lengths"].values()) == pairs


def test_vocabulary(out: Path, found: dict[str, Any]):
    subwords = DataSet.open(out).subwords
    for side in SIDES:
        counts = Counter(token for sentence in sentences(out, "train", side) for token in sentence)
        pieces = subwords[side].pieces(range(400))
        in_bytes = sum(count for token, count in counts.items() if re.fullmatch("<0x..>", pieces[token]))
        entry = found["vocabulary"][side]
        assert (entry["size"], entry["kind"], entry["joint"]) == (400, "bpe", True)
        assert entry["used"] == len(counts)
        assert entry["used_often"] == sum(count >= 100 for count in counts.values())
        assert entry["spelled_in_bytes"] == round(in_bytes / counts.total(), 6) > 0
        counts.pop(3)  # the end of a sentence is no subword that a person wants to see
        shown = [counts[pieces.index(piece)] for piece in entry["most_frequent"]]
        assert shown == [count for _, count in counts.most_common(12)]


def test_the_rest(out: Path, found: dict[str, Any]):
    data = DataSet.open(out)
    assert found["folder"] == str(out)
    assert found["bytes"] == sum(path.stat().st_size for path in data.parts.iterdir())
    assert found["inputs"] == data.manifest["inputs"]
    assert [entry["weight"] for entry in found["inputs"]] == [1.0, 2.5]
    lengths = ([len(sentence) for sentence in sentences(out, "train", side)] for side in SIDES)
    assert found["padding"] == plain_padding(*lengths)


def plain_padding(source: list[int], target: list[int]) -> dict[str, float]:
    order = np.random.default_rng(0).permutation(len(source)).tolist()
    shares: dict[str, float] = {}
    for name, row in (
        ("random_order", order),
        ("similar_lengths", sorted(order, key=lambda pair: max(source[pair], target[pair]))),
    ):
        batches: list[list[int]] = []
        longest = 0
        for pair in row:
            longest = max(longest, source[pair], target[pair])
            if not batches or (len(batches[-1]) + 1) * longest > BUDGET:
                batches.append([])
                longest = max(source[pair], target[pair])
            batches[-1].append(pair)
        real = sum(source) + sum(target)
        padded = sum(len(batch) * max(side[pair] for pair in batch) for batch in batches for side in (source, target))
        shares[name] = round(1 - real / padded, 4)
    return shares


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 9_000)), min_size=1, max_size=40))
def test_padding_is_what_a_plain_loop_finds(lengths: list[tuple[int, int]]):
    source, target = (list(side) for side in zip(*lengths, strict=True))
    assert measure_padding(np.array(source, np.uint16), np.array(target, np.uint16)) == plain_padding(source, target)


def test_equal_lengths_need_no_padding():
    assert measure_padding(np.full(9000, 7), np.full(9000, 9)) == {"random_order": 0.0, "similar_lengths": 0.0}


def test_the_text_shows_the_histogram(out: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    train = found["splits"]["train"]
    rows = re.findall(r"^ *(≤ \d+|more)  source (█*) +([\d,]+)   target (█*) +([\d,]+)$", printed.out, re.MULTILINE)
    assert rows
    for side, place in (("source", 1), ("target", 3)):
        counts = {row[0]: int(row[place + 1].replace(",", "")) for row in rows}
        assert {edge: count for edge, count in counts.items() if count} == train[side]["lengths"]
        most = max(count for each in SIDES for count in train[each]["lengths"].values())
        assert [len(row[place]) for row in rows] == [round(24 * count / most) for count in counts.values()]
    assert f"train: {train['pairs']} pairs\n" in printed.out
    assert f"  {train['pairs'] - found['inputs'][0]['pairs'][1]:>11} pairs × 2.5  {out.parent}/b.tsv\n" in printed.out
    for side, entry in found["vocabulary"].items():  # of both sides, though they have one vocabulary
        assert f"; {entry['used']:,} used on the {side} side, {entry['used_often']:,} a hundred" in printed.out
        assert f"  spelled in bytes: {entry['spelled_in_bytes']:.3%} of the tokens\n" in printed.out
    shares = [f"{entry['spelled_in_bytes']:.3%}" for entry in found["vocabulary"].values()]
    assert shares[0] != shares[1]
    assert f"waste {found['padding']['random_order']:.0%} in random order" in printed.out
    assert all(f"  | {text}\n" in printed.out for example in found["examples"] for text in example.values())


@pytest.mark.parametrize(("asked", "shown"), [("0", 0), ("1", 1), ("5", 5), ("-3", 0), ("100000", 671)])
def test_as_many_examples_as_asked_for(out: Path, capsys: pytest.CaptureFixture[str], asked: str, shown: int):
    assert main(["inspect", str(out), "--json", "--examples", asked]) == 0
    examples = json.loads(capsys.readouterr().out)["examples"]
    assert len(examples) == shown
    data = DataSet.open(out)
    places = [" ".join(data.subwords["source"].pieces(s[:-1])) for s in sentences(out, "train", "source")]
    found = [places.index(example["source"]) for example in examples]
    assert found == sorted(set(found))  # different ones, in their order


def test_the_report(out: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["inspect", str(out), "--report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == DataSet.open(out).report()
    assert main(["inspect", str(out), "--report"]) == 0
    assert capsys.readouterr().out.startswith("read 701 pairs, kept 671 (95.7%), held 30 out as the dev set\n")


def test_tokens_outside_the_vocabulary_are_an_error(out: Path, capsys: pytest.CaptureFixture[str]):
    path = DataSet.open(out).parts / "train.000.source.tokens.npy"
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + b"\xff")
    try:
        assert main(["inspect", str(out)]) == 1
        assert capsys.readouterr().err == (
            f"error: {path.parent}: has token ids outside the vocabulary; find the damaged file with --verify\n"
        )
    finally:
        path.write_bytes(intact)
