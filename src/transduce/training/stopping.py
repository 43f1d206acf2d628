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
    """Return the seconds in a text such as 90s, 25m, 1h30m or 2d."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise UsageError(f"--for {text} is not a length of time; write 90s, 25m, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smhd])", text))


@dataclass(frozen=True)
class Limits:
    """How far to train: the limits in the settings, and one of time."""

    config: TrainingConfig
    seconds: float | None = None
    begin: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float:
        """Return the seconds left of the time given; infinity if none was given."""
        return max(0.0, self.seconds - (time.monotonic() - self.begin)) if self.seconds is not None else math.inf

    def reached(self, state: State, *, late: bool = False) -> str | None:
        """Say which limit is reached; return None if there is none."""
        config = self.config
        if state.step >= config.steps:
            return f"training.steps = {config.steps:,} is reached"
        if config.epochs is not None and state.position.epoch >= config.epochs:
            return f"training.epochs = {config.epochs:,} is reached"
        if config.tokens is not None and state.tokens >= config.tokens:
            return f"training.tokens = {config.tokens:,} is reached"
        if config.patience is not None and state.without_best >= config.patience:
            return f"no improvement in {state.without_best} validations (training.patience)"
        if late:
            return "the time given with --for is up"
        return None

    def last_step(self, state: State, epoch: float, step_seconds: float) -> float:
        """Estimate the step at which the first limit will be reached, at the present pace."""
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
    """Return a signal as the reason why a run ended; the second word is its number."""
    return f"signal {number} ({signal.Signals(number).name})"


class Signals:
    """Remembers a request to stop, in a `with` block; Ctrl-C after an earlier request ends at once."""

    asked: signal.Signals | None = None

    def __enter__(self) -> "Signals":
        # In this order from: Slurm and spot machines, Ctrl-C, Slurm's --signal=USR1, a lost connection, and Ctrl-Break,
        # which only Windows has.
        names = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP", "SIGBREAK")
        found = {name: getattr(signal, name) for name in names if hasattr(signal, name)}
        if "SIGHUP" in found and signal.getsignal(found["SIGHUP"]) == signal.SIG_IGN:
            del found["SIGHUP"]  # nohup wants the run to continue
        if threading.current_thread() is not threading.main_thread():
            found = {}  # only the main thread can handle signals, and this is another
        self._before: dict[Any, Any] = {number: signal.signal(number, self._remember) for number in found.values()}
        return self

    def renew(self) -> None:
        """Install the signal handlers again.

        LLVM, which compiles kernels in this process, installs its own, under which a second SIGTERM at the same moment
        ends the process; `timeout` sends two, one to the process and one to its group.
        """
        for number in self._before:
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.asked is not None:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: a handler not set from Python
