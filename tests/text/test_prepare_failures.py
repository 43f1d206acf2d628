"""`transduce prepare` when something is wrong: it is named, and no failure ever changes what was there."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import TRAIN, Flags, aligned, by_flag, flatten, prepare_at, small_corpus, snapshot, texts, write

from transduce.cli import main
from transduce.errors import DataError
from transduce.text import corpus, numbers, prepare
from transduce.text.shards import DataSet


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The flags of a small corpus."""
    return small_corpus(tmp_path)


# ---- mistakes ----


def give_wrong_files(folder: Path, flags: Flags) -> None:
    (folder / "void.en").touch()
    flags["--source"] = [f"{folder}/no.en", f"{folder}/void.en", f"{folder}/x.en"]
    flags["--target"] = [f"{folder}/train.de", f"{folder}/../{folder.name}/dev.en", str(folder)]


def give_a_copy(folder: Path, flags: Flags) -> None:
    shutil.copy(folder / "dev.en", folder / "copy.en")
    flags["--source"].append(f"{folder}/copy.en")
    flags["--target"].append(write(folder / "other.de", ["andere"]))


def give_a_false_archive(folder: Path, flags: Flags) -> None:
    (folder / "train.gz").write_bytes(b"no archive")
    flags["--source"] = [f"{folder}/train.gz"]


def give_pairs(folder: Path, flags: Flags, name: str, lines: list[str]) -> None:
    del flags["--source"], flags["--target"]
    flags["--pairs"] = [write(folder / name, lines)]


def split_off(flags: Flags, pairs: int) -> None:
    del flags["--dev-source"], flags["--dev-target"]
    flags["--dev-split"] = [str(pairs)]


def use_folder(folder: Path, name: str, text: str) -> None:
    path = folder / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)


