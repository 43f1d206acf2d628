"""Jobs of `transduce translate`: in this process, or in one of their own that can be killed."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from transduce.cli import main

# Commands come by a pipe of their own, so that standard input is that of the jobs.
SERVER = """
import json, os, signal, sys, traceback
import torch
import transduce.cli, transduce.decoding.cpu, transduce.decoding.run
torch.set_num_threads(1)
commands, answers = open(int(sys.argv[1])), open(int(sys.argv[2]), "w")
for line in commands:
    asked = json.loads(line)
    if isinstance(asked, int):
        print(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]), file=answers, flush=True)
        continue
    code, arguments, files, terminal = asked
    child = os.fork()
    if child:
        print(child, file=answers, flush=True)
        continue
    left = 1
    try:
        if terminal:
            os.setsid()
        for place, name in enumerate(files):
            os.dup2(os.open(name, os.O_RDWR if terminal else os.O_WRONLY if place else os.O_RDONLY), place)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        signal.alarm(120)
        exec(code, {})
        left = transduce.cli.main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(left)
"""
# Small windows, so that a few lines are several of them.
PREAMBLE = """
import os, signal
from transduce.decoding import files, translator
files.WINDOW_TEXTS = translator.WINDOW_TEXTS = 4

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def on_call(owner, name, number, act):
    usual, calls = getattr(owner, name), 0
    def called(*args, **kwargs):
        nonlocal calls
        calls += 1
        return act(*args, **kwargs) if calls == number else usual(*args, **kwargs)
    setattr(owner, name, called)

def before_change(number, folder, act):
    # Before the nth time that something in a folder is opened, renamed, removed or synced.
    import sys
    calls = 0
    def count():
        nonlocal calls
        calls += 1
        if calls == number:
            act()
    def look(event, arguments):
        if event in ("os.rename", "os.remove", "open", "os.truncate") and str(folder) in str(arguments[:1]):
            count()
    usual = os.fsync
    def fsync(handle):
        count()
        usual(handle)
    os.fsync = fsync
    sys.addaudithook(look)
"""


@dataclass(frozen=True)
class Ended:
    """How a job ended, and what it printed."""

    code: int
    out: bytes
    err: str


class Forks:
    """Runs jobs in processes of their own; torch is imported once for all of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        (theirs, ours), (answers, given) = os.pipe(), os.pipe()
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(theirs), str(given)],
            pass_fds=(theirs, given),
            stdin=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        os.close(theirs)
        os.close(given)
        self.commands, self.answers = open(ours, "w"), open(answers)

    def ask(self, what: object) -> int:
        """Send a command and wait for the answer."""
        print(json.dumps(what), file=self.commands, flush=True)
        return int(self.answers.readline())

    def start(self, code: str, arguments: Sequence[str], files: Sequence[str], *, terminal: bool = False) -> int:
        """Start a job with files for standard input, output and error; returns its process."""
        return self.ask([PREAMBLE + code, ["translate", *arguments, "--device", "cpu"], list(files), terminal])

    def wait(self, process: int) -> int:
        """Wait for a job; returns its exit code, or the negative number of the signal that ended it."""
        return self.ask(process)

    def run(self, code: str, *arguments: str, source: Path | str = os.devnull) -> Ended:
        """Run some code and then a job."""
        out, err = self.folder / "out", self.folder / "err"
        out.write_bytes(b"")
        err.write_bytes(b"")
        left = self.wait(self.start(code, arguments, [str(source), str(out), str(err)]))
        return Ended(left, out.read_bytes(), err.read_text())

    def close(self) -> None:
        """End the process that starts the others."""
        self.commands.close()
        self.server.wait(30)
        self.answers.close()


def run_job(model: Path | str, *flags: str, source: Path) -> int:
    """Run `transduce translate MODEL … < SOURCE` in this process."""
    with source.open(encoding="utf-8") as file, patch.object(sys, "stdin", file):
        return main(["translate", str(model), *flags, "--device", "cpu"])
