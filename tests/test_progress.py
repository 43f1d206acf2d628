"""Progress: plain lines in a log, a bar in a terminal, nothing at all for what is soon done."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce import progress
from transduce.progress import format_seconds, show_progress

LINE = re.compile(r"cleaning( \d+%)?: [\d,]+ pairs, [\d,]+/s(, [\d:]+( s)? left)?")


@pytest.mark.parametrize(("total", "last"), [(200.0, "cleaning 100%: "), (0.0, "cleaning: ")])
def test_a_log_gets_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: float, last: str
):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with show_progress("cleaning", total, "pairs") as task:
        for step in range(1, 5):
            task.update(step * total / 4, step * 12_345)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 4
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert [line.startswith("cleaning 25%: 12,345 pairs, ") for line in lines] == [total > 0, False, False, False]
    assert lines[-1].startswith(f"{last}49,380 pairs, ")
    assert all(character.isprintable() for line in lines for character in line)


def test_a_line_comes_only_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with show_progress("encoding", 100, "pairs") as task:
        for second in range(31):
            now = 1000.0 + second
            task.update(second, 10 * second)
    assert capsys.readouterr().err.splitlines() == [
        "encoding 10%: 100 pairs, 10/s, 1:30 left",
        "encoding 20%: 200 pairs, 10/s, 1:20 left",
        "encoding 30%: 300 pairs, 10/s, 1:10 left",
    ]


def test_more_done_than_expected_leaves_no_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with show_progress("cleaning", 100, "pairs") as task:
        task.update(250, 0)
    assert capsys.readouterr().err == "cleaning 250%: 0 s left\n"


def test_a_terminal_gets_a_bar_that_ends_full():
    code = """
from transduce.progress import show_progress
with show_progress("cleaning", 200, "pairs") as task:
    task.update(100, 12345)
"""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux says so when the other end is closed
            while read := os.read(ours, 1 << 16):
                shown += read
    os.close(ours)
    assert running.returncode == 0
    text = shown.decode()
    assert "\x1b[" in text
    last = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", text).replace("\r", "\n").strip().splitlines()[-1]
    assert last.startswith("cleaning")
    assert "100%" in last
    assert "12,345 pairs" in last


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (59.4, "59 s"),
        (59.6, "1:00"),
        (187, "3:07"),
        (3599.7, "1:00:00"),
        (3765, "1:02:45"),
        (360_000, "100:00:00"),
    ],
)
def test_durations(seconds: float, text: str):
    assert format_seconds(seconds) == text


@settings(deadline=None)
@given(st.floats(0, 1e7))
def test_a_duration_can_be_read_back(seconds: float):
    text = format_seconds(seconds)
    whole = 0
    for part in text.removesuffix(" s").split(":"):
        whole = whole * 60 + int(part)
    assert whole == round(seconds)
    assert text.endswith(" s") == (whole < 60)
