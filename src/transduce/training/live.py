"""What you see while a model trains: one live line in a terminal, or a plain line now and then in a log."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from transduce.progress import LOG_SECONDS, format_seconds
from transduce.training.metrics import DevMetrics, TrainMetrics

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

REDRAW_SECONDS = 0.1
SMALLEST_BAR, LARGEST_BAR = 6, 30
LEGEND = "loss: nats per target token, smoothed; plain, perplexity: without label smoothing"


class Live(Protocol):
    """Where training reports its progress."""

    def train(self, metrics: TrainMetrics, left: float) -> None:
        """Show the newest interval and the seconds left."""
        ...

    def dev(self, metrics: DevMetrics, seconds: float) -> None:
        """Print a lasting line with the dev scores and the seconds that validation took."""
        ...

    def say(self, text: str) -> None:
        """Print a lasting line."""
        ...


@contextmanager
def show_training(
    total_steps: int,
    first_step: int,
    limit_seconds: float | None,
    *,
    epochs: int | None = None,
    tokens: int | None = None,
) -> Iterator[Live]:
    """Show a training on standard error until the block ends; its goal is the last step or a limit that comes first."""
    goal = _Goal(total_steps, limit_seconds, epochs, tokens)
    if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        with _Terminal(goal, first_step) as terminal:
            yield terminal
    else:
        yield _Log(goal)


class _Goal:
    def __init__(self, steps: int, seconds: float | None, epochs: int | None, tokens: int | None):
        self.steps, self.seconds, self.epochs, self.tokens = steps, seconds, epochs, tokens

    def share(self, step: int, seconds: float = 0, epoch: float = 0, tokens: int = 0) -> tuple[float, str]:
        """Return how much is done, as a share and in words: of the steps, or of a limit that will come first."""
        of_steps = step / max(1, self.steps)
        first = of_steps, f"{step:,}/{self.steps:,} {of_steps:.0%}"
        for done, limit, unit in (
            (seconds, self.seconds, format_seconds(self.seconds or 0)),
            (epoch, self.epochs, "the epoch" if self.epochs == 1 else f"{self.epochs} epochs"),
            (tokens, self.tokens, f"{format_count(self.tokens or 0)} tokens"),
        ):
            if limit and done / limit > first[0]:
                first = done / limit, f"{step:,}, {done / limit:.0%} of {unit}"
        return first


class _Log:
    def __init__(self, goal: _Goal):
        self.goal, self.next = goal, -math.inf
        self.say(LEGEND)

    def train(self, metrics: TrainMetrics, left: float) -> None:
        """Print a line if the last one is at least ten seconds old."""
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + LOG_SECONDS
        _, position = self.goal.share(metrics.step, metrics.seconds, metrics.epoch, metrics.tokens)
        fields = _describe(metrics, left)
        order = ("loss", "perplexity", "rate", "norm", "speed", "peak", "padding", "skipped", "left")
        self.say(f"step {position}: {', '.join(fields[name] for name in order if name in fields)}")

    def dev(self, metrics: DevMetrics, seconds: float) -> None:
        """Print a line on the dev set."""
        self.say(_describe_dev(metrics, seconds))

    def say(self, text: str) -> None:
        """Print a line."""
        with suppress(OSError):  # a log on a full disk must not end the training
            print(text, file=sys.stderr, flush=True)


class _Terminal:
    """A line that rich keeps redrawing below all that is printed."""

    SHOWN = ("bar", "left", "loss", "perplexity", "rate", "norm", "speed", "peak", "padding", "skipped")
    # Fields that do not fit are left out, from the end.
    BY_IMPORTANCE = ("left", "loss", "perplexity", "skipped", "speed", "bar", "rate", "norm", "peak", "padding")

    def __init__(self, goal: _Goal, first_step: int):
        from rich.console import Console
        from rich.live import Live as RichLive

        self.goal, self.next = goal, -math.inf
        self.share, self.position = goal.share(first_step, 0)
        self.fields: dict[str, str] = {}
        self.console = Console(stderr=True)
        self.live = RichLive(self, console=self.console, auto_refresh=False)

    def __enter__(self) -> "_Terminal":
        self.live.start()
        self.say(LEGEND)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.live.stop()
            self.console.file.flush()
        except OSError:  # the terminal was closed: discard buffered output, or Python fails when it exits
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self.console.file.fileno())

    def train(self, metrics: TrainMetrics, left: float) -> None:
        """Move the bar and redraw the line, but not more often than the eye can follow."""
        self.share, self.position = self.goal.share(metrics.step, metrics.seconds, metrics.epoch, metrics.tokens)
        self.fields = _describe(metrics, left, unit="/s")
        if (now := time.monotonic()) >= self.next:
            self.next = now + REDRAW_SECONDS
            with suppress(OSError):  # the terminal may be closed while training continues
                self.live.refresh()

    def dev(self, metrics: DevMetrics, seconds: float) -> None:
        """Print a line on the dev set above the live line."""
        self.say(_describe_dev(metrics, seconds))

    def say(self, text: str) -> None:
        """Print a line above the live line."""
        with suppress(OSError):
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        """Draw the line at the terminal's present width."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        room = options.max_width - len(self.position)
        sizes = {name: 2 + len(text) for name, text in self.fields.items()} | {"bar": 2 + SMALLEST_BAR}
        chosen: set[str] = set()
        for name in self.BY_IMPORTANCE:
            if name in sizes:
                if sizes[name] > room:
                    break
                room -= sizes[name]
                chosen.add(name)
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(no_wrap=True)
        bar_size = min(LARGEST_BAR, SMALLEST_BAR + room)
        shown = [name for name in self.SHOWN if name in chosen]
        for name in shown:
            line.add_column(no_wrap=True, width=bar_size if name == "bar" else None)
        bar = ProgressBar(total=1.0, completed=self.share, width=bar_size)
        line.add_row(self.position, *(bar if name == "bar" else self.fields[name] for name in shown))
        yield line


