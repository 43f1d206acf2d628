"""Every error a user can cause, in one tree.

TransduceError            exit code 1: something given to transduce is wrong
├── DataError             a corpus, a data set or a file in it
├── ConfigError           a setting: its key, its type or its value
├── NativeError           kernels/native.py: code that cannot be compiled on this machine
├── GpuError              a GPU that has failed: the process can compute nothing more on it
└── UsageError            exit code 2: the command line itself

Messages say what was found, what was wanted and what to do, and name the file, line or key.
"""

from collections.abc import Iterable, Sequence
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


# What verbs and flags are called in fairseq, OpenNMT-py, JoeyNMT, Marian and Hugging Face, whose names are like others.
_ELSEWHERE = {
    "accum-count": "accumulate",
    "arch": "preset",
    "batch-size": "source-tokens",
    "beam-size": "beam",
    "bleu": "score",
    "clip-norm": "clip",
    "convert": "export",
    "encoder-embed-dim": "d-model",
    "encoder-ffn-embed-dim": "d-ff",
    "eval": "score",
    "evaluate": "score",
    "finetune": "train",
    "finetune-from-model": "from",
    "fp16": "precision",
    "generate": "translate",
    "hidden-size": "d-model",
    "interactive": "translate",
    "learning-rate": "peak-rate",
    "length-penalty": "alpha",
    "lenpen": "alpha",
    "lr": "peak-rate",
    "max-grad-norm": "clip",
    "max-update": "steps",
    "model-dir": "out",
    "num-beams": "beam",
    "optim": "optimiser",
    "predict": "translate",
    "preprocess": "prepare",
    "restore-file": "resume",
    "sacrebleu": "score",
    "save-checkpoint-steps": "checkpoint-steps",
    "save-dir": "out",
    "save-interval-updates": "checkpoint-steps",
    "save-model": "out",
    "src": "input",
    "train-from": "from",
    "train-steps": "steps",
    "transformer-ff": "d-ff",
    "tune": "train",
    "update-freq": "accumulate",
    "valid-steps": "checkpoint-steps",
    "word-vec-size": "d-model",
}


def suggest(wrong: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return `; did you mean …?` with the name known here for what others call so, or the nearest; or nothing."""
    known = list(known)
    own = _ELSEWHERE.get(wrong.lstrip("-").replace("_", "-"))
    near = [name for name in known if own and name.lstrip("-").rpartition(".")[2].replace("_", "-") == own]
    near = near or get_close_matches(wrong, known, n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def name_some(names: Sequence[str], most: int = 8) -> str:
    """Return the first of some names as a list, and how many there are if these are not all."""
    return ", ".join(names[:most]) + (f", … ({len(names):,} in all)" if len(names) > most else "")
