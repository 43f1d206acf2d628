"""The data set on disk: what was written can be read from any place, and damage is named."""

import json
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce import disk
from transduce.cli import main
from transduce.errors import DataError
from transduce.text import numbers, shards
from transduce.text.shards import SIDES, DataSet, Side, Split, SplitWriter

Sentences = dict[Side, list[list[int]]]  # of each side, pair by pair
VOCABULARY: dict[Side, int] = {"source": 1000, "target": 70_000}


@st.composite
def blocks(draw: st.DrawFn) -> list[Sentences]:
    """Return blocks of pairs as workers make them, some of them empty."""
    made: list[Sentences] = []
    for pairs in draw(st.lists(st.integers(0, 5), max_size=8)):
        block: Sentences = {}
        for side in SIDES:
            token = st.integers(0, VOCABULARY[side] - 1)
            block[side] = draw(st.lists(st.lists(token, min_size=1, max_size=4), min_size=pairs, max_size=pairs))
        made.append(block)
    return made


def write(folder: Path, given_blocks: list[Sentences], shard_pairs: int) -> dict[str, Any]:
    with SplitWriter(folder, "train", VOCABULARY, shard_pairs) as writer:
        for block in given_blocks:
            flat: dict[Side, tuple[np.ndarray, np.ndarray]] = {}
            for side, sentences in block.items():
                tokens = np.array([token for sentence in sentences for token in sentence], np.int32)
                flat[side] = tokens, np.array([len(sentence) for sentence in sentences], np.int64)
            writer.append(flat)
        return writer.close()


@given(st.integers(0, 300), st.integers(0, 300))
def test_some_pairs_are_from_all_over(pairs: int, most: int):
    found = Split(Path(), {"pairs": pairs, "shards": []}).spread(most)
    assert len(found) == min(pairs, most)
    assert all(0 <= pair < pairs for pair in found)
    # No stretch between two of them, or before the first or behind the last, is much longer than its share.
    ends = [-1, *found, pairs]
    assert all(0 < one <= pairs / max(1, len(found)) + 1 for one in np.diff(ends)[1:-1])
    assert found == [] or max(found[0], pairs - 1 - found[-1]) <= pairs / (2 * len(found))
    assert len(found) < pairs or found == list(range(pairs))


@settings(deadline=None, max_examples=40)
@given(blocks(), st.integers(1, 9), st.data())
def test_what_was_appended_is_read_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, made: list[Sentences], shard_pairs: int, data: st.DataObject
):
    folder = tmp_path_factory.mktemp("parts")
    entry = write(folder, made, shard_pairs)
    split = Split(folder, entry)
    assert entry["pairs"] == split.pairs == sum(len(block["source"]) for block in made)
    asked = data.draw(st.lists(st.integers(0, max(0, split.pairs - 1)), max_size=12 if split.pairs else 0))
    for side in SIDES:
        sentences = [sentence for block in made for sentence in block[side]]
        assert split.lengths(side).tolist() == [len(sentence) for sentence in sentences]
        assert entry[f"{side}_tokens"] == sum(map(len, sentences))
        assert [split.tokens(side, pair).tolist() for pair in range(split.pairs)] == sentences
        row, offsets = split.gather(side, np.array(asked, np.int64))
        assert row.tolist() == [token for pair in asked for token in sentences[pair]]
        assert offsets.tolist() == list(accumulate((len(sentences[pair]) for pair in asked), initial=0))
        flat = [token for sentence in sentences for token in sentence]
        assert np.concatenate([np.empty(0, np.int64), *split.token_arrays(side)]).tolist() == flat


def test_a_shard_is_closed_when_it_is_full_and_blocks_stay_whole(tmp_path: Path):
    block: Sentences = {"source": [[1, 3]] * 4, "target": [[2, 3]] * 4}
    entry = write(tmp_path, [block] * 5, shard_pairs=6)
    assert [shard["pairs"] for shard in entry["shards"]] == [8, 8, 4]
    names = {name for shard in entry["shards"] for name in shard["files"]}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3 * 4
    for shard in entry["shards"]:
        assert shard["files"] == {name: disk.describe_file(tmp_path / name) for name in shard["files"]}


