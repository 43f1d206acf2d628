"""`transduce prepare`: the clean text is on disk in order, counted and checked, and made only once."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pytest
import sentencepiece
from corpora import DEV, TEST, TRAIN, Pairs, aligned, by_flag, prepare_at, small_corpus, snapshot, texts, write

from transduce import disk
from transduce.cli import main
from transduce.strict import to_dict
from transduce.text import corpus, numbers, shards
from transduce.text.inputs import PrepareConfig
from transduce.text.shards import DataSet
from transduce.text.subwords import SubwordsConfig


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The flags of a small corpus."""
    return small_corpus(tmp_path)


# ---- what is on disk ----


def test_flags_repeat_and_list_and_the_text_comes_back_in_order(tmp_path: Path):
    a, b, c = (aligned(tmp_path, name, TRAIN[i * 200 : (i + 1) * 200]) for i, name in enumerate("abc"))
    out = tmp_path / "out"
    flags = ["--source", a[1], b[1], "--source", c[1], "--target", a[3], "--target", b[3], c[3]]
    data = prepare_at(out, *flags, *aligned(tmp_path, "dev", DEV, "dev-"), "--subwords", "400")
    assert texts(out) == TRAIN
    assert texts(out, "dev") == DEV
    assert (data.text("train", "source", 7), data.text("dev", "target", 0)) == (TRAIN[7][0], DEV[0][1])
    assert data.weights() == [(0, 200, 1.0), (200, 400, 1.0), (400, 600, 1.0)]
    assert {side: len(data.subwords[side]) for side in shards.SIDES} == {"source": 400, "target": 400}


def tmx_of(pairs: Pairs) -> list[str]:
    units = (
        f'<tu><tuv xml:lang="fr"><seg>non</seg></tuv><tuv xml:lang="en-GB"><seg>{escape(source)}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{escape(target)}</seg></tuv></tu>'
        for source, target in pairs
    )
    return ['<tmx version="1.4"><header/><body>', *units, "</body></tmx>"]


@pytest.mark.parametrize(
    ("name", "lines", "flags"),
    [
        ("t.tsv", [f"{s}\t{t}" for s, t in TRAIN], []),
        ("t.tsv.zst", [f"{n}\t{t}\tx\t{s}" for n, (s, t) in enumerate(TRAIN)], ["--columns", "4", "2"]),
        ("t.jsonl.xz", [json.dumps({"source": s, "target": t}) for s, t in TRAIN], []),
        ("t.ndjson.gz", [json.dumps({"pair": {"en": s, "de": t}}) for s, t in TRAIN], ["--keys", "pair.en", "pair.de"]),
        ("t.tmx.bz2", tmx_of(TRAIN), ["--languages", "en", "de"]),
    ],
)
def test_every_format_gives_the_same_data_set(tmp_path: Path, name: str, lines: list[str], flags: list[str]):
    dev = aligned(tmp_path, "dev", DEV, "dev-")
    prepare_at(tmp_path / "out", "--pairs", write(tmp_path / name, lines), *flags, *dev, "--subwords", "400")
    assert texts(tmp_path / "out") == TRAIN
    assert texts(tmp_path / "out", "dev") == DEV


def test_weights_are_in_the_order_of_source_then_pairs(tmp_path: Path):
    a, b = aligned(tmp_path, "a", TRAIN[:100]), aligned(tmp_path, "b", TRAIN[100:250])
    pairs = write(tmp_path / "c.tsv", [f"{s}\t{t}" for s, t in TRAIN[250:]])
    inputs = ["--pairs", pairs, *a, *b, "--weight", "2", "0.5", "--weight", "1.5"]
    data = prepare_at(tmp_path / "out", *inputs, "--dev-split", "50", "--subwords", "400")
    weights = data.weights()
    assert [weight for _, _, weight in weights] == [2.0, 0.5, 1.5]
    assert [weights[0][0], weights[-1][1]] == [0, data.train.pairs]
    assert all(before[1] == after[0] for before, after in pairwise(weights))
    held_out = set(texts(tmp_path / "out", "dev"))
    for (first, end, _), (begin, stop) in zip(weights, [(0, 100), (100, 250), (250, 600)], strict=True):
        assert texts(tmp_path / "out")[first:end] == [pair for pair in TRAIN[begin:stop] if pair not in held_out]


