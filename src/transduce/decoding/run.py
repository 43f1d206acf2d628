"""A translation job: texts, a file, a pipe, or a person at a terminal."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from transduce import strict
from transduce.config import SearchConfig
from transduce.decoding.documents import HTML, TEXTS, find_codes, find_kind, read_document, translate_document
from transduce.decoding.engines import Name, Precision
from transduce.decoding.files import InputLines, Output, as_json, read_request, refuse_existing, translate_lines
from transduce.decoding.glossary import Term, describe_terms
from transduce.decoding.options import Options, Request, lay_over
from transduce.decoding.shelf import read_directions, read_languages
from transduce.decoding.translation import Lacks
from transduce.decoding.translator import Translator
from transduce.errors import DataError, TransduceError, UsageError, name_some
from transduce.kernels import native
from transduce.model.device import choose_device
from transduce.model.saved import WEIGHTS, find_model, read_config, read_manifest
from transduce.text.codes import Codes
from transduce.text.detect import find_other, name_language
from transduce.text.markup import Markup
from transduce.text.packed import open_bytes

BEGINNING = 4096  # bytes of a file from which its language is detected


@dataclass(frozen=True, kw_only=True)
class TranslateJob:
    """What the command line asks for."""

    models: Sequence[Path]
    texts: Sequence[str] = ()
    """to translate instead of a file or a pipe"""
    input: Path | None
    out: Path | None
    json: bool
    json_input: bool
    html: bool | None = None
    """whether texts are HTML; None: the file's name decides, as it always does for other documents"""
    prefix: str
    require: tuple[str, ...]
    forbid: tuple[str, ...]
    glossary: Mapping[str, Term] = field(default_factory=dict)
    """terms and their translations"""
    tag: str = ""
    """the language tag to put before texts that have none"""
    device: str
    precision: Precision
    threads: int | None
    engine: Name
    settings: dict[str, Any]
    """changes to the model's search settings and to `Options`"""


def run_translation(job: TranslateJob) -> None:
    """Translate the texts or the input; at a terminal without input, ask for texts."""
    # Mistakes are looked for before the model is loaded, which takes longer.
    folder, *_ = (_find(path, job) for path in job.models)
    search = read_config(folder).search
    options, config = lay_over(Options(), search, job.settings, "command line")
    for wanted, flag in ((options.alignments, "--alignments"), (config.n_best > 1, f"--n-best {config.n_best}")):
        if wanted and not job.json:
            raise UsageError(f"{flag} needs --json: plain output has one line for each line of the input")
    common = Request("", job.prefix, job.require, job.forbid)
    kind = find_kind(job.input, job.html)
    codes = find_codes(read_manifest(folder)["about"], job.tag)
    if kind and (job.json or job.json_input or job.prefix or job.require):
        plain = "--no-html treats HTML as lines" if kind in HTML else f"{kind} files are translated as a whole"
        raise UsageError(f"--json, --json-input, --prefix and --require are for sentences; {plain}")
    ends_so = job.out.suffix.lower() == kind if job.out else kind in TEXTS
    if kind and kind not in HTML and not ends_so:
        raise UsageError(f"{job.input} is translated into another {kind} file; name it with --out, ending in {kind}")
    if job.texts and (job.input or job.out):
        raise UsageError("texts on the command line are translated to standard output; leave out --input and --out")
    if job.texts:
        translator, lacks = _load(job), Lacks()
        for text in job.texts:
            _note_language(translator, text, job)
            if kind:
                markup = Markup(text, codes)
                settings = strict.to_dict(config)
                found = translate_document(translator, markup, options, settings, common, note=lacks.count)
                print(markup.fill(found), flush=True)
            else:
                print(_answer(translator, text, options, config, common, job, lacks), flush=True)
        _note_lacks(lacks)
        return
    if job.out:
        refuse_existing(job.out)
    if kind:
        _translate_whole(kind, codes, options, config, common, job)
        return
    if job.input is None and job.out is None and sys.stdin.isatty():
        _converse(_load(job), options, config, common, job)
        return
    with closing(InputLines(job.input)) as lines:
        translator, lacks = _load(job), Lacks()
        if job.input and not lines.waits:  # a pipe's beginning can be read only once
            _note_language(translator, _read_beginning(job.input), job)
        with closing(Output(job.out, _describe(job, translator, options, config, common))) as output:
            written = translate_lines(
                translator,
                lines,
                output,
                options,
                strict.to_dict(config),
                common=common,
                json_input=job.json_input,
                json_output=job.json,
                alternatives=config.n_best > 1,
                note=lacks.count,
            )
            if job.out:
                now = f", {written:,} of them now" if output.done else ""
                print(f"{job.out}: {output.done + written:,} lines{now}", file=sys.stderr)
            _note_lacks(lacks)


def _translate_whole(
    kind: str, codes: Codes, options: Options, config: SearchConfig, common: Request, job: TranslateJob
) -> None:
    """Translate a document, which is written once all of it is translated."""
    document, settings = read_document(job.input, kind, codes), strict.to_dict(config)
    translator, lacks = _load(job), Lacks()
    translate = partial(translate_document, translator, document, options, settings, common, note=lacks.count)
    _note_language(translator, " ".join(document.texts)[:BEGINNING], job)
    if job.out is None:
        sys.stdout.write(str(document.fill(translate())))
        _note_lacks(lacks)
        return
    about = {"document": kind, **_describe(job, translator, options, config, common)}
    with closing(Output(job.out, about)) as output:
        whole = document.fill(translate(output=output))
        output.finish(whole.encode("utf-8") if isinstance(whole, str) else whole)
    print(f"{job.out}: {'translated' if document.texts else 'copied unchanged, as it has no text'}", file=sys.stderr)
    _note_lacks(lacks)


