"""The learning curves of a run as one HTML page: SVG, without scripts or external resources."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from transduce.disk import replace_file
from transduce.training.metrics import DevMetrics, TrainMetrics

MOST_POINTS = 400
# In units of the drawings, which the browser scales to the width of the page.
WIDTH, TALL, LOW = 640, 320, 190
LEFT, RIGHT, TOP, BOTTOM = 72, 52, 26, 34
NOISE = 0.01  # share of the axis; a line rougher than this is drawn faintly below a smoothed one
SMOOTHED = 8  # neighbours on either side that a smoothed point averages
WATCH_COLOURS = 3  # for sets that are watched besides the dev set

STYLE = """
:root { --back: #fff; --text: #1c2430; --quiet: #66707e; --grid: #e6e9ee; --train: #2f6fdb; --dev: #d9730d;
  --average: #2a8f5b; --watch0: #8a4fd0; --watch1: #0f8a9d; --watch2: #b03a6c; }
@media (prefers-color-scheme: dark) { :root { --back: #14171c; --text: #e4e8ee; --quiet: #949eac; --grid: #2a303a;
  --train: #74a9ff; --dev: #ffab57; --average: #62cf97; --watch0: #c49bff; --watch1: #5fd0e2; --watch2: #ff8fbd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 760px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 16px; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin-bottom: 8px; }
th, td { padding: 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; text-align: left; }
th { font-weight: normal; color: var(--quiet); padding-right: 24px; white-space: nowrap; }
td { width: 100%; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
figure { margin: 32px 0 0; }
h2 { font-size: 16px; margin: 0; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 16px; margin-bottom: 8px; }
figcaption p { margin: 0; color: var(--quiet); font-size: 13px; overflow-wrap: anywhere; flex-basis: 100%; }
.key { font-size: 13px; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: 16px; margin-right: 6px; vertical-align: 4px;
  border-top: 2.5px solid var(--colour); }
.train { --colour: var(--train); } .dev { --colour: var(--dev); } .average { --colour: var(--average); }
.watch0 { --colour: var(--watch0); } .watch1 { --colour: var(--watch1); } .watch2 { --colour: var(--watch2); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
svg .label { fill: var(--colour); font-weight: 600; paint-order: stroke; stroke: var(--back); stroke-width: 4px; }
.grid { stroke: var(--grid); }
polyline { fill: none; stroke: var(--colour); stroke-width: 1.75; stroke-linejoin: round; }
polyline.rough { stroke-width: 1; opacity: .4; }
circle { fill: var(--colour); stroke: transparent; stroke-width: 14; }
circle.ring { fill: none; stroke: var(--colour); stroke-width: 1.75; pointer-events: none; }
@media (max-width: 560px) { svg text { font-size: 19px; } polyline, circle.ring { stroke-width: 3; }
  polyline.rough { stroke-width: 2; } circle { r: 5px; } circle.ring { r: 10px; } }
"""


@dataclass(frozen=True)
class _Line:
    """A line in a chart."""

    name: str
    kind: str  # the CSS class, which sets its colour
    steps: np.ndarray
    values: np.ndarray
    hovers: Sequence[str] = ()  # the tooltip of each point, if points are drawn
    best: tuple[int, str] | None = None  # the index of the point to mark, and its label


@dataclass(frozen=True)
class _Axes:
    """Maps steps and values to places in a drawing."""

    last_step: float
    ticks: list[float]
    height: int

    def x(self, step: float) -> float:
        """Return the x coordinate of a step."""
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.last_step

    def y(self, value: float) -> float:
        """Return the y coordinate of a value, kept near the chart, since browsers cannot draw at 1e30."""
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return TOP + (self.height - TOP - BOTTOM) * (1 - min(2.0, max(-1.0, share)))

    def holds(self, value: float) -> bool:
        """Return whether a value lies within the chart; sacreBLEU's best score is a hair above 100."""
        hair = 1e-9 * (self.ticks[-1] - self.ticks[0])
        return self.ticks[0] - hair <= value <= self.ticks[-1] + hair


def write_curve(
    path: Path, train: list[TrainMetrics], dev: list[DevMetrics], title: str, summary: list[tuple[str, str]]
) -> None:
    """Write a page with a table of facts and charts of loss, BLEU or F1, learning rate and speed by step."""
    last_step = max([1, *(metrics.step for metrics in [*train, *dev])])
    lost = sum(not _is_number(metrics.plain) for metrics in train)
    signatures = " ".join(sorted({metrics.signature for metrics in dev if metrics.signature}))
    charts = [
        _chart(
            "Loss",
            "Nats per target token, without label smoothing; on the right, the same as perplexity."
            + (f" {lost:,} of {len(train):,} points are not finite and are left out." if lost else ""),
            [_train_line(train, "plain"), *_dev_lines(dev, "plain", 3)],
            last_step,
            height=TALL,
            clip=98,
            unit="nats",
            perplexity=True,
        ),
        _chart(
            "BLEU",
            f"Greedy translations of the dev set. {signatures}",
            _dev_lines(dev, "bleu", 1),
            last_step,
            most=100,
        ),
        _chart(
            "F1",
            "Labelled brackets of greedy parses of the dev set.",
            _dev_lines(dev, "f1", 1),
            last_step,
            most=100,
        ),
        _chart("Learning rate", "", [_train_line(train, "rate")], last_step, from_zero=True),
        _chart(
            "Tokens per second",
            "Source and target together.",
            [_train_line(train, "tokens_per_second")],
            last_step,
            clip=98,
            from_zero=True,
        ),
    ]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>\n" for name, value in summary)
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<table>
{rows}</table>
{"".join(charts) or "<p>Nothing has been measured yet.</p>"}
</body>
</html>
"""
    replace_file(path, page.encode("utf-8", "replace"))  # the title is a file name, which need not be Unicode


def _train_line(train: list[TrainMetrics], field: str) -> _Line:
    return _Line("train", "train", *_points(train, field))


def _dev_lines(dev: list[DevMetrics], field: str, decimals: int) -> list[_Line]:
    """Return a line for each set and for current or averaged weights, where there are scores."""
    lines: list[_Line] = []
    sets = dict.fromkeys((metrics.name, metrics.weights == "average") for metrics in dev)
    watched = [name for name in dict.fromkeys(name for name, _ in sets) if name != "dev"]
    for of, averaged in sorted(sets, key=lambda one: (one[0] != "dev", one)):
        name = f"{of}, averaged weights" if averaged else of
        kind = f"watch{watched.index(of) % WATCH_COLOURS}" if of != "dev" else "average" if averaged else "dev"
        here = [metrics for metrics in dev if (metrics.name, metrics.weights == "average") == (of, averaged)]
        here = [metrics for metrics in here if _is_number(getattr(metrics, field))]
        best = [(i, f"best {getattr(here[i], field):.{decimals}f}") for i in range(len(here)) if here[i].best]
        if here:
            hovers = [_describe(metrics) for metrics in here]
            lines.append(_Line(name, kind, *_points(here, field), hovers, best[-1] if best else None))
    return lines


def _points(metrics: Sequence[TrainMetrics | DevMetrics], field: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and values of one field where it is a number."""
    pairs = [(m.step, getattr(m, field)) for m in metrics if _is_number(getattr(m, field))]
    return np.array([step for step, _ in pairs], float), np.array([value for _, value in pairs], float)


def _is_number(value: float | None) -> bool:
    return value is not None and abs(value) < 1e30  # anything larger counts as infinite


def _describe(metrics: DevMetrics) -> str:
    best = " (best so far)" if metrics.best else ""
    average = ", averaged weights" if metrics.weights == "average" else ""
    losses = f"{metrics.plain:.3f} nats, perplexity {metrics.perplexity:.2f}"
    return f"step {metrics.step:,}{average}: {losses}{metrics.search_score}{best}"


def _chart(
    title: str,
    note: str,
    lines: list[_Line],
    last_step: int,
    *,
    height: int = LOW,
    clip: float = 100,
    from_zero: bool = False,
    most: float = math.inf,
    unit: str = "",
    perplexity: bool = False,
) -> str:
    """Return a figure of lines over the steps, or an empty string if they have no points; no value exceeds `most`."""
    lines = [line for line in lines if line.values.size]
    if not lines:
        return ""
    low, high = _limits(lines, clip)
    ticks = _ticks(0 if from_zero else low, high, most=height // 32)
    axes = _Axes(last_step, [tick for tick in ticks if tick <= most], height)
    bottom, right = height - BOTTOM, WIDTH - RIGHT
    parts = [f'<text x="{LEFT - 8}" y="{TOP - 14}" text-anchor="end">{unit}</text>'] if unit else []
    for tick in axes.ticks:
        parts += [
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{axes.y(tick):.1f}" y2="{axes.y(tick):.1f}"/>',
            f'<text x="{LEFT - 8}" y="{axes.y(tick):.1f}" dy=".35em" text-anchor="end">{_short(tick)}</text>',
        ]
    if perplexity:
        parts.append(f'<text x="{WIDTH}" y="{TOP - 14}" text-anchor="end">perplexity</text>')
        for tick in _perplexity_ticks(axes.ticks[0], axes.ticks[-1]):
            y = axes.y(math.log(tick))
            parts.append(f'<text x="{right + 8}" y="{y:.1f}" dy=".35em">{_short(tick)}</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{bottom + 24}" text-anchor="end">step</text>')
    for tick in _ticks(0, last_step):
        if 0 < tick <= last_step and tick.is_integer():
            parts.append(f'<text x="{axes.x(tick):.1f}" y="{bottom + 24}" text-anchor="middle">{_short(tick)}</text>')
    name = title.lower().replace(" ", "-")
    parts.append(f'<clipPath id="{name}"><rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/>')
    parts.append(f'</clipPath><g clip-path="url(#{name})">')
    parts += [_draw_line(line, axes) for line in lines]
    parts.append("</g>")
    parts += [_draw_points(line, axes) for line in lines]
    drawing = "\n".join(parts)
    keyed = lines if len(lines) > 1 else [line for line in lines if line.kind == "average"]
    keys = "".join(f'<span class="key {line.kind}">{line.name}</span>' for line in keyed)
    note = f"<p>{escape(note.strip())}</p>" if note else ""
    return f"""<figure>
<figcaption><h2>{title}</h2>{keys}{note}</figcaption>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title} over steps">
{drawing}
</svg>
</figure>
"""


def _draw_line(line: _Line, axes: _Axes) -> str:
    """Draw at most 400 points, each the mean of a stretch; if the line is rough, draw a smoothed one over it."""
    steps, values = _thin(line.steps), _thin(line.values)
    drawn = [("", values)]
    if not line.hovers and _noise(values) > NOISE * (axes.ticks[-1] - axes.ticks[0]):
        drawn = [(" rough", values), ("", _smooth(values))]
    parts: list[str] = []
    for rough, some in drawn:
        places = " ".join(f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in zip(steps, some))
        parts.append(f'<polyline class="{line.kind}{rough}" points="{places}"/>')
    return "\n".join(parts)


def _draw_points(line: _Line, axes: _Axes) -> str:
    """Draw the points that have tooltips, or a line's only point, and a ring around the best."""
    parts: list[str] = []
    hovers = line.hovers if len(line.values) > 1 else [*line.hovers, f"step {line.steps[0]:,.0f}"]
    for step, value, hover in zip(line.steps, line.values, hovers if len(hovers) <= MOST_POINTS else []):
        if axes.holds(value):
            place = f'cx="{axes.x(step):.1f}" cy="{axes.y(value):.1f}"'
            parts.append(f'<circle class="{line.kind}" {place} r="3"><title>{escape(hover)}</title></circle>')
    if line.best and axes.holds(line.values[line.best[0]]):
        x, y = axes.x(line.steps[line.best[0]]), axes.y(line.values[line.best[0]])
        anchor = "end" if x > WIDTH / 2 else "start"
        parts.append(f'<circle class="ring {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
        parts.append(f'<text class="label {line.kind}" x="{x:.1f}" y="{y - 12:.1f}" text-anchor="{anchor}">')
        parts.append(f"{line.best[1]}</text>")
    return "\n".join(parts)


def _thin(values: np.ndarray) -> np.ndarray:
    return np.array([part.mean() for part in np.array_split(values, min(len(values), MOST_POINTS))])


def _noise(values: np.ndarray) -> float:
    """Return the median distance of a point from the mean of its neighbours; 0 for short lines."""
    if len(values) < 4 * SMOOTHED:
        return 0.0
    return float(np.median(np.abs(values[1:-1] - (values[:-2] + values[2:]) / 2)))


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the moving mean, always with as many neighbours left as right, so that slopes do not shift."""
    reach = [min(SMOOTHED, index, len(values) - 1 - index) for index in range(len(values))]
    return np.array([values[index - few : index + few + 1].mean() for index, few in enumerate(reach)])


def _limits(lines: list[_Line], clip: float) -> tuple[float, float]:
    """Return the range to show: lines without their extremes, points unless they are far above the others."""
    points = np.concatenate([line.values for line in lines if line.hovers] or [np.empty(0)])
    rough = np.concatenate([line.values for line in lines if not line.hovers] or [np.empty(0)])
    if not rough.size:
        return float(points.min()), float(points.max())
    low, high = np.percentile(rough, (100 - clip, clip))
    near = [low, high, *points[points <= 2 * max(high, np.median(points))]] if points.size else [low, high]
    return float(min(near)), float(max(near))


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return about `most` round numbers that enclose a range, in steps of 1, 2 or 5 times a power of ten."""
    if -1e-12 < low <= high < 1e-12:
        low, high = 0.0, 1.0
    elif high - low < 1e-4 * abs(high):  # a single value, or values too close for their labels to differ
        low, high = low - abs(low) / 2, high + abs(high) / 2
    rough_step = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough_step))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough_step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def _perplexity_ticks(low: float, high: float) -> list[float]:
    """Return round perplexities between two losses, spaced logarithmically if they span a factor of four or more."""
    least, most = math.exp(min(low, 700.0)), math.exp(min(high, 700.0))  # exp(710) overflows
    if most < 4 * least:
        return [tick for tick in _ticks(least, most) if least <= tick <= most]
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    ticks = [tick for tick in ticks if least <= tick <= most]
    return ticks[:: math.ceil(len(ticks) / 10)]


def _short(number: float) -> str:
    """Return a round number as a label: 0.5, 2e-4, 20 k, 1.5 M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(number) < 1000 * size:
            return f"{number / size:g} {letter}"
    return f"{number:g}".replace("e-0", "e-").replace("e+", "e")
