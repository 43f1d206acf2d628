"""Live progress of a training: plain lines in a log; in a terminal, one line that fits whatever the width."""

import fcntl
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import records
from hypothesis import given, settings
from hypothesis import strategies as st
from records import DEV

from transduce.training import live
from transduce.training.live import LEGEND, format_count, show_training

TRAIN = replace(records.TRAIN, plain=math.log(21.3))


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what was printed below the legend."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "\x1b" not in printed.err
    assert "\r" not in printed.err
    first, *rest = printed.err.splitlines()
    assert first == LEGEND
    return rest


def test_a_log_gets_plain_lines(capsys: pytest.CaptureFixture[str]):
    with show_training(10_000, 0, None) as shown:
        shown.train(TRAIN, 751)
        shown.dev(DEV, 6.2)
        shown.say("saved [bold]step-1200[/bold]")
    assert lines(capsys) == [
        "step 1,200/10,000 12%: loss 3.412, perplexity 21.30, rate 0.00070, norm 0.84, 412 k tokens/s, 27% of peak, "
        "padding saved 41%, 12:31 left",
        "dev at step 1,200: loss 3.201, plain 1.893, perplexity 6.64, BLEU 21.4 (best so far), took 6 s",
        "saved [bold]step-1200[/bold]",
    ]


def test_what_is_unknown_is_left_out(capsys: pytest.CaptureFixture[str]):
    with show_training(10_000, 0, None) as shown:
        shown.train(replace(TRAIN, peak_share=None, skipped=3, plain=math.nan, norm=math.inf), math.inf)
        shown.dev(replace(DEV, bleu=None, weights="average"), 75)
        shown.dev(replace(DEV, best=False, plain=800.0), 75)
    assert lines(capsys) == [
        "step 1,200/10,000 12%: loss 3.412, perplexity nan, rate 0.00070, norm inf, 412 k tokens/s, padding saved 41%, "
        "skipped updates 3",
        "dev at step 1,200 (averaged weights): loss 3.201, plain 1.893, perplexity 6.64 (best so far), took 1:15",
        "dev at step 1,200: loss 3.201, plain 800.000, perplexity inf, BLEU 21.4, took 1:15",
    ]


def test_time_is_shown_where_it_ends_the_training_first(capsys: pytest.CaptureFixture[str]):
    for seconds in (359.0, 3600.0):
        with show_training(10_000, 0, 7200.0) as shown:
            shown.train(replace(TRAIN, seconds=seconds), 3600)
    heads = [line.split(": loss")[0] for line in capsys.readouterr().err.splitlines() if line != LEGEND]
    assert heads == ["step 1,200/10,000 12%", "step 1,200, 50% of 2:00:00"]


def test_other_limits_are_shown_where_they_end_the_training_first(capsys: pytest.CaptureFixture[str]):
    record = replace(TRAIN, epoch=1.5, tokens=3_000_000)
    for epochs, tokens in ((20, None), (2, None), (None, 50_000_000), (None, 4_000_000), (2, 4_100_000)):
        with show_training(10_000, 0, 7200.0, epochs=epochs, tokens=tokens) as shown:
            shown.train(record, 3600)
    heads = [line.split(": loss")[0] for line in capsys.readouterr().err.splitlines() if line != LEGEND]
    assert heads == [
        "step 1,200/10,000 12%",
        "step 1,200, 75% of 2 epochs",
        "step 1,200/10,000 12%",
        "step 1,200, 75% of 4.0 M tokens",
        "step 1,200, 75% of 2 epochs",
    ]


def test_the_first_line_comes_at_once_and_then_one_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    with show_training(100, 0, None) as shown:
        for second in range(31):
            now = 1000.0 + second
            shown.train(replace(TRAIN, step=second), 0)
            if second == 15:
                shown.say("between")
    heads = [line.split(":")[0] for line in lines(capsys)]
    assert heads == ["step 0/100 0%", "step 10/100 10%", "between", "step 20/100 20%", "step 30/100 30%"]


def test_a_log_on_a_full_disk_does_not_end_the_training():
    code = "with show_training(10, 0, None) as shown: shown.train(TRAIN, 9); shown.dev(DEV, 6)\nprint('trained')"
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", PRELUDE + code]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True)
    assert done.stdout == "trained\n"


def test_large_numbers_stay_short(capsys: pytest.CaptureFixture[str]):
    with show_training(10_000, 0, None) as shown:
        shown.train(replace(TRAIN, plain=math.log(12_345), norm=1.5e7, rate=1.74e-7, tokens_per_second=1_012_000), 0)
    (line,) = lines(capsys)
    assert "perplexity 12,345, rate 1.7e-07, norm 1.5e+07, 1.01 M tokens/s" in line