# What is done to the files and flags of a small corpus, and what must be said then; {d} is the folder of the test.
MISTAKES: dict[str, tuple[Callable[[Path, Flags], object], list[str]]] = {
    "missing, empty and repeated files": (
        give_wrong_files,
        [
            "{d}/no.en: no such file",
            "{d}/void.en: the file is empty",
            "{d}/x.en: no such file",
            "{d}: not a file",
            "{d}/dev.en: given twice; name each file once (--weight 2 shows its text twice)",
        ],
    ),
    "the same bytes under two names": (
        give_a_copy,
        ["{d}/dev.en: has the same content as {d}/copy.en; name each text once"],
    ),
    "unequal numbers of lines": (
        lambda d, f: f.update({"--source": [write(d / "long.en", ["one more", *(s for s, _ in TRAIN)])]}),
        ["{d}/long.en has 601 lines but {d}/train.de has 600 lines; line n of one file must translate line n"],
    ),
    "a line that is not UTF-8": (
        lambda d, f: (d / "train.de").write_bytes(b"gut\n" * 599 + b"sch\xf6n\n"),
        [
            "{d}/train.de:600: not UTF-8 (byte 0xF6 at position 4)",
            "if the whole file is in another encoding, convert it with: iconv -f LATIN1 -t UTF-8 (LATIN1 is for",
            "if only some lines are, fix them, or drop such pairs with --clean.utf8 drop",
        ],
    ),
    "many lines that are not UTF-8": (
        lambda d, f: (d / "train.de").write_bytes(b"sch\xf6n\n" * 600),
        ["{d}/train.de:20: not UTF-8 (byte 0xF6 at position 4)", "… and perhaps more; reading stopped here"],
    ),
    "a TSV file without the column": (
        lambda d, f: give_pairs(d, f, "a.tsv", ["a\tb", "c"]),
        [
            "{d}/a.tsv:2: has 1 columns, wanted at least 2 (--columns says which two are used)",
            "fix the file, or drop such rows with --clean.format drop",
        ],
    ),
    "a format that the name does not tell": (
        lambda d, f: give_pairs(d, f, "a.txt", ["a\tb"]),
        ["{d}/a.txt: the name does not tell this file's format; rename it to .tsv, .jsonl or .tmx"],
    ),
    "a spreadsheet": (
        lambda d, f: (give_pairs(d, f, "a.xlsx", []), (d / "a.xlsx").write_bytes(b"PK\x03\x04...")),
        ["{d}/a.xlsx: is a spreadsheet, a document or an archive, not plain text; save what is in it as text in UTF-8"],
    ),
    "a spreadsheet under another name, and a document": (
        lambda d, f: (
            give_pairs(d, f, "a.tsv", []),
            (d / "a.tsv").write_bytes(b"PK\x03\x04..."),
            (d / "dev.en").write_bytes(b"\xd0\xcf\x11\xe0..."),
        ),
        ["{d}/a.tsv: is a spreadsheet, a document", "{d}/dev.en: is a spreadsheet, a document"],
    ),
    "columns between commas": (
        lambda d, f: give_pairs(d, f, "a.csv", ["a,b"]),
        ["{d}/a.csv: save it with tabs between the columns and a name that ends in .tsv"],
    ),
    "a damaged archive": (give_a_false_archive, ["{d}/train.gz: damaged, or not in the format its name says"]),
    "no training text": (
        lambda d, f: (f.pop("--source"), f.pop("--target")),
        ["no training text is given; use --source and --target, --pairs, or --builtin numbers"],
    ),
    "no dev set": (
        lambda d, f: (f.pop("--dev-source"), f.pop("--dev-target")),
        ["no dev set is given; use --dev-source and --dev-target, --dev-pairs, or --dev-split N, which holds"],
    ),
    "a vocabulary larger than the corpus gives": (
        lambda d, f: f.update({"--subwords": ["30000"]}),
        ["subwords.size = 30000 is more than this corpus can give; use --subwords "],
    ),
    "nothing left after the first pass": (
        lambda d, f: (aligned(d, "train", [("a", ""), ("b c", "d")]), f.update({"--clean.long": ["1"]})),
        ["no training pair is left after cleaning (dropped: empty 1, long 1); see --help for --clean.…"],
    ),
    "nothing left after the second pass": (
        lambda d, f: (
            aligned(d, "train", [("a b c", "de" * 40), ("fg" * 40, "h i j")]),
            f.update({"--clean.ratio": ["1.5"]}),
        ),
        ["no training pair is left after cleaning (dropped: ratio 2); see --help for --clean.…"],
    ),
    "too few for their subwords, for most were dropped": (
        lambda d, f: (
            aligned(d, "train", [*TRAIN[:30], *[("17", "17")] * 50]),
            f.update({"--subwords": ["9000"]}),
        ),
        [
            "subwords.size = 9000 is more than this corpus can give; use --subwords",
            "left after cleaning (dropped: letters 50",
        ],
    ),
    "nothing left because of its subwords": (
        lambda d, f: f.update({"--clean.tokens": ["1"]}),
        ["no training pair is left after cleaning (dropped: tokens 600); see --help for --clean.…"],
    ),
    "a dev set without text": (
        lambda d, f: aligned(d, "dev", [("yes", ""), ("", " ")]),
        ["{d}/dev.en: no pair of the dev set has text on both sides"],
    ),
    "a dev split that takes all": (
        lambda d, f: split_off(f, 600),
        ["dev_split = 600 takes all 600 clean pairs; hold out fewer, as with --dev-split 60"],
    ),
    "a dev set with its sides swapped": (
        lambda d, f: f.update({"--dev-source": f["--dev-target"], "--dev-target": f["--dev-source"]}),
        [
            "{d}/dev.de + {d}/dev.en: source and target are the other way round than in {d}/train.en: in 40 of 40 "
            "pairs each side looks like the other side there; exchange the sides of one of them",
        ],
    ),
    "a test set with its sides swapped": (
        lambda d, f: f.update({"--test-pairs": [write(d / "t.tsv", [f"{b}\t{a}" for a, b in TRAIN[:30]])]}),
        ["{d}/t.tsv: source and target are the other way round than in {d}/train.en: in 30 of 30 pairs"],
    ),
    "an unknown flag": (
        lambda d, f: f.update({"--sorce": ["x"]}),
        ["unknown flag --sorce; did you mean --source?"],
    ),
    "an unknown key": (
        lambda d, f: f.update({"--config": [write(d / "c.toml", ["[clean]", "ration = 2"])]}),
        ["{d}/c.toml: unknown key clean.ration; did you mean clean.ratio?"],
    ),
    "settings that contradict each other": (
        lambda d, f: (f.update({"--dev-split": ["5"]}), f["--source"].append("x")),
        ["source has 2 files and target has 1", "dev_split and a dev set are both given; use one of them"],
    ),
    "a built-in corpus and files": (
        lambda d, f: (f.clear(), f.update({"--builtin": ["numbers"], "--test-source": ["x"], "--test-target": ["y"]})),
        ["builtin and files are both given; use one of them"],
    ),
    "weights for other inputs": (
        lambda d, f: f.update({"--weight": ["1", "2"]}),
        ["weight has 2 numbers for 1 inputs; give one for each"],
    ),
    "OUT is a file": (
        lambda d, f: (d / "out").write_text("precious"),
        ["{d}/out: is a file; name a folder for the data set"],
    ),
    "OUT holds other things": (
        lambda d, f: use_folder(d, "thesis.tex", "precious"),
        ["{d}/out: holds other files (thesis.tex) but no data set; name a new or empty folder"],
    ),
    "OUT holds things that are called as ours are": (
        lambda d, f: use_folder(d, "parts-2/thesis.tex", "precious"),
        ["{d}/out: holds other files (parts-2) but no data set; name a new or empty folder"],
    ),
    "OUT holds another kind of manifest": (
        lambda d, f: use_folder(d, "manifest.json", '{"name": "a web page"}'),
        ["{d}/out: holds other files (manifest.json) but no data set; name a new or empty folder"],
    ),
}


