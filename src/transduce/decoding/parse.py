"""The verb `parse`: lines of text in, trees out, one to a line, drawn or as JSON; if wanted, also as a picture."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transduce import strict
from transduce.config import SearchConfig
from transduce.decoding.engines import Name, Precision
from transduce.decoding.files import InputLines, Output, cut_windows, refuse_existing, round_score, track_progress
from transduce.decoding.options import ParseOptions, lay_over
from transduce.decoding.parser import Parse, Parser
from transduce.disk import replace_file
from transduce.errors import UsageError
from transduce.model.saved import WEIGHTS, find_model, read_config, read_manifest
from transduce.text.corpus import Input, read_blocks
from transduce.text.pictures import draw_tree, make_svg
from transduce.text.trees import check_trees, parse_tree

PICTURES = 200  # most trees in one picture
STANDARD = Path("-")  # input or output


@dataclass(frozen=True, kw_only=True)
class ParseJob:
    """What the command line asks for."""

    models: Sequence[Path]
    input: Path | None
    trees: Path | None
    """parse the words of these trees instead"""
    out: Path | None
    json: bool
    draw: bool
    svg: Path | None
    device: str
    precision: Precision
    threads: int | None
    engine: Name
    settings: dict[str, Any]
    """changes to the model's search settings and to `ParseOptions`"""


def run_parse(job: ParseJob) -> tuple[int, int]:
    """Parse every line; empty lines stay empty. Return how many sentences there were, and how many got no tree."""
    # Mistakes are looked for before the model is loaded, which takes longer.
    options, config = lay_over(
        ParseOptions(), read_config(find_model(job.models[0])).search, job.settings, "command line"
    )
    if config.n_best > 1 and not job.json:
        raise UsageError(f"--n-best {config.n_best} needs --json: plain output has one tree for each line of the input")
    if job.trees and job.input:
        raise UsageError("--input and --trees both say what to parse; use one of them")
    if job.trees:
        options = replace(options, tokenised=True)
    if job.draw and job.json:
        raise UsageError("--draw and --json are two kinds of output; use one of them")
    for flag, path in (("--trees", job.trees), ("--svg", job.svg)):
        if path == STANDARD:
            raise UsageError(f"{flag} - is not a file; name one")
    for path in filter(None, (job.out, job.svg)):
        refuse_existing(path)
    with ExitStack() as stack:
        lines = stack.enter_context(
            closing(stack.enter_context(_words_of(job.trees)) if job.trees else InputLines(job.input))
        )
        parser = Parser.load(
            *job.models, device=job.device, precision=job.precision, threads=job.threads, engine=job.engine
        )
        with closing(Output(job.out, _describe(job, parser, options, config))) as output:
            found = _parse_lines(parser, lines, output, job, options, config)
    if job.out:
        print(f"{job.out}: {found.lines:,} lines", file=sys.stderr)
    if not options.constrained:
        share = found.malformed / max(1, found.sentences)
        print(f"no tree found: {found.malformed:,} of {found.sentences:,} sentences ({share:.2%})", file=sys.stderr)
    if job.svg:
        replace_file(job.svg, make_svg(map(parse_tree, found.trees)).encode())
        if found.sentences > PICTURES:
            print(f"{job.svg}: the first {PICTURES} of {found.sentences:,} trees", file=sys.stderr)
    return found.sentences, found.malformed


@contextmanager
def _words_of(trees: Path) -> Iterator[InputLines]:
    """Yield the sentences of a treebank, as the lines of a temporary file."""
    with closing(read_blocks(0, Input(files=(trees,), format="trees"))) as blocks:
        cut = [(block.line(row), text) for block in blocks for row, text in enumerate(block.raw[0].split(b"\n")[:-1])]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "words.txt"
        text = "".join(" ".join(tree.words()) + "\n" for _, tree in check_trees(cut, str(trees)))
        path.write_text(text, encoding="utf-8", newline="\n")
        lines = InputLines(path)
        lines.name = f"{trees}, tree"
        yield lines


@dataclass
class _Found:
    """The results for all lines, those of an earlier run included."""

    lines: int
    trees: list[str] = field(default_factory=list)
    """the first ones, for a picture"""
    sentences: int = 0
    malformed: int = 0

    def known(self) -> dict[str, Any]:
        """Return what a resumed job needs to know."""
        return {"trees": self.trees, "sentences": self.sentences, "malformed": self.malformed}


def _parse_lines(
    parser: Parser, lines: InputLines, output: Output, job: ParseJob, options: ParseOptions, config: SearchConfig
) -> _Found:
    digest = lines.skip(output)
    found = _Found(output.done, **output.known)
    with track_progress("parse", lines, output) as show:
        for window in cut_windows(lines):
            numbers = [place for place, line in enumerate(window, 1) if line.strip()]
            sentences = (window[number - 1] for number in numbers)
            before = found.lines - output.done
            parses = parser.stream(
                sentences,
                options,
                name=lambda place, numbers=numbers, before=before: lines.name_line(before, numbers[place - 1]),
                done=partial(show, before, len(window)),
                **strict.to_dict(config),
            )
            try:
                for line in window:
                    parse = next(parses) if line.strip() else None
                    output.write(_show(parse, job, config.n_best > 1) if parse else "")
                    digest.update(line.encode() + b"\n")
                    found.lines += 1
                    if parse:
                        found.sentences += 1
                        found.malformed += not parse.whole
                        if len(found.trees) < PICTURES:
                            found.trees.append(str(parse.tree))
            finally:
                output.save(found.lines, digest.hexdigest(), found.known())
            show(before, len(window), 1, 1)
    output.finish()
    return found


def _describe(job: ParseJob, parser: Parser, options: ParseOptions, config: SearchConfig) -> dict[str, Any]:
    """Return what trees depend on: a job is resumed only if all of it is the same."""
    digests = [read_manifest(one.folder)["files"][WEIGHTS]["sha256"][:16] for one in parser.loaded]
    own = {"precision": job.precision, "json": job.json, "draw": job.draw}
    return {"model": digests, **own, **strict.to_dict(options), **strict.to_dict(config)}


def _show(parse: Parse, job: ParseJob, wants_alternatives: bool) -> str:
    if job.draw:
        width = shutil.get_terminal_size().columns if job.out is None and sys.stdout.isatty() else 100
        return draw_tree(parse.tree, width) + "\n"
    if not job.json:
        return str(parse)
    trees = [
        {
            "tree": str(one.tree),
            "score": round_score(one.score),
            "log_probability": round_score(one.log_probability),
            "whole": one.whole,
        }
        for one in parse.candidates
    ]
    alternatives = {"alternatives": trees} if wants_alternatives else {}
    return json.dumps({"words": parse.words, **trees[0], **alternatives}, ensure_ascii=False)