def test_an_input_that_keeps_nothing_has_an_empty_range_in_its_place(tmp_path: Path):
    a, c = aligned(tmp_path, "a", TRAIN[:300]), aligned(tmp_path, "c", TRAIN[300:])
    blank = aligned(tmp_path, "blank", [(source, "") for source, _ in TRAIN[:5000]])
    again = aligned(tmp_path, "again", [*TRAIN[:200], *TRAIN[:50]])  # falls to the second pass: all duplicates
    for order, wanted in (
        ([blank, a, again, c], [(0, 0), (0, 300), (300, 300), (300, 600)]),
        ([a, blank, c, again], [(0, 300), (300, 300), (300, 600), (600, 600)]),
    ):
        flags = [flag for given in order for flag in given]
        data = prepare_at(tmp_path / "out", *flags, *aligned(tmp_path, "dev", DEV, "dev-"), "--subwords", "400")
        assert [(first, end) for first, end, _ in data.weights()] == wanted
        assert texts(tmp_path / "out") == TRAIN


def test_a_split_off_dev_set_is_drawn_by_the_seed(tmp_path: Path):
    flags = [*aligned(tmp_path, "train", TRAIN), "--dev-split", "60", "--subwords", "400"]
    outs = [tmp_path / name for name in ("a", "b", "c")]
    for out, seed in zip(outs, ("1", "1", "2"), strict=True):
        prepare_at(out, *flags, "--seed", seed)
    dev = texts(outs[0], "dev")
    assert len(dev) == 60
    assert dev == [pair for pair in TRAIN if pair in set(dev)]
    assert texts(outs[0]) == [pair for pair in TRAIN if pair not in set(dev)]
    assert texts(outs[1], "dev") == dev
    assert texts(outs[2], "dev") != dev


def test_pairs_of_the_dev_and_test_sets_are_kept_out_of_training(tmp_path: Path, files: list[str]):
    leaky = [(TEST[0][0], "etwas ganz anderes hier"), ("quite something else", DEV[0][1])]
    aligned(tmp_path, "train", [*TRAIN, *leaky])
    data = prepare_at(tmp_path / "out", *files, *aligned(tmp_path, "test", TEST, "test-"))
    assert texts(tmp_path / "out") == TRAIN
    assert data.report()["dropped"]["leak"]["pairs"] == 2
    assert list(data.splits) == ["train", "dev"]


@pytest.mark.parametrize(("kind", "joint"), [("bpe", False), ("unigram", True), ("unigram", False)])
def test_other_vocabularies(tmp_path: Path, files: list[str], kind: str, joint: bool):
    flags = ["--subwords.kind", kind, "--subwords.joint" if joint else "--no-subwords.joint"]
    data = prepare_at(tmp_path / "out", *files, *flags)
    models = {name for name in data.files() if name.endswith(".model")}
    assert models == ({"subwords.model"} if joint else {"source.model", "target.model"})
    assert (data.subwords["source"].model == data.subwords["target"].model) is joint
    assert (texts(tmp_path / "out"), texts(tmp_path / "out", "dev")) == (TRAIN, DEV)


def test_separate_vocabularies_know_only_their_language(tmp_path: Path, files: list[str]):
    data = prepare_at(tmp_path / "out", *files, "--no-subwords.joint")
    pieces = {side: set(data.subwords[side].pieces(range(400))) for side in shards.SIDES}
    assert "ü" in pieces["target"] - pieces["source"]
    assert "▁the" in pieces["source"] - pieces["target"]


@pytest.mark.parametrize("joint", ["--subwords.joint", "--no-subwords.joint"])
def test_subwords_of_another_data_set_are_used_again(tmp_path: Path, files: list[str], joint: str):
    first = prepare_at(tmp_path / "first", *files, joint)
    flags = aligned(tmp_path, "other", numbers.corpus("train", 900)[600:])
    again = [*flags, "--dev-split", "20", "--subwords.reuse"]
    for reused in (tmp_path / "first", first.parts / "subwords.model"):
        if reused.exists():
            second = prepare_at(tmp_path / f"by-{reused.name}", *again, str(reused))
            assert [second.subwords[side].model for side in shards.SIDES] == [
                first.subwords[side].model for side in shards.SIDES
            ]
            assert (second.subwords["source"] is second.subwords["target"]) == (joint == "--subwords.joint")
            assert set(texts(second.folder) + texts(second.folder, "dev")) == set(numbers.corpus("train", 900)[600:])
    # The reused bytes are part of what the data set was made from; their path is not.
    shutil.copytree(tmp_path / "first", tmp_path / "moved")
    before = DataSet.open(tmp_path / "by-first").manifest["fingerprint"]
    assert prepare_at(tmp_path / "by-first", *again, str(tmp_path / "moved")).manifest["fingerprint"] == before
    prepare_at(tmp_path / "moved", *files, joint, "--subwords", "390")
    assert prepare_at(tmp_path / "by-first", *again, str(tmp_path / "moved")).manifest["fingerprint"] != before


