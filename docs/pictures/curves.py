"""Draws how trainings did on their dev sets, from results.json of recipes.

python docs/pictures/curves.py docs/results/multi30k-de.json docs/results/multi30k-fr.json > docs/pictures/multi30k.svg
"""

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 44, 130, 30, 40
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)  # Okabe and Ito: safe for colour-blind eyes
GREY = "#8c959f"


def text(x: float, y: float, words: str, fill: str = GREY, anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}">{words}</text>'


def find_ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest to above the highest."""
    size = next(size for size in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if (high - low) / size <= 7)
    first = int(low // size)
    return [size * number for number in range(first, int(-(-high // size)) + 1)]


def spread(places: list[float], apart: float = 15) -> list[float]:
    """Places for words that do not touch, from the lowest of the picture up."""
    found = dict[int, float]()
    for number in sorted(range(len(places)), key=lambda number: -places[number]):
        found[number] = min(places[number], min(found.values(), default=HEIGHT) - apart)
    return [found[number] for number in range(len(places))]


def main(paths: list[Path]) -> None:
    """Print the picture."""
    lines: list[tuple[str, list[tuple[float, float]]]] = []
    score = ""
    for path in paths:
        steps = json.loads(path.read_text(encoding="utf-8"))["steps"]
        begin = 0.0
        for name, step in steps.items():
            if name.startswith("train ") and step["dev"]:
                score = "bleu" if "bleu" in step["dev"][0] else "f1"
                if step["dev"][0]["step"] > 0:  # else it goes on where the one before ended
                    begin = 0.0
                points = [(begin + one["seconds"] / 60, one[score]) for one in step["dev"]]
                begin = points[-1][0]
                lines.append((path.stem if len(paths) > 1 else name.removeprefix("train "), points))
    values = [value for _, points in lines for _, value in points]
    ticks, last = find_ticks(min(values), max(values)), max(points[-1][0] for _, points in lines)

    def x(minutes: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * minutes / last

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    shown = {"bleu": "BLEU of greedy translations", "f1": "F1 of greedy trees"}[score]
    shapes = [text(LEFT - 36, TOP - 14, f"{shown} of the dev set, by minutes of training")]
    for tick in ticks:
        shapes.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.3"/>')
        shapes.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end"))
    for tick in find_ticks(0, last):
        if tick <= last:
            shapes.append(text(x(tick), HEIGHT - BOTTOM + 22, f"{tick:g}", anchor="middle"))
    ends = spread([y(points[-1][1]) for _, points in lines])
    for (name, points), colour, end in zip(lines, COLOURS, ends):
        places = " ".join(f"{x(minutes):.1f},{y(value):.1f}" for minutes, value in points)
        shapes.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shapes.append(text(x(last) + 6, end + 4, f"{name} {points[-1][1]:.1f}", colour))
    style = 'font-family="sans-serif" font-size="13"'
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {style}>')
    print("\n".join(shapes))
    print("</svg>")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]])
