"""Pictures of trees: in characters for a terminal, and as SVG."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from transduce.text.trees import Tree, to_sentence

GAP = 2  # columns between words in a terminal
FONT, LEVEL, SPACE, MARGIN, CORNER = 15, 46, 16, 20, 7  # of SVG, in pixels
_NARROW, _WIDE = frozenset("fijlrt.,:;'`|!()[]-I "), frozenset("mwMWOQGCD%@&—")

STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1c2430; text-anchor: middle; }
.label { font-weight: 600; fill: #2f6fdb; }
path { fill: none; stroke: #aab4c0; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) { text { fill: #e4e8ee; } .label { fill: #74a9ff; } path { stroke: #56606e; } }
"""


def draw_tree(tree: Tree, width: int = 100) -> str:
    """Draw a tree in characters: from the root down if it fits the width, else from left to right."""
    block = _draw(tree)
    if block.width <= width:
        return "\n".join(line.rstrip() for line in block.lines)
    return "\n".join(_outline(tree))


@dataclass
class _Block:
    """A part of the drawing; `anchor` is the column where it hangs."""

    lines: list[str]
    width: int
    anchor: int


def _draw(tree: Tree) -> _Block:
    if tree.word is not None:
        word = to_sentence([tree.word])
        width = cell_len(word)  # some characters are two columns wide
        return _Block([word], width, width // 2)
    parts = [_draw(child) for child in tree.children]
    anchors: list[int] = []
    width = 0
    for part in parts:
        anchors.append(width + part.anchor)
        width += part.width + GAP
    width -= GAP
    height = max(len(part.lines) for part in parts)
    rows = [
        (" " * GAP).join(_fill(part.lines[row] if row < len(part.lines) else "", part.width) for part in parts)
        for row in range(height)
    ]
    anchor = (anchors[0] + anchors[-1]) // 2
    label = cell_len(tree.label)
    begin = anchor - label // 2
    if begin < 0:  # the label is wider than what hangs from it
        rows = [" " * -begin + row for row in rows]
        anchors, anchor, width, begin = [at - begin for at in anchors], anchor - begin, width - begin, 0
    width = max(width, begin + label)
    return _Block([" " * begin + tree.label, _join(anchors, anchor), *rows], width, anchor)


def _fill(line: str, width: int) -> str:
    return line + " " * (width - cell_len(line))


def _join(anchors: Sequence[int], top: int) -> str:
    """Return the line between a label and what hangs from it."""
    if len(anchors) == 1:
        return " " * top + "│"
    line = [" "] * anchors[0] + ["─"] * (anchors[-1] - anchors[0] + 1)
    for at in anchors:
        line[at] = "┬"
    line[anchors[0]], line[anchors[-1]] = "┌", "┐"
    line[top] = {"─": "┴", "┬": "┼", "┌": "├", "┐": "┤"}[line[top]]
    return "".join(line)


def _outline(tree: Tree, before: str = "", behind: str = "") -> Iterator[str]:
    """Yield a line for each constituent and word; a constituent of words only has them beside its label."""
    if tree.word is not None:
        yield before + to_sentence([tree.word])
    elif all(child.word is not None for child in tree.children):
        yield f"{before}{tree.label}  {to_sentence(tree.words())}"
    else:
        yield before + tree.label
        for child in tree.children[:-1]:
            yield from _outline(child, behind + "├─ ", behind + "│  ")
        yield from _outline(tree.children[-1], behind + "└─ ", behind + "   ")


def make_svg(trees: Iterable[Tree]) -> str:
    """Draw trees one below the other, the words of each on one line, in light and dark."""
    parts: list[str] = []
    right, bottom = 0.0, float(MARGIN)
    for tree in trees:
        drawing = _Drawing(tree, bottom)
        parts += [f"<g><title>{escape_xml(to_sentence(tree.words()))}</title>", *drawing.parts, "</g>"]
        right, bottom = max(right, drawing.right), drawing.bottom + 2 * MARGIN
    width, height = round(right + MARGIN), round(max(bottom - MARGIN, 2 * MARGIN))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


@dataclass
class _Box:
    """The width of a constituent with all that hangs from it, and its label's middle and its parts, from its left."""

    width: float
    middle: float
    parts: list[tuple[float, "_Box"]]


def _lay_out(tree: Tree) -> _Box:
    if tree.word is not None:
        width = _width(to_sentence([tree.word]))
        return _Box(width, width / 2, [])
    parts: list[tuple[float, _Box]] = []
    end = 0.0
    for child in tree.children:
        box = _lay_out(child)
        parts.append((end, box))
        end += box.width + SPACE
    (_, first), (begin, last) = parts[0], parts[-1]
    middle, half = (first.middle + begin + last.middle) / 2, _width(tree.label) / 2
    left = max(0.0, half - middle)  # a label may be wider than what hangs from it
    width = max(left + end - SPACE, left + middle + half)
    return _Box(width, left + middle, [(left + place, box) for place, box in parts])


class _Drawing:
    """One tree of a picture, drawn from `top` down."""

    def __init__(self, tree: Tree, top: float):
        self.parts: list[str] = []
        self.top = top + FONT
        self.bottom = self.top + _height(tree) * LEVEL
        box = _lay_out(tree)
        self.right = MARGIN + box.width
        self.place(tree, box, MARGIN, 0)

    def place(self, tree: Tree, box: _Box, left: float, level: int) -> float:
        """Draw a constituent and first what hangs from it; return where its middle is."""
        middle = left + box.middle
        if tree.word is not None:
            self.write(to_sentence([tree.word]), middle, self.bottom)
            return middle
        height = self.top + level * LEVEL
        under = [self.place(child, part, left + at, level + 1) for child, (at, part) in zip(tree.children, box.parts)]
        for child, at in zip(tree.children, under):
            end = self.bottom - FONT - 3 if child.word is not None else height + LEVEL - FONT - 3
            self.parts.append(f'<path d="{_edge(middle, height + 6, at, end)}"/>')
        self.write(tree.label, middle, height, ' class="label"')
        return middle

    def write(self, text: str, middle: float, height: float, kind: str = "") -> None:
        self.parts.append(f'<text{kind} x="{middle:.1f}" y="{height:.1f}">{escape_xml(text)}</text>')


def escape_xml(text: str) -> str:
    """Escape text for XML, which cannot hold every character."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


def _edge(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return the path of a line down, across and down again, so that no edge crosses another part of the tree."""
    bend = y + (LEVEL - FONT - 9) / 2
    step = to_x - x
    if abs(step) < 1:
        return f"M{x:.1f} {y:.1f}V{to_y:.1f}"
    round_x = min(CORNER, abs(step) / 2) * (1 if step > 0 else -1)
    return (
        f"M{x:.1f} {y:.1f}V{bend:.1f}H{to_x - round_x:.1f}Q{to_x:.1f} {bend:.1f} {to_x:.1f} {bend + CORNER:.1f}"
        f"V{to_y:.1f}"
    )


def _height(tree: Tree) -> int:
    """Return how many labels are above the deepest word."""
    deepest = depth = 0
    for kind, _ in tree.steps():
        depth += {"open": 1, "word": 0, "close": -1}[kind]
        deepest = max(deepest, depth)
    return deepest


def _width(text: str) -> float:
    """Estimate the width of a text in the font of the picture."""
    return FONT * sum(0.34 if c in _NARROW else 0.9 if c in _WIDE or ord(c) > 0x2E80 else 0.62 for c in text)