def test_subwords_that_cannot_be_reused_are_named(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]):
    def refuse(reused: Path) -> str:
        assert main(["prepare", str(tmp_path / "out"), *files, "--subwords.reuse", str(reused)]) == 1
        return capsys.readouterr().err

    assert f"{tmp_path / 'nowhere'}: does not exist" in refuse(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "contains no subwords" in refuse(tmp_path / "empty")
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    assert "names no subwords" in refuse(tmp_path / "empty")
    assert "not a readable SentencePiece model" in refuse(Path(files[1]))
    foreign = tmp_path / "foreign.model"
    with foreign.open("wb") as file:
        lines = [source for source, _ in TRAIN]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=100, minloglevel=2
        )
    assert "are not 0, 1, 2 and 3; use a model learned by transduce prepare" in refuse(foreign)
    assert not (tmp_path / "out").exists()


def test_a_toml_file_with_flags_on_top(tmp_path: Path, files: list[str]):
    given = {flag: values[0] for flag, values in by_flag(files).items()}
    (tmp_path / "mine.toml").write_text(
        f'source = "{given["--source"]}"\ntarget = ["{given["--target"]}"]\nseed = 7\nworkers = 1\n'
        "[subwords]\nsize = 450\n[clean]\nlong = 5\n",
        encoding="utf-8",
    )
    flags = ["--config", str(tmp_path / "mine.toml"), "--subwords", "400", "--clean.ratio", "off", *files[4:8]]
    config = prepare_at(tmp_path / "out", *flags).manifest["config"]
    assert (config["seed"], config["subwords"]["size"]) == (7, 400)
    assert (config["clean"]["long"], config["clean"]["ratio"]) == (5, None)
    assert texts(tmp_path / "out") == [pair for pair in TRAIN if max(len(side.split()) for side in pair) <= 5]


def test_the_built_in_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(numbers.PAIRS, "train", 3000)
    monkeypatch.setitem(numbers.PAIRS, "dev", 40)
    monkeypatch.setitem(numbers.PAIRS, "test", 30)
    corpus._builtin.cache_clear()
    try:
        data = prepare_at(tmp_path / "out", "--builtin", "numbers")
        assert texts(tmp_path / "out") == numbers.corpus("train", 3000)
        assert texts(tmp_path / "out", "dev") == DEV
        assert data.manifest["vocabulary"] == {"source": 600, "target": 600}
        split = prepare_at(tmp_path / "split", "--builtin", "numbers", "--dev-split", "100")
        assert (split.train.pairs, split.dev.pairs) == (2900, 100)
    finally:
        corpus._builtin.cache_clear()


def test_dev_and_test_sets_are_normalised_like_the_training_set_and_else_taken_as_they_are(tmp_path: Path):
    odd = [("１２ ﬁne  days", "１２ schöne Tage"), ("!!!", "???"), ("", "leer"), DEV[0], DEV[0]]
    flags = [*aligned(tmp_path, "train", TRAIN), *aligned(tmp_path, "dev", odd, "dev-"), "--subwords", "400"]
    prepare_at(tmp_path / "out", *flags, "--clean.unicode", "NFKC")
    assert texts(tmp_path / "out", "dev") == [("12 fine days", "12 schöne Tage"), ("!!!", "???"), DEV[0], DEV[0]]
    prepare_at(tmp_path / "out", *flags, "--clean.unicode", "off")
    assert texts(tmp_path / "out", "dev")[0] == ("１２ ﬁne days", "１２ schöne Tage")


