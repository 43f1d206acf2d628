"""The package runs where people are: anything that only one system has comes with another way."""

import ast
import errno
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu  # noqa: F401  (whose own libraries find out which system this is)
import torch
from torch.overrides import TorchFunctionMode

import transduce
from transduce import cli, disk
from transduce.errors import DataError
from transduce.kernels import native
from transduce.model.device import has_bf16, has_kernels
from transduce.serving.options import ServeConfig
from transduce.serving.run import listen
from transduce.text import numbers
from transduce.text.parallel import usable_cores
from transduce.training import loop
from transduce.training.stopping import Signals

SOURCE = Path(transduce.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted([*SOURCE.rglob("*.py"), *(ROOT / "recipes").glob("*.py")])
# What Windows, or macOS, does not have.
MODULES = {*("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "msvcrt", "winreg")}
OS = {
    *("fork", "forkpty", "getgid", "getuid", "geteuid", "getloadavg", "getpgid", "killpg", "link", "mkfifo", "nice"),
    *("pipe2", "sched_getaffinity", "sched_setaffinity", "setsid", "symlink", "sync", "sysconf", "uname", "wait"),
    *("waitpid", "chown", "fdatasync", "O_DIRECTORY", "posix_fadvise", "memfd_create", "sendfile", "getrandom"),
}
SIGNALS = {"SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGPIPE", "SIGBREAK", "alarm", "sigwait"}
SIGNALS |= {"pthread_sigmask", "pthread_kill", "setitimer", "siginterrupt"}
# Where such names are used, each with an alternative; the tests below take the names away.
ALLOWED = {
    "disk.py": {"fcntl", "msvcrt"},
    "doctor.py": {"os.sysconf", "/proc/cpuinfo"},
    "kernels/native.py": {"/proc/cpuinfo"},
    "text/parallel.py": {"os.sched_getaffinity", "signal.pthread_sigmask"},
}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find_special(path: Path) -> Iterator[str]:
    """Yield the names in a file that not every system has."""
    for node in ast.walk(parse(path)):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in MODULES)
            case ast.ImportFrom(module=module) if module in MODULES:
                yield module
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in OS:
                yield f"os.{name}"
            case ast.Attribute(value=ast.Name(id="signal"), attr=name) if name in SIGNALS:
                yield f"signal.{name}"
            case ast.Constant(value=str(text)) if text.startswith(("/proc", "/dev/", "/tmp", "/etc", "/sys/")):
                yield text
            case _:
                pass


def test_what_not_every_system_has_stands_in_few_places():
    found = {str(path.relative_to(SOURCE)): {*find_special(path)} for path in SOURCE.rglob("*.py")}
    assert {path.replace("\\", "/"): names for path, names in found.items() if names} == ALLOWED


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            function = node.func
            yield node, function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def is_text_file(call: ast.Call, name: str) -> bool:
    """Whether a call opens a file as text, as far as the source shows."""
    if name in ("read_text", "write_text", "TextIOWrapper"):
        return True
    given = [argument.value for argument in call.args[:2] if isinstance(argument, ast.Constant)]
    modes = [mode for mode in given if isinstance(mode, str) and set(mode) <= set("rwaxbt+") and mode]
    return name == "open" and bool(modes) and "b" not in modes[0]


def test_text_is_utf_8_whatever_the_system_thinks():
    found = 0
    for path, (call, name) in [(file, call) for file in FILES for call in calls(file)]:
        if is_text_file(call, name):
            named = {keyword.arg for keyword in call.keywords}
            positional = {"TextIOWrapper": 2, "read_text": 1, "write_text": 2}.get(name, 3)
            assert "encoding" in named or len(call.args) >= positional, f"{path.name}:{call.lineno}"
            found += 1
    assert found > 20


def test_files_get_their_names_by_disk_alone():
    """Only there is a rename tried again that Windows refuses for a moment."""
    moves: Counter[str] = Counter()
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute) and (node.attr == "rename" or ast.unparse(node) == "os.replace"):
                moves[path.name] += 1
    # Of two processes that compile at once one may fail to rename, and goes on.
    assert moves == {"disk.py": 2, "native.py": 2}


# ---- taken away ----


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """A system without what POSIX has, with Windows' locks; records what was locked where."""
    kept = {"getuid", "geteuid", "wait", "waitpid", "uname", "SIGKILL"}  # without them Python itself does not run here
    for module, names in ((os, OS), (signal, SIGNALS)):
        for name in names - kept:
            monkeypatch.delattr(module, name, raising=False)
    locked: dict[str, list[int]] = {}

    def locking(handle: int, mode: int, many: int) -> None:
        assert (mode, many) == (2, 1)
        name = os.readlink(f"/proc/self/fd/{handle}") if sys.platform == "linux" else str(os.fstat(handle).st_ino)
        if os.path.exists(f"{name}.taken"):
            raise OSError(errno.EACCES, "locked")
        locked.setdefault(Path(name).name, []).append(os.lseek(handle, 0, os.SEEK_CUR))

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    return locked


def test_from_text_to_translations_on_a_bare_system(
    tmp_path: Path, bare: dict[str, list[int]], capsys: pytest.CaptureFixture[str]
):
    data, run = tmp_path / "data", tmp_path / "run"
    text = "".join(f"{source}\t{target}\n" for source, target in numbers.corpus("train", 120))
    (tmp_path / "pairs.tsv").write_text(text, encoding="utf-8", newline="\r\n")  # as some editors write
    small = ["--model.layers", "1", "--model.d-model", "16", "--model.d-ff", "16", "--model.heads", "2"]
    few = ["--training.steps", "2", "--training.checkpoint-steps", "1", "--training.bleu-sentences", "2"]
    for command in (
        ["prepare", data, "--pairs", tmp_path / "pairs.tsv", "--dev-split", "8", "--subwords", "320"],
        ["train", data, "--out", run, *small, *few, "--device", "cpu"],
        ["train", data, "--out", run, *small, *few, "--device", "cpu", "--resume", "--training.steps", "3"],
        ["translate", run, "--input", tmp_path / "in.txt", "--out", tmp_path / "out.txt", "--engine", "torch"],
        ["average", run, "--last", "2"],
        ["doctor"],
    ):
        (tmp_path / "in.txt").write_text("two euros\n\nnine\n", encoding="utf-8")
        assert cli.main([str(word) for word in command]) == 0, capsys.readouterr().err
    assert (tmp_path / "out.txt").read_bytes().count(b"\n") == 3
    assert "\r" not in (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert {".lock", "out.txt.partial"} <= bare.keys()
    assert {place for places in bare.values() for place in places} == {disk.FAR}  # where nobody reads


def test_a_folder_is_locked_there_too(tmp_path: Path, bare: dict[str, list[int]]):
    (tmp_path / ".lock.taken").touch()
    with pytest.raises(DataError, match="busy"), disk.lock(tmp_path, "busy"):
        pass


def test_a_move_is_tried_again_where_somebody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usual, refused, slept = os.replace, [2], []

    def replace(source: Path, target: Path) -> None:
        if refused[0]:
            refused[0] -= 1
            raise PermissionError(errno.EACCES, "in use")
        usual(source, target)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(time, "sleep", slept.append)
    (tmp_path / "new").write_bytes(b"x")
    with pytest.raises(PermissionError):  # elsewhere it is a matter of rights
        disk.move(tmp_path / "new", tmp_path / "old")
    monkeypatch.setattr(sys, "platform", "win32")
    disk.move(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"x"
    assert len(slept) == 1
    refused[0] = 100
    with pytest.raises(PermissionError):
        disk.move(tmp_path / "old", tmp_path / "new")
    assert sum(slept) < 5


def test_cores_are_counted_everywhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_a_training_in_a_thread_leaves_signals_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Signals() as signals:
            seen.append((signals.asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(
    ("platform", "variables", "wanted"),
    [
        ("darwin", {"HOME": "/Users/a"}, "/Users/a/Library/Caches/transduce"),
        ("win32", {"LOCALAPPDATA": "/c/Local"}, "/c/Local/transduce/cache"),
        ("win32", {"HOME": "/c/a"}, "/c/a/.cache/transduce"),
        ("linux", {"XDG_CACHE_HOME": "/x", "LOCALAPPDATA": "/c"}, "/x/transduce"),
        ("win32", {"TRANSDUCE_CACHE": "/mine", "LOCALAPPDATA": "/c"}, "/mine"),
    ],
)
def test_compiled_code_is_kept_where_each_system_keeps_such_things(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], wanted: str
):
    for name in ("TRANSDUCE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert native.cache_folder() == Path(wanted)


def test_a_compiler_may_have_spaces_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "Program Files" / "c++"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    assert native.find_compiler() == [str(program)]
    monkeypatch.setenv("CXX", f"'{program}' -m64")
    assert native.find_compiler() == [str(program), "-m64"]


# ---- a device without float64 ----


class WithoutFloat64(TorchFunctionMode):
    """A device without float64, like Apple's GPUs. Tensors made without naming a device are not on it."""

    def __init__(self) -> None:
        super().__init__()
        self.host: dict[int, torch.Tensor] = {}  # kept, so that no number is given twice

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [one for one in [*args, *kwargs.values()] if isinstance(one, torch.Tensor)]
        name = getattr(func, "__name__", "")
        here = name in ("cpu", "from_numpy") or all(id(one) in self.host for one in given)
        if name == "cpu":
            result = result.clone()
        if "device" in kwargs or name == "to":
            here = False
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                assert here or one.dtype != torch.float64, f"{name} makes float64 on the device"
                if here:
                    self.host[id(one)] = one
        return result


def test_nothing_on_a_device_is_float64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Training, validation, beam search, sampling and forced scores; Apple's GPUs would refuse it."""
    import torch._dynamo  # which torch imports at some time, and which is none of ours

    from transduce import Translator

    with pytest.raises(AssertionError, match="double makes float64"), WithoutFloat64():
        torch.zeros(2, device="cpu").double()
    pairs = "".join(f"{source}\t{target}\n" for source, target in numbers.corpus("train", 60))
    (tmp_path / "pairs.tsv").write_text(pairs, encoding="utf-8")
    data = ["prepare", tmp_path / "data", "--pairs", tmp_path / "pairs.tsv", "--dev-split", "8", "--subwords", "320"]
    assert cli.main([str(word) for word in data]) == 0
    small = ["--model.layers", "1", "--model.d-model", "16", "--model.d-ff", "16", "--model.heads", "2"]
    few = ["--training.steps", "2", "--training.bleu-sentences", "2", "--device", "cpu", "--training.clip", "1"]

    def train(run: loop.Run) -> str:
        with WithoutFloat64():
            return loop.train(run)

    monkeypatch.setattr("transduce.training.run.train", train)
    assert cli.main(["train", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *small, *few]) == 0
    translator = Translator.load(tmp_path / "run", device="cpu", engine="torch")
    with WithoutFloat64():
        translator.translate(["two euros", "nine"], alignments=True, beam=2, n_best=2)
        translator.translate(["two euros", "nine"], beam=1)
        translator.score([("two euros", "zwei Euro")])


@pytest.mark.parametrize("kind", ["mps"])
def test_our_kernels_are_for_nvidia_alone(kind: str):
    device = torch.device(kind)
    assert not has_kernels(device)
    assert not has_bf16(device)


# ---- the command ----

SAME = ([], ["--version"], ["--help"], ["presets", "nosuch"], ["trane"], ["average", "--help"], ["score", "x"])


def start(code: list[str], arguments: list[str], **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"} | variables
    return subprocess.run([sys.executable, *code, *arguments], capture_output=True, env=environment)


def test_the_module_is_the_command(tmp_path: Path):
    """The same output and exit codes, under the same name; the script is what pip makes of the entry point."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["transduce"]
    module, function = entry.split(":")
    script = tmp_path / "transduce"
    script.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n", encoding="utf-8")
    codes = []
    for arguments in SAME:
        ours, theirs = start(["-m", "transduce"], arguments), start([str(script)], arguments)
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
        assert b"__main__" not in ours.stdout + ours.stderr
        codes.append(ours.returncode)
    assert codes == [2, 0, 0, 1, 2, 0, 2]


def test_files_and_pipes_get_utf_8_whatever_the_system_writes():
    """As on Windows, where a pipe has an old encoding; unless the user says otherwise."""
    old = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    arguments = ["average", "--help"]
    assert "RUN …" in start(["-m", "transduce"], arguments, **old).stdout.decode("utf-8")
    asked = start(["-m", "transduce"], arguments, **old, PYTHONIOENCODING="ascii")
    assert b"RUN ?" in asked.stdout


def test_a_closed_pipe_on_windows_is_quiet(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

        def fileno(self) -> int:
            return os.open(os.devnull, os.O_WRONLY)

    for platform, code in (("win32", 141), ("linux", 1)):
        monkeypatch.setattr(sys, "platform", platform)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Closed())
            assert cli.main(["--version"]) == code
        assert bool(capfd.readouterr().err) == (platform == "linux")


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_a_port_belongs_to_one_server(monkeypatch: pytest.MonkeyPatch, platform: str):
    """On Windows the option that lets a server restart at once would let two of them listen."""
    monkeypatch.setattr(sys, "platform", platform)
    with listen(ServeConfig(host="127.0.0.1", port=0)) as listening:
        again = listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert bool(again) == (platform == "linux")
