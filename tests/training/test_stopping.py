"""When a run ends: by its limits, and when it is asked to."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forks import on_call
from runs import SHORT, at_save, at_step, checkpoints, command, contents, leftovers, metrics, train

from transduce.config import TrainingConfig
from transduce.errors import UsageError
from transduce.model import saved
from transduce.training import checkpoint, loop, meter, stopping
from transduce.training.stopping import Limits, Signals, parse_duration

# ---- signals ----


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_a_run_asked_to_stop_saves_and_goes_on_exactly(
    tmp_path: Path,
    data: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
):
    out, number = tmp_path / "run", getattr(signal, name)
    before = signal.getsignal(number)
    with monkeypatch.context() as once:
        at_step(12, lambda: send(number), once.setattr)
        assert train(data, out) == 128 + number
    assert signal.getsignal(number) is before
    lines = capsys.readouterr().out.splitlines()
    assert f"ended: signal {int(number)} ({name}) at step 13" in lines
    assert "go on: the same command with --resume" in lines
    assert sorted(checkpoints(out)) == [5, 10, 13]
    assert not (out / "model").exists()
    # It is neither validated, which takes time, nor does it count among those that are averaged.
    assert [line["step"] for line in metrics(out) if line["kind"] == "dev"] == [5, 10]
    assert saved.read_manifest(checkpoints(out)[13])["about"]["dev"] is None
    assert train(data, out, "--resume") == 0
    assert contents(out) == contents(whole)
    assert leftovers(out) == []


def test_asked_often_a_run_ends_with_the_same_model(
    tmp_path: Path, data: Path, short: Path, monkeypatch: pytest.MonkeyPatch
):
    """Only checkpoints that were due are averaged and kept, so that interruptions leave no mark."""
    out = tmp_path / "run"
    for step in (0, 2, 4, 5):
        with monkeypatch.context() as once:
            at_step(step, lambda: send(signal.SIGTERM), once.setattr)
            assert train(data, out, *SHORT, "--resume") == 143
    assert max(checkpoints(out)) == 6
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == contents(short)


@pytest.mark.parametrize(("step", "code"), [(3, 143), (7, 0)])
def test_asked_when_a_checkpoint_is_due_or_the_last(
    tmp_path: Path, data: Path, short: Path, monkeypatch: pytest.MonkeyPatch, step: int, code: int
):
    """A checkpoint that is due is still validated, and a run that has reached its end has ended."""
    out = tmp_path / "run"
    with monkeypatch.context() as once:
        at_step(step, lambda: send(signal.SIGTERM), once.setattr)
        assert train(data, out, *SHORT) == code
    assert max(checkpoints(out)) == step + 1
    assert saved.read_manifest(checkpoints(out)[step + 1])["about"]["dev"] is not None
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == contents(short)


def test_asked_to_stop_and_then_given_no_more_steps(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The last one saved becomes the run's last checkpoint, and is scored now."""
    out = tmp_path / "run"
    with monkeypatch.context() as once:
        at_step(2, lambda: send(signal.SIGTERM), once.setattr)
        assert train(data, out, *SHORT) == 143
    assert train(data, out, *SHORT, "--training.steps", "3", "--resume") == 0
    assert "the last checkpoint: step-00000003: smoothed dev loss" in capsys.readouterr().out
    assert saved.load_model(out).folder == out / "model"


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_ends_at_once(
    tmp_path: Path,
    data: Path,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: int,
):
    out = tmp_path / "run"
    with monkeypatch.context() as once:
        at_step(4, lambda: send(first, signal.SIGINT), once.setattr)
        assert train(data, out, *SHORT) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "stopped"
    assert max(checkpoints(out)) == 4
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == contents(short)


