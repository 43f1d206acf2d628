"""What the doors of several verbs share."""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from transduce import strict
from transduce.errors import TransduceError, UsageError
from transduce.flags import Parser
from transduce.strict import Settings

S = TypeVar("S", bound=Settings)
CATCHING_UP = 3.0  # seconds in which the first process comes as far


def resolve(config: S, file: str | None, flags: dict[str, Any]) -> S:
    """Lay a TOML file's differences over the settings, then the flags'."""
    return strict.resolve(config, read_layers(file, flags))


def read_layers(file: str | None, flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The differences to lay over settings, by where they come from: a TOML file, then the flags."""
    layers = {file: strict.read_toml(Path(file))} if file else {}
    return layers | {"command line": flags}


@contextmanager
def said_once() -> Iterator[None]:
    """A block that reads the same in all processes which torchrun has started on a machine: one says what is wrong."""
    try:
        yield
    except TransduceError as error:
        if int(os.environ.get("LOCAL_RANK", 0)):
            time.sleep(CATCHING_UP)  # torchrun ends all once one has ended, and the one that speaks may be slower
            raise SystemExit(error.exit_code) from None
        raise


def check_positive(number: int | None, flag: str) -> None:
    """Refuse a number that is not positive."""
    if number is not None and number < 1:
        raise UsageError(f"{flag} {number} is not positive")


def check_chosen(given: Namespace) -> None:
    """Refuse what names no model, neither by its folder nor by its languages."""
    if given.source and not given.to:
        raise UsageError("--from chooses among models by their languages; give --to as well")
    if not (given.names or given.to):
        raise UsageError("name a RUN, or the language to translate into with --to; `transduce models` lists them")


def print_json(value: object) -> None:
    """Print something as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def add_engine(parser: Parser) -> None:
    """Flags for where and how a model is decoded."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "float32", "bf16", "int8"],
        default="auto",
        help="arithmetic; int8 is the fastest on a CPU (default: on a CPU float32, or int8 where weights are stored in "
        "it; bf16 on a GPU that has it)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads on a CPU (default: as many as help)")
    parser.add_argument(
        "--engine",
        choices=["auto", "native", "torch"],
        default="auto",
        help="what computes on a CPU: our own code, compiled once, or torch (default: our own where it can be)",
    )