class Terminal:
    """A program in a real terminal; `shown` is all it wrote, `drawn` its lines without control codes."""

    def __init__(self, code: str, columns: int, close_early: bool = False, **environment: str):
        given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        given |= {"TERM": "xterm-256color", **environment}
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [sys.executable, "-c", PRELUDE + code]
        with subprocess.Popen(command, env=given, stdin=theirs, stdout=theirs, stderr=theirs) as running:
            os.close(theirs)
            shown = b""
            with suppress(OSError):  # Linux says so when the other end is closed
                while not (close_early and shown) and (read := os.read(ours, 1 << 16)):
                    shown += read
            os.close(ours)
        self.code, self.shown = running.returncode, shown.decode()
        plain = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", self.shown)
        self.drawn = [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


PRELUDE = f"""
import math, sys, time
from dataclasses import replace
from transduce.training.live import show_training
from transduce.training.metrics import *
nan = math.nan
TRAIN, DEV = {TRAIN!r}, {DEV!r}
"""
ALL = """
with show_training(100_000, 1_000, None) as shown:
    shown.train(replace(TRAIN, step=12_000, tokens_per_second=1.012e6), 4351)
    time.sleep(0.11)
    shown.train(replace(TRAIN, step=12_100, tokens_per_second=1.012e6), 4350)
    shown.dev(DEV, 6)
    shown.say("saved [bold]step-1200[/bold]")
    print("warning: from elsewhere", file=sys.stderr)
    shown.train(replace(TRAIN, step=99_000, tokens_per_second=1.012e6), 4349)
"""
# From the most important to the least.
FIELDS = "left|loss|perplexity|/s|━|rate|norm|of peak|padding saved".split("|")


@pytest.mark.parametrize(
    ("columns", "fields"), [(17, 0), (20, 0), (33, 1), (45, 2), (63, 3), (79, 4), (80, 5), (96, 6), (110, 7), (200, 9)]
)
def test_a_terminal_gets_one_line_that_fits(columns: int, fields: int):
    terminal = Terminal(ALL, columns)
    assert terminal.code == 0
    redrawn = [line for line in terminal.drawn if "/100,000" in line]
    assert all(len(line) <= columns for line in redrawn), redrawn
    last = redrawn[-1]
    assert last == terminal.drawn[-1]
    assert redrawn[0].startswith("1,000/100,000 1%")
    assert ("…" in last) == (columns == 17)
    assert last.startswith("99,000/100,000 9")  # though it came too soon after the last to be drawn at once
    assert [field for field in FIELDS if field in last] == FIELDS[:fields]


def test_the_line_says_all_in_a_wide_terminal():
    last = Terminal(ALL, 200).drawn[-1]
    bar = re.search("━[━╸╺]+", last)
    assert bar
    assert len(bar[0]) == 30
    assert last.replace(bar[0], "BAR").rstrip() == (
        "99,000/100,000 99%  BAR  1:12:29 left  loss 3.412  perplexity 21.30  rate 0.00070  norm 0.84  1.01 M/s  "
        "27% of peak  padding saved 41%"
    )


@pytest.mark.parametrize("columns", [40, 120])
def test_lasting_lines_stay_whole_above_the_live_line(columns: int):
    terminal = Terminal(ALL, columns)
    lasting = [
        LEGEND,
        "dev at step 1,200: loss 3.201, plain 1.893, perplexity 6.64, BLEU 21.4 (best so far), took 6 s",
        "saved [bold]step-1200[/bold]",
        "warning: from elsewhere",
    ]
    assert [line.rstrip() for line in terminal.drawn if "/100,000" not in line] == lasting
    assert "\x1b[2K" in terminal.shown  # each time the live line is wiped first


def test_the_line_is_not_drawn_more_often_than_needed():
    code = """
with show_training(100_000, 0, None) as shown:
    for step in range(2_000):
        shown.train(replace(TRAIN, step=step), 60)
"""
    terminal = Terminal(code, 100)
    assert terminal.drawn[-1].startswith("1,999/100,000 2%")
    assert len(terminal.drawn) < 200


def test_an_error_leaves_the_terminal_in_order():
    terminal = Terminal(ALL + "    raise SystemExit('broken')", 100)
    assert terminal.code == 1
    assert terminal.drawn[-1] == "broken"
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")  # the cursor is shown again
    assert not terminal.drawn[-2].endswith("broken")


def test_a_terminal_that_is_closed_does_not_end_the_training(tmp_path: Path):
    code = """
import pathlib
with show_training(100_000, 0, None) as shown:
    for step in range(10):
        time.sleep(0.11)
        shown.train(replace(TRAIN, step=step), 60)
        shown.say("on")
print("what is said at the end", file=sys.stderr, flush=True)
pathlib.Path({!r}).write_text("trained")
"""
    done = tmp_path / "done"
    assert Terminal(code.format(str(done)), 100, close_early=True).code == 0
    assert done.read_text() == "trained"


def test_a_terminal_without_control_codes_gets_plain_lines():
    terminal = Terminal(ALL, 100, TERM="dumb")
    assert "\x1b" not in terminal.shown
    assert terminal.drawn[1].startswith("step 12,000/100,000 12%: loss 3.412")


def test_numbers_that_are_none_break_nothing():
    code = """
with show_training(0, 0, None) as shown:
    shown.train(replace(TRAIN, loss=nan, plain=1e9, norm=nan, tokens_per_second=nan, padding_saved=nan), nan)
"""
    terminal = Terminal(code, 200)
    assert terminal.code == 0
    assert "loss nan  perplexity inf" in terminal.drawn[-1]
    assert "left" not in terminal.drawn[-1]


@pytest.mark.parametrize(
    ("count", "digits", "text"),
    [
        (0, 2, "0"),
        (950, 2, "950"),
        (999.4, 2, "999"),
        (999.6, 2, "1.0 k"),
        (41_234, 2, "41 k"),
        (412_345, 2, "412 k"),
        (412_345, 3, "412 k"),
        (41_234, 3, "41.2 k"),
        (999_499, 3, "999 k"),
        (999_600, 3, "1.00 M"),
        (1_012_000, 3, "1.01 M"),
        (4_123_456, 2, "4.1 M"),
        (7_500_000_000_000, 2, "7500 G"),
    ],
)
def test_counts(count: float, digits: int, text: str):
    assert format_count(count, digits) == text


@settings(deadline=None)
@given(st.floats(0, 1e12), st.integers(2, 3))
def test_a_count_can_be_read_back(count: float, digits: int):
    text = format_count(count, digits)
    number, _, letter = text.partition(" ")
    back = float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[letter]
    assert back == pytest.approx(count, rel=0.5001 * 10 ** (1 - digits), abs=0.5)
    assert len(text) <= 7
