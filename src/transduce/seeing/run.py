"""The verbs `show` and `heads`: their arguments, and the files they write."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce import strict
from transduce.decoding.alignment import Links, number_words
from transduce.decoding.engine import Engine
from transduce.decoding.engines import make_engine
from transduce.decoding.force import Pair
from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.disk import may_be_page
from transduce.errors import DataError, UsageError
from transduce.model.saved import find_model, read_config
from transduce.progress import show_progress
from transduce.scoring.texts import read_lines
from transduce.seeing.heads import Findings, measure_bleu, measure_loss, measure_profiles, measure_without
from transduce.seeing.kinds import KINDS
from transduce.seeing.options import HeadsConfig, PictureConfig
from transduce.seeing.page import HEADS_SCRIPTS, make_page, write_whole
from transduce.seeing.picture import Picture, draw
from transduce.seeing.sentence import Seen, name_of, see
from transduce.seeing.switching import all_heads, find_head
from transduce.text.subwords import SPACE

TITLES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder–decoder attention",
}


@dataclass(frozen=True, kw_only=True)
class ShowJob:
    """The arguments of `transduce show`."""

    model: Path
    tag: str
    """the language tag to put before the sentence if it has none"""
    sentence: str
    target: str | None
    out: Path | None
    svg: Path | None
    json: bool
    open: bool
    roles: Path | None
    picture: PictureConfig
    device: str
    settings: dict[str, Any]
    """search settings that differ from the model's"""


def show(job: ShowJob) -> None:
    """Look at a sentence and write the requested files; without a request, a page."""
    # Check for mistakes before loading the model.
    config = strict.apply(read_config(find_model(job.model)).search, job.settings, "command line")
    if job.svg and job.svg.suffix.lower() != ".svg":
        raise UsageError(f"--svg {job.svg} does not end in .svg; for a PNG, save one from the page or convert the SVG")
    out = job.out or (None if job.svg or job.json else Path("attention.html"))
    _refuse_places(out, job.svg)
    roles = read_roles(job.roles) if job.roles else None
    translator = Translator.load(job.model, device=job.device, precision="float32", tag=job.tag)
    seen = see(translator, Request(job.sentence), config, job.target)
    picture = draw(choose(seen, job.picture), job.picture.view) if job.svg else ""
    if out:
        write_whole(out, seen.page(roles))
        print(f"{out}: {seen.source} → {seen.target}", file=sys.stderr)
    if job.svg:
        write_whole(job.svg, picture)
        print(f"{job.svg}: {TITLES[job.picture.kind]}", file=sys.stderr)
    if job.json:
        print(json.dumps(seen.to_dict(), ensure_ascii=False))
    if job.open and out:
        import webbrowser

        webbrowser.open(out.resolve().as_uri())


def choose(seen: Seen, config: PictureConfig) -> Picture:
    """Return the requested picture; by default of the last layer and all its heads."""
    layers = seen.attention.of(config.kind)
    many = len(layers[0])
    if config.layer is not None and config.layer > len(layers):
        raise UsageError(f"--layer {config.layer} does not exist: {TITLES[config.kind]} has layers 1 to {len(layers)}")
    if wrong := [head for head in config.head if head > many]:
        raise UsageError(f"--head {wrong[0]} does not exist: each layer has heads 1 to {many}")
    layer = config.layer or len(layers)
    heads = [head - 1 for head in dict.fromkeys(config.head)] or list(range(many))
    queries, keys = seen.labels(config.kind)
    title = f"{TITLES[config.kind]}, layer {layer}, " + ("heads" if len(heads) > 1 else f"head {heads[0] + 1}")
    words = find_word(queries, config.word) if config.word else None
    return Picture(queries, keys, layers[layer - 1], heads, title, words)


def find_word(pieces: Sequence[str], word: str) -> list[int]:
    """Return the places of a word's subwords, wherever it occurs; begin and end marks are not words."""
    held = [place for place, piece in enumerate(pieces) if not piece.startswith("⟨")]
    numbers = number_words([pieces[place] for place in held])
    texts: dict[int, str] = {}
    for place, number in zip(held, numbers.tolist()):
        texts[number] = texts.get(number, "") + pieces[place].replace(SPACE, " ")
    found = [place for place, number in zip(held, numbers.tolist()) if texts[number].strip() == word.strip()]
    if not found:
        known = " ".join(dict.fromkeys(text.strip() for text in texts.values()))
        raise DataError(f"--word {word!r} is not one of the words that attend: {known}")
    return found


