"""Export our models for other runtimes, or in int8: each is checked against ours before it appears in its place."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, get_args

from transduce.decoding.brackets import is_parser
from transduce.decoding.translator import Translator
from transduce.disk import move, refuse_taken, sync_folder, write_synced
from transduce.errors import ConfigError, DataError, TransduceError, UsageError
from transduce.interop.check import Check, Pair, Said, check, choose_text
from transduce.interop.check_trees import check_parser
from transduce.interop.to_transduce import USE_OF_PARSERS
from transduce.interop.vocabulary import NEVER
from transduce.model.card import describe_settings
from transduce.model.saved import Loaded, Precision, find_model, load_model, write_folder
from transduce.version import __version__

Kind = Literal["transduce", "ctranslate2", "argos", "huggingface", "onnx", "program"]
TITLES = {
    "transduce": "for transduce",
    "ctranslate2": "for CTranslate2",
    "argos": "for Argos Translate and LibreTranslate",
    "huggingface": "for Hugging Face's transformers",
    "onnx": "for onnxruntime",
    "program": "as torch exported programs",
}


class Target(Protocol):
    """What the module of each kind of export provides."""

    USE: str
    """how to use the export, for its card"""
    PRECISIONS: tuple[str, ...]
    WRITTEN_WITH: tuple[str, ...]
    """packages that writing needs"""
    CHECKED_WITH: tuple[str, ...]
    """packages that run it"""
    ALIKE: bool
    """whether its search is like ours, length penalty included"""
    UNSAID: tuple[int, ...]
    """tokens that get no probability there; our search never outputs them, but imported models give them some"""

    def find_problems(self, loaded: Loaded) -> list[str]:
        """Return what this kind of export cannot compute."""
        ...

    def write(self, loaded: Loaded, folder: Path, precision: Precision) -> None:
        """Write the export into a folder."""
        ...

    def translate(self, folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
        """Translate lines with the runtime itself; if `most` is given, up to that length and without a penalty."""
        ...

    def score(self, loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
        """Return the log-probabilities that the runtime gives to translations."""
        ...


@dataclass(frozen=True, kw_only=True)
class ExportJob:
    """What to export, as which kind, where to, and what to check it with."""

    model: Path
    out: Path
    kind: Kind
    precision: Precision = "float32"
    languages: tuple[str, str] | None = None
    """source and target; none: those that the model names"""
    text: Path | None = None
    """sentences to check with; none: those of the dev set, if it is there"""
    reference: Path | None = None
    """their reference translations, by which int8 is judged"""
    sentences: int = 100
    """most sentences to check with; 0: no check"""


@dataclass(frozen=True)
class ExportReport:
    """The outcome of an export."""

    bytes: int
    check: Check | None
    missing: tuple[str, ...] = ()
    """packages without which it could not be checked"""


def export_model(job: ExportJob) -> ExportReport:
    """Write a model for another runtime, all or nothing: one that does not translate as ours does is not kept."""
    target = find_target(job.kind)
    _refuse_precision(job, target)
    find_model(job.model)
    refuse_taken(job.out)
    if job.kind == "argos" and job.out.is_dir():
        raise DataError(f"{job.out}: is a folder, but a package is one file; name a file, such as {job.out}.argosmodel")
    loaded = load_model(job.model)
    if job.languages:
        loaded = replace(loaded, about={**loaded.about, "languages": list(job.languages)})
    _refuse(job, target, loaded)
    if absent := _missing(target.WRITTEN_WITH):
        raise UsageError(f"--to {job.kind} needs {' and '.join(absent)}; pip install {' '.join(absent)}")
    missing = _missing(target.CHECKED_WITH)
    found: list[Check] = []

    def fill(folder: Path) -> None:
        target.write(loaded, folder, job.precision)
        if job.sentences and not missing:
            found.append(_check(job, target, loaded, folder))
        card = make_card(job, target, loaded, found[0] if found else None)
        write_synced(folder / "README.md", card.encode())

    try:
        if job.kind == "argos":
            _write_package(job, loaded, fill)
        else:
            write_folder(job.out, fill)
    except OSError as error:
        if error.filename is not None:
            raise
        # For example a full disk, whose error does not name a file.
        raise DataError(f"{job.out}: cannot be written ({error.strerror or error}); free disk space there") from error
    files = [job.out] if job.out.is_file() else [path for path in job.out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return ExportReport(size, found[0] if found else None, missing if job.sentences else ())


def find_target(kind: str) -> Target:
    """Return the module of a kind."""
    match kind:
        case "transduce":
            from transduce.interop import to_transduce

            return to_transduce
        case "ctranslate2":
            from transduce.interop import to_ctranslate2

            return to_ctranslate2
        case "argos":
            from transduce.interop import to_argos

            return to_argos
        case "huggingface":
            from transduce.interop import to_huggingface

            return to_huggingface
        case "onnx":
            from transduce.interop import to_onnx

            return to_onnx
        case "program":
            from transduce.interop import to_program

            return to_program
        case _:
            raise UsageError(f"--to {kind} is not known; use {', '.join(get_args(Kind))}")


def _refuse_precision(job: ExportJob, target: Target) -> None:
    if job.precision not in target.PRECISIONS:
        raise UsageError(f"--to {job.kind} has no --precision {job.precision}; use {', '.join(target.PRECISIONS)}")


def _refuse(job: ExportJob, target: Target, loaded: Loaded) -> None:
    if _parses(loaded) and job.kind != "transduce":
        raise UsageError(
            f"{loaded.folder}: is a parser, and no other runtime has the search that finds its trees; "
            "use --to transduce"
        )
    if problems := target.find_problems(loaded):
        others = [kind for kind in get_args(Kind)[1:] if not find_target(kind).find_problems(loaded)]
        remedy = f"use --to {' or '.join(others)}"
        raise ConfigError("\n".join(f"{loaded.folder}: has {problem}; {remedy}" for problem in problems))


def _parses(loaded: Loaded) -> bool:
    return is_parser(loaded.subwords["target"])


def _missing(packages: Sequence[str]) -> tuple[str, ...]:
    return tuple(package for package in packages if find_spec(package) is None)


def _check(job: ExportJob, target: Target, loaded: Loaded, folder: Path) -> Check:
    exact = job.precision == "float32"
    if _parses(loaded):
        found = check_parser(loaded, folder, job.text, job.sentences, exact=exact)
    else:
        text = choose_text(loaded, job.text, job.reference, job.sentences)
        translator = Translator.load(job.model, device="cpu", precision="float32")
        if (bias := translator.loaded[0].model.output_bias) is not None:
            bias.data[[*target.UNSAID]] = NEVER
        runtime = " and ".join(f"{package} {version(package)}" for package in target.CHECKED_WITH) or "the new model"
        found = check(
            translator,
            text,
            lambda lines, beam, most: target.translate(folder, lines, beam, most),
            lambda pairs: target.score(loaded, folder, pairs),
            runtime,
            alike=target.ALIKE,
            exact=exact,
        )
    if found.wrong:
        remedy = "use --precision float32" if job.precision == "int8" else "please report it"
        first = f"{job.out}: was not written, as its output differs from the model's: {'; '.join(found.wrong)}"
        raise TransduceError("\n".join([f"{first}; {remedy}, or keep it unchecked with --sentences 0", *found.found]))
    return found


def _write_package(job: ExportJob, loaded: Loaded, fill: "Fill") -> None:
    from transduce.interop.to_argos import pack

    job.out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".partial-{job.out.name}-", dir=job.out.parent))
    try:
        (partial / "package").mkdir()
        fill(partial / "package")
        pack(loaded, partial / "package", partial / "package.zip")
        move(partial / "package.zip", job.out)
        sync_folder(job.out.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class Fill(Protocol):
    """A function that fills a folder."""

    def __call__(self, folder: Path) -> None: ...


def make_card(job: ExportJob, target: Target, loaded: Loaded, found: Check | None) -> str:
    """Return the README.md of an export: what it is, how to use it, and whether it was checked."""
    languages = loaded.about.get("languages")
    parses = _parses(loaded)
    title = f"{languages[0]} → {languages[1]}" if languages else "A parser" if parses else "A translation model"
    source, into = languages or ("SOURCE", "TARGET")
    search = loaded.config.search
    use = USE_OF_PARSERS if parses else target.USE
    for name, value in {
        "FOLDER": job.out.name,
        "EXAMPLE": "Hello, world!",
        "BEAM": str(search.beam),
        "ALPHA": str(search.alpha),
        **{"SOURCE": source, "TARGET": into},
    }.items():
        use = use.replace(name, value)
    checked = (
        [f"- {line}" for line in found.found] if found else ["This export was not checked against the original model."]
    )
    return "\n".join(
        [
            f"# {title}, {TITLES[job.kind]}",
            "",
            f"Exported by transduce {__version__} in {job.precision}.",
            "",
            *describe_settings(loaded.config, loaded.subwords, loaded.about),
            "",
            "## Use",
            "",
            use,
            "",
            "Give text line by line, a sentence or a few on each line.",
            "",
            "## Check",
            "",
            *checked,
            "",
        ]
    )
