"""What the doors of several verbs share."""

import json
from pathlib import Path
from typing import Any, TypeVar

from transduce import strict
from transduce.errors import UsageError
from transduce.strict import Settings

S = TypeVar("S", bound=Settings)


def resolve(config: S, file: str | None, flags: dict[str, Any]) -> S:
    """Lay a TOML file's differences over the settings, then the flags'."""
    layers = {file: strict.read_toml(Path(file))} if file else {}
    return strict.resolve(config, layers | {"command line": flags})


def check_positive(number: int | None, flag: str) -> None:
    """Refuse a number that is not positive."""
    if number is not None and number < 1:
        raise UsageError(f"{flag} {number} is not positive")


def print_json(value: object) -> None:
    """Print something as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