def read_roles(path: Path) -> dict[str, list[list[str]]]:
    """Read each head's role, by kind and layer, from a page or JSON written by `transduce heads`."""
    try:
        text = path.read_text(encoding="utf-8")
        within = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
        found = json.loads(within[1] if within else text)["heads"]
        roles: dict[str, list[list[str]]] = {kind: [] for kind in KINDS}
        for head in found:
            layers = roles[head["kind"]]
            if head["head"] == 1:
                layers.append([])
            layers[head["layer"] - 1].append(str(head["role"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{path}: is neither a page nor JSON from `transduce heads` ({error!r}); make it again"
        ) from None
    return roles


@dataclass(frozen=True, kw_only=True)
class HeadsJob:
    """The arguments of `transduce heads`."""

    model: Path
    source: Path
    target: Path
    alignments: Path | None
    out: Path | None
    json: bool
    config: HeadsConfig
    device: str


def heads(job: HeadsJob) -> None:
    """Measure all heads over a test set and write the requested files; without a request, a page."""
    out = job.out or (None if job.json else Path("heads.html"))
    _refuse_places(out)
    sources, references, gold = _read(job)
    translator = Translator.load(job.model, device=job.device, precision="float32", engine="torch")
    pairs: list[Pair] = [
        (translator.tokens(source, "source"), translator.tokens(target, "target"))
        for source, target in zip(sources, references)
    ]
    model = translator.loaded[0].model
    chosen = [find_head(model, name) for name in job.config.only] or all_heads(model)
    links = gold or translator.align(pairs)
    with show_progress("measure", len(pairs), "sentences") as task:
        profiles = measure_profiles(translator, pairs, links, lambda count: task.update(count, count))

    def engine() -> Engine:
        return make_engine(model, job.device, "float32")

    texts = sources, references
    without, bleu = {}, None
    if job.config.switch:
        if job.config.bleu:
            bleu = measure_bleu(translator, engine(), texts)
        with show_progress("switch", len(chosen), "heads") as task:
            make = engine if job.config.bleu else None
            without = measure_without(translator, pairs, texts, make, chosen, lambda count: task.update(count, count))
    found = Findings(
        model=name_of(translator),
        sentences=len(pairs),
        tokens=sum(len(target) for _, target in pairs),
        reference=job.alignments.name if job.alignments else "the model's own",
        loss=measure_loss(translator, pairs),
        bleu=bleu,
        heads=profiles,
        without=without,
    ).to_dict()
    if out:
        write_whole(out, make_page(f"Heads of {found['model']}", found, HEADS_SCRIPTS, "showHeads"))
        print(f"{out}: {len(profiles)} heads over {len(pairs):,} sentences", file=sys.stderr)
    if job.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))


def _refuse_places(*paths: Path | None) -> None:
    for path in paths:
        if path and not path.parent.is_dir():
            raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
        if path and path.is_dir():
            raise DataError(f"{path}: is a folder; name a file to write")
        if path and not may_be_page(path):
            raise DataError(f"{path}: already exists and is not a page; remove it, or name another file")


def _read(job: HeadsJob) -> tuple[list[str], list[str], list[Links] | None]:
    """Return the first sentence pairs without an empty side, and their alignments if given."""
    paths = [job.source, job.target, *([job.alignments] if job.alignments else [])]
    lines = [read_lines(path) for path in paths]
    for path, some in zip(paths[1:], lines[1:]):
        if len(some) != len(lines[0]):
            raise DataError(
                f"{job.source} has {len(lines[0]):,} lines and {path} has {len(some):,}; line n of one must belong to "
                "line n of the other"
            )
    kept = [place for place, pair in enumerate(zip(lines[0], lines[1])) if all(text.strip() for text in pair)]
    kept = kept[: job.config.sentences]
    if not kept:
        raise DataError(f"{job.source}, {job.target}: have no sentence pairs; give a test set")
    gold = [read_links(lines[2][place], job.alignments, place + 1) for place in kept] if job.alignments else None
    return [lines[0][place] for place in kept], [lines[1][place] for place in kept], gold


def read_links(line: str, path: Path | None, number: int) -> Links:
    """Read a line of links such as 0-0 1-2: words of the source and the target, counted from 0."""
    links: Links = []
    for link in line.split():
        source, _, target = link.partition("-")
        if not (source.isdecimal() and target.isdecimal()):
            raise DataError(
                f"{path}, line {number}: {link!r} is not a link; wanted links such as 0-0 1-2, counted from 0"
            )
        links.append((int(source), int(target)))
    return links
