"""The `translate.py` of an export as a command: what it reads, writes and reports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from exports import save_kind
from marians import texts

from transduce.interop import to_onnx, to_program
from transduce.interop.alone import LONGEST, WINDOW
from transduce.interop.alone import Translator as Alone

LINES = texts("dev", 4)["source"]


@pytest.fixture(scope="module", params=["program", "onnx"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of each kind."""
    made = tmp_path_factory.mktemp("alone")
    loaded = save_kind(made / "ours", "separate vocabularies, untied", layers=1)
    (made / "theirs").mkdir()
    {"program": to_program, "onnx": to_onnx}[request.param].write(loaded, made / "theirs", "float32")
    return made / "theirs"


def run(folder: Path, text: bytes, *flags: str) -> tuple[list[str], str, int]:
    """Run it where the locale is not UTF-8; return its lines, its messages and its exit code."""
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(folder / "translate.py"), "--beam", "1", *flags]
    done = subprocess.run(command, input=text, capture_output=True, env=environment)
    lines = done.stdout.decode("utf-8").split("\n")
    assert lines.pop() == ""
    return lines, done.stderr.decode("latin-1"), done.returncode


def test_lines_are_utf8_and_end_with_newlines_only(folder: Path):
    lines = ["zwölf €", f"{LINES[0]}\u2028{LINES[1]}", "one\x0ctwo\x85three", "", LINES[2], LINES[3]]
    expected = Alone(folder).translate(lines, beam=1)
    text = "\ufeff" + "\r\n".join(lines)  # as Windows writes it, the last line without an end
    assert run(folder, text.encode()) == (expected, "", 0)
    assert run(folder, "".join(f"{line}\n" for line in lines).encode(), "--threads", "1") == (expected, "", 0)
    assert len(set(expected)) > 3


def test_what_is_not_utf8_ends_it_behind_the_lines_before(folder: Path):
    lines = [LINES[number % 3] for number in range(WINDOW + 1)]
    text = "".join(f"{line}\n" for line in lines).encode()
    found, said, code = run(folder, text + b"zw\xf6lf\n" + text)
    assert found == Alone(folder).translate(lines, beam=1)
    assert f"error: line {WINDOW + 2}: not UTF-8 (byte 0xF6 at position 3); convert the text with: iconv" in said
    assert "Traceback" not in said
    assert code == 1


def test_a_line_that_is_too_long_is_said_and_translated(folder: Path):
    alone = Alone(folder)
    long = " ".join([LINES[0]] * LONGEST)
    found, said, code = run(folder, f"{LINES[1]}\n{long}\n".encode())
    assert (found, code) == (alone.translate([LINES[1], long], beam=1), 0)
    tokens = len(alone.tokens(long))
    assert said.strip() == (
        f"note: line 2: has {tokens} tokens, and lines of more than {LONGEST} translate badly; split it into sentences"
    )


def test_wrong_flags_are_refused(folder: Path):
    done = subprocess.run(
        [sys.executable, str(folder / "translate.py"), "--threads", "0"], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 2
    assert "--threads is 0; give 1 or more" in done.stderr


def test_threads_are_those_asked_for(folder: Path):
    """In a process of its own, because torch's threads belong to the whole process."""
    code = (
        "import sys, runpy, torch\n"
        "module = runpy.run_path(sys.argv[1] + '/translate.py')\n"
        "translator = module['Translator'](sys.argv[1], 1)\n"
        "kind = translator.settings['kind']\n"
        "import inspect\n"
        "options = inspect.getclosurevars(translator.step).nonlocals.get('session')\n"
        "print(options.get_session_options().intra_op_num_threads if options else torch.get_num_threads())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, encoding="utf-8")
    assert done.stdout == "1\n", done.stderr
