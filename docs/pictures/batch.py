"""Draws docs/pictures/batch.svg: real sentences as a padded batch and as transduce batches them.

python docs/pictures/batch.py DATA > docs/pictures/batch.svg
"""

import sys

from transduce.config import BatchConfig
from transduce.text.batches import Batches
from transduce.text.shards import DataSet

CELL, GAP, SENTENCES = 11, 2, 12
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
)  # Okabe and Ito: safe for colour-blind eyes
GREY = "#8c959f"


def square(column: float, row: float, fill: str, stroke: str = "none") -> str:
    """One token."""
    x, y, size = column * (CELL + GAP), row * (CELL + GAP), CELL
    return f'<rect x="{x:g}" y="{y:g}" width="{size}" height="{size}" rx="2" fill="{fill}" stroke="{stroke}"/>'


def words(row: float, text: str) -> str:
    """A line of text."""
    return f'<text x="0" y="{row * (CELL + GAP):g}" font-family="sans-serif" font-size="13" fill="{GREY}">{text}</text>'


def main() -> None:
    """Print the picture."""
    config = BatchConfig(source_tokens=400, target_tokens=400, parts=1, similar_lengths=False)
    batch = Batches(DataSet.open(sys.argv[1]), config).batch(0, 0)
    offsets = batch.source_offsets.tolist()
    lengths = [offsets[i + 1] - offsets[i] for i in range(SENTENCES)]
    longest, total = max(lengths), sum(lengths)
    padding = 1 - total / (longest * SENTENCES)
    shapes = [words(1, f"padded: {SENTENCES} sentences, {SENTENCES * longest} places, {padding:.0%} of them empty")]
    for row, length in enumerate(lengths):
        colour = COLOURS[row % len(COLOURS)]
        shapes += [square(column, row + 1.8, colour) for column in range(length)]
        shapes += [square(column, row + 1.8, "none", "#8c959f55") for column in range(length, longest)]
    top = SENTENCES + 3.6
    shapes.append(words(top, f"transduce: one row of {total} tokens and the offsets of the sentences, no place empty"))
    place = 0
    for row, length in enumerate(lengths):
        for _ in range(length):
            shapes.append(square(place % longest, top + 0.8 + place // longest, COLOURS[row % len(COLOURS)]))
            place += 1
    width, height = longest * (CELL + GAP), (top + 2 + total // longest) * (CELL + GAP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -2 {max(width, 560) + 16:g} {height:g}" width="720">')
    print("\n".join(shapes))
    print("</svg>")


if __name__ == "__main__":
    main()
