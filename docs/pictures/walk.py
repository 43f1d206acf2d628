"""Draws the pictures of docs/walk.md: the model with our names in it, the positions, and the learning rate.

python docs/pictures/walk.py docs/pictures
"""

import sys
from pathlib import Path

import torch

from transduce.model.positions import sinusoids
from transduce.presets import PRESETS
from transduce.training.schedule import learning_rate

GREY, INK = "#8c959f", "#1f2328"
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # Okabe and Ito: safe for colour-blind eyes
PALE = {"embed": "#f3d9e6", "attention": "#fbe3c0", "feed": "#cfe6f6", "norm": "#f4f1c0", "out": "#cdeadf"}


def text(x: float, y: float, words: str, fill: str = GREY, anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}">{words}</text>'


def box(x: float, y: float, title: str, name: str, colour: str) -> str:
    """A part of the model: what the paper calls it, and what we do."""
    return "\n".join(
        [
            f'<rect x="{x - 105:g}" y="{y:g}" width="210" height="38" rx="6" fill="{PALE[colour]}" stroke="{GREY}"/>',
            text(x, y + 16, title, INK, "middle"),
            f'<text x="{x:g}" y="{y + 31:g}" fill="{INK}" text-anchor="middle" font-size="11">{name}</text>',
        ]
    )


def arrow(path: str) -> str:
    """A way that numbers take."""
    return f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#end)"/>'


def layer(x: float, y: float, parts: list[tuple[str, str, str]]) -> list[str]:
    """A layer from below: each part with the sum and norm behind it, and the way past the part."""
    shapes: list[str] = []
    for title, name, colour in parts:
        shapes += [box(x, y - 38, title, name, colour), arrow(f"M{x:g} {y + 16:g}V{y + 2:g}")]
        place = f'x="{x - 105:g}" y="{y - 72:g}" width="210" height="20" rx="6"'
        shapes.append(f'<rect {place} fill="{PALE["norm"]}" stroke="{GREY}"/>')
        shapes.append(text(x, y - 58, "sum, norm: Residual", INK, "middle"))
        shapes.append(arrow(f"M{x:g} {y - 38:g}V{y - 50:g}"))
        shapes.append(arrow(f"M{x:g} {y + 10:g}H{x - 122:g}V{y - 62:g}H{x - 107:g}"))
        y -= 94
    return shapes


def draw_model() -> str:
    """Figure 1 of the paper."""
    feed = ("feed-forward network", "FeedForward", "feed")
    encoder = [("self-attention", "MultiHeadAttention, Spans", "attention"), feed]
    decoder = [
        ("masked self-attention", "MultiHeadAttention, Spans(causal)", "attention"),
        ("attention to the encoder", "MultiHeadAttention, Spans", "attention"),
        feed,
    ]
    left, right, low = 170, 530, 500
    shapes = [
        f'<rect x="{x - 140:g}" y="{low - 94 * many + 6:g}" width="265" height="{94 * many + 8:g}" rx="10" '
        f'fill="none" stroke="{GREY}" stroke-dasharray="4 4"/>'
        for x, many in ((left, 2), (right, 3))
    ]
    shapes += layer(left, low - 10, encoder) + layer(right, low - 10, decoder)
    shapes += [
        text(left - 140, low - 192, "EncoderLayer, N times"),
        text(right - 140, low - 286, "DecoderLayer, N times"),
    ]
    for x, what in ((left, "source tokens"), (right, "target tokens, shifted by one")):
        shapes += [box(x, low + 20, "embeddings and positions", "Transformer.embed", "embed")]
        shapes += [arrow(f"M{x} {low + 84}V{low + 60}"), text(x, low + 100, what, anchor="middle")]
    # From the top of the encoder to the decoder's second part.
    shapes += [
        arrow(f"M{left} {low - 176}V{low - 230}H352V{low - 124}H{right - 107}"),
        text(left + 12, low - 236, "memory"),
    ]
    shapes += [arrow(f"M{right} {low - 270}V{low - 304}")]
    shapes += [
        box(right, low - 344, "linear, softmax", "Transformer.project", "out"),
        arrow(f"M{right} {low - 344}V{low - 366}"),
    ]
    shapes.append(text(right, low - 374, "how probable each token is as the next", anchor="middle"))
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker>'
    )
    return picture(720, 490, [f"<defs>{marker}</defs>", *shapes], top=115)


def draw_positions() -> str:
    """Some numbers of the vectors of the first positions."""
    many, width = 60, 512
    values = sinusoids(torch.arange(many * 8) / 8, width)
    shapes = [text(8, 16, "five of the 512 numbers that are added at each position")]
    for row, (number, colour) in enumerate(((0, BLUE), (1, ORANGE), (40, GREEN), (100, PINK), (200, GREY))):
        middle = 54 + 56 * row
        points = " ".join(
            f"{60 + 10 * place / 8:g},{middle - 20 * value:.1f}"
            for place, value in enumerate(values[:, number].tolist())
        )
        shapes.append(f'<path d="M60 {middle}H655" stroke="{GREY}" stroke-opacity="0.3"/>')
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shapes.append(text(50, middle + 4, f"{number}", colour, "end"))
    shapes += [text(60 + 10 * place, 330, f"{place}", anchor="middle") for place in range(0, many + 1, 10)]
    return picture(720, 340, shapes)


def draw_rates() -> str:
    """Equation 3 of the base and the big model."""
    most, last = 0.0008, 40_000
    shapes = [text(8, 16, "learning rate by steps")]
    for tick in (0, 0.0002, 0.0004, 0.0006, 0.0008):
        y = 210 - 170 * tick / most
        shapes.append(f'<path d="M70 {y:g}H600" stroke="{GREY}" stroke-opacity="0.3"/>')
        shapes.append(text(62, y + 4, f"{tick:g}" if tick else "0", anchor="end"))
    for tick in range(0, last + 1, 10_000):
        shapes.append(text(70 + 530 * tick / last, 232, f"{tick:,}", anchor="middle"))
    for name, colour in (("base", BLUE), ("big", ORANGE)):
        config = PRESETS[name].config
        rates = [(step, learning_rate(step, config.training, config.model.d_model)) for step in range(1, last, 200)]
        points = " ".join(f"{70 + 530 * step / last:.1f},{210 - 170 * rate / most:.1f}" for step, rate in rates)
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shapes.append(text(606, 214 - 170 * rates[-1][1] / most, name, colour))
    return picture(720, 240, shapes)


def picture(width: int, height: int, shapes: list[str], top: int = 0) -> str:
    """The whole of it."""
    size = f'viewBox="0 {top} {width} {height}" width="{width}" font-family="sans-serif" font-size="13"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *shapes, "</svg>", ""])


PICTURES = {"model.svg": draw_model, "positions.svg": draw_positions, "rate.svg": draw_rates}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(sys.argv[1]) / name).write_text(draw(), encoding="utf-8")