@pytest.mark.parametrize(("size", "bits"), [(65_535, 16), (65_536, 16), (65_537, 32)])
def test_tokens_take_as_many_bits_as_the_vocabulary_needs(tmp_path: Path, size: int, bits: int):
    last = np.array([size - 1, 3])
    with SplitWriter(tmp_path, "dev", {"source": size, "target": 400}) as writer:
        writer.append({"source": (last, np.array([2])), "target": (np.array([3]), np.array([1]))})
        split = Split(tmp_path, writer.close())
    stored = {path.name: np.load(path) for path in tmp_path.glob("*.tokens.npy")}  # readable without transduce
    assert stored["dev.000.source.tokens.npy"].dtype.itemsize * 8 == bits
    assert stored["dev.000.target.tokens.npy"].dtype.itemsize * 8 == 16
    assert split.tokens("source", 0).tolist() == last.tolist()


@pytest.mark.parametrize("longest", [65_535, 65_536, 70_000])
def test_sentences_of_any_length(tmp_path: Path, longest: int):
    lengths = np.array([1, longest, 2])
    with SplitWriter(tmp_path, "train", {"source": 400, "target": 400}) as writer:
        side = (np.full(lengths.sum(), 7), lengths)
        writer.append({"source": side, "target": side})
        split = Split(tmp_path, writer.close())
    assert split.lengths("source").tolist() == [1, longest, 2]


def test_a_writer_left_by_an_error_closes_its_files(tmp_path: Path):
    # An open file would raise a ResourceWarning, and Windows could not remove the folder.
    block = np.array([4, 3]), np.array([2])
    writer = SplitWriter(tmp_path, "train", {"source": 400, "target": 400})
    writer.append({"source": block, "target": block})
    with pytest.raises(KeyError), writer:
        writer.append({})
    files = [array.file for arrays in writer._open.values() for array in arrays]
    assert len(files) == 4
    assert all(file.closed for file in files)


