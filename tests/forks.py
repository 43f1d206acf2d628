"""Commands of transduce in processes of their own, which can be killed, and faults to inject into them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Commands come by a pipe of their own, so that standard input is that of the jobs.
SERVER = """
import importlib, json, os, signal, sys, traceback
import torch
import transduce.cli
for module in sys.argv[3:]:
    importlib.import_module(module)
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
            way = os.O_WRONLY | os.O_APPEND if place else os.O_RDONLY  # output and error may be one file
            os.dup2(os.open(name, os.O_RDWR if terminal else way), place)
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


class ForkServer:
    """Starts commands by forking; torch and some modules are imported once for all of them."""

    def __init__(self, *modules: str, folder: Path):
        (theirs, ours), (answers, given) = os.pipe(), os.pipe()
        path = [str(Path(__file__).parent), str(folder), os.environ.get("PYTHONPATH", "")]
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(theirs), str(given), *modules],
            pass_fds=(theirs, given),
            stdin=subprocess.DEVNULL,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        os.close(theirs)
        os.close(given)
        self.commands, self.answers = open(ours, "w"), open(answers)

    def ask(self, what: object) -> int:
        """Send a command and return the answer."""
        print(json.dumps(what), file=self.commands, flush=True)
        return int(self.answers.readline())

    def start(self, code: str, arguments: Sequence[str], files: Sequence[str], *, terminal: bool = False) -> int:
        """Run code and then a command, with files for standard input, output and error; return its process ID."""
        return self.ask([code, list(arguments), list(files), terminal])

    def wait(self, process: int) -> int:
        """Wait for a process; return its exit code, or the negative number of the signal that ended it."""
        return self.ask(process)

    def close(self) -> None:
        """End the server process."""
        self.commands.close()
        self.server.wait(30)
        self.answers.close()


# ---- from within ----


def die(*_: object, **__: object) -> None:
    """Kill this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def on_call(
    owner: object,
    name: str,
    number: int,
    act: Callable[..., object],
    put: Callable[[Any, str, Any], object] = setattr,
) -> None:
    """Replace the nth call of a function from now on."""
    usual = getattr(owner, name)
    calls = 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return act(*args, **kwargs) if calls == number else usual(*args, **kwargs)

    put(owner, name, called)


def before_change(number: int, folder: Path | str, act: Callable[[], object]) -> None:
    """Do something before the nth time that anything in a folder is opened, made, renamed, removed or synced."""
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            act()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "open")
        if changes and str(folder) in str(arguments[:1]):
            count()

    usual = os.fsync

    def fsync(handle: int) -> None:
        count()
        usual(handle)

    os.fsync = fsync
    sys.addaudithook(look)
