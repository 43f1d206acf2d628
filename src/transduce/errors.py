"""Every error a user can cause, in one tree.

TransduceError            exit code 1: something given to transduce is wrong
├── DataError             a corpus, a data set or a file in it
├── ConfigError           a setting: its key, its type or its value
├── NativeError           kernels/native.py: code that cannot be compiled on this machine
├── GpuError              a GPU that has failed: the process can compute nothing more on it
└── UsageError            exit code 2: the command line itself

Messages say what was found, what was wanted and what to do, and name the file, line or key.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TransduceError(Exception):
    """A mistake that the user can fix; shown as `error: …` without a traceback."""

    exit_code = 1


class DataError(TransduceError):
    """A corpus or data set is missing, damaged or contradicts itself."""


class ConfigError(TransduceError):
    """A setting has an unknown key, a wrong type or an impossible value."""


class GpuError(TransduceError):
    """A GPU has failed; this process can neither use nor free its memory there."""


class UsageError(TransduceError):
    """The command line cannot be understood."""

    exit_code = 2


def suggest(wrong: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return `; did you mean …?` with the nearest known name, or nothing when none is near."""
    near = get_close_matches(wrong, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""