def test_lines_that_are_not_utf8_can_be_dropped_everywhere(tmp_path: Path, files: list[str]):
    for name in ("train", "dev"):
        with (tmp_path / f"{name}.en").open("ab") as source, (tmp_path / f"{name}.de").open("ab") as target:
            source.write(b"caf\xe9 au lait\n")
            target.write(b"Milchkaffee bitte\n")
    data = prepare_at(tmp_path / "out", *files, "--clean.utf8", "drop")
    assert (texts(tmp_path / "out"), texts(tmp_path / "out", "dev")) == (TRAIN, DEV)
    assert data.report()["dropped"]["utf8"]["pairs"] == 1


def test_what_is_dropped_of_sets_that_are_held_out_is_said(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "dev.de").write_bytes("".join(f"{side}\n" for _, side in DEV).encode("latin-1"))
    odd = [row for row, (_, side) in enumerate(DEV, start=1) if not side.isascii()]
    watched = write(tmp_path / "news.tsv", ["a\tb", "c", "\td", "e\t", "f\tg"])
    said = (
        f"dev.en + dev.de: {len(odd)} of {len(DEV)} pairs of the dev set are dropped by utf8 (a side is not UTF-8), "
        f"first {tmp_path}/dev.de:{odd[0]}"
    )
    prepare_at(tmp_path / "out", *files, "--watch-pairs", watched, "--clean.utf8", "drop", "--clean.format", "drop")
    notes = [line for line in capsys.readouterr().err.splitlines() if " set are dropped by " in line]
    assert notes[0] == said
    assert [(note.split(" (")[0], note.rsplit(", ")[-1]) for note in notes[1:]] == [
        ("news.tsv: 1 of 5 pairs of the watch-news set are dropped by format", f"first {watched}:2"),
        ("news.tsv: 2 of 5 pairs of the watch-news set are dropped by empty", f"first {watched}:3"),
    ]
    assert len(texts(tmp_path / "out", "dev")) == len(DEV) - len(odd)


def test_swapped_sets_are_allowed_where_languages_are_not_compared(tmp_path: Path, files: list[str]):
    watched = write(tmp_path / "back.tsv", [f"{target}\t{source}" for source, target in TEST])
    prepare_at(tmp_path / "out", *files, "--watch-pairs", watched, "--clean.language", "off")
    assert texts(tmp_path / "out", "watch-back") == [(target, source) for source, target in TEST]


def test_a_split_that_holds_out_most_is_noted(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]):
    for pairs, noted in ((300, False), (301, True)):
        prepare_at(tmp_path / "out", *files[:4], "--subwords", "400", "--dev-split", str(pairs))
        note = "note: 301 pairs are held out as the dev set and 299 left to train on; keep more, as with --dev-split 60"
        assert (note in capsys.readouterr().err.splitlines()) is noted


def test_tsv_in_quotes_is_noted_and_read(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]):
    rows = ["\t".join(f'"the ""{side}"""' for side in pair) for pair in TRAIN]
    flags = ["--pairs", write(tmp_path / "a.tsv", rows), *files[4:], "--clean.letters", "off"]
    prepare_at(tmp_path / "out", *flags)
    note = f"{tmp_path}/a.tsv: has fields in double quotes, and the quotes stay in the text; --quoted removes them"
    assert capsys.readouterr().err.splitlines().count(note) == 1
    prepare_at(tmp_path / "out", *flags, "--quoted")
    assert note not in capsys.readouterr().err
    expected = [(f'the "{source}"', f'the "{target}"') for source, target in TRAIN]
    assert texts(tmp_path / "out") == expected
    # Fields may go on in the next line, and an error or a dropped pair is at the first.
    broken = ["\t".join(f'"the\n""{side}"""' for side in pair) for pair in TRAIN]
    write(tmp_path / "a.tsv", [*broken, '"stray\tb', "c\td"])
    assert main(["prepare", str(tmp_path / "bad"), *flags, "--quoted", "--subwords", "300", "--workers", "1"]) == 1
    place = f"{tmp_path}/a.tsv:{3 * len(rows) + 1}"
    assert f"{place}: its double quotes cannot be read (one opens a field without" in capsys.readouterr().err
    data = prepare_at(tmp_path / "lines", *flags, "--quoted", "--clean.format", "drop", "--save-dropped")
    assert texts(tmp_path / "lines")[: len(expected)] == expected
    with gzip.open(data.parts / "dropped.tsv.gz", "rt", encoding="utf-8") as file:
        assert f"format\t{place}\t" in file.read()


