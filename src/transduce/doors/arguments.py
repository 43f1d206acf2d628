"""What the doors of several verbs share: reading settings, checks, common flags."""

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
CATCHING_UP = 3.0  # seconds for the first process to get as far


def resolve(config: S, file: str | None, flags: dict[str, Any]) -> S:
    """Lay a TOML file's settings over these, then those of the flags."""
    return strict.resolve(config, read_layers(file, flags))


def read_layers(file: str | None, flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the differences to lay over settings, by where they come from: a TOML file, then the flags."""
    layers = {file: strict.read_toml(Path(file))} if file else {}
    return layers | {"command line": flags}


@contextmanager
def said_once() -> Iterator[None]:
    """Run a block that fails alike in all processes that torchrun started on a machine; only one reports the error."""
    try:
        yield
    except TransduceError as error:
        if int(os.environ.get("LOCAL_RANK", 0)):
            time.sleep(CATCHING_UP)  # torchrun ends all once one has ended, and the one that reports may be slower
            raise SystemExit(error.exit_code) from None
        raise


def check_positive(number: int | None, flag: str) -> None:
    """Refuse a number that is not positive."""
    if number is not None and number < 1:
        raise UsageError(f"{flag} {number} is not positive")


def check_chosen(given: Namespace) -> None:
    """Refuse a command that names no model, neither by folder nor by languages."""
    if given.source and not given.to:
        raise UsageError("--from picks among the models for --to; give --to as well")
    if not (given.names or given.to):
        taking = next((f"--{name}" for name in ("text", "require", "forbid") if getattr(given, name, None)), None)
        place = f" before {taking}, which takes all that follows it" if taking else ""
        raise UsageError(f"name a RUN{place}, or give --to LANGUAGE; `transduce models` lists what there is")


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def add_engine(parser: Parser) -> None:
    """Add the flags for where and how a model is decoded."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "float32", "bf16", "int8"],
        default="auto",
        help="arithmetic; int8 is the fastest on a CPU (default: float32 on a CPU, or int8 if the weights are stored "
        "in it; bf16 on a GPU that has it)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help="CPU threads (default: as many as are useful)")
    parser.add_argument(
        "--engine",
        choices=["auto", "native", "torch"],
        default="auto",
        help="engine on a CPU: native code, compiled on first use, or torch (default: native where possible)",
    )
