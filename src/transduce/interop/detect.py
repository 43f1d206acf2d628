"""Which kind a model of another toolkit is, by its files; and which one is meant by a path that is none."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from transduce.errors import DataError
from transduce.interop.ctranslate2 import BINARY, ENDING, PACKAGE
from transduce.model.saved import MANIFEST, find_model, read_manifest

Kind = Literal["huggingface", "marian", "fairseq", "joeynmt", "opennmt", "ctranslate2"]
# The endings of kinds that are a file, and what such a file is usually called.
FILES = {
    "marian": (".npz", "model.npz"),
    "fairseq": (".pt", "checkpoint_best.pt"),
    "joeynmt": (".ckpt", "best.ckpt"),
    "opennmt": (".pt", "model_step_….pt"),
}
_MOST = 5  # names in an error


def detect(source: Path, wanted: Kind | None = None) -> Kind:
    """How a model was saved: as is wanted, where that can be, or else by its files."""
    if not source.exists():
        raise DataError(f"{source}: does not exist")
    if source.is_dir():
        _refuse_ours(source)
    if wanted:
        _refuse_other_form(source, wanted)
        return wanted
    if kind := _kind_of(source):
        return kind
    if source.is_file():
        _refuse_ours(source.parent)
    meant = list(_find_meant(source))
    if not meant:
        known = ", ".join(get_args(Kind))
        raise DataError(f"{source}: not a model of a kind that is known; say which with --kind: {known}")
    if len(meant) == 1 and meant[0].is_dir():
        _refuse_ours(meant[0])
    what = "is one file of a model" if source.is_file() else "is no model itself"
    raise DataError(f"{source}: {what}; name {_list(meant)}")


def _kind_of(source: Path) -> Kind | None:
    if source.suffix == ENDING or _holds_ctranslate2(source):
        return "ctranslate2"
    if source.is_dir():
        return "huggingface" if (source / "config.json").exists() else None
    match source.suffix:
        case ".npz":
            return "marian"
        case ".ckpt":
            return "joeynmt"
        case ".pt":
            from transduce.interop.checkpoint import read_checkpoint
            from transduce.interop.opennmt import is_opennmt

            return "opennmt" if is_opennmt(read_checkpoint(source)) else "fairseq"
        case _:
            return None


def _holds_ctranslate2(folder: Path) -> bool:
    return any((folder / inner / BINARY).exists() for inner in ("", "model"))


def _refuse_ours(folder: Path) -> None:
    """A model of ours needs no import; what we export to onnxruntime and torch has no way back."""
    if _is_ours(folder):
        raise DataError(
            f"{folder}: is a model of transduce already and needs no import; transduce translate, export and others "
            "take it as it is"
        )
    for name, kind in (("encoder.onnx", "onnx"), ("encoder.pt2", "program")):
        if (folder / name).exists() and (folder / "settings.json").exists():
            raise DataError(
                f"{folder}: is an export of transduce (--to {kind}), and such cannot be imported; use the model that "
                "it was made from, or import its export to ctranslate2, argos or huggingface"
            )


def _is_ours(folder: Path) -> bool:
    """Whether it is a model, or a run; what is another toolkit's may well have a folder of ours in it."""
    with suppress(DataError):
        if (folder / MANIFEST).exists() or not _kind_of(folder):
            read_manifest(find_model(folder))
            return True
    return False


def _refuse_other_form(source: Path, kind: Kind) -> None:
    """A folder where a file is wanted, or the other way round."""
    if kind in FILES and source.is_dir():
        ending, usual = FILES[kind]
        found = sorted((path for path in source.iterdir() if path.suffix == ending), key=_rank)
        remedy = f"name {_list(found)}" if found else f"it has none that ends in {ending}"
        raise DataError(f"{source}: is a folder, and a model of {kind} is a file such as {usual}; {remedy}")
    if kind == "huggingface" and source.is_file():
        raise DataError(f"{source}: is a file, and a model of {kind} is a folder; name {source.parent}")


def _find_meant(source: Path) -> Iterator[Path]:
    """The model that a file is part of, or those that lie in a folder."""
    if source.is_file():
        above = source.parent.parent  # a package of Argos Translate has its model in a folder of its own
        folder = above if (above / PACKAGE).exists() else source.parent
        if _kind_of(folder):
            yield folder
        return
    endings = {ENDING, *(ending for ending, _ in FILES.values())}
    for path in sorted(source.iterdir(), key=_rank):
        if path.suffix in endings or (path.is_dir() and (_is_ours(path) or _kind_of(path))):
            yield path


def _rank(path: Path) -> tuple[bool, str]:
    """The best checkpoint stands before the others."""
    return "best" not in path.name, path.name


def _list(paths: list[Path]) -> str:
    shown = " or ".join(map(str, paths[:_MOST]))
    return f"{shown} or one of {len(paths) - _MOST} more" if len(paths) > _MOST else shown