def test_dropped_pairs_are_saved_with_rule_and_place(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
):
    aligned(tmp_path, "train", [*TRAIN, ("", "leer"), TRAIN[3], (TRAIN[4][0], TRAIN[4][0])])
    data = prepare_at(tmp_path / "out", *files, "--save-dropped")
    assert capsys.readouterr().err.splitlines()[-1] == f"dropped pairs: {data.parts / 'dropped.tsv.gz'}"
    with gzip.open(data.parts / "dropped.tsv.gz", "rt", encoding="utf-8") as file:
        saved = [line.rstrip("\n").split("\t") for line in file]
    source = tmp_path / "train.en"
    assert sorted(saved) == [
        ["copied", f"{source}:603", TRAIN[4][0], TRAIN[4][0]],
        ["duplicate", f"{source}:602", *TRAIN[3]],
        ["empty", f"{source}:601", "", "leer"],
    ]
    assert "dropped.tsv.gz" in data.files()


def test_subwords_are_learned_from_a_sample_that_follows_the_weights(tmp_path: Path):
    # Two inputs without a common letter: what the sample holds shows in the vocabulary.
    chance = np.random.default_rng(0)

    def made(letters: str) -> Pairs:
        words = ["".join(chance.choice(list(letters), 6)) for _ in range(2000)]
        return [(" ".join(words[i : i + 3]), " ".join(words[i + 3 : i + 6])) for i in range(0, 1900, 5)]

    flags = [*aligned(tmp_path, "a", made("abcdef")), *aligned(tmp_path, "b", made("uvwxyz")), "--subwords", "300"]
    shares: list[float] = []
    for weights in (["1", "1"], ["1000", "0.001"], ["0.001", "1000"]):
        sample = ["--weight", *weights, "--subwords.sample", "300", "--dev-split", "10"]
        data = prepare_at(tmp_path / "out", *flags, *sample, "--clean.copied", "off")
        pieces = [piece.strip("▁") for piece in data.subwords["source"].pieces(range(260, 300))]
        first = sum(piece != "" and set(piece) <= set("abcdef") for piece in pieces)
        shares.append(first / sum(piece != "" for piece in pieces))
    assert 0.3 < shares[0] < 0.7
    assert shares[1] > 0.9
    assert shares[2] < 0.1


def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path):
    pairs = numbers.corpus("train", 3 * corpus.BLOCK_LINES + 60)
    for row in range(0, len(pairs), 97):  # changed in two ways, and dropped by two rules
        pairs[row] = (pairs[row][0] + " &amp; co", pairs[row][1])
        pairs[row + 1] = (pairs[row + 1][0].replace(" ", "  "), pairs[row + 1][1])
        pairs[row + 2] = pairs[row] if row % 2 else ("", "")
    flags = [*aligned(tmp_path, "train", pairs), *aligned(tmp_path, "dev", DEV, "dev-"), "--subwords", "400"]
    one = prepare_at(tmp_path / "one", *flags, "--save-dropped", "--workers", "1")
    two = prepare_at(tmp_path / "two", *flags, "--save-dropped", "--workers", "2")
    assert snapshot(one.parts) == snapshot(two.parts)
    assert one.manifest["config"].pop("workers") == 1
    assert two.manifest["config"].pop("workers") == 2
    assert one.manifest == two.manifest
    assert one.report()["dropped"]["empty"]["pairs"] > 50
    clean = dict.fromkeys(
        (source.replace("&amp;", "&").replace("  ", " "), target) for source, target in pairs if source
    )
    assert texts(tmp_path / "two") == list(clean)


def test_several_shards_are_one_split(tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus, "BLOCK_LINES", 50)
    monkeypatch.setattr(shards.SplitWriter.__init__, "__defaults__", (120,))
    data = prepare_at(tmp_path / "out", *files, "--workers", "1")
    assert [shard["pairs"] for shard in data.manifest["splits"]["train"]["shards"]] == [150] * 4
    assert texts(tmp_path / "out") == TRAIN


def test_file_names_that_are_not_unicode(tmp_path: Path, files: list[str]):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.en")
    shutil.copy(tmp_path / "train.en", odd)
    aligned(tmp_path, "train", [*TRAIN, ("", "leer")])
    shutil.copy(tmp_path / "train.en", odd)
    data = prepare_at(tmp_path / "out", "--source", odd, *files[2:], "--save-dropped")
    assert odd in data.manifest["inputs"][0]["files"]
    assert data.report()["dropped"]["empty"]["examples"][0]["where"] == f"{odd}:601"