def test_a_second_ctrl_c_while_saving_leaves_nothing_behind(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "run"
    impatient = lambda *_, **__: send(signal.SIGINT)  # noqa: E731
    at_step(4, lambda: send(signal.SIGINT), monkeypatch.setattr)
    at_save(5, lambda: on_call(saved, "write_model", 1, impatient, monkeypatch.setattr), monkeypatch.setattr)
    assert train(data, out, *SHORT) == 130
    assert sorted(checkpoints(out)) == [2, 4]
    assert leftovers(out) == []


def test_a_library_that_takes_the_signals_does_not_keep_them(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
):
    """LLVM takes them when it compiles a kernel; here it would leave SIGTERM unanswered."""
    out = tmp_path / "run"
    at_step(2, lambda: ctypes.CDLL(None).signal(signal.SIGTERM, 1), monkeypatch.setattr)
    at_step(4, lambda: send(signal.SIGTERM), monkeypatch.setattr)
    assert train(data, out, *SHORT) == 128 + signal.SIGTERM
    assert max(checkpoints(out)) == 5


def test_signals_are_remembered_only_while_training():
    with Signals() as signals:
        assert signals.asked is None
        send(signal.SIGUSR1, signal.SIGTERM)
        assert signals.asked == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_under_nohup_a_run_goes_on(tmp_path: Path, data: Path, short: Path, monkeypatch: pytest.MonkeyPatch):
    out, before = tmp_path / "run", signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        at_step(4, lambda: send(signal.SIGHUP), monkeypatch.setattr)
        assert train(data, out, *SHORT) == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert contents(out) == contents(short)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_a_terminal_that_is_gone_costs_nothing(tmp_path: Path, data: Path):
    """As when the connection is lost: the run can no longer print, but still saves."""
    out = tmp_path / "run"
    ours, theirs = os.openpty()
    arguments = command(data, out, "--training.steps", "1000000", "--training.checkpoint-steps", "1000000")
    with subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as running:
        os.close(theirs)
        end = time.monotonic() + 60
        while not ((out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size):
            assert running.poll() is None, "the run ended too soon"
            assert time.monotonic() < end
            os.read(ours, 1 << 16)
        os.close(ours)
        running.wait(60)
    (step,) = checkpoints(out)
    assert saved.read_manifest(checkpoints(out)[step])["about"]["interrupted"]
    assert checkpoint.find_damage(checkpoints(out)[step]) is None


IN_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from transduce.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_process_gets_sigterm_from_outside(tmp_path: Path, data: Path):
    """As Slurm and spot machines do it."""
    out = tmp_path / "run"
    arguments = command(data, out, "--training.steps", "1000000", "--training.checkpoint-steps", "1000000")
    with subprocess.Popen(
        [sys.executable, "-m", "transduce", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        end = time.monotonic() + 60
        while not ((out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size):
            assert running.poll() is None, "the run ended too soon"
            assert time.monotonic() < end
            time.sleep(0.02)
        running.terminate()
        output, errors = running.communicate(timeout=60)
    assert running.returncode == 143, errors
    assert "go on: the same command with --resume" in output
    (step,) = checkpoints(out)
    assert f"ended: signal 15 (SIGTERM) at step {step:,}" in output
    assert checkpoint.find_damage(checkpoints(out)[step]) is None


# ---- limits ----


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("25m", 1500), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("1d2h3m4s", 93784), ("0.5s", 0.5)],
)
def test_durations(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "25", "m", "1h 30m", "-5m", "5 m", "1w", "5m later", "1..5h", ".5h", "1h30"])
def test_what_is_no_duration(text: str):
    with pytest.raises(UsageError, match=r"is not a length of time; write 90s, 25m, 1h30m or 2d"):
        parse_duration(text)


def test_what_is_no_duration_on_the_command_line(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    assert train(data, tmp_path / "run", "--for", "25") == 2
    wanted = "error: --for 25 is not a length of time; write 90s, 25m, 1h30m or 2d"
    assert capsys.readouterr().err.splitlines() == [wanted]
    assert not (tmp_path / "run").exists()


def test_an_epoch_is_a_limit(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    assert train(data, out, "--training.epochs", "1") == 0
    assert "ended: training.epochs = 1 is reached at step 17" in capsys.readouterr().out
    assert saved.read_manifest(checkpoints(out)[17])["about"]["state"]["position"] == [1, 0]
    assert metrics(out)[-1]["step"] == 17


@pytest.mark.parametrize(("more", "last"), [(-1, 4), (0, 4), (1, 5)])
def test_tokens_are_a_limit(
    tmp_path: Path, data: Path, whole: Path, capsys: pytest.CaptureFixture[str], more: int, last: int
):
    out = tmp_path / "run"
    after_four = next(line["tokens"] for line in metrics(whole) if line["step"] == 4)
    assert train(data, out, "--training.tokens", str(after_four + more)) == 0
    assert f"is reached at step {last}" in capsys.readouterr().out
    assert sorted(checkpoints(out)) == [last]


def test_patience_is_a_limit(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    """With a rate near zero, no validation beats the first; patience keeps counting over a restart."""
    out = tmp_path / "run"
    flags = [*SHORT, "--training.peak-rate", "1e-30", "--training.patience", "2"]
    assert train(data, out, *flags, "--training.steps", "4") == 0
    assert train(data, out, *flags, "--training.steps", "100", "--resume") == 0
    ended = "ended: no improvement in 2 validations (training.patience) at step 6"
    assert ended in capsys.readouterr().out.splitlines()
    assert [(line["step"], line["best"]) for line in metrics(out) if line["kind"] == "dev"] == [
        (2, True),
        (4, False),
        (6, False),
    ]
    assert train(data, out, *flags, "--training.steps", "100", "--resume") == 0  # has no patience left
    assert ended in capsys.readouterr().out.splitlines()


class Clock(SimpleNamespace):
    """A clock that gains 100 seconds more with every step."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (loop, stopping, meter):
        monkeypatch.setattr(module, "time", clock)
    usual = loop.take_step

    def take_step(run: Any, batch: Any) -> Any:
        clock.ahead += 100
        return usual(run, batch)

    monkeypatch.setattr(loop, "take_step", take_step)
    return clock


def test_time_is_a_limit_and_begins_anew_after_a_restart(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], clock: Clock
):
    out = tmp_path / "run"
    for last in (3, 6):
        clock.ahead = 0
        assert train(data, out, "--for", "4m10s", "--training.checkpoint-steps", "100", "--resume") == 0
        assert f"ended: the time given with --for is up at step {last}" in capsys.readouterr().out
        assert max(checkpoints(out)) == last
        seconds = saved.read_manifest(checkpoints(out)[last])["about"]["state"]["seconds"]
        assert 100 * last <= seconds < 100 * last + 50  # in both runs together


def test_checkpoints_by_the_clock(tmp_path: Path, data: Path, clock: Clock):
    out = tmp_path / "run"
    flags = ["--training.checkpoint-steps", "off", "--training.checkpoint-minutes", "4.5", "--training.steps", "10"]
    assert train(data, out, *flags) == 0
    assert clock.ahead == 1000
    assert sorted(checkpoints(out)) == [3, 6, 9, 10]


def test_checkpoints_by_steps(whole: Path, short: Path):
    assert sorted(checkpoints(whole)) == [5, 10, 15, 20]
    assert sorted(checkpoints(short)) == [2, 4, 6, 8]


@pytest.mark.parametrize("by", ["loss", "bleu"])
def test_the_best_is_the_best_by_what_is_asked_for(tmp_path: Path, data: Path, by: str):
    out = tmp_path / "run"
    flags = [*SHORT, "--training.bleu-sentences", "5", "--search.extra-tokens", "5", "--training.best-by", by]
    assert train(data, out, *flags) == 0
    dev = [line for line in metrics(out) if line["kind"] == "dev"]
    scores = [line["loss"] if by == "loss" else -line["bleu"] for line in dev]
    expected = [score < min(scores[:number], default=float("inf")) for number, score in enumerate(scores)]
    assert [line["best"] for line in dev] == expected
    assert expected == ([True] * 4 if by == "loss" else [True] + [False] * 3)  # so early nothing has any BLEU


def test_the_last_step():
    config = TrainingConfig(steps=100, epochs=4, tokens=5000)
    state: Any = SimpleNamespace(step=10, tokens=1000)
    assert Limits(TrainingConfig(steps=100)).last_step(state, 0.5, 2.0) == 100
    assert Limits(config).last_step(state, 0.5, 2.0) == 50  # the tokens come first
    assert Limits(TrainingConfig(steps=100, epochs=4)).last_step(state, 0.5, 2.0) == 80
    assert Limits(config, seconds=7.0).last_step(state, 0.5, 2.0) == pytest.approx(13.5, abs=0.1)
    assert Limits(config, seconds=7.0).last_step(state, 0.5, 0.0) == 50  # nobody knows yet how long a step takes
    assert Limits(config, seconds=0.0).last_step(state, 0.5, 2.0) == 10


FALLING = ["--training.schedule", "linear", "--training.warmup-steps", "2", "--training.peak-rate", "0.001"]


def rates(out: Path) -> dict[int, float]:
    return {line["step"]: line["rate"] for line in metrics(out) if line["kind"] == "train"}


def test_a_rate_falls_until_the_first_limit(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    flags = [*FALLING, "--training.epochs", "1", "--training.steps", "1000"]
    monkeypatch.setattr(meter, "SECONDS", 0.0)
    assert train(data, tmp_path / "whole", *flags) == 0
    expected = {step: 0.001 * min(step / 2, (18 - step) / 16) for step in range(1, 18)}
    assert rates(tmp_path / "whole") == pytest.approx(expected)
    with monkeypatch.context() as once:
        at_step(12, lambda: send(signal.SIGTERM), once.setattr)
        assert train(data, tmp_path / "run", *flags) == 128 + signal.SIGTERM
    assert train(data, tmp_path / "run", *flags, "--resume") == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_rate_falls_until_the_time_is_over(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock):
    monkeypatch.setattr(meter, "SECONDS", 0.0)
    assert train(data, tmp_path / "run", *FALLING, "--for", "16m10s", "--training.steps", "1000") == 0
    # A step takes 100 s, which the first two do not know yet: there is time for 9.7, so the tenth is the last.
    expected = {step: 0.001 * (10.7 - step) / 8.7 for step in range(3, 11)}
    assert {step: rate for step, rate in rates(tmp_path / "run").items() if step > 2} == pytest.approx(
        expected, rel=0.05
    )
