"""The mean of several checkpoints (section 6.1), or of a model and its fine-tuned version."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce import strict
from transduce.config import Config
from transduce.errors import DataError, UsageError
from transduce.model import saved
from transduce.model.transformer import Transformer
from transduce.training.checkpoint import Checkpoints
from transduce.training.warm import ORIGINS, warm_start

SCORES = {"loss": "loss", "bleu": "BLEU", "f1": "F1"}  # of a dev set, and their names


def mean_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the models' weights, summed in float64."""
    return _mean(map(saved.read_weights, folders), folders, [1.0] * len(folders))


def _mean(found: Iterable[Mapping[str, Tensor]], folders: Sequence[Path], shares: Sequence[float]) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    for weights, folder, share in zip(found, folders, shares):
        if sums and {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in sums.items()}:
            raise DataError(f"{folder}: its weights differ in names or shapes from those of {folders[0]}")
        for name, weight in weights.items():
            part = weight.detach().double() * share
            sums[name] = sums[name] + part if name in sums else part
    return {name: (total / sum(shares)).float() for name, total in sums.items()}


def choose_checkpoints(run: Path, *, last: int | None = None, best: int | None = None, by: str = "loss") -> list[Path]:
    """Return the last or the best checkpoints of a run, by default the last five."""
    if last is not None and best is not None:
        raise UsageError("--last and --best exclude each other; give one")
    wanted = best if best is not None else 5 if last is None else last
    if wanted < 1:
        raise UsageError(f"cannot average {wanted} checkpoints; give 1 or more")
    checkpoints = Checkpoints(run)
    found = checkpoints.best(wanted, by) if best else checkpoints.regular()[-wanted:]
    if not found:
        measured = [name for name in SCORES if best and checkpoints.best(1, name)]
        remedy = f"choose --by {' or '.join(measured)}" if measured else "name a run made by transduce train"
        what = f"no checkpoint with a dev {SCORES[by]}" if best else "no checkpoints"
        raise DataError(f"{run}: has {what}; {remedy}")
    if len(found) < wanted and (best or last):
        flag, setting = ("--best", "keep-best") if best else ("--last", "average-checkpoints")
        raise DataError(
            f"{run}: has only {len(found)} such checkpoints, not {wanted}; give {flag} {len(found)}, or train with "
            f"--training.{setting} {wanted} and checkpoints more often (--training.checkpoint-steps)"
        )
    return found


def average(folders: Sequence[Path], out: Path, shares: Sequence[float] = ()) -> None:
    """Write the mean of several models, which must share their settings and subwords, as a new model.

    `shares` weight the models, by default equally. One may have the others' subwords and more; the others' vectors for
    these are then composed from their pieces, as in a warm start. The new model's languages and training data are those
    of the model with the most subwords, or of the last with as many.
    """
    shares = shares or [1.0] * len(folders)
    if len(shares) != len(folders) or min(shares) < 0 or not sum(shares) > 0:
        given = " ".join(f"{share:g}" for share in shares)
        raise UsageError(f"--shares {given}: give one number for each of the {len(folders)} models, 0 or more")
    folders = [saved.find_model(folder) for folder in folders]
    manifests = [saved.read_manifest(folder) for folder in folders]
    configs = [saved.read_config(folder) for folder in folders]
    for folder, config, manifest in zip(folders, configs, manifests):
        if damage := saved.find_damage(folder, manifest):
            raise DataError(f"{damage}; leave it out")
        if differences := list(_differences(config, configs[0])):
            raise DataError(f"{folder}: differs from {folders[0]} in {', '.join(differences)}; they cannot be averaged")
    subwords = [saved.read_subwords(folder, manifest) for folder, manifest in zip(folders, manifests)]
    sizes = [sum(map(len, own.values())) for own in subwords]
    most = sizes.index(max(sizes))
    for folder, own in zip(folders, subwords):
        if not _extends(subwords[most], own):
            raise DataError(f"{folder}: has different subwords from {folders[most]}; they cannot be averaged")
    # Models are passed on, so of each path only the last two parts are recorded.
    about: dict[str, Any] = {"mean_of": ["/".join(folder.parts[-2:]) for folder in folders]}
    if len({*shares}) > 1:
        about["shares"] = [share / sum(shares) for share in shares]
    told = manifests[max(place for place, size in enumerate(sizes) if size == sizes[most])]["about"]
    kept = "unicode", "languages", "trained_on", "alignment", *ORIGINS
    about |= {name: told[name] for name in kept if name in told}
    config = replace(configs[-1], model=replace(configs[-1].model, **_vocabularies(configs[most])))
    weights = (_widen(folder, own, subwords[most], config) for folder, own in zip(folders, subwords))
    saved.save_model(out, config, _mean(weights, folders, shares), subwords[most], about)


def _extends(subwords: saved.Vocabularies, others: saved.Vocabularies) -> bool:
    """Return whether the subwords of each side are the same as the other model's, or those and more."""
    return all(
        own.model == others[side].model or (len(own) > len(others[side]) and own.extends(others[side]))
        for side, own in subwords.items()
    )


def _widen(folder: Path, own: saved.Vocabularies, wanted: saved.Vocabularies, config: Config) -> Mapping[str, Tensor]:
    """Return a model's weights, with rows added for the subwords that it lacks."""
    if all(len(own[side]) == len(subwords) for side, subwords in wanted.items()):
        return saved.read_weights(folder)
    model = Transformer(config.model)
    warm_start(model, wanted, saved.load_model(folder))
    return dict(model.named_parameters())


def _vocabularies(config: Config) -> dict[str, int | None]:
    return {"vocabulary": config.model.vocabulary, "source_vocabulary": config.model.source_vocabulary}


def _differences(config: Config, other: Config) -> list[str]:
    # Dropout does not affect the weights' shapes; the subwords themselves are compared, not their number.
    same: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "feed_forward_dropout": 0.0}
    plain = [replace(c.model, **same, **_vocabularies(other)) for c in (config, other)]
    ours, theirs = map(strict.to_dict, plain)
    return [f"model.{name} ({ours[name]}, not {theirs[name]})" for name in ours if ours[name] != theirs[name]]