def _describe(metrics: TrainMetrics, left: float, unit: str = " tokens/s") -> dict[str, str]:
    fields = {
        "loss": f"loss {_format(metrics.loss, 3)}",
        "perplexity": f"perplexity {_format(metrics.perplexity)}",
        "rate": f"rate {metrics.rate:#.2g}",
        "norm": f"norm {_format(metrics.norm)}",
        "speed": f"{format_count(metrics.tokens_per_second, digits=3)}{unit}",
        "padding": f"padding saved {metrics.padding_saved:.0%}",
    }
    if metrics.peak_share is not None:
        fields["peak"] = f"{metrics.peak_share:.0%} of peak"
    if metrics.skipped:
        fields["skipped"] = f"skipped updates {metrics.skipped:,}"
    if math.isfinite(left):
        fields["left"] = f"{format_seconds(max(0.0, left))} left"
    return fields


def _describe_dev(metrics: DevMetrics, seconds: float) -> str:
    average = " (averaged weights)" if metrics.weights == "average" else ""
    losses = f"loss {_format(metrics.loss, 3)}, plain {_format(metrics.plain, 3)}"
    best = " (best so far)" if metrics.best else ""
    scores = f"{losses}, perplexity {_format(metrics.perplexity)}{metrics.search_score}{best}"
    return f"{metrics.name} at step {metrics.step:,}{average}: {scores}, took {format_seconds(seconds)}"


def _format(value: float, decimals: int = 2) -> str:
    """Format a number that is usually small, but need not be."""
    if abs(value) < 1000:
        return f"{value:.{decimals}f}"
    return f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.1e}"


def format_count(count: float, digits: int = 2) -> str:
    """Return a count with thousands as a letter and at least `digits` digits: 950, 41 k, 4.1 M, 412 M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{count / size:.{max(0, digits - len(str(int(count / size))))}f} {letter}"
    return f"{count:.0f}"
