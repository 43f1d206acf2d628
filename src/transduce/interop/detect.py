"""Find the kind of another toolkit's model by its files, and the model meant by a path that is none."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from transduce.errors import DataError
from transduce.interop.ctranslate2 import BINARY, ENDING, PACKAGE
from transduce.model.saved import MANIFEST, find_model, read_manifest

Kind = Literal["huggingface", "marian", "fairseq", "joeynmt", "opennmt", "ctranslate2"]
# For kinds that are a single file: its ending and its usual name.
FILES = {
    "marian": (".npz", "model.npz"),
    "fairseq": (".pt", "checkpoint_best.pt"),
    "joeynmt": (".ckpt", "best.ckpt"),
    "opennmt": (".pt", "model_step_….pt"),
}
_MOST = 5  # names in an error


def detect_kind(source: Path, wanted: Kind | None = None) -> Kind:
    """Return the kind of a model: the one wanted, if it can be that, or else the one its files show."""
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
        raise DataError(f"{source}: not a model of a known kind; if it is one, name its kind with --kind: {known}")
    if len(meant) == 1 and meant[0].is_dir():
        _refuse_ours(meant[0])
    what = "is only one file of a model" if source.is_file() else "is not itself a model"
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
    """Refuse our own models, which need no import, and our exports to ONNX and torch, which have no way back."""
    if _is_ours(folder):
        raise DataError(
            f"{folder}: is already a transduce model and needs no import; transduce translate, export and the other "
            "commands take it as it is"
        )
    for name, kind in (("encoder.onnx", "onnx"), ("encoder.pt2", "program")):
        if (folder / name).exists() and (folder / "settings.json").exists():
            raise DataError(
                f"{folder}: is an export of transduce (--to {kind}), which cannot be imported; use the model it was "
                "made from, or import an export of that model to ctranslate2, argos or huggingface"
            )


def _is_ours(folder: Path) -> bool:
    """Return whether a folder is our model or run; another toolkit's model may have a folder of ours in it."""
    with suppress(DataError):
        if (folder / MANIFEST).exists() or not _kind_of(folder):
            read_manifest(find_model(folder))
            return True
    return False


def _refuse_other_form(source: Path, kind: Kind) -> None:
    """Refuse a folder where this kind is a file, or the other way round."""
    if kind in FILES and source.is_dir():
        ending, usual = FILES[kind]
        found = sorted((path for path in source.iterdir() if path.suffix == ending), key=_rank)
        remedy = f"name {_list(found)}" if found else f"no file in it ends in {ending}"
        raise DataError(f"{source}: is a folder, but a {kind} model is a file such as {usual}; {remedy}")
    if kind == "huggingface" and source.is_file():
        raise DataError(f"{source}: is a file, but a {kind} model is a folder; name {source.parent}")


def _find_meant(source: Path) -> Iterator[Path]:
    """Yield the model that a file is part of, or the models in a folder."""
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
    """Sort the best checkpoint before the others."""
    return "best" not in path.name, path.name


def _list(paths: list[Path]) -> str:
    shown = " or ".join(map(str, paths[:_MOST]))
    return f"{shown} or one of {len(paths) - _MOST} more" if len(paths) > _MOST else shown