def make_mistake(mistake: str, folder: Path, files: list[str]) -> list[str]:
    flags = by_flag(files)
    MISTAKES[mistake][0](folder, flags)
    return flatten(flags)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_leaves_nothing(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str], mistake: str
):
    flags = make_mistake(mistake, tmp_path, files)
    out = tmp_path / "out"
    before = out.read_bytes() if out.is_file() else snapshot(out)
    code = main(["prepare", str(out), *flags, "--workers", "1"])
    lines = capsys.readouterr().err.splitlines()
    assert code == (2 if mistake == "an unknown flag" else 1)
    assert all(line.startswith("error: ") for line in lines)
    for text in MISTAKES[mistake][1]:
        assert any(text.replace("{d}", str(tmp_path)) in line for line in lines), lines
    assert (out.read_bytes() if out.is_file() else snapshot(out)) == before


@pytest.mark.parametrize("mistake", ["unequal numbers of lines", "a vocabulary larger than the corpus gives"])
def test_a_mistake_leaves_the_old_data_set_and_made_folders_go(tmp_path: Path, files: list[str], mistake: str):
    out = tmp_path / "out"
    prepare_at(out, *files)
    before = snapshot(out)
    flags = make_mistake(mistake, tmp_path, files)
    assert main(["prepare", str(out), *flags]) == 1
    assert snapshot(out) == before
    assert main(["prepare", str(tmp_path / "new/er/out"), *flags]) == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    assert main(["prepare", str(tmp_path / "empty"), *flags]) == 1
    assert snapshot(tmp_path / "empty") == {}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_largest_vocabulary_that_is_named_is_possible(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str], kind: str
):
    flags = by_flag(files) | {"--subwords": ["30000"], "--subwords.kind": [kind]}
    assert main(["prepare", str(tmp_path / "out"), *flatten(flags)]) == 1
    largest = capsys.readouterr().err.split("use --subwords ")[1].split(" ")[0]
    data = prepare_at(tmp_path / "out", *flatten(flags | {"--subwords": [largest]}))
    assert data.manifest["vocabulary"] == {"source": int(largest), "target": int(largest)}


# ---- all or nothing ----