# ---- a whole data set ----


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A small data set."""
    lines = (f"{source}\t{target}\n" for source, target in numbers.corpus("train", 300))
    (tmp_path / "t.tsv").write_text("".join(lines), encoding="utf-8")
    flags = ["--pairs", str(tmp_path / "t.tsv"), "--dev-split", "20", "--subwords", "350", "--workers", "1"]
    assert main(["prepare", str(tmp_path / "out"), *flags]) == 0
    return tmp_path / "out"


def test_verify_finds_one_flipped_bit_in_any_file(out: Path, capsys: pytest.CaptureFixture[str]):
    data = DataSet.open(out)
    capsys.readouterr()
    assert main(["inspect", str(out), "--verify"]) == 0
    assert capsys.readouterr().err == f"{out}: all 10 files match their checksums\n"
    for name in data.files():
        path = data.parts / name
        intact = path.read_bytes()
        damaged = bytearray(intact)
        damaged[len(intact) // 2] ^= 0x10
        path.write_bytes(damaged)
        assert main(["inspect", str(out), "--verify"]) == 1
        assert capsys.readouterr().err.splitlines() == [
            f"error: {path}: does not match its checksum",
            "error: run prepare again with the same settings to repair the data set",
        ]
        path.write_bytes(intact)
    (data.parts / "subwords.model").unlink()
    assert list(data.verify()) == [f"{data.parts / 'subwords.model'}: missing"]


def test_files_that_are_missing_short_or_not_arrays_are_named(out: Path):
    path = DataSet.open(out).parts / "train.000.target.offsets.npy"
    intact = path.read_bytes()
    for raw, wanted in (
        (intact[:-1], f"has {len(intact) - 1:,} bytes, wanted {len(intact):,}; it is damaged, run prepare again"),
        (b"x" + intact[1:], "not a readable array"),
        (None, "a part of the data set is missing; run prepare again"),
    ):
        path.unlink() if raw is None else path.write_bytes(raw)
        with pytest.raises(DataError) as caught:
            DataSet.open(out).train.lengths("target")
        assert str(caught.value).startswith(f"{path}: ")
        assert wanted in str(caught.value)


def test_what_is_no_data_set_is_told_apart(out: Path, tmp_path: Path):
    manifest = out / "manifest.json"
    whole = json.loads(manifest.read_text(encoding="utf-8"))

    def error(folder: Path) -> str:
        with pytest.raises(DataError) as caught:
            DataSet.open(folder)
        return str(caught.value)

    remedy = "make one with: transduce prepare"
    assert error(tmp_path / "no") == f"{tmp_path}/no: does not exist; {remedy} {tmp_path}/no --source … --target …"
    assert error(tmp_path) == f"{tmp_path}: contains no data set; {remedy} {tmp_path} --source … --target …"
    (tmp_path / "checkpoints").mkdir()
    assert error(tmp_path) == f"{tmp_path}: is a run, not a data set; name the folder written by transduce prepare"
    (tmp_path / "checkpoints").rmdir()
    assert error(tmp_path / "t.tsv") == f"{tmp_path}/t.tsv: is a file; name the folder of a data set"
    for text, wanted in (
        ("", "not a readable manifest"),
        ("[1, 2]", "not the manifest of a data set; name the folder of a data set"),
        ('{"name": "a web page"}', "not the manifest of a data set; name the folder of a data set"),
        ('{"format": 1, "files": []}', "not the manifest of a data set; name the folder of a data set"),
        (json.dumps(whole)[:-1], "not a readable manifest (Expecting ',' delimiter: line 1 column"),
        ('{"format": 3}', "written in format 3, this version reads 1; run prepare again"),
        (json.dumps(whole | {"format": 2}), "written in format 2, this version reads 1; run prepare again"),
    ):
        manifest.write_text(text, encoding="utf-8")
        assert error(out).startswith(f"{manifest}: {wanted}")
    manifest.write_bytes(b"\xff\xfe")
    assert "not a readable manifest" in error(out)


def test_a_reader_of_the_old_data_set_never_reads_the_new_one(out: Path):
    reader = DataSet.open(out)
    flags = [str(out.parent / "t.tsv"), "--dev-split", "20", "--subwords", "350", "--workers", "1"]
    for seed in ("2", "3"):
        assert main(["prepare", str(out), "--pairs", *flags, "--seed", seed]) == 0
    with pytest.raises(DataError, match="a part of the data set is missing"):
        reader.train.lengths("source")


def test_a_disk_that_cannot_lock_is_not_taken_for_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"), shards.replace_data(tmp_path / "out"):
        pass


def test_the_lock_ends_with_its_holder(tmp_path: Path):
    code = f"""
import sys
from pathlib import Path
from transduce.text.shards import replace_data
with replace_data(Path({str(tmp_path / "out")!r})) as partial:
    print("locked", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DataError, match="another prepare"), shards.replace_data(tmp_path / "out"):
            pass
        assert len(list((tmp_path / "out").glob(".partial-*"))) == 1  # the holder's is left alone
        holder.kill()
        holder.communicate()
    with shards.replace_data(tmp_path / "out") as partial:
        assert list((tmp_path / "out").glob(".partial-*")) == [partial]


@pytest.mark.parametrize(
    ("files", "given_languages", "expected"),
    [
        ([["a.en", "a.de.xz"], ["x/b.en.gz", "b.de"]], [], ["en", "de"]),
        ([["a.en", "a.de"]], ["deu", "eng"], ["deu", "eng"]),
        ([["a.en", "a.de"], ["b.en", "b.fr"]], [], None),
        ([["a.en", "b.en"]], [], None),
        ([["a.txt", "a.de"]], [], None),
        ([["source", "target"]], [], None),
        ([["a.source", "a.target"]], [], None),
        ([["both.tsv"]], [], None),
        ([["both.tmx"]], ["en", "fr"], ["en", "fr"]),
    ],
    ids=str,
)
def test_languages_are_those_given_or_those_of_the_files_names(
    files: list[list[str]], given_languages: list[str], expected: list[str] | None
):
    config = {"clean": {"unicode": "NFKC"}, "languages": given_languages}
    inputs = [{"files": {name: {} for name in names}} for names in files]
    described = DataSet(Path(), {"config": config, "inputs": inputs, "parts": "parts-1", "splits": {}}).describe()
    assert described.get("languages") == expected
    assert described["unicode"] == "NFKC"
