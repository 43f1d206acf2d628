"""A model on disk: a folder with its settings (JSON), its weights (safetensors) and its subwords, all checksummed.

    MODEL/manifest.json       what the folder holds, with checksums; written last
    MODEL/config.json         the settings, as `strict.to_dict` writes them
    MODEL/model.safetensors   the weights in float32, or in int8 with scales (compact.py)
    MODEL/subwords.model      or source.model and target.model
    MODEL/README.md           a card for people, who may edit it: it has no checksum

A folder is written under a temporary name, synced and renamed, so it is whole or absent. Nothing in it is pickled.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transduce import places, strict
from transduce.config import Config
from transduce.disk import describe_file, is_taken, move, sync_file, sync_folder, write_json, write_synced
from transduce.errors import DataError, suggest
from transduce.model.card import CARD, make_card
from transduce.model.compact import compact, expand
from transduce.model.transformer import Transformer
from transduce.text.subwords import Subwords, load_sides, save_sides
from transduce.version import __version__

FORMAT = 1
Precision = Literal["float32", "int8"]
MANIFEST, CONFIG, WEIGHTS = "manifest.json", "config.json", "model.safetensors"
MOST_SHOWN = 80  # characters of a name that is no model's
Vocabularies = Mapping[Any, Subwords]  # by side, source and target; the same object for both if they share it


@dataclass(frozen=True)
class Loaded:
    """A model read from disk."""

    folder: Path
    config: Config
    model: Transformer
    subwords: dict[str, Subwords]
    about: dict[str, Any]
    precision: Precision = "float32"
    """of the weights on disk"""

    @property
    def name(self) -> str:
        """The model's name: that of its folder, or of its run."""
        return name_model(self.folder)


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, then sync and rename it, replacing an old model of this name."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial, old = (folder.parent / f".{kind}-{folder.name}-{os.getpid()}" for kind in ("partial", "old"))
    for leftover in (partial, old):  # of a killed process that had the same number
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        partial.mkdir()
        write(partial)
        sync_folder(partial)
        _refuse_other(folder)
        if folder.exists():
            move(folder, old)
        move(partial, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not folder.exists():
            move(old, folder)
    remove_leftovers(folder.parent, folder.name)


def _refuse_other(folder: Path) -> None:
    """Refuse to replace anything but a model, damaged or not."""
    names = {MANIFEST, CONFIG, WEIGHTS}
    if is_taken(folder) and not (folder.is_dir() and names <= {path.name for path in folder.iterdir()}):
        raise DataError(f"{folder}: already exists and is not a model; remove it, or name another folder")


def remove_leftovers(parent: Path, name: str = "") -> None:
    """Remove replaced folders and what killed writers have left; if `name` is given, only of that folder."""
    leftover = re.compile(rf"\.(partial|old)-{re.escape(name)}-\d+" if name else r"\.(partial|old)-.+-.+")
    for path in parent.iterdir() if parent.is_dir() else ():
        if leftover.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """Write tensors as a safetensors file and sync it; `notes` go into its header."""
    path.touch()
    mode = path.stat().st_mode  # the user's default for new files; safetensors makes its own unreadable to others
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, notes)
    except SafetensorError as error:  # such as a full disk
        raise OSError(f"{path.name} cannot be written ({error})") from error
    path.chmod(mode)
    sync_file(path)


def write_model(
    folder: Path,
    config: Config,
    weights: Mapping[str, Tensor],
    subwords: Vocabularies,
    about: Mapping[str, Any],
    *,
    resume: Mapping[str, Any] | None = None,
    precision: Precision = "float32",
) -> None:
    """Fill a folder with a model; `about` says where it comes from, `resume` describes files that may be removed."""
    names = save_sides(folder, subwords)
    write_json(folder / CONFIG, strict.to_dict(config))
    write_tensors(folder / WEIGHTS, compact(weights) if precision == "int8" else weights)
    files = {name: describe_file(folder / name) for name in sorted({*names.values(), CONFIG, WEIGHTS})}
    manifest = {"format": FORMAT, "transduce": __version__, "subwords": names, "about": about, "files": files}
    write_json(folder / MANIFEST, {**manifest, "resume": resume or {}})


def save_model(
    folder: Path,
    config: Config,
    weights: Mapping[str, Tensor],
    subwords: Vocabularies,
    about: Mapping[str, Any],
    precision: Precision = "float32",
    name: str | None = None,
) -> None:
    """Write a model's folder with its card, all or nothing; the card's commands call the model `name`."""

    def write(new: Path) -> None:
        write_model(new, config, weights, subwords, about, precision=precision)
        card = make_card(config, subwords, about, name or name_model(folder))
        write_synced(new / CARD, card.encode("utf-8", "replace"))

    write_folder(folder, write)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a model's manifest and check its form."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: contains no model; name a folder made by transduce train") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable ({error}); the model is damaged") from error
    if not isinstance(manifest, dict) or not {"format", "subwords", "files", "about"} <= manifest.keys():
        raise DataError(f"{path}: not the manifest of a model; name a folder made by transduce train")
    if manifest["format"] != FORMAT:
        raise DataError(f"{path}: written in format {manifest['format']}, this version reads {FORMAT}")
    return manifest