def _find(path: Path, job: TranslateJob) -> Path:
    try:
        return find_model(path)
    except DataError as error:
        is_path = os.path.exists(path) or (path.name != str(path) and " " not in str(path))
        if job.texts or job.input or is_path:
            raise
        raise DataError(f"{error}\nto translate it as a text, use --text, or --to LANGUAGE without a RUN") from None


def _note_language(translator: Translator, text: str, job: TranslateJob) -> None:
    """Print a note if a text is clearly not in the model's language, or names none of its several target languages."""
    languages = read_languages(translator.loaded[0].about)
    if languages and not job.json_input and (other := find_other(text, languages[0])):
        expected, found = map(name_language, (languages[0], other))
        print(f"note: this looks like {found}, but the model translates from {expected}", file=sys.stderr)
    if translator.tag or job.json_input or translator.subwords["source"].find_tag(text):
        return
    directions = read_directions(translator.loaded[0].folder)
    if directions and all(direction.tag for direction in directions):
        targets = name_some([direction.target for direction in directions])
        print(f"note: this says no target language, and the model has several; give --tag: {targets}", file=sys.stderr)


def _note_lacks(lacks: Lacks) -> None:
    """Print a note if translations are empty, or lack terms: their words are part of others, or were left out."""
    if many := lacks.empty:
        what = "a sentence" if many == 1 else f"{many:,} sentences"
        print(
            f"note: the translation of {what} is empty; --min-tokens 1 makes the model say something", file=sys.stderr
        )
    if many := lacks.unsaid:
        what = "a sentence" if many == 1 else f"{many:,} sentences"
        print(
            f"note: in {what}, terms are missing, as no word stands for them alone; --json names them", file=sys.stderr
        )


def _read_beginning(path: Path) -> str:
    """Read the beginning of a file to detect its language; what is wrong with it is reported later."""
    try:
        stream, raw = open_bytes(path)
        with closing(raw), closing(stream):
            return stream.read(BEGINNING).decode("utf-8", "ignore")
    except Exception:  # disks and decompressors raise different kinds
        return ""


def _load(job: TranslateJob) -> Translator:
    engine = job.engine
    free = job.texts and (engine, job.precision) == ("auto", "auto") and choose_device(job.device).type == "cpu"
    if free and not native.is_ready():
        # Torch translates a few texts sooner than the fast code is compiled, which is done meanwhile for the next time.
        native.compile_behind()
        engine = "torch"
    return Translator.load(
        *job.models,
        device=job.device,
        precision=job.precision,
        threads=job.threads,
        engine=engine,
        glossary=job.glossary,
        tag=job.tag,
    )


def _describe(
    job: TranslateJob, translator: Translator, options: Options, config: SearchConfig, common: Request
) -> dict[str, Any]:
    """Return what translations depend on: a job is resumed only if all of it is the same."""
    digests = [read_manifest(one.folder)["files"][WEIGHTS]["sha256"][:16] for one in translator.loaded]
    request = {key: value for key, value in asdict(common).items() if key != "text"}
    own = {"precision": job.precision, "json": job.json, "json_input": job.json_input}
    own |= {"glossary": describe_terms(job.glossary), "tag": translator.tag}
    return {"model": digests, **own, **request, **strict.to_dict(options), **strict.to_dict(config)}


def _converse(
    translator: Translator, options: Options, config: SearchConfig, common: Request, job: TranslateJob
) -> None:
    with suppress(ImportError):  # on Windows
        import readline  # noqa: F401 - input() then knows the arrow keys

    names = ", ".join(one.name for one in translator.loaded)
    print(f"{names}: type a text and press Enter; Ctrl-D quits", file=sys.stderr)
    while True:
        try:
            text = _ask()
            lacks = Lacks()
            answer = _answer(translator, text, options, config, common, job, lacks)
            _note_language(translator, text, job)
        except EOFError:
            print(file=sys.stderr)
            return
        except TransduceError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        print(answer, flush=True)
        _note_lacks(lacks)


def _answer(
    translator: Translator,
    text: str,
    options: Options,
    config: SearchConfig,
    common: Request,
    job: TranslateJob,
    lacks: Lacks,
) -> str:
    own = read_request(text, "your text") if job.json_input else Request(text)
    found = translator.translate(own.with_common(common), options, **strict.to_dict(config))
    lacks.count(found)
    return as_json(found, options, config.n_best > 1) if job.json else found.text


def _ask() -> str:
    """Read a line from the terminal; the prompt must not get into output that goes to a file."""
    try:
        if sys.stdout.isatty():
            return input("> ")
        print("> ", end="", file=sys.stderr, flush=True)
        return input()
    except UnicodeDecodeError:
        raise DataError(f"the terminal sent text that is not {sys.stdin.encoding}; set it to UTF-8") from None
