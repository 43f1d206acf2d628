"""Files of any size: as many lines out as in, in order, and no finished work is lost."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import Ended, Forks, run_job
from models import save_tiny

from transduce.decoding import files
from transduce.decoding import translator as module
from transduce.decoding.files import InputLines, Output, as_json, read_ahead, read_request
from transduce.decoding.options import Options, Request
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.text.packed import open_bytes

ODD = [
    "",
    " ",
    "\t",
    "\r",
    "a\rb",
    "one\u2028two",
    "\0",
    "\x07x",
    "🙂",
    "!?",
    "…",
    "x" * 900,
    "two euros.  Nine.",
    "\ufeff",
]
ODD += ["\x85", "\v\f", "two euros \t nine", "Straße", "\x1c", "{", '"', "\\n"]
LINES = [f"{number} euros and {number % 7} dollars" for number in range(19)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of 19 lines, some of them odd."""
    path = tmp_path / "in.txt"
    path.write_bytes("\n".join([*LINES[:9], "", "  \r", "!", *LINES[12:]]).encode())
    return path


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small windows, as in the processes of `Forks`."""
    for each in (files, module):
        monkeypatch.setattr(each, "WINDOW_TEXTS", 4)


def translate(tiny: Path, path: Path, *flags: str) -> bytes:
    """Translate a file into another; read that and remove it."""
    out = path.with_suffix(".out")
    assert run_job(tiny, "--input", str(path), "--out", str(out), *flags, source=Path(os.devnull)) == 0
    text = out.read_bytes()
    out.unlink()
    assert sorted(path.parent.glob("*.out*")) == []
    return text


# ---- lines ----


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(st.sampled_from([*ODD, *LINES]), st.text(st.characters(exclude_characters="\n", codec="utf-8"))),
        max_size=14,
    ),
    st.booleans(),
)
def test_as_many_lines_come_out_as_go_in_and_each_is_its_own(
    tmp_path: Path, tiny: Path, translator: Translator, lines: list[str], closed: bool
):
    path = tmp_path / "in.txt"
    text = "\n".join(lines) + ("\n" if closed and lines else "")
    path.write_bytes(text.encode())
    lines = [line.removeprefix("\ufeff" if number == 0 else "") for number, line in enumerate(lines)]
    lines = lines if closed or (lines and lines[-1]) else lines[:-1]
    found = translate(tiny, path)
    assert found == b"".join(f"{each.text}\n".encode() for each in translator.translate(lines))
    assert found.count(b"\n") == len(lines)


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".zst", zstandard.compress)],
)
def test_compressed_files(
    tiny: Path,
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    ending: str,
    pack: Callable[[bytes], bytes],
):
    packed = tmp_path / f"packed.txt{ending}"
    packed.write_bytes(pack(source.read_bytes()))
    assert translate(tiny, packed) == translate(tiny, source)
    packed.write_bytes(packed.read_bytes()[:-9])
    out = tmp_path / "cut.out"
    assert run_job(tiny, "--input", str(packed), "--out", str(out), source=source) == 1
    damaged = f"error: {packed}: damaged, or not in the format its name says, somewhere after line "
    assert capfd.readouterr().err.splitlines()[-1].startswith(damaged)


def test_standard_input_and_output(tiny: Path, source: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    expected = translate(tiny, source)
    assert run_job(tiny, source=source) == 0
    assert run_job(tiny, "--input", "-", source=source) == 0
    assert capfdbinary.readouterr().out == 2 * expected


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "x"])
def test_files_that_hardly_hold_anything(tiny: Path, tmp_path: Path, text: str):
    path = tmp_path / "in.txt"
    path.write_text(text)
    assert translate(tiny, path).count(b"\n") == len(text.splitlines())


def test_windows_of_a_file_are_always_the_same(source: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "read_ahead", lambda lines: pytest.fail("what a thread gives depends on the clock"))
    with closing(InputLines(source)) as lines:
        assert not lines.waits
        assert [len(window) for window in files.cut_windows(lines)] == [4, 4, 4, 4, 3]
    monkeypatch.setattr(files, "WINDOW_TOKENS", 8)  # of about four characters
    with closing(InputLines(source)) as lines:
        assert [len(window) for window in files.cut_windows(lines)][:3] == [2, 2, 2]


def test_the_first_windows_are_small_and_a_job_goes_on_with_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "WINDOW_TEXTS", 200)
    path = tmp_path / "in.txt"
    path.write_text("x\n" * 700)
    whole = [64, 64, 128, 200, 200, 44]
    for done in range(len(whole)):
        with closing(InputLines(path)) as lines:
            lines.skipped = sum(whole[:done])
            for _ in range(lines.skipped):
                lines._read()
            assert [len(window) for window in files.cut_windows(lines)] == whole[done:]


# ---- reading ahead ----


def test_lines_are_given_as_soon_as_they_are_there():
    more, taken = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        yield from ("a", "b")
        taken.set()
        more.wait()
        yield "c"

    found = read_ahead(slow())
    taken_so_far = [next(found) for _ in range(3)]
    taken.wait()
    while taken_so_far.count(None) < 1 or [line for line in taken_so_far if line] != ["a", "b"]:
        taken_so_far.append(next(found))
    more.set()
    assert [line for line in found if line is not None] == ["c"]


def test_no_more_is_read_ahead_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "READ_AHEAD", 1000)
    given: list[int] = []
    for line, size in (("", files.LINE), ("x" * 100, files.LINE + 100)):
        given.clear()
        found = read_ahead(given.append(number) or line for number in range(300))
        first = next(found)
        while first is None:
            first = next(found)
        for _ in range(100):
            before = len(given)
            time.sleep(0.005)
            if len(given) == before:
                break
        assert 1000 / size <= len(given) <= 1000 / size + 3
        assert [first, *(each for each in found if each is not None)] == [line] * 300


def test_an_error_of_the_reader_comes_after_its_lines():
    def bad() -> Iterator[str]:
        yield "a"
        raise DataError("bad")

    found = read_ahead(bad())
    with pytest.raises(DataError, match="bad"):
        assert [line for line in found if line] == ["a"]


# ---- bad input ----


@contextmanager
def pipe(folder: Path, text: bytes) -> Iterator[Path]:
    """Open a named pipe that a text comes through."""
    path = folder / "pipe"
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(text,))
    thread.start()
    yield path
    thread.join()
    path.unlink()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("line", "flags", "message"),
    [
        (b"gr\xfcn", [], "{d}:7: not UTF-8 (byte 0xFC at position 3); convert the text with: iconv -f LATIN1 -t UTF-8"),
        (b"one two three four five six", ["--split", "never", "--longest", "12"], "{d}:7: a sentence that may not be"),
        (b"{", ["--json-input"], "{d}:7: not JSON ("),
        (b'{"text": "a", "prefix": "b", "text": "a\\nb"}', ["--json-input"], "{d}:7: has 2 lines, but a prefix"),
    ],
)
def test_a_bad_line_is_named_and_what_comes_before_it_is_kept(
    tiny: Path, tmp_path: Path, forks: Forks, line: bytes, flags: list[str], message: str, waits: bool
):
    out = tmp_path / "out.txt"
    good = [b'"one"' if "--json-input" in flags else b"one"] * 6
    bad, mended = (b"\n".join([*good, middle, *good]) for middle in (line, good[0]))

    def run(text: bytes) -> tuple[str, Ended]:
        with pipe(tmp_path, text) if waits else closing(open(os.devnull)):
            path = tmp_path / ("pipe" if waits else "in.txt")
            if not waits:
                path.write_bytes(text)
            return str(path), forks.run("", str(tiny), "--input", str(path), "--out", str(out), *flags)

    path, ended = run(bad)
    assert ended.code == 1
    assert ended.err.startswith(f"error: {message.format(d=path)}")
    assert Path(f"{out}.partial").read_bytes().count(b"\n") == 6
    # Mended, the job goes on behind what it has.
    path, ended = run(mended)
    assert ended.code == 0
    assert ended.err == f"{out}: resuming after 6 lines\n{out}: 13 lines, 7 of them now\n"
    assert len(set(out.read_bytes().splitlines())) == 1
    assert out.read_bytes().count(b"\n") == 13
    # The same to standard output.
    (tmp_path / "bad").write_bytes(bad)
    with pipe(tmp_path, bad) if waits else closing(open(os.devnull)):
        ended = forks.run("", str(tiny), *flags, source=tmp_path / ("pipe" if waits else "bad"))
    assert (ended.code, ended.out.count(b"\n")) == (1, 6)
    assert ended.err.startswith(f"error: {message.format(d='standard input')}")


def test_utf16_is_told_from_other_texts(tmp_path: Path):
    path = tmp_path / "in.txt"
    for text, line, form in (("one\ntwo\n".encode("utf-16"), 1, "UTF-16"), (b"one\n\xff\xfe\n", 2, "LATIN1")):
        path.write_bytes(text)
        wanted = rf"in.txt:{line}: not UTF-8 \(byte 0xFF at position 1\); convert .* iconv -f {form} -t UTF-8"
        with closing(InputLines(path)) as lines, pytest.raises(DataError, match=wanted):
            list(lines)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "f:3: not JSON (Expecting value: line 1 column 1 (char 0)); give a string or an object with a text"),
        ("[" * 100_000, "f:3: not JSON (maximum recursion depth exceeded"),
        ("5", 'f:3: has no text; give an object such as {"text": "…"}'),
        ('{"prefix": "a"}', "f:3: has no text; "),
        ('{"text": 5}', "f:3: text must be a string"),
        ('{"text": "a", "prefix": ["b"]}', "f:3: prefix must be a string"),
        ('{"text": "a", "require": "b"}', "f:3: require must be a list of strings"),
        ('{"text": "a", "forbid": ["b", 3]}', "f:3: forbid must be a list of strings"),
        ('{"text": "a", "requires": []}', "f:3: unknown key requires; did you mean require?"),
        ('{"text": "a", "xyzzy": []}', "f:3: unknown key xyzzy; use text, prefix, require, forbid"),
    ],
)
def test_wrong_requests_are_named(line: str, message: str):
    with pytest.raises(DataError) as error:
        read_request(line, "f:3")
    assert str(error.value).startswith(message)


def test_requests():
    assert read_request('"a\\nb"', "x") == Request("a\nb")
    assert read_request('{"text": ""}', "x") == Request("")
    whole = '{"text": "a", "prefix": "b", "require": ["c", "d"], "forbid": ["e"]}'
    assert read_request(whole, "x") == Request("a", "b", ("c", "d"), ("e",))
    common = Request("no", "p", ("q",), ("r",))
    assert Request("a").with_common(common) == Request("a", "p", ("q",), ("r",))
    assert read_request(whole, "x").with_common(common) == Request("a", "b", ("q", "c", "d"), ("r", "e"))


def test_paragraphs_from_json_become_one_line_or_stay_what_they_are(tiny: Path, tmp_path: Path):
    path = tmp_path / "in.jsonl"
    path.write_text('"nine dollars\\n\\nnine euros"\n"two"\n')
    plain = translate(tiny, path, "--json-input").decode().split("\n")
    assert len(plain) == 3
    first = json.loads(translate(tiny, path, "--json-input", "--json").decode().split("\n")[0])
    assert plain[0] == first["translation"].replace("\n", " ")
    assert first["translation"].count("\n\n") == 1


# ---- JSON ----


def test_json_lines_hold_all_there_is(tiny: Path, translator: Translator, source: Path):
    flags = ["--beam", "4", "--n-best", "3", "--alignments", "--split", "always"]
    found = [json.loads(line) for line in translate(tiny, source, "--json", *flags).splitlines()]
    lines = source.read_bytes().decode().split("\n")
    assert [one["source"] for one in found] == lines
    for one, text in zip(found, lines):
        wanted = translator.translate(text, beam=4, n_best=3, alignments=True, split="always")
        assert one["translation"] == wanted.text
        assert one["score"] == pytest.approx(wanted.score, abs=1e-5)
        assert [(each["translation"], each["score"]) for each in one["alternatives"]] == [
            (text, pytest.approx(score, abs=1e-5)) for text, score in wanted.alternatives()
        ]
        assert [each["source"] for each in one["sentences"]] == [each.source for each in wanted.sentences]
        for sentence, expected in zip(one["sentences"], wanted.sentences):
            assert len(sentence["alternatives"]) == len(expected.alternatives)
            for shown, alternative in zip(sentence["alternatives"], expected.alternatives):
                assert shown["translation"] == alternative.text
                assert shown["complete"] == alternative.complete
                assert tuple(shown["tokens"]) == alternative.tokens
                assert sum(shown["token_scores"]) == pytest.approx(shown["log_probability"], abs=1e-4)
                assert shown["token_scores"] == pytest.approx(list(alternative.token_scores), abs=1e-5)
                assert shown["score"] == pytest.approx(alternative.score, abs=1e-5)
                assert shown["alignment"] == (alternative.alignment and [list(link) for link in alternative.alignment])


def test_json_is_as_short_as_what_was_asked_for(translator: Translator):
    found = json.loads(as_json(translator.translate("zwölf"), Options(), wants_alternatives=False))
    assert "alternatives" not in found
    assert "alignment" not in found["sentences"][0]["alternatives"][0]
    assert "ö" in as_json(translator.translate("zwölf"), Options(), wants_alternatives=False)


# ---- going on ----


def test_a_job_killed_at_any_moment_goes_on(tiny: Path, forks: Forks, tmp_path: Path):
    source, out = tmp_path / "in.txt", tmp_path / "out" / "x.txt"
    source.write_text("\n".join(LINES[:7]))
    flags = [str(tiny), "--input", str(source), "--out", str(out), "--json", "--engine", "torch"]
    assert forks.run("", *flags).code == 0
    whole = out.read_bytes()
    partial, note = Path(f"{out}.partial"), Path(f"{out}.partial.json")
    seen: dict[str, int] = {}  # what may lie there after a kill, and how many lines are known then
    for moment in range(1, 99):
        for leftover in out.parent.iterdir():
            leftover.unlink()
        ended = forks.run(f"before_change({moment}, {str(out.parent)!r}, die)", *flags)
        if ended.code == 0:
            break
        assert ended.code == -9
        found = repr([(path.name, path.read_bytes()) for path in sorted(out.parent.iterdir())])
        if out.exists():
            assert out.read_bytes() == whole
        elif found not in seen:
            assert not partial.exists() or whole.startswith(partial.read_bytes())
            known = seen[found] = json.loads(note.read_text())["lines"] if note.exists() else 0
            again = forks.run("", *flags)
            assert again.code == 0, again.err
            going_on = f"{out}: resuming after {known} lines\n" if known else ""
            left = f", {7 - known} of them now" if known else ""
            assert again.err == f"{going_on}{out}: 7 lines{left}\n"
            assert out.read_bytes() == whole
            assert list(out.parent.iterdir()) == [out]
    else:
        pytest.fail("never ended")
    assert set(seen.values()) == {0, 4, 7}
    assert len(seen) >= 8


def begin(forks: Forks, tiny: Path, source: Path, out: Path, *flags: str) -> None:
    """Start a job that is killed when 8 lines are done."""
    code = "on_call(files.Output, 'save', 4, die)"
    assert forks.run(code, str(tiny), "--input", str(source), "--out", str(out), *flags).code == -9
    assert Path(f"{out}.partial").read_bytes().count(b"\n") == 8


def test_finished_lines_are_not_translated_again(tiny: Path, source: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "out.txt"
    begin(forks, tiny, source, out)
    partial = Path(f"{out}.partial")
    mine = b"".join(b"mine %d\n" % number for number in range(8))
    note = json.loads(Path(f"{out}.partial.json").read_text())
    Path(f"{out}.partial.json").write_text(json.dumps(note | {"bytes": len(mine)}))
    partial.write_bytes(mine + b"half a li")
    assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
    found = out.read_bytes()
    assert found.startswith(mine)
    assert found.removeprefix(mine) == b"".join(translate(tiny, source).splitlines(keepends=True)[8:])


CHANGES = [
    "model",
    "beam",
    "json",
    "prefix",
    "first line",
    "eighth line",
    "shorter",
    "glossary",
    "split",
    "precision",
    "json input",
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_the_same_is_refused(
    tiny: Path,
    source: Path,
    forks: Forks,
    tmp_path: Path,
    change: str,
    capfd: pytest.CaptureFixture[str],
):
    out, partial = tmp_path / "out.txt", tmp_path / "out.txt.partial"
    begin(forks, tiny, source, out)
    model, flags, lines = tiny, [], source.read_bytes().split(b"\n")
    before = partial.read_bytes()
    remedy = f"error: repeat the same command to resume, or remove {partial} and {partial.name}.json to start again\n"
    match change:
        case "model":
            model = save_tiny(tmp_path / "other", seed=2)
            wanted = f"error: {partial}: was started with model = ["
        case "beam":
            flags = ["--beam", "3"]
            wanted = f"error: {partial}: was started with beam = 2, not 3\n{remedy}"
        case "json":
            flags = ["--json"]
            wanted = f"error: {partial}: was started with json = false, not true\n{remedy}"
        case "prefix":
            flags = ["--prefix", "a", "--forbid", "b"]
            wanted = (
                f'error: {partial}: was started with prefix = "", not "a"\n'
                f'error: {partial}: was started with forbid = [], not ["b"]\n{remedy}'
            )
        case "precision":
            flags = ["--precision", "bf16"]
            wanted = f'error: {partial}: was started with precision = "auto", not "bf16"\n{remedy}'
        case "json input":
            flags = ["--json-input"]
            wanted = f"error: {partial}: was started with json_input = false, not true\n{remedy}"
        case "glossary":
            (tmp_path / "terms.tsv").write_text("two\tdrei\n")
            flags = ["--glossary", str(tmp_path / "terms.tsv")]
            wanted = f'error: {partial}: was started with glossary = "none", not "1 terms ('
        case "split":
            flags = ["--split", "always"]
            wanted = f'error: {partial}: was started with split = "long", not "always"\n{remedy}'
        case _:
            place = {"first line": 0, "eighth line": 7}.get(change)
            source.write_bytes(b"\n".join(lines[:5] if place is None else [*lines[:place], b"?", *lines[place + 1 :]]))
            wanted = f"error: {source}: its first 8 lines are not the ones {partial} was made from; give the same input"
    assert run_job(model, "--input", str(source), "--out", str(out), *flags, source=source) == 1
    assert capfd.readouterr().err.startswith(wanted)
    assert partial.read_bytes() == before
    source.write_bytes(b"\n".join([*lines[:8], b"other", *lines[9:]]))  # what was not translated yet may change
    assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
    assert out.read_bytes().startswith(before)


def test_an_empty_line_at_the_end_is_a_line(tmp_path: Path):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    with closing(Output(out, {})) as output:
        for line in ("a", ""):
            output.write(line)
        output.save(2, hashlib.sha256(b"a\n\n").hexdigest())
    for text, same in (("a\n\n", True), ("a\n", False)):
        source.write_text(text)
        with closing(InputLines(source)) as lines, closing(Output(out, {})) as output:
            assert output.done == 2
            with nullcontext() if same else pytest.raises(DataError, match="its first 2 lines are not the ones"):
                lines.skip(output)


def test_damaged_leftovers_are_named(
    tiny: Path, source: Path, forks: Forks, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    out, partial = tmp_path / "out.txt", tmp_path / "out.txt.partial"
    begin(forks, tiny, source, out)
    note = tmp_path / "out.txt.partial.json"
    kept, text = note.read_text(), partial.read_bytes()

    def refuse(message: str) -> None:
        capfd.readouterr()
        assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 1
        assert capfd.readouterr().err.startswith(f"error: {message}")

    for damage in ("{", "[]", "5", "{}"):
        note.write_text(damage)
        refuse(f"{note}: not readable (")
    note.unlink()
    refuse(f"{partial}: cannot be resumed, as out.txt.partial.json is missing; remove it")
    note.write_text(kept)
    partial.write_bytes(text[:-1])
    refuse(f"{partial}: has lost some of its 8 lines; remove {partial} and out.txt.partial.json to start again")
    partial.write_bytes(text)
    out.write_text("precious")
    refuse(f"{out}: already exists; remove it, or name another file")
    assert out.read_text() == "precious"
    out.unlink()
    assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0


def test_nothing_is_written_over_that_came_meanwhile(tmp_path: Path):
    path = tmp_path / "out.txt"
    output = Output(path, {})
    output.write("a")
    output.save(1, "x")
    path.write_text("precious")
    with pytest.raises(DataError, match=r"out.txt: already exists"):
        output.finish()
    output.close()
    assert path.read_text() == "precious"
    assert Path(f"{path}.partial").read_text() == "a\n"


def test_one_job_at_a_time_writes_a_file(tmp_path: Path):
    path = tmp_path / "new" / "out.txt"
    output = Output(path, {})
    with pytest.raises(DataError, match=r"out.txt.partial: another process is writing it; wait for it to end"):
        Output(path, {})
    output.close()
    Output(path, {}).close()


def test_a_job_finished_by_another_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "out.txt"
    usual = Output._lock

    def lock(output: Output) -> None:
        Path(f"{path}.partial").rename(path)
        path.write_text("done")
        usual(output)

    monkeypatch.setattr(Output, "_lock", lock)
    with pytest.raises(DataError, match="already exists"):
        Output(path, {})
    assert path.read_text() == "done"


def test_a_full_disk_loses_nothing(tiny: Path, source: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "out.txt"
    flags = [str(tiny), "--input", str(source), "--out", str(out), "--json"]
    expected = translate(tiny, source, "--json")
    for size in (300, 2000, len(expected) // 2, len(expected) - 1):
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
        ended = forks.run(limit, *flags)
        assert ended.code == 1
        assert ended.err == (
            f"error: {out}.partial: cannot be written (File too large); finished work is kept: "
            "free disk space, and repeat the command to resume\n"
        )
        kept = json.loads(Path(f"{out}.partial.json").read_text())["lines"] if size > 300 else 0
        again = forks.run("", *flags)
        assert again.code == 0, again.err
        assert (f"resuming after {kept} lines" in again.err) is bool(kept)
        assert kept or size < len(expected) // 2
        assert out.read_bytes() == expected
        out.unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".zst", ".GZ"])
def test_a_file_is_packed_as_its_name_says(tiny: Path, source: Path, tmp_path: Path, ending: str):
    """With the same endings as for reading, and to the same bytes each time."""
    out = tmp_path / f"out.txt{ending}"
    found: list[bytes] = []
    for _ in range(2):
        assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
        found.append(out.read_bytes())
        stream, raw = open_bytes(out)
        with closing(raw), closing(stream):
            assert stream.read() == translate(tiny, source)
        out.unlink()
    assert found[0] == found[1] != translate(tiny, source)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_disk_too_full_to_pack_loses_nothing(tiny: Path, source: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "out.txt.gz"
    flags = [str(tiny), "--input", str(source), "--out", str(out)]
    fail = "def fail(*_): raise OSError(28, 'No space left on device')\non_call(files, 'write_packed', 1, fail)"
    ended = forks.run(fail, *flags)
    assert (ended.code, ended.err) == (
        1,
        f"error: {out}.partial.whole: cannot be written (No space left on device); the translations are kept: "
        "free disk space, and repeat the command to resume\n",
    )
    again = forks.run("", *flags)
    assert again.code == 0
    assert f"{out}: resuming after " in again.err
    assert gzip.decompress(out.read_bytes()) == translate(tiny, source)


def test_ctrl_c_loses_nothing(tiny: Path, source: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "out.txt"
    flags = [str(tiny), "--input", str(source), "--out", str(out)]
    code = "def stop(*_): raise KeyboardInterrupt\non_call(translator.Translator, '_translate', 3, stop)"
    ended = forks.run(code, *flags)
    assert (ended.code, ended.err) == (130, "stopped\n")
    assert Path(f"{out}.partial").read_bytes().count(b"\n") == 8
    assert forks.run("", *flags).code == 0
    assert out.read_bytes() == translate(tiny, source)


# ---- progress ----


def test_progress_moves_within_a_window_and_ends_at_the_end(tiny: Path, source: Path, forks: Forks, tmp_path: Path):
    out = tmp_path / "out.txt"
    watched: list[tuple[float, int]] = []

    class Watch:
        def update(self, done: float, count: int) -> None:
            watched.append((done, count))

    totals: list[float] = []

    def show(name: str, total: float, things: str) -> object:
        totals.append(total)
        return nullcontext(Watch())

    size = source.stat().st_size
    with patch.object(files, "show_progress", show):
        translate(tiny, source)
        assert totals == [size]
        assert watched == sorted(watched)
        assert watched[-1] == (size, 19)
        assert len(watched) > 19  # one for each sentence, and for each window
        begin(forks, tiny, source, out)
        watched.clear()
        assert run_job(tiny, "--input", str(source), "--out", str(out), source=source) == 0
    rest = len(b"\n".join(source.read_bytes().split(b"\n")[8:]))
    assert totals[1] == rest
    assert watched[-1] == (rest, 11)
    assert watched == sorted(watched)


def test_no_progress_where_translations_are_seen(tiny: Path, source: Path, monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    shown = Terminal(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", shown)
    with patch.object(files, "show_progress", side_effect=AssertionError):
        assert run_job(tiny, source=source) == 0
    assert shown.buffer.getvalue().count(b"\n") == 19  # pyright: ignore[reportAttributeAccessIssue]
