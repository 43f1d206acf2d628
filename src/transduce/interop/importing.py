"""Import models of other toolkits: find the kind, read the model, write it as a folder of ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from transduce import places
from transduce.disk import refuse_taken
from transduce.errors import UsageError
from transduce.interop.detect import Kind, detect_kind
from transduce.interop.rewrite import Imported
from transduce.model.saved import save_model


@dataclass(frozen=True)
class ImportJob:
    """What to import, and where to."""

    source: Path
    out: Path
    kind: Kind | None = None
    """the toolkit that saved it; none: found by its files"""
    languages: tuple[str, str] | None = None
    """source and target; none: those that the model names"""
    vocabularies: tuple[Path, ...] = ()
    """files of source and target, or one for both, if the model does not name them"""
    pieces: tuple[Path, ...] = ()
    """the SentencePiece models of source and target, or one for both, if they are not the vocabularies"""


def import_model(job: ImportJob) -> Imported:
    """Read a model of another toolkit, write it as ours, all or nothing, and return what was read."""
    kind = detect_kind(job.source, job.kind)
    refuse_taken(job.out)
    found = read(job, kind)
    about: dict[str, Any] = {
        "imported_from": {"kind": kind, "name": job.source.resolve().name},
        "unicode": "off",  # the SentencePiece model has its own rules for that
    }
    if languages := job.languages or found.languages:
        about["languages"] = list(languages)
    save_model(job.out, found.config, found.weights, found.subwords, about, name=_name(job.out))
    return found


def _name(folder: Path) -> str:
    """Return what to call the model in commands: its path as given, or its name if it is in the user's folder."""
    among_users = folder.resolve().parent == places.user_folder().resolve()
    return folder.name if among_users else folder.as_posix()


def read(job: ImportJob, kind: str) -> Imported:
    """Read a model of the given kind."""
    match kind:
        case "huggingface":
            from transduce.interop.huggingface import read_huggingface

            return read_huggingface(job.source)
        case "marian":
            from transduce.interop.marian import read_npz

            return read_npz(job.source, job.vocabularies, job.pieces)
        case "fairseq":
            from transduce.interop.fairseq import read_fairseq

            return read_fairseq(job.source, job.vocabularies, job.pieces)
        case "joeynmt":
            from transduce.interop.joeynmt import read_joeynmt

            return read_joeynmt(job.source, job.vocabularies, job.pieces)
        case "opennmt":
            from transduce.interop.opennmt import read_opennmt

            return read_opennmt(job.source, job.pieces)
        case "ctranslate2":
            from transduce.interop.ctranslate2 import read_ctranslate2

            return read_ctranslate2(job.source, job.pieces)
        case _:
            raise UsageError(f"--kind {kind} is not known; use {', '.join(get_args(Kind))}")