# ---- the manifest ----


def test_the_manifest_counts_and_checks_and_holds_every_setting(tmp_path: Path, files: list[str]):
    data = prepare_at(tmp_path / "out", *files, "--seed", "3")
    config = PrepareConfig(
        source=(tmp_path / "train.en",),
        target=(tmp_path / "train.de",),
        dev_source=(tmp_path / "dev.en",),
        dev_target=(tmp_path / "dev.de",),
        seed=3,
        workers=1,
        subwords=SubwordsConfig(size=400),
    )
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["config"] == to_dict(config)
    assert manifest["format"] == shards.FORMAT
    assert manifest["inputs"][0]["files"] == {
        str(path): disk.describe_file(path) for path in (tmp_path / "train.en", tmp_path / "train.de")
    }
    assert set(data.files()) == {path.name for path in data.parts.iterdir()}
    assert list(data.verify()) == []
    for split, pairs in (("train", TRAIN), ("dev", DEV)):
        entry = manifest["splits"][split]
        assert entry["pairs"] == len(pairs)
        for place, side in enumerate(shards.SIDES):
            tokens = [len(data.subwords[side].encode(pair[place])) + 1 for pair in pairs]
            assert entry[f"{side}_tokens"] == sum(tokens)
            assert data.splits[split].lengths(side).tolist() == tokens


# ---- up to date ----


def test_a_second_run_does_nothing(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    prepare_at(out, *files, "--workers", "1")
    before, written = snapshot(out), (out / "manifest.json").stat().st_mtime_ns
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        shutil.move(tmp_path / name, moved / f"my-{name}")
    capsys.readouterr()
    again = [flag.replace(f"{tmp_path}/", f"{moved}/my-") for flag in files]
    assert again != files
    prepare_at(out, *again, "--workers", "2")
    assert capsys.readouterr().err == f"{out}: up to date (4 files and all settings unchanged)\n"
    assert (out / "manifest.json").stat().st_mtime_ns == written
    assert snapshot(out) == before


def change_one_byte(out: Path, folder: Path) -> None:
    text = (folder / "train.en").read_bytes()
    (folder / "train.en").write_bytes(text.replace(b"two", b"TWO", 1))


def delete_a_part(out: Path, folder: Path) -> None:
    (DataSet.open(out).parts / "dev.000.target.tokens.npy").unlink()


def truncate_a_part(out: Path, folder: Path) -> None:
    os.truncate(DataSet.open(out).parts / "train.000.source.offsets.npy", 1000)


def flip_a_bit(out: Path, folder: Path) -> None:
    path = DataSet.open(out).parts / "train.000.target.tokens.npy"
    raw = bytearray(path.read_bytes())
    raw[-7] ^= 1
    path.write_bytes(raw)


def damage_the_manifest(out: Path, folder: Path) -> None:
    path = out / "manifest.json"
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")


def come_from_the_future(out: Path, folder: Path) -> None:
    path = out / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"format": 99}), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        (change_one_byte, [], "the input files have changed"),
        (None, ["--clean.ratio", "off", "--seed", "5"], 'clean.ratio was 2.0 and is "off" and seed was 1 and is 5'),
        (delete_a_part, [], "dev.000.target.tokens.npy: missing"),
        (truncate_a_part, [], "train.000.source.offsets.npy: does not match its checksum"),
        (flip_a_bit, [], "train.000.target.tokens.npy: does not match its checksum"),
        (damage_the_manifest, [], "its manifest is damaged or from another version"),
        (come_from_the_future, [], "its manifest is damaged or from another version"),
    ],
)
def test_what_has_changed_is_said_and_prepared_again(
    tmp_path: Path,
    files: list[str],
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path, Path], None] | None,
    flags: list[str],
    said: str,
):
    out = tmp_path / "out"
    prepare_at(out, *files)
    if change:
        change(out, tmp_path)
    capsys.readouterr()
    data = prepare_at(out, *files, *flags)
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"{out}: preparing again, because ")
    assert first.endswith(said)
    assert list(data.verify()) == []
    assert sorted(path.name for path in out.iterdir()) == [".lock", "manifest.json", "parts-2"]
    prepare_at(out, *files, *flags)
    assert "up to date" in capsys.readouterr().err
