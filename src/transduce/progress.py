"""Shows how work progresses: a live bar in a terminal, a plain line now and then in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LOG_SECONDS = 10.0


class Task(Protocol):
    """A task whose progress is shown."""

    def update(self, done: float, count: int) -> None:
        """Report how far it is, in the units of its total, and how many things are done."""
        ...


@contextmanager
def show_progress(name: str, total: float, things: str) -> Iterator[Task]:
    """Show the progress of one task on standard error until the block ends."""
    if sys.stderr.isatty():
        with _Bar(name, total, things) as bar:
            yield bar
    else:
        yield _Log(name, total, things)


class _Bar:
    def __init__(self, name: str, total: float, things: str):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task(name, total=total or None, count="")
        self.total, self.things, self.begin = total, things, time.monotonic()

    def __enter__(self) -> "_Bar":
        self.progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.progress.update(self.task, completed=self.total or 1, total=self.total or 1)
        self.progress.stop()

    def update(self, done: float, count: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=done, count=_describe(count, self.things, self.begin))


class _Log:
    def __init__(self, name: str, total: float, things: str):
        self.name, self.total, self.things = name, total, things
        self.begin = self.last = time.monotonic()

    def update(self, done: float, count: int) -> None:
        """Print a line if LOG_SECONDS have passed since the last one."""
        now = time.monotonic()
        if now - self.last < LOG_SECONDS:
            return
        self.last = now
        share = f" {done / self.total:.0%}" if self.total else ""
        parts = [_describe(count, self.things, self.begin)]
        if done and self.total:
            parts.append(f"{format_seconds((now - self.begin) * max(0.0, self.total / done - 1))} left")
        print(f"{self.name}{share}: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)


def _describe(count: int, things: str, begin: float) -> str:
    rate = count / max(1e-9, time.monotonic() - begin)
    return f"{count:,} {things}, {rate:,.0f}/s" if count else ""


def format_seconds(seconds: float) -> str:
    """Return a duration as people write it: 42 s, 3:07, 1:02:45."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
