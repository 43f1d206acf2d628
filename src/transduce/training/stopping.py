"""When to stop: limits on steps, epochs, tokens and time, patience, and signals from the system."""

import math
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from transduce.config import TrainingConfig
from transduce.errors import UsageError
from transduce.training.checkpoint import State

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Seconds of 90s, 25m, 1h30m or 2d."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise UsageError(f"--for {text} is no length of time; write 90s, 25m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))


@dataclass(frozen=True)
class Limits:
    """How far to train."""

    config: TrainingConfig
    seconds: float | None = None
    begin: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float:
        """Of the time given."""
        return max(0.0, self.seconds - (time.monotonic() - self.begin)) if self.seconds is not None else math.inf

    def reached(self, state: State, *, late: bool = False) -> str | None:
        """Say which limit is reached, or nothing."""
        config = self.config
        if state.step >= config.steps:
            return f"training.steps = {config.steps:,} is reached"
        if config.epochs is not None and state.position.epoch >= config.epochs:
            return f"training.epochs = {config.epochs:,} is reached"
        if config.tokens is not None and state.tokens >= config.tokens:
            return f"training.tokens = {config.tokens:,} is reached"
        if config.patience is not None and state.without_best >= config.patience:
            return f"{state.without_best} validations brought nothing better (training.patience)"
        if late:
            return "the time given with --for is over"
        return None

    def last_step(self, state: State, epoch: float, step_seconds: float) -> float:
        """The step at which the first limit will be reached, if all goes on as until now."""
        config = self.config
        steps = float(config.steps)
        if config.tokens is not None and state.tokens:
            steps = min(steps, state.step * config.tokens / state.tokens)
        if config.epochs is not None and epoch:
            steps = min(steps, state.step * config.epochs / epoch)
        if step_seconds:
            steps = min(steps, state.step + self.seconds_left() / step_seconds)
        return steps


def describe_signal(number: int) -> str:
    """A signal as the reason why a run ended; its number comes second."""
    return f"signal {number} ({signal.Signals(number).name})"


class Signals:
    """Remembers a polite request to end, in a `with` block; asked a second time by the keyboard, it ends at once."""

    asked: signal.Signals | None = None

    def __enter__(self) -> "Signals":
        # From Slurm and spot machines, the keyboard, Slurm's --signal=USR1, a connection that is lost, and Ctrl-Break,
        # which Windows alone has.
        names = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP", "SIGBREAK")
        found = {name: getattr(signal, name) for name in names if hasattr(signal, name)}
        if "SIGHUP" in found and signal.getsignal(found["SIGHUP"]) == signal.SIG_IGN:
            del found["SIGHUP"]  # nohup wants the run to go on
        if threading.current_thread() is not threading.main_thread():
            found = {}  # signals come to the main thread, and what runs there answers them
        self._before: dict[Any, Any] = {number: signal.signal(number, self._remember) for number in found.values()}
        return self

    def renew(self) -> None:
        """Ask for the signals once more.

        LLVM, which compiles kernels in this process, takes them for itself and lets a second SIGTERM at the same moment
        end the process; `timeout` sends two, one to the process and one to its group.
        """
        for number in self._before:
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked is not None:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # none: it was not Python's