def find_damage(folder: Path, manifest: Mapping[str, Any]) -> str | None:
    """Compare every file with its checksum; return what is wrong with the first that differs, or None."""
    for name, wanted in manifest["files"].items():
        try:
            if describe_file(folder / name) != wanted:
                return f"{folder / name}: does not match its checksum"
        except OSError as error:
            return f"{folder / name}: cannot be read ({error.strerror})"
    return None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read a model's weights, in float32."""
    return expand(read_tensors(folder / WEIGHTS))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: not readable as safetensors ({error})") from error


def read_config(folder: Path) -> Config:
    """Read a model's settings with the strict reader."""
    path = folder / CONFIG
    try:
        return strict.from_dict(Config, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable ({error})") from error


def read_subwords(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Subwords]:
    """Read the subword models; both sides are the same object if they share one."""
    names = manifest["subwords"]
    source, target = load_sides(folder / names["source"], folder / names["target"])
    return {"source": source, "target": target}


def name_model(folder: Path) -> str:
    """Return a model's name: that of its folder, or of the run if the folder is RUN/model."""
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def find_model(path: Path) -> Path:
    """Return a model's folder, given a path or the name of one of the user's models or of those in the box."""
    with suppress(OSError):  # a name too long for a file
        for folder in places.places_of(path):
            if found := _find_in(folder):
                _refuse_data_set(found)
                return found
    known = places.names()
    remedy = "; name a run, a checkpoint or a model made by transduce train, or one that transduce models lists"
    if os.path.exists(path):
        hides = "; it hides the model of this name that transduce models lists: rename it" if str(path) in known else ""
        raise DataError(f"{path}: contains no model{hides or remedy}")
    shown = str(path) if len(str(path)) <= MOST_SHOWN else f"{str(path)[:MOST_SHOWN]} …"
    raise DataError(f"{shown}: does not exist{suggest(str(path), known, 0.75) or remedy}")


def _find_in(path: Path) -> Path | None:
    """Return the path itself, a run's finished model, or else its best or last checkpoint."""
    for folder in (path, path / "model"):
        if (folder / MANIFEST).exists():
            return folder
    checkpoints = sorted(path.glob(f"checkpoints/step-*/{MANIFEST}"))
    best = [manifest.parent for manifest in checkpoints if _is_best(manifest.parent)]
    return (best or [manifest.parent for manifest in checkpoints] or [None])[-1]


def _refuse_data_set(folder: Path) -> None:
    """Refuse a data set, which has a manifest as well."""
    if not (folder / CONFIG).exists() and any(folder.glob("parts-*")):
        raise DataError(f"{folder}: is a data set, not a model; train one on it: transduce train {folder} --out RUN")


def _is_best(folder: Path) -> bool:
    with suppress(DataError):
        return bool(read_manifest(folder)["about"].get("best"))
    return False


class _Undrawn(TorchFunctionMode):
    """Skips the functions that initialise new weights."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func in (Tensor.normal_, Tensor.uniform_, Tensor.fill_, Tensor.zero_)
            or getattr(func, "__module__", "") == nn.init.__name__
        ):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_model(path: Path | str, device: torch.device | str = "cpu") -> Loaded:
    """Load a model from its folder, a checkpoint or a run."""
    folder = find_model(Path(path))
    manifest = read_manifest(folder)
    if damage := find_damage(folder, manifest):
        raise DataError(f"{damage}; the model is damaged")
    config = read_config(folder)
    with torch.device("meta"), _Undrawn():  # no memory and no random numbers for weights that are loaded anyway
        model = Transformer(config.model)
    stored = read_tensors(folder / WEIGHTS)
    weights = expand(stored)
    check_weights(model, weights, str(folder / WEIGHTS))
    model.load_state_dict(weights, assign=True)
    subwords = read_subwords(folder, manifest)
    precision = "int8" if any(weight.dtype == torch.int8 for weight in stored.values()) else "float32"
    return Loaded(folder, config, model.to(device).eval(), subwords, manifest["about"], precision)


def fill(model: Transformer, weights: Mapping[str, Tensor], origin: str) -> None:
    """Copy weights into a model, after checking them."""
    check_weights(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: Transformer, weights: Mapping[str, Tensor], origin: str) -> None:
    """Refuse weights that do not fit the model, naming all that are missing, left over or of another shape."""
    own = dict(model.named_parameters())
    problems = [f"{name} is missing" for name in own.keys() - weights.keys()]
    problems += [f"{name} is not in the model" for name in weights.keys() - own.keys()]
    problems += [
        f"{name} has shape {tuple(weights[name].shape)}, the model has {tuple(parameter.shape)}"
        for name, parameter in own.items()
        if name in weights and weights[name].shape != parameter.shape
    ]
    if problems:
        raise DataError("\n".join(f"{origin}: {problem}" for problem in sorted(problems)))
