"""Models of other toolkits into folders of ours: which kind it is, and what is written."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from transduce.errors import DataError, UsageError
from transduce.interop.ctranslate2 import BINARY, ENDING
from transduce.interop.rewrite import Imported
from transduce.model.saved import save_model

Kind = Literal["huggingface", "marian", "fairseq", "joeynmt", "opennmt", "ctranslate2"]


@dataclass(frozen=True)
class Order:
    """What is to be imported, and where it goes."""

    source: Path
    out: Path
    kind: Kind | None = None
    """how it was saved; none: found by its files"""
    languages: tuple[str, str] | None = None
    """source and target, where the model does not say them"""
    vocabularies: tuple[Path, ...] = ()
    """of source and target or one for both, where the model does not name them"""
    pieces: tuple[Path, ...] = ()
    """the SentencePiece models of source and target, or one for both, where they are not the vocabularies"""


def import_model(order: Order) -> Imported:
    """Read a model of another toolkit and write it as ours, all or nothing."""
    if order.out.exists() and (not order.out.is_dir() or any(order.out.iterdir())):
        raise DataError(f"{order.out}: is there already; remove it, or name another folder")
    kind = order.kind or detect(order.source)
    found = read(order, kind)
    if order.languages:
        found = replace(found, languages=order.languages)
    about: dict[str, Any] = {
        "imported_from": {"kind": kind, "name": order.source.resolve().name},
        "unicode": "off",  # the SentencePiece model has its own rules for that
    }
    if found.languages:
        about["languages"] = list(found.languages)
    save_model(order.out, found.config, found.weights, found.subwords, about)
    return found


def detect(source: Path) -> Kind:
    """How a model was saved, by its files."""
    if not source.exists():
        raise DataError(f"{source}: does not exist")
    if source.suffix == ENDING or any((source / inner / BINARY).exists() for inner in ("", "model")):
        return "ctranslate2"
    if source.is_dir() and (source / "config.json").exists():
        return "huggingface"
    if source.suffix == ".npz":
        return "marian"
    if source.is_file() and source.suffix == ".pt":
        from transduce.interop.checkpoint import read_checkpoint
        from transduce.interop.opennmt import is_opennmt

        return "opennmt" if is_opennmt(read_checkpoint(source)) else "fairseq"
    if source.is_file() and source.suffix == ".ckpt":
        return "joeynmt"
    known = ", ".join(get_args(Kind))
    raise DataError(f"{source}: not a model of a kind that is known; say which with --kind: {known}")


def read(order: Order, kind: str) -> Imported:
    """Read a model of a kind."""
    match kind:
        case "huggingface":
            from transduce.interop.huggingface import read_marian

            return read_marian(order.source)
        case "marian":
            from transduce.interop.marian import read_npz

            return read_npz(order.source, order.vocabularies, order.pieces)
        case "fairseq":
            from transduce.interop.fairseq import read_fairseq

            return read_fairseq(order.source, order.vocabularies, order.pieces)
        case "joeynmt":
            from transduce.interop.joeynmt import read_joeynmt

            return read_joeynmt(order.source, order.vocabularies, order.pieces)
        case "opennmt":
            from transduce.interop.opennmt import read_opennmt

            return read_opennmt(order.source, order.pieces)
        case "ctranslate2":
            from transduce.interop.ctranslate2 import read_ctranslate2

            return read_ctranslate2(order.source, order.pieces)
        case _:
            raise UsageError(f"--kind {kind} is not known; use {', '.join(get_args(Kind))}")