DIE = """
import os, pathlib, signal, sys
import transduce.disk as disk
import transduce.text.prepare as prepare, transduce.text.spool as spool, transduce.text.shards as shards
from transduce.cli import main

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{place} = die
sys.exit(main(sys.argv[1:]))
"""
MOMENTS = [
    "spool.Spool.append",
    "prepare.learn",
    "shards.SplitWriter.append",
    "disk.write_json",
    "pathlib.Path.rename",
    "os.replace",
]


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("place", MOMENTS)
def test_a_run_killed_at_any_moment_leaves_the_old_data_set_or_none(tmp_path: Path, files: list[str], place: str):
    old, new = tmp_path / "old", tmp_path / "new"
    data = prepare_at(old, *files)
    before = snapshot(data.parts)
    code = DIE.format(place=place)
    for out in (old, new) if place in ("os.replace", "spool.Spool.append") else (old,):
        assert run_code(code, "prepare", str(out), *files, "--seed", "2").returncode == -signal.SIGKILL
        assert len(list(out.iterdir())) > 1
    assert list(DataSet.open(old).verify()) == []
    assert snapshot(DataSet.open(old).parts) == before
    with pytest.raises(DataError):
        DataSet.open(new)
    prepare_at(old, *files)  # is up to date
    assert sorted(path.name for path in old.iterdir()) == [".lock", "manifest.json", "parts-1"]
    for out, flags in ((old, [*files, "--seed", "3"]), (new, files)):
        assert list(prepare_at(out, *flags).verify()) == []
        assert {path.name.split("-")[0] for path in out.iterdir()} == {".lock", "manifest.json", "parts"}
        assert len(list(out.iterdir())) == 3


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags of a run that needs its workers."""
    folder = tmp_path_factory.mktemp("long")
    flags = aligned(folder, "train", numbers.corpus("train", 3 * corpus.BLOCK_LINES + 60))
    return [*flags, "--dev-split", "50", "--subwords", "400", "--workers", "2"]


def start(out: Path, flags: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "transduce", "prepare", str(out), *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(running: subprocess.Popen[str], out: Path, pattern: str) -> None:
    """Wait until a run has written something to a file."""
    end = time.monotonic() + 60
    while not any(path.stat().st_size for path in out.glob(pattern)):
        assert running.poll() is None, "the run ended too soon"
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("pattern", [".partial-*/spool-cleaning", ".partial-*/train.*.tokens.npy"])
def test_a_killed_run_takes_its_workers_with_it(tmp_path: Path, files: list[str], long_run: list[str], pattern: str):
    out = tmp_path / "out"
    before = snapshot(prepare_at(out, *files).parts)
    with start(out, long_run) as running:
        wait_for(running, out, pattern)
        running.kill()
        running.communicate(timeout=30)  # returns when the last worker has let go of stderr
    assert running.returncode == -signal.SIGKILL
    assert any(out.glob(".partial-*"))
    data = DataSet.open(out)
    assert list(data.verify()) == []
    assert snapshot(data.parts) == before


@pytest.mark.parametrize("pattern", [".partial-*", ".partial-*/subwords.model"])
def test_ctrl_c_ends_quietly_and_leaves_nothing(tmp_path: Path, long_run: list[str], pattern: str):
    out = tmp_path / "out"
    with start(out, long_run) as running:
        wait_for(running, out, pattern)
        time.sleep(0.1)  # by now workers are being started
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers too
        _, errors = running.communicate(timeout=30)
    assert (running.returncode, errors) == (130, "stopped\n")
    assert not out.exists()


@pytest.mark.parametrize(
    ("owner", "name", "known"),
    [
        (os, "replace", "old"),
        (os, "replace", "empty"),
        (os, "replace", "absent"),
        (Path, "rename", "old"),
        (os, "fsync", "absent"),
    ],
)
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: object,
    name: str,
    known: str,
):
    out = tmp_path / "out"
    if known == "old":
        prepare_at(out, *files)
    elif known == "empty":
        out.mkdir()
    before = snapshot(out)
    capsys.readouterr()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        assert main(["prepare", str(out), *files, "--seed", "2", "--save-dropped"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {out}: No space left on device; {out} is left as it was"
    assert snapshot(out) == before
    prepare_at(out, *files, "--seed", "2")
    assert "preparing again" in capsys.readouterr().err or known != "old"


@pytest.mark.parametrize("most", [5_000, 25_000])
def test_files_that_may_not_grow(tmp_path: Path, files: list[str], most: int):
    out = tmp_path / "out"
    prepare_at(out, *files)
    before = snapshot(out)
    code = f"""
import resource, sys
from transduce.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
sys.exit(main(sys.argv[1:]))
"""
    finished = run_code(code, "prepare", str(out), *files, "--seed", "2", "--save-dropped")
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1].endswith(f"File too large; {out} is left as it was")
    assert "Traceback" not in finished.stderr
    assert snapshot(out) == before


def test_two_at_once(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    seconds: Counter[int] = Counter()

    def learn_slowly(lines: object, config: object) -> bytes:
        """Start another run while this one learns its subwords."""
        seconds[main(["prepare", str(out), *files])] += 1
        return learn(lines, config)  # pyright: ignore[reportArgumentType]

    learn = prepare.learn
    monkeypatch.setattr(prepare, "learn", learn_slowly)
    prepare_at(out, *files)
    assert seconds == {1: 1}
    wanted = f"error: {out}: another prepare is writing this data set; wait for it to end"
    assert wanted in capsys.readouterr().err.splitlines()
    assert texts(out) == TRAIN
    assert sorted(path.name for path in out.iterdir()) == [".lock", "manifest.json", "parts-1"]


def test_two_that_start_together_do_not_harm_each_other(tmp_path: Path, files: list[str]):
    out = tmp_path / "out"
    with start(out, files) as one, start(out, files) as two:
        errors = [running.communicate(timeout=60)[1] for running in (one, two)]
    assert 0 in (one.returncode, two.returncode)
    for running, text in zip((one, two), errors, strict=True):
        assert running.returncode == 0 or "another prepare is writing" in text
    assert list(DataSet.open(out).verify()) == []
    assert texts(out) == TRAIN
