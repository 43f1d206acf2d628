"""`transduce translate`, as a person and as a program use it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import Forks, run_job
from models import SEARCH, learn_subwords, save_tiny

from transduce.cli import main
from transduce.config import SearchConfig
from transduce.decoding import run as module
from transduce.decoding.translator import Translator


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of two lines."""
    path = tmp_path / "in.txt"
    path.write_text("two euros\nnine dollars\n")
    return path


def refused(capfd: pytest.CaptureFixture[str], model: Path | str, *flags: str, source: Path) -> tuple[int, str]:
    """Return the exit code and the message of a job that must fail and print nothing else."""
    code = run_job(model, *flags, source=source)
    out, err = capfd.readouterr()
    assert out == ""
    return code, err


# ---- pipes ----


def test_a_line_is_answered_at_once_while_the_pipe_is_open(tiny: Path, translator: Translator):
    command = [sys.executable, "-m", "transduce", "translate", str(tiny), "--device", "cpu"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for text in ("two euros", "", "nine dollars"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == f"{translator.translate(text).text}\n"
        # Stopped while it waits: quietly, and not by abort().
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b"stopped\n"


def test_a_reader_that_goes_away_is_nothing_to_speak_of(tiny: Path, forks: Forks, tmp_path: Path):
    ways = [tmp_path / name for name in ("in", "out")]
    for way in ways:
        os.mkfifo(way)
    (tmp_path / "err").touch()
    job = forks.start("", [str(tiny)], [*map(str, ways), str(tmp_path / "err")])
    give = os.open(ways[0], os.O_WRONLY)
    take = os.open(ways[1], os.O_RDONLY)
    os.write(give, b"two euros\n")
    assert os.read(take, 99).endswith(b"\n")
    os.close(take)
    os.write(give, b"nine dollars\n")
    assert forks.wait(job) == 141  # though there might be more to translate
    os.close(give)
    assert (tmp_path / "err").read_text() == ""


# ---- a terminal ----


class Talk:
    """A person at a terminal."""

    def __init__(self, handle: int):
        self.handle, self.shown = handle, ""

    def type(self, text: bytes) -> None:
        os.write(self.handle, text)

    def wait_for(self, pattern: str) -> str:
        """Read until the pattern is shown; return all new text up to its end."""
        until = time.monotonic() + 30
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < until, self.shown
            if select.select([self.handle], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.handle, 4096).decode(errors="replace").replace("\r\n", "\n")
                except OSError:
                    raise AssertionError(f"it has ended: {self.shown}") from None
        text, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return text


@contextmanager
def terminal(forks: Forks, *arguments: str, out: Path | None = None) -> Iterator[tuple[Talk, int]]:
    """Start a job at a terminal; yield the terminal and the process ID."""
    ours, theirs = pty.openpty()
    try:
        name = os.ttyname(theirs)
        files = [name, str(out or name), name]
        job = forks.start("import os; os.environ['TERM'] = 'dumb'", list(arguments), files, terminal=True)
        yield Talk(ours), job
    finally:
        os.close(ours)
        os.close(theirs)


def wait_until_asleep(process: int) -> None:
    """Wait until a process has been asleep for a while."""
    asleep = 0
    until = time.monotonic() + 30
    while asleep < 5:
        assert time.monotonic() < until
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)


def test_a_person_is_asked_and_answered(tiny: Path, translator: Translator, forks: Forks):
    with terminal(forks, str(tiny), "--split", "never", "--longest", "30") as (talk, job):
        assert "tiny: type a text and press Enter; Ctrl-D quits\n" in talk.wait_for("> ")
        for text in ("two euros", "", "nine dollars"):
            talk.type(f"{text}\n".encode())
            assert f"\n{translator.translate(text).text}\n" in talk.wait_for(r"\n> ")
        # What is wrong is said, and does not end it.
        talk.type(b"two " * 20 + b"\n")
        assert "error: the text: a sentence that may not be split has " in talk.wait_for(r"\n> ")
        talk.type(b"nine dollars\n")
        assert translator.translate("nine dollars").text in talk.wait_for(r"\n> ")
        talk.type(b"\x04")
        assert forks.wait(job) == 0


def test_answers_may_go_to_a_file_and_the_prompt_does_not(
    tiny: Path, translator: Translator, forks: Forks, tmp_path: Path
):
    out = tmp_path / "answers"
    out.touch()
    with terminal(forks, str(tiny), "--json", "--json-input", "--n-best", "2", "--prefix", "neun", out=out) as (
        talk,
        job,
    ):
        talk.wait_for("> ")
        talk.type(b"two\n")
        assert "error: your text: not JSON" in talk.wait_for(r"\n> ")
        talk.type(b"gr\xfcn\n")
        assert "error: the terminal sent text that is not UTF-8; set it to UTF-8\n" in talk.wait_for(r"\n> ")
        talk.type(b'{"text": "two", "forbid": ["x"]}\n')
        talk.wait_for(r"\n> ")
        talk.type(b"\x04")
        assert forks.wait(job) == 0
    (line,) = out.read_text().splitlines()
    found = json.loads(line)
    assert found["source"] == "two"
    assert len(found["alternatives"]) == 2
    assert all(one["translation"].startswith("neun") for one in found["alternatives"])


def test_ctrl_c_ends_a_conversation(tiny: Path, forks: Forks):
    with terminal(forks, str(tiny)) as (talk, job):
        talk.wait_for("> ")
        wait_until_asleep(job)  # readline hears no signal between its prompt and its waiting
        os.kill(job, signal.SIGINT)
        assert forks.wait(job) == 130
        talk.wait_for("stopped\n")


# ---- flags ----


def test_flags_are_asked_of_every_line(tiny: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    assert run_job(tiny, "--prefix", "neun Euro", "--extra-tokens", "20", source=source) == 0
    assert all(line.startswith("neun Euro") for line in capfd.readouterr().out.splitlines())
    assert (
        run_job(tiny, "--require", "zwei Euro", "neun", "--require", "drei", "--extra-tokens", "20", source=source) == 0
    )
    for line in capfd.readouterr().out.splitlines():
        assert all(phrase in line for phrase in ("zwei Euro", "neun", "drei"))
    assert run_job(tiny, "--min-tokens", "4", source=source) == 0
    said = capfd.readouterr().out
    avoid = [word[:3] for word in said.splitlines()]
    assert run_job(tiny, "--min-tokens", "4", "--forbid", *avoid, source=source) == 0
    assert not any(phrase in capfd.readouterr().out for phrase in avoid)


def test_lines_of_json_have_their_own_requests(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    source = tmp_path / "in.jsonl"
    lines = [{"text": "two euros", "prefix": "neun"}, {"text": "two euros", "require": ["acht"]}, "two euros"]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_job(tiny, "--json-input", "--prefix", "drei", "--extra-tokens", "20", source=source) == 0
    first, second, third = capfd.readouterr().out.splitlines()
    assert first.startswith("neun")
    assert second.startswith("drei")
    assert "acht" in second
    assert third.startswith("drei")
    assert "acht" not in third


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--n-best", "2"], 2, "--n-best 2 needs --json: plain output has one line for each line of the input"),
        (["--alignments"], 2, "--alignments needs --json: plain output has one line for each line of the input"),
        (
            ["--n-best", "3", "--json"],
            1,
            "command line: search.n_best = 3 is more than search.beam = 2; use a beam of 3",
        ),
        (
            ["--temperature", "1.9", "--top-k", "2"],
            1,
            "command line: only samples take search.temperature = 1.9 and search.top_k = 2; "
            "use search.sample = true (--sample), or leave it out",
        ),
        (["--beam", "0"], 1, "command line: search.beam = 0 is out of range; use 1 or more"),
        (["--split", "often"], 1, 'command line: split = often, wanted "long" or "always" or "never"'),
        (["--beams", "3"], 2, "unknown flag --beams; did you mean --beam?"),
        (["--require", " "], 1, "standard input:1: ' ' has no words to require or forbid; give some, or leave it out"),
        (["--input", "/no/such.txt"], 1, "/no/such.txt: cannot be read: No such file or directory"),
        (["--input", "/"], 1, "/: cannot be read: Is a directory"),
        (["--out", "/dev/null"], 1, "/dev/null: already exists; remove it, or name another file"),
    ],
)
def test_mistakes_are_named(
    tiny: Path, source: Path, capfd: pytest.CaptureFixture[str], flags: list[str], code: int, message: str
):
    assert refused(capfd, tiny, *flags, source=source) == (code, f"error: {message}\n")


def test_mistakes_are_found_before_the_model_is_loaded(
    tiny: Path, source: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.Translator, "load", lambda *_, **__: pytest.fail("loaded"))
    for flags in (["--n-best", "2"], ["--alignments"], ["--beam", "x"], ["--input", "/no"], ["--out", str(source)]):
        assert refused(capfd, tiny, *flags, source=source)[0] > 0


def test_settings_are_laid_over_those_of_the_model(tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    model = save_tiny(tmp_path / "wide", search=SearchConfig(beam=6, extra_tokens=4))
    assert run_job(model, "--n-best", "5", "--json", source=source) == 0
    for line in capfd.readouterr().out.splitlines():
        assert len(json.loads(line)["alternatives"]) == 5
    own = save_tiny(tmp_path / "own", search=SearchConfig(beam=3, n_best=2))
    assert refused(capfd, own, source=source)[1].startswith("error: --n-best 2 needs --json")


def test_models_are_named(tiny: Path, tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    remedy = "name a run, a checkpoint or a model made by transduce train, or one that transduce models lists"
    nowhere = f"error: {tmp_path}/no: does not exist; {remedy}\n"
    assert refused(capfd, tmp_path / "no", source=source) == (1, nowhere)
    assert refused(capfd, tiny, f"{tmp_path}/no", source=source) == (1, nowhere)
    other = save_tiny(tmp_path / "odd", subwords=learn_subwords(331))
    assert refused(capfd, tiny, str(other), source=source)[1] == (
        f"error: {other}: cannot form an ensemble with {tiny}: its subwords differ\n"
    )
    for text in ("two euros", "two " * 500):
        for words in ([text], [str(tiny), text]):
            code, err = refused(capfd, *words, source=source)
            assert code == 1
            assert f"error: {text[:80]}" in err
            assert err.endswith("\nerror: to translate it as a text, use --text, or --to LANGUAGE without a RUN\n")
            assert len(err) < 400
    with pytest.raises(AssertionError):
        assert main(["translate"]) == 0
    assert "name a RUN, or give --to LANGUAGE" in capfd.readouterr().err


def test_an_ensemble_translates(tiny: Path, tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    other = save_tiny(tmp_path / "other", seed=3)
    assert run_job(tiny, str(other), "--json", source=source) == 0
    scores = [json.loads(line)["score"] for line in capfd.readouterr().out.splitlines()]
    expected = Translator.load(tiny, other, device="cpu").translate(["two euros", "nine dollars"])
    assert scores == pytest.approx([one.score for one in expected], abs=1e-5)


def test_a_run_and_its_model_are_the_same(tiny: Path, tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(tiny)
    assert run_job(tmp_path / "run", source=source) == 0
    assert run_job(tiny, source=source) == 0
    out = capfd.readouterr().out.splitlines()
    assert out[:2] == out[2:]


def test_sentences_without_a_translation_are_counted(tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]):
    model = save_tiny(tmp_path / "silent", seed=2)
    said = capfd.readouterr
    source.write_text("twenty-three euros\n\n...\ntwo euros and nine cents\n")
    assert run_job(model, source=source) == 0
    out, err = said()
    many = sum(not line for line in out.splitlines()) - 1
    assert many
    assert (
        f"note: the translation of {'a sentence' if many == 1 else f'{many} sentences'} is empty; --min-tokens 1" in err
    )
    assert run_job(model, "--min-tokens", "1", source=source) == 0
    assert said().err == ""


def test_what_is_written_is_said_on_standard_error(
    tiny: Path, tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str]
):
    out = tmp_path / "deep" / "out.txt"
    assert run_job(tiny, "--out", str(out), "--beam", str(SEARCH.beam), source=source) == 0
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", f"{out}: 2 lines\n")
    assert out.read_text().count("\n") == 2
