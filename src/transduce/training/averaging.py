"""The mean of several checkpoints (section 6.1)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from transduce import strict
from transduce.config import Config
from transduce.errors import DataError, UsageError
from transduce.model import saved
from transduce.training.checkpoint import Checkpoints


def mean_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the models' weights, summed in float64."""
    sums: dict[str, Tensor] = {}
    for folder in folders:
        weights = saved.read_weights(folder)
        if sums and {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in sums.items()}:
            raise DataError(f"{folder}: its weights have other names or shapes than those of {folders[0]}")
        for name, weight in weights.items():
            sums[name] = sums[name] + weight.double() if name in sums else weight.double()
    return {name: (total / len(folders)).float() for name, total in sums.items()}


def choose_checkpoints(run: Path, *, last: int | None = None, best: int | None = None, by: str = "loss") -> list[Path]:
    """The last or the best checkpoints of a run."""
    if last is not None and best is not None:
        raise UsageError("--last and --best are two different choices; give one")
    wanted = best if best is not None else 5 if last is None else last
    if wanted < 1:
        raise UsageError(f"there is no mean of {wanted} checkpoints; give 1 or more")
    checkpoints = Checkpoints(run)
    found = checkpoints.best(wanted, by) if best else checkpoints.regular()[-wanted:]
    if not found:
        what = "no checkpoint with a dev score" if best else "no checkpoints"
        raise DataError(f"{run}: holds {what}; name a run made by transduce train")
    if len(found) < wanted and (best or last):
        raise DataError(
            f"{run}: holds {len(found)} such checkpoints, not {wanted}; a run keeps the last "
            "training.average_checkpoints and the best training.keep_best"
        )
    return found


def average(folders: Sequence[Path], out: Path) -> None:
    """Write a model with the mean of the weights of others, which must share their settings and their subwords."""
    folders = [saved.find_model(folder) for folder in folders]
    manifests = [saved.read_manifest(folder) for folder in folders]
    configs = [saved.read_config(folder) for folder in folders]
    for folder, config, manifest in zip(folders, configs, manifests):
        if damage := saved.find_damage(folder, manifest):
            raise DataError(f"{damage}; leave it out")
        if differences := list(_differences(config, configs[0])):
            raise DataError(f"{folder}: differs from {folders[0]} in {', '.join(differences)}; they have no mean")
    subwords = [saved.read_subwords(folder, manifest) for folder, manifest in zip(folders, manifests)]
    for folder, own in zip(folders, subwords):
        if any(own[side].model != subwords[0][side].model for side in own):
            raise DataError(f"{folder}: has other subwords than {folders[0]}; they have no mean")
    about = {"mean_of": [str(folder) for folder in folders]}
    about |= {
        name: manifests[0]["about"][name]
        for name in ("unicode", "languages", "trained_on")
        if name in manifests[0]["about"]
    }
    saved.save_model(out, configs[-1], mean_weights(folders), subwords[0], about)


def _differences(config: Config, other: Config) -> list[str]:
    # Dropout leaves no mark on the weights' shapes.
    plain = [replace(c.model, dropout=0.0, attention_dropout=0.0, feed_forward_dropout=0.0) for c in (config, other)]
    ours, theirs = map(strict.to_dict, plain)
    return [f"model.{name} ({ours[name]}, not {theirs[name]})" for name in ours if ours[name] != theirs[name]]
