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
class Order:
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
class Report:
    """The outcome of an export."""

    bytes: int
    check: Check | None
    missing: tuple[str, ...] = ()
    """packages without which it could not be checked"""


def export_model(order: Order) -> Report:
    """Write a model for another runtime, all or nothing: one that does not translate as ours does is not kept."""
    target = find_target(order.kind)
    _refuse_precision(order, target)
    find_model(order.model)
    refuse_taken(order.out)
    if order.kind == "argos" and order.out.is_dir():
        raise DataError(
            f"{order.out}: is a folder, but a package is one file; name a file, such as {order.out}.argosmodel"
        )
    loaded = load_model(order.model)
    if order.languages:
        loaded = replace(loaded, about={**loaded.about, "languages": list(order.languages)})
    _refuse(order, target, loaded)
    if absent := _missing(target.WRITTEN_WITH):
        raise UsageError(f"--to {order.kind} needs {' and '.join(absent)}; pip install {' '.join(absent)}")
    missing = _missing(target.CHECKED_WITH)
    found: list[Check] = []

    def fill(folder: Path) -> None:
        target.write(loaded, folder, order.precision)
        if order.sentences and not missing:
            found.append(_check(order, target, loaded, folder))
        card = make_card(order, target, loaded, found[0] if found else None)
        write_synced(folder / "README.md", card.encode())

    try:
        if order.kind == "argos":
            _write_package(order, loaded, fill)
        else:
            write_folder(order.out, fill)
    except OSError as error:
        if error.filename is not None:
            raise
        # For example a full disk, whose error does not name a file.
        raise DataError(f"{order.out}: cannot be written ({error.strerror or error}); free disk space there") from error
    files = [order.out] if order.out.is_file() else [path for path in order.out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return Report(size, found[0] if found else None, missing if order.sentences else ())


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


def _refuse_precision(order: Order, target: Target) -> None:
    if order.precision not in target.PRECISIONS:
        raise UsageError(f"--to {order.kind} has no --precision {order.precision}; use {', '.join(target.PRECISIONS)}")


def _refuse(order: Order, target: Target, loaded: Loaded) -> None:
    if _parses(loaded) and order.kind != "transduce":
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


def _check(order: Order, target: Target, loaded: Loaded, folder: Path) -> Check:
    exact = order.precision == "float32"
    if _parses(loaded):
        found = check_parser(loaded, folder, order.text, order.sentences, exact=exact)
    else:
        text = choose_text(loaded, order.text, order.reference, order.sentences)
        translator = Translator.load(order.model, device="cpu", precision="float32")
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
        remedy = "use --precision float32" if order.precision == "int8" else "please report it"
        first = f"{order.out}: was not written, as its output differs from the model's: {'; '.join(found.wrong)}"
        raise TransduceError("\n".join([f"{first}; {remedy}, or keep it unchecked with --sentences 0", *found.found]))
    return found


def _write_package(order: Order, loaded: Loaded, fill: "Fill") -> None:
    from transduce.interop.to_argos import pack

    order.out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".partial-{order.out.name}-", dir=order.out.parent))
    try:
        (partial / "package").mkdir()
        fill(partial / "package")
        pack(loaded, partial / "package", partial / "package.zip")
        move(partial / "package.zip", order.out)
        sync_folder(order.out.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class Fill(Protocol):
    """A function that fills a folder."""

    def __call__(self, folder: Path) -> None: ...


def make_card(order: Order, target: Target, loaded: Loaded, found: Check | None) -> str:
    """Return the README.md of an export: what it is, how to use it, and whether it was checked."""
    languages = loaded.about.get("languages")
    parses = _parses(loaded)
    title = f"{languages[0]} → {languages[1]}" if languages else "A parser" if parses else "A translation model"
    source, into = languages or ("SOURCE", "TARGET")
    search = loaded.config.search
    use = USE_OF_PARSERS if parses else target.USE
    for name, value in {
        "FOLDER": order.out.name,
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
            f"# {title}, {TITLES[order.kind]}",
            "",
            f"Exported by transduce {__version__} in {order.precision}.",
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
