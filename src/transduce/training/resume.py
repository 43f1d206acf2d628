"""What must stay the same when a run is resumed, and the errors if it does not."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce import strict
from transduce.config import Config
from transduce.errors import ConfigError, DataError
from transduce.model import saved
from transduce.presets import PRESETS
from transduce.text.shards import DataSet
from transduce.training.warm import Start

# Settings that may change when a run is resumed; any other change would make it another run.
_MAY_CHANGE = ("model.dropout", "model.attention_dropout", "model.feed_forward_dropout", "training.", "search.")
_FIXED = ("training.seed",)
_ANEW = "start a new run with --from and another --out"


def refuse_differences(checkpoint: Path, config: Config, data: DataSet, start: Start | None) -> None:
    """Refuse data or settings that would make the resumed run another one; announce the changes that are allowed."""
    manifest = saved.read_manifest(checkpoint)
    made_from, known = manifest["about"]["data"], saved.read_subwords(checkpoint, manifest)
    differences = []
    if made_from["fingerprint"] != data.manifest["fingerprint"]:
        differences = _differences(made_from["made_from"], data.manifest["made_from"])
    elif any(own.model != known[side].model for side, own in data.subwords.items()):
        differences = ["its subwords, though all settings are the same (SentencePiece may be another version)"]
    if differences:
        raise DataError(
            f"{data.folder}: is not the data set this run was trained on; it differs in {', '.join(differences)}; "
            f"prepare it as before, or {_ANEW}"
        )
    before, now = _flat(strict.to_dict(saved.read_config(checkpoint))), _flat(strict.to_dict(config))
    changed = [key for key, value in now.items() if before.get(key) != value]
    refused = [key for key in changed if key in _FIXED or not key.startswith(_MAY_CHANGE)]
    said = {key: (strict.literal(before.get(key)), strict.literal(now[key])) for key in changed}
    if refused:
        lines = [
            f"{checkpoint}: {key} was {was} and would be {now_is}; resume with the old value, or {_ANEW}"
            for key, (was, now_is) in said.items()
            if key in refused
        ]
        if missing := _missing_flag(manifest["about"], start) or _missing_preset(before, refused):
            lines.insert(0, f"{checkpoint.parent.parent}: {missing}; give all the flags that the run was started with")
        raise ConfigError("\n".join(lines))
    for key, (was, now_is) in said.items():
        print(f"changed since {checkpoint.name}: {key} was {was} and is {now_is} now", file=sys.stderr)


def _missing_flag(about: Mapping[str, Any], start: Start | None) -> str | None:
    """Say which flag for another model is missing, if the run began with one and the command names none."""
    for flag, name in (("--from", about.get("began_with")), ("--encoder-from", about.get("encoder_of"))):
        if name and start is None:
            return f"was started with {flag} and a model called {name}"
    return None


def _missing_preset(before: Mapping[str, Any], refused: Sequence[str]) -> str | None:
    """Name the preset that most of several refused settings match, if there is one; the run keeps no command line."""
    presets = {name: _flat(strict.to_dict(preset.config)) for name, preset in PRESETS.items()}
    agreeing = {
        name: [sum(preset[key] == before.get(key) for key in keys) for keys in (refused, before)]
        for name, preset in presets.items()
    }
    best = max(agreeing, key=agreeing.__getitem__)
    enough = agreeing[best][0] > max(1, len(refused) / 2)
    return f"its settings look like those of --preset {best}" if enough else None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = _flat(before), _flat(now)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return [
        f"the text of {key.removeprefix('contents.')}"
        if key.startswith("contents.")
        else f"{key.removeprefix('settings.')} ({strict.literal(old.get(key))}, now {strict.literal(new.get(key))})"
        for key in keys
    ]


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {path + name: value}
    return flat
