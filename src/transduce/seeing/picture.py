"""Attention as an SVG picture for a paper: lines between words as in Figures 3 to 5, or heat maps.

The SVG holds only numbers and escaped words, so it opens anywhere and can be edited.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from transduce.seeing.kinds import View
from transduce.text.pictures import escape_xml
from transduce.text.subwords import SPACE

# After the colours of Okabe and Ito, which people with any kind of colour vision can tell apart; the page has the same.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8569a", "#c98a00", "#3d9fdb", "#8a7d00", "#4d4d4d")
SIZE = 14  # of the font
LETTER = 7.6  # width of a letter, about; the reader's font is unknown
STEP = 22  # from word to word
GAP = 210  # between the two rows of words
LEAST = 0.02  # weight below which no line is drawn
PANELS = 4  # heat maps side by side


@dataclass(frozen=True)
class Picture:
    """What to draw: some heads of one layer, with the words that attend and those attended to."""

    queries: Sequence[str]
    keys: Sequence[str]
    weights: Float[np.ndarray, "heads query key"]
    """of all heads of the layer"""
    heads: Sequence[int]
    """which of them to draw, counted from 0"""
    title: str
    words: Sequence[int] | None = None
    """the queries whose weights are drawn; None: all"""

    def _repr_svg_(self) -> str:
        """Show the picture in a notebook, as lines."""
        return draw_lines(self)


def draw(picture: Picture, view: View) -> str:
    """Return the picture as SVG."""
    return draw_lines(picture) if view == "lines" else draw_maps(picture)


def readable(piece: str) -> str:
    """Return a subword as people see it: bare if it begins a word, with a dot before it if it continues one."""
    if piece.startswith("⟨") and piece.endswith("⟩"):
        return piece
    text = piece.removeprefix(SPACE).replace(SPACE, "␣")
    return (text or "␣") if piece.startswith(SPACE) else f"·{text}"


def draw_lines(picture: Picture) -> str:
    """Draw words above and below, turned as in the paper's figures; a line is as strong as its weight."""
    above, below = ([readable(piece) for piece in side] for side in (picture.queries, picture.keys))
    top, bottom = _length(above), _length(below)
    first, second = 30 + top, 30 + top + GAP
    width = STEP * max(len(above), len(below)) + 16
    chosen = range(len(above)) if picture.words is None else picture.words
    parts: list[str] = []
    for place, head in enumerate(picture.heads):
        beside = (place - (len(picture.heads) - 1) / 2) * min(2.2, (STEP - 8) / len(picture.heads))
        parts.append(f'<g stroke="{COLOURS[head % len(COLOURS)]}" stroke-linecap="round">')
        for query in chosen:
            for key in np.flatnonzero(picture.weights[head, query] >= LEAST):
                share = float(picture.weights[head, query, key])
                ends = (
                    f'x1="{_x(query) + beside:.1f}" y1="{first + 6}" x2="{_x(int(key)) + beside:.1f}" y2="{second - 6}"'
                )
                parts.append(f'<line {ends} stroke-width="{0.7 + 2.8 * share:.2f}" stroke-opacity="{share:.3f}"/>')
        parts.append("</g>")
    quiet = set(range(len(above))) - set(chosen)
    for index, word in enumerate(above):
        look = ' opacity=".45"' if index in quiet else ""
        parts.append(
            f'<text transform="translate({_x(index) + 5:.1f} {first}) rotate(-90)"{look}>{escape_xml(word)}</text>'
        )
    for index, word in enumerate(below):
        place = f'transform="translate({_x(index) + 5:.1f} {second}) rotate(-90)" text-anchor="end"'
        parts.append(f"<text {place}>{escape_xml(word)}</text>")
    return _svg(parts, width, second + bottom + 14, picture)


def draw_maps(picture: Picture) -> str:
    """Draw a heat map for each head, with its words; a cell's colour is as strong as its weight."""
    rows, columns = ([readable(piece) for piece in side] for side in (picture.queries, picture.keys))
    left, top, cell = _length(rows) + 8, _length(columns) + 8, 18
    wide, high = left + cell * len(columns) + 18, top + cell * len(rows) + 40
    shown = range(len(rows)) if picture.words is None else picture.words
    parts: list[str] = []
    for place, head in enumerate(picture.heads):
        x, y = place % PANELS * wide + 8, place // PANELS * high + 34
        colour = COLOURS[head % len(COLOURS)]
        parts.append(f'<g transform="translate({x} {y})">')
        parts.append(f'<text x="{left}" y="8" fill="{colour}" font-weight="bold">head {head + 1}</text>')
        whole = f'width="{cell * len(columns)}" height="{cell * len(rows)}"'
        parts.append(f'<rect x="{left}" y="{top + 10}" {whole} fill="#f4f5f7"/>')
        for query in shown:
            for key in np.flatnonzero(picture.weights[head, query] >= LEAST / 4):
                box = f'x="{left + cell * int(key)}" y="{top + 10 + cell * query}" width="{cell}" height="{cell}"'
                parts.append(f'<rect {box} fill="{colour}" fill-opacity="{picture.weights[head, query, key]:.3f}"/>')
        for index, word in enumerate(rows):
            at = f'x="{left - 5}" y="{top + 10 + cell * (index + 0.5):.0f}" dy=".35em" text-anchor="end"'
            parts.append(f"<text {at}>{escape_xml(word)}</text>")
        for index, word in enumerate(columns):
            at = f'transform="translate({left + cell * (index + 0.5) + 4:.0f} {top + 5}) rotate(-90)"'
            parts.append(f"<text {at}>{escape_xml(word)}</text>")
        parts.append("</g>")
    many = len(picture.heads)
    return _svg(parts, min(PANELS, many) * wide + 8, -(-many // PANELS) * high + 34, picture)


def _svg(parts: Sequence[str], width: float, height: float, picture: Picture) -> str:
    at = 8.0 * len(picture.title) + 8
    legend: list[str] = []
    if len(picture.heads) > 1:
        for head in picture.heads:
            colour = COLOURS[head % len(COLOURS)]
            legend.append(f'<text x="{at:.0f}" y="18" fill="{colour}" font-weight="bold">{head + 1}</text>')
            at += 12 + LETTER * len(str(head + 1))
    width = max(width, at + 8)
    drawing = "\n".join([*legend, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="{SIZE}" '
        f'role="img" aria-label="{escape_xml(picture.title)}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="8" y="18" fill="#5f6977">{escape_xml(picture.title)}</text>\n{drawing}\n</svg>\n'
    )


def _x(index: int) -> float:
    return 8 + STEP * (index + 0.5)


def _length(words: Sequence[str]) -> int:
    return round(LETTER * max(map(len, words), default=0)) + 6
