"""The command line answers quickly, says what is wrong in one line, and never shows a traceback."""

import json
import os
import pty
import re
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from transduce import cli
from transduce.cli import main
from transduce.config import Config
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings
from transduce.presets import PRESETS
from transduce.strict import Settings, apply, to_dict
from transduce.version import __version__

TRANSDUCE = [sys.executable, "-m", "transduce"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real command."""
    return subprocess.run([*TRANSDUCE, *arguments], capture_output=True, text=True)


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Run a command that must fail; return its exit code and the lines on stderr."""
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert printed.out == ""
    return code, printed.err.splitlines()


def test_help_answers_at_once():
    def seconds() -> float:
        start = time.perf_counter()
        assert run("--help").returncode == 0
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.3


def test_help_names_every_verb():
    shown = run("--help").stdout
    assert all(f"  {verb:9}  {summary}\n" in shown for verb, (summary, *_) in cli.VERBS.items())
    assert "example: transduce " in shown


def test_nothing_but_the_verbs_imports_heavy_packages():
    code = "import sys, transduce.cli, transduce.presets, transduce.flags; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert "transduce.flags" in modules
    assert not {"torch", "numpy", "sentencepiece", "rich"} & set(modules)


def test_no_verb_prints_the_help_to_stderr():
    finished = run()
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == run("--help").stdout


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"transduce {__version__}\n"


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: transduce {verb}")
    assert cli.VERBS[verb].summary in " ".join(shown.split())
    assert f"example: transduce {verb} " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepair"], "unknown verb prepair; did you mean prepare?"),
        (["xyzzy"], "unknown verb xyzzy; see transduce --help"),
        (["generate"], "unknown verb generate; did you mean translate?"),  # as fairseq calls it
        (["presets", "base", "--max_update", "9"], "unknown flag --max-update; did you mean --training.steps?"),
        (["presets", "base", "--lr", "1"], "unknown flag --lr; did you mean --training.peak-rate?"),
        (["--hlep"], "unknown flag --hlep; did you mean --help?"),
        (["presets", "base", "--model.layrs", "3"], "unknown flag --model.layrs; did you mean --model.layers?"),
        (["presets", "base", "--model.layrs=3"], "unknown flag --model.layrs; did you mean --model.layers?"),
        (["presets", "base", "--beam", "3"], "unknown flag --beam; did you mean --search.beam?"),
        (["presets", "base", "--model.lay", "3"], "unknown flag --model.lay; did you mean --model.layers?"),
        (["presets", "base", "-x"], "unknown flag -x"),
        (["presets", "base", "more"], "unexpected argument more; see transduce presets --help"),
        (
            ["presets", "base", "--model.layers"],
            "argument --model.layers: expected one argument; see transduce presets --help",
        ),
        (
            ["presets", "--model.layers", "3"],
            "settings override those of a preset; name one, as in `transduce presets base …`",
        ),
        (["inspect"], "the following arguments are required: DATA; see transduce inspect --help"),
        (
            ["score", "--seed", "-1", "--reference", "a.de", "b.de"],
            "the following arguments are required: HYP; put HYP before --reference, which takes all that follows it; "
            "see transduce score --help",
        ),
        (
            ["translate", "--beam", "2", "--text", "Hello", "runs/en-de"],
            "name a RUN before --text, which takes all that follows it, or give --to LANGUAGE; `transduce models` "
            "lists what there is",
        ),
        (
            ["translate", "Hello", "--to", "de", "again"],
            "unexpected argument again; give all arguments without a flag in one place; see transduce translate --help",
        ),
        (
            ["translate", "--to", "de", "no/Memo.docx"],
            "no/Memo.docx: no such file; --input names a file to translate, --text no/Memo.docx translates its name",
        ),
        (
            ["prepare", "data", "a.tsv"],
            "unexpected argument a.tsv; name text with --source and --target, or with --pairs; "
            "see transduce prepare --help",
        ),
        (
            ["prepare", "--out", "data"],
            "unknown flag --out; OUT is given without a flag: transduce prepare OUT [flags]",
        ),
        (
            ["export", "--model", "runs/en-de"],
            "unknown flag --model; RUN is given without a flag: transduce export RUN --to KIND [flags]",
        ),
    ],
)
def test_a_wrong_command_line_exits_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    assert error_of(capsys, *arguments) == (2, [f"error: {message}"])


