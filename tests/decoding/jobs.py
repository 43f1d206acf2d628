"""Jobs of `transduce translate`: in this process, or in one of their own that can be killed."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from forks import ForkServer

from transduce.cli import main

# Small windows, so that a few lines are several of them.
PREAMBLE = """
import os, signal
from forks import before_change, die, on_call
from transduce.decoding import files, translator
files.WINDOW_TEXTS = translator.WINDOW_TEXTS = 4
"""


@dataclass(frozen=True)
class Ended:
    """How a job ended, and what it printed."""

    code: int
    out: bytes
    err: str


class Forks(ForkServer):
    """Runs jobs in processes of their own."""

    def __init__(self, folder: Path):
        super().__init__("transduce.decoding.cpu", "transduce.decoding.run", folder=Path(__file__).parent)
        self.folder = folder

    def start(self, code: str, arguments: Sequence[str], files: Sequence[str], *, terminal: bool = False) -> int:
        """Start a job with files for standard input, output and error; return its process ID."""
        return super().start(PREAMBLE + code, ["translate", *arguments, "--device", "cpu"], files, terminal=terminal)

    def run(self, code: str, *arguments: str, source: Path | str = os.devnull) -> Ended:
        """Run some code and then a job; wait for its end."""
        out, err = self.folder / "out", self.folder / "err"
        out.write_bytes(b"")
        err.write_bytes(b"")
        left = self.wait(self.start(code, arguments, [str(source), str(out), str(err)]))
        return Ended(left, out.read_bytes(), err.read_text())


def run_job(model: Path | str, *flags: str, source: Path) -> int:
    """Run `transduce translate MODEL … < SOURCE` in this process."""
    with source.open(encoding="utf-8") as file, patch.object(sys, "stdin", file):
        return main(["translate", str(model), *flags, "--device", "cpu"])
