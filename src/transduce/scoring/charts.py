"""Charts of a score report as SVG: the distribution of scores, and how they change with length."""

from collections.abc import Sequence
from html import escape

import numpy as np

from transduce.scoring.metrics import Measured

# In the units of the charts, which a browser scales to the width of the page.
WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 28, 40
COLOURS = 6
BINS = 20
LENGTHS = (5, 10, 15, 20, 30, 40, 60)
FEWEST = 5  # sentences that a bar needs


def draw_spread(names: Sequence[str], found: Sequence[Measured]) -> str:
    """Draw a histogram of the sentences' scores, one outline for each system."""
    top = 1.0 if found[0].name == "comet" else 100.0
    edges = np.linspace(0, top, BINS + 1)
    counts = [np.histogram(np.clip(some.sentences, 0, top), edges)[0] for some in found if some.sentences is not None]
    ticks = _ticks(max(int(some.max()) for some in counts))
    parts = _grid(ticks, "sentences")
    xs = LEFT + (WIDTH - LEFT - RIGHT) * edges / top
    shape = "polygon" if len(counts) == 1 else "polyline"
    for number, some in enumerate(counts):
        corners = [(x, count) for place, count in enumerate(some) for x in xs[place : place + 2]]
        points = " ".join(f"{x:.1f},{_y(y, ticks):.1f}" for x, y in [(xs[0], 0), *corners, (xs[-1], 0)])
        parts.append(f'<{shape} class="system-{number % COLOURS}" points="{points}"/>')
    for place in range(BINS):
        each = "; ".join(f"{name}: {int(some[place]):,} sentences" for name, some in zip(names, counts))
        hover = escape(f"{edges[place]:g} to {edges[place + 1]:g}: {each}")
        box = f'x="{xs[place]:.1f}" y="{TOP}" width="{xs[1] - xs[0]:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        parts.append(f'<rect class="touch" {box}><title>{hover}</title></rect>')
    for x, edge in list(zip(xs, edges))[:: BINS // 5]:
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{edge:g}</text>')
    more = ", 100 and more in the last" if found[0].name == "ter" else ""
    parts.append(_below(f"{found[0].title} of the sentence{more}"))
    return _svg(parts, f"sentences by {found[0].title}")


def draw_lengths(names: Sequence[str], found: Sequence[Measured], lengths: np.ndarray, side: str) -> str:
    """Draw the score of all sentences of similar length, a bar for each system; empty if there are too few."""
    groups = [(low + 1, high, (lengths > low) & (lengths <= high)) for low, high in zip((0, *LENGTHS), LENGTHS)]
    groups.append((LENGTHS[-1] + 1, 0, lengths > LENGTHS[-1]))
    groups = [(low, high, chosen) for low, high, chosen in groups if chosen.sum() >= FEWEST]
    if not groups:
        return ""
    scores = [[some.score_of(some.counts[chosen]) for _, _, chosen in groups] for some in found]
    ticks = _ticks(max(max(row) for row in scores))
    parts = _grid(ticks, found[0].title)
    wide = (WIDTH - LEFT - RIGHT) / len(groups)
    for place, (low, high, chosen) in enumerate(groups):
        label = f"{low}–{high}" if high else f"{low}+"
        x, bar = LEFT + place * wide, 0.76 * wide / len(found)
        for number, (name, row) in enumerate(zip(names, scores)):
            y, here = _y(row[place], ticks), x + 0.12 * wide + number * bar
            hover = f"{name}, {label} words: {row[place]:.{found[0].decimals}f} ({int(chosen.sum()):,} sentences)"
            parts.append(
                f'<rect class="system-{number % COLOURS}" x="{here:.1f}" y="{y:.1f}" width="{max(1, bar - 1):.1f}" '
                f'height="{max(0.0, HEIGHT - BOTTOM - y):.1f}"><title>{escape(hover)}</title></rect>'
            )
        middle = x + wide / 2
        parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{label}</text>')
    parts.append(_below(f"words of the {side}"))
    return _svg(parts, f"{found[0].title} by length of the {side}")


def _grid(ticks: Sequence[float], title: str) -> list[str]:
    parts = [f'<text x="0" y="{TOP - 16}">{escape(title)}</text>']
    for tick in ticks:
        y = _y(tick, ticks)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y:.1f}" dy=".35em" text-anchor="end">{tick:,g}</text>')
    return parts


def _below(text: str) -> str:
    return f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(text)}</text>'


def _y(value: float, ticks: Sequence[float]) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / ticks[-1])


def _ticks(highest: float, most: int = 5) -> list[float]:
    """Return round numbers from 0 up to the highest value or just above."""
    rough = max(highest, 1e-9) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [float(f"{number * step:.10g}") for number in range(max(1, int(np.ceil(highest / step - 1e-9))) + 1)]


def _svg(parts: Sequence[str], label: str) -> str:
    drawing = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">\n{drawing}\n</svg>'
    )