def test_wrong_settings_are_all_named_and_exit_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nd_modle = 3\ndropout = 'much'\n")
    arguments = ["presets", "base", "--config", str(file), "--model.layers", "six", "--search.beam", "0"]
    assert error_of(capsys, *arguments) == (
        1,
        [
            f"error: {file}: unknown key model.d_modle; did you mean model.d_model?",
            f'error: {file}: model.dropout = "much", wanted a number',
            "error: command line: model.layers = six, wanted a whole number",
            f"error: {file} and command line: search.beam = 0 is out of range; use 1 or more",
        ],
    )
    assert error_of(capsys, "presets", "bse") == (1, ["error: unknown preset bse; did you mean base?"])


def test_a_mistake_shows_no_traceback():
    finished = run("presets", "base", "--config", "/nowhere/mine.toml")
    assert (finished.returncode, finished.stderr) == (1, "error: /nowhere/mine.toml: no such file\n")


def test_what_the_system_refuses_is_named(tmp_path: Path):
    file = tmp_path / "taken"
    file.touch()
    finished = run("translate", "en-de", "--input", str(Path(__file__)), "--out", str(file / "out"))
    assert (finished.returncode, finished.stderr) == (1, f"error: {file}: File exists\n")


def test_presets_are_listed_as_aligned_text(capsys: pytest.CaptureFixture[str]):
    assert main(["presets"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == list(PRESETS)
    assert (
        len({row.index(preset.summary) for row, preset in zip(rows, PRESETS.values())} | {header.index("summary")}) == 1
    )
    base = rows[0].split()
    assert base[:11] == ["base", "6", "512", "2048", "8", "64", "0.1", "63.0", "M", "65", "M"]


def test_presets_are_listed_as_json(capsys: pytest.CaptureFixture[str]):
    assert main(["presets", "--json"]) == 0
    listed = {preset["name"]: preset for preset in json.loads(capsys.readouterr().out)}
    assert list(listed) == list(PRESETS)
    assert listed["base"]["parameters"] == 63_045_632
    assert listed["base"]["paper_millions"] == 65
    assert listed["big"]["config"] == to_dict(PRESETS["big"].config)


def test_a_preset_takes_a_file_and_then_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nlayers = 3\nheads = 4\n[batch]\nsentences = 64\n")
    flags = ["--model.layers", "2", "--model.d_ff=1_024", "--batch.sentences", "off", "--no-batch.similar-lengths"]
    assert main(["presets", "big", "--config", str(file), *flags]) == 0
    resolved = apply(Config(), tomllib.loads(capsys.readouterr().out), "stdout")
    model, batch, big = resolved.model, resolved.batch, PRESETS["big"].config
    assert (model.layers, model.heads, model.d_ff, model.d_model) == (2, 4, 1024, 1024)
    assert (batch.sentences, batch.similar_lengths) == (None, False)
    assert resolved.training == big.training
    assert main(["presets", "big", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == to_dict(big)


def test_presets_in_a_terminal_are_a_table():
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "200", "TERM": "xterm"}
    process = subprocess.Popen([*TRANSDUCE, "presets"], stdout=theirs, env=environment)
    os.close(theirs)
    shown = ""
    with suppress(OSError):  # how Linux tells that a terminal's other end is closed
        while piece := os.read(ours, 65_536):
            shown += piece.decode()
    os.close(ours)
    assert process.wait() == 0
    assert all(name in shown for name in PRESETS)
    assert "\x1b[" in shown


def test_doctor_says_whether_there_is_a_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", sys.executable)
    assert main(["doctor"]) == 0
    assert re.search("our own decoding on the CPU +yes", capsys.readouterr().out)
    monkeypatch.setenv("CXX", "/no/compiler")
    assert main(["doctor"]) == 0
    assert re.search("our own decoding on the CPU +no: CXX = /no/compiler is not a program", capsys.readouterr().out)


def test_doctor_says_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]):
    import torch

    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transduce"] == __version__
    assert found["torch"] == torch.__version__
    assert found["python"] == sys.version.split()[0]
    assert 1 <= found["cores"] <= (os.cpu_count() or 1)
    assert len(found["gpus"]) == torch.cuda.device_count()
    assert found["fast_paths"]["pinned memory"]["available"] == torch.cuda.is_available()
    assert all(path["available"] == (path["reason"] == "") for path in found["fast_paths"].values())
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("numpy", "sentencepiece", "triton", "cpu features", "memory", "cuda", "mps", *found["fast_paths"]):
        assert f"\n{word}" in shown or f"\n  {word}" in shown


@pytest.mark.parametrize("arguments", [["--version"], ["presets", "--help"], ["presets", "--json"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]):
    # Short output stays in Python's buffer until the end, if it is allowed one.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    finished = subprocess.run([*TRANSDUCE, *arguments], stdout=writing, stderr=subprocess.PIPE, env=environment)
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (141, b"")


def test_ctrl_c_while_a_module_is_imported_is_not_lost(tmp_path: Path):
    # Like torch, which imports numpy from C++ and goes on when that is interrupted.
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(
        "import signal, sys\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n"
        f"sys.path.remove({str(tmp_path)!r})\ndel sys.modules['numpy']\nimport numpy\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = subprocess.run(
        [*TRANSDUCE, "prepare", str(tmp_path / "out"), "--builtin", "numbers", "--workers", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "stopped\n")
    assert not (tmp_path / "out").exists()


def test_a_stopped_verb_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert error_of(capsys, "doctor") == (130, ["stopped"])


@dataclass(frozen=True, kw_only=True)
class Sizes(Settings):
    """A nested section with a short flag and a hidden one."""

    section: ClassVar[str] = "sizes"

    width: int = field(default=8, metadata={"flag": "--width"})
    """how wide, in %"""
    secret: int = field(default=1, metadata={"hidden": True})
    """not for everyone"""


@dataclass(frozen=True, kw_only=True)
class Job(Settings):
    """Fields that share names with a verb's own arguments."""

    source: tuple[Path, ...] = ()
    """files"""
    out: Literal["fast", "small"] = "fast"
    """what to aim for"""
    sizes: Sizes = field(default_factory=Sizes)
    """nested"""


def job_parser() -> Parser:
    """Return a parser with a positional and the settings above."""
    parser = Parser("job", summary="Do it.", usage="OUT [flags]", example="transduce job x")
    parser.add_argument("out", metavar="OUT")
    add_settings(parser, Job)
    return parser


def test_flags_become_differences_of_what_was_given():
    given, differences = job_parser().parse(["here"])
    assert (given.out, differences) == ("here", {})
    given, differences = job_parser().parse(
        ["here", "--source", "a", "b", "--out", "small", "--source", "c", "--width", "3", "--sizes.secret=5"]
    )
    assert given.out == "here"
    assert apply(Job(), differences, "") == Job(
        source=(Path("a"), Path("b"), Path("c")), out="small", sizes=Sizes(width=3, secret=5)
    )
    assert job_parser().parse(["here", "--sizes.width", "4"])[1] == {"sizes": {"width": "4"}}
    assert job_parser().parse(["--width", "-4", "--", "--a_b"])[0].out == "--a_b"


def test_an_unknown_flag_is_blamed_and_not_its_value():
    with pytest.raises(UsageError, match=r"^unknown flag --sorce; did you mean --source\?$"):
        job_parser().parse(["--sorce", "a.txt", "here"])
    with pytest.raises(
        UsageError, match=r"^unknown flag --widht.*\nunknown flag --secret; did you mean --sizes.secret\?$"
    ):
        job_parser().parse(["--widht", "3", "--secret", "4"])


def test_the_help_of_flags_shows_docstrings_defaults_and_choices():
    shown = " ".join(job_parser().format_help().split())
    assert "--source PATH [PATH ...] files" in shown
    assert "--out fast|small what to aim for (default fast)" in shown
    assert "how wide, in % (default 8)" in shown
    assert "A nested section with a short flag" in shown
    assert "secret" not in shown
