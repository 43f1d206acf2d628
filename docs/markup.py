"""What our pages hold beside plain Markdown: pieces of the source, cut from it when the site is built, and equations.

A fenced block in the language `source` names a file of `src/transduce` and something in it; the page shows that as it
is today. `$…$` and a paragraph between `$$` are LaTeX, as on GitHub, and become MathML, which browsers show without a
script. Lists are indented as on GitHub.
"""

import ast
import re
from pathlib import Path
from textwrap import dedent
from xml.etree.ElementTree import Element, SubElement, fromstring

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockparser import BlockParser
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

SOURCE = Path(__file__).parent.parent / "src" / "transduce"


def cut_source(file: str, name: str) -> str:
    """The source of a function, a class, a method or a constant of a file, `Class.method` for the third."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    body, found = ast.parse(text).body, None
    for part in name.split("."):
        found = next((node for node in body if part in _names(node)), None)
        if found is None:
            raise LookupError(f"there is no {name} in {file}")
        body = found.body if isinstance(found, ast.ClassDef) else []
    assert found is not None
    first = min([found.lineno, *(node.lineno for node in getattr(found, "decorator_list", []))])
    return dedent("\n".join(text.splitlines()[first - 1 : found.end_lineno]))


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def write_mathml(latex: str, display: bool) -> Element:
    """An equation as MathML, with the LaTeX beside it for those who read it aloud or copy it."""
    math = fromstring(re.sub(r' xmlns="[^"]*"', "", convert(latex, display="block" if display else "inline")))
    math.set("alttext", latex)
    for name in math.iter("mi"):
        if len(name.text or "") > 1:
            name.set("class", "word")  # sin, cos: upright
    return math


class Sources(Preprocessor):
    """Puts the source in place of the blocks that name it."""

    def run(self, lines: list[str]) -> list[str]:
        def show(match: re.Match[str]) -> str:
            file, name = match[1].split()
            return f'```python title="{file}: {name}"\n{cut_source(file, name)}\n```'

        return re.sub(r"^```source\n(.*)\n```$", show, "\n".join(lines), flags=re.MULTILINE).split("\n")


class Lists(Preprocessor):
    """What belongs to an item is two blanks in, as on GitHub; Python-Markdown wants four, and room between items."""

    def run(self, lines: list[str]) -> list[str]:
        found: list[str] = []
        within = fenced = roomy = False
        for line in lines:
            if line.startswith("```"):
                fenced = not fenced
            if not fenced and line.startswith("- "):
                if within and roomy and found[-1]:
                    found.append("")
                within, roomy = True, False
            elif not fenced and line and not line.startswith(" "):
                within = False
            roomy |= not line
            found.append(f"  {line}" if within and line.startswith("  ") else line)
        return found


class Equations(BlockProcessor):
    """Paragraphs between `$$`."""

    def test(self, parent: Element, block: str) -> bool:
        return block.startswith("$$") and block.endswith("$$") and len(block) > 4

    def run(self, parent: Element, blocks: list[str]) -> None:
        SubElement(parent, "p", {"class": "equation"}).append(write_mathml(blocks.pop(0).strip("$ \n"), True))


class Symbols(InlineProcessor):
    """Between single `$`, within a line of text."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: N802
        return write_mathml(m[1], False), m.start(0), m.end(0)


class Pages(Extension):
    """The whole of it."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        parser: BlockParser = md.parser
        md.preprocessors.register(Sources(md), "sources", 40)  # before fenced blocks are taken away
        md.preprocessors.register(Lists(md), "lists", 39)
        parser.blockprocessors.register(Equations(parser), "equations", 175)
        # After code (190) and escapes (180), before emphasis.
        md.inlinePatterns.register(Symbols(r"\$(?! )([^$\n]+?)(?<! )\$(?!\d)", md), "symbols", 175)


def makeExtension(**settings: object) -> Pages:  # noqa: N802
    """What Markdown calls."""
    return Pages(**settings)
