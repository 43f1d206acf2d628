"""The C++ of kernels/cpu, compiled once on the machine it runs on and loaded with ctypes.

The library is kept in the user's cache folder, under a hash of the sources, the flags, the compiler and the processor:
if any of them changes, it is compiled anew. `TRANSDUCE_CACHE` names another folder, `CXX` another compiler.
"""

import ctypes
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from transduce.errors import TransduceError

SOURCES = Path(__file__).parent / "cpu"
LIBRARY, CHECKSUM = "engine.so", "engine.sha256"
# No contraction: products and sums are fused only where the code asks, or results would depend on how loops are cut.
FLAGS = [
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    "-pthread",
    "-Wno-psabi",
]
# Environments often have an older C++ library than the compiler's, so it is linked in, if the compiler can.
STATIC = ["-static-libstdc++", "-static-libgcc"]
# Flags for this processor, as different compilers spell them; the first that work are taken.
HERE = [["-march=native", *STATIC], ["-march=native"], ["-mcpu=native"], []]
REMEDY = (
    "install a C++ compiler (Debian, Ubuntu: apt install g++; macOS: xcode-select --install; or: pip install ziglang)"
)
SECONDS = 300


class NativeError(TransduceError):
    """The fast CPU code cannot be compiled or loaded."""


class Sizes(ctypes.Structure):
    """The struct of this name in cpu/model.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("vocabulary", "source_vocabulary", "encoder_layers", "decoder_layers")),
        *(
            (name, ctypes.c_int32)
            for name in ("d_model", "d_ff", "heads", "d_k", "d_v", "pre_norm", "rotary", "biases")
        ),
        *((name, ctypes.c_int32) for name in ("activation", "precision")),
        ("scale", ctypes.c_float),
        ("epsilon", ctypes.c_float),
    ]


class Capacity(ctypes.Structure):
    """The struct of this name in cpu/lines.h."""

    _fields_ = [(name, ctypes.c_int32) for name in ("slots", "beam", "source", "target", "threads")]


class Positions(ctypes.Structure):
    """The struct of this name in cpu/lines.h."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("source", "target", "cosines", "sines")]


class Choices(ctypes.Structure):
    """The struct of this name in cpu/best.h."""

    _fields_ = [
        ("logits", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("rows", "vocabulary", "count")),
        ("banned", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("banned_count", "summed_up", "normalised")),
        *((name, ctypes.c_void_p) for name in ("normaliser", "values", "tokens")),
    ]


class Hypotheses(ctypes.Structure):
    """The struct of this name in cpu/hypotheses.h."""

    STATE = ("scores", "next", "parents", "said", "came_from", "sums", "length", "limit", "done")
    ENDED = ("ended", "ended_sums", "ended_line", "ended_length")
    NUMBERS = ("slots", "steps", "candidates", "n_best", "min_tokens", "until_full", "begin_token", "end_token")

    _fields_ = [
        *((name, ctypes.c_int32) for name in NUMBERS),
        *((name, ctypes.c_void_p) for name in (*STATE, *ENDED, "penalty", "logits")),
        ("stride", ctypes.c_int64),
    ]


class Trees(ctypes.Structure):
    """The struct of this name in cpu/trees.h."""

    KNOWN = ("symbols", "kinds", "opens", "closes", "leaves", "labels")
    STATE = ("words", "due", "following", "depth", "empty", "room", "stack")

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("many", "to_a_word", "labelled", "steps", "deepest")),
        ("word_share", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in (*KNOWN, *STATE)),
    ]


@lru_cache
def load(flags: tuple[str, ...] | None = None) -> ctypes.CDLL:
    """Return the library, compiled if need be; `flags` replace those for this processor."""
    compiler = find_compiler()
    tries = HERE if flags is None else [list(flags)]
    folder = _folder(compiler, tries)
    library = _open(folder)
    if library is None:
        print("transduce: compiling the fast CPU code for this machine, once", file=sys.stderr)
        _build(compiler, tries, folder)
        library = _open(folder)
    if library is None:
        raise NativeError(f"{folder / LIBRARY}: compiled, but cannot be loaded; remove the folder and try again")
    return library


def is_ready() -> bool:
    """Whether `load` need not compile first; also true without a compiler, so that `load` can say so."""
    try:
        return _open(_folder(find_compiler(), HERE)) is not None
    except NativeError:
        return True


def compile_behind() -> subprocess.Popen[bytes]:
    """Start a process that compiles for next time; this one does not wait, and the other outlives it."""
    command = [sys.executable, "-c", f"from {__name__} import load; load()"]
    none = subprocess.DEVNULL
    # Windows ignores start_new_session; there, the process gets no console instead.
    apart = getattr(subprocess, "DETACHED_PROCESS", 0)
    return subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True, creationflags=apart)


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler."""
    named = os.environ.get("CXX")
    if named:
        # CXX may be a path with spaces and backslashes, as on Windows, or else a program with arguments.
        command = [named] if shutil.which(named) else shlex.split(named)
        if shutil.which(command[0]) is None:
            raise NativeError(f"CXX = {named} is not a program; unset it, or {REMEDY}")
        return command
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    raise NativeError(f"no C++ compiler was found to compile the fast CPU code, once on each machine; {REMEDY}")


def cache_folder() -> Path:
    """Return the folder of this user's compiled code."""
    if given := os.environ.get("TRANSDUCE_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "transduce"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "transduce" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce"


def _folder(compiler: list[str], tries: list[list[str]]) -> Path:
    return cache_folder() / f"native-{_key(compiler, tries)}"


def _key(compiler: list[str], tries: list[list[str]]) -> str:
    """Return a hash of the sources, the flags, the compiler and the processor."""
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, errors="replace", timeout=SECONDS
    )
    parts = [repr(compiler), version.stdout, repr(FLAGS), repr(tries), _processor()]
    for path in sorted(SOURCES.iterdir()):
        parts += [path.name, path.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _processor() -> str:
    """Return what the system says about the processor and its features."""
    known = [platform.machine(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        known += sorted({line for line in lines if line.split(":")[0].strip().lower() in ("flags", "features")})
    return "\n".join(known)


def _open(folder: Path) -> ctypes.CDLL | None:
    """Return the library in a folder, or None if it is missing or damaged."""
    try:
        found = hashlib.sha256((folder / LIBRARY).read_bytes()).hexdigest()
        if found != (folder / CHECKSUM).read_text(encoding="utf-8"):
            return None
        return _declare(ctypes.CDLL(str(folder / LIBRARY)))
    except (OSError, AttributeError):
        return None


def _build(compiler: list[str], tries: Sequence[list[str]], folder: Path) -> None:
    """Compile into a temporary folder and rename it; if another process does so at once, one of the two stays."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-", ignore_cleanup_errors=True) as partial:
            made = Path(partial) / "made"
            made.mkdir()
            _compile(compiler, tries, made / LIBRARY)
            checksum = hashlib.sha256((made / LIBRARY).read_bytes()).hexdigest()
            (made / CHECKSUM).write_text(checksum, encoding="utf-8")
            for _ in range(2):
                with suppress(OSError):  # there is one already: damaged, or just made by another process
                    made.rename(folder)
                    return
                if _open(folder) is not None:
                    return
                with suppress(OSError):
                    folder.rename(Path(partial) / "damaged")
    except OSError as error:
        raise NativeError(
            f"{folder.parent}: cannot hold the compiled code ({error}); set TRANSDUCE_CACHE to another folder"
        ) from error


def _compile(compiler: list[str], tries: Sequence[list[str]], target: Path) -> None:
    output = ""
    for extra in tries:
        command = [*compiler, *FLAGS, *extra, "-o", str(target), str(SOURCES / "engine.cpp")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            output = f"{shlex.join(command)} was still running after {SECONDS} seconds"
            continue
        if done.returncode == 0 and target.exists():
            return
        output = done.stderr or done.stdout
    last = "\n".join(output.strip().splitlines()[-8:])
    raise NativeError(f"{shlex.join(compiler)} cannot compile the fast CPU code; {REMEDY}\n{last}")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
        ("engine", pointer, [ctypes.POINTER(Sizes), ctypes.POINTER(pointer)]),
        ("engine_free", None, [pointer]),
        ("open", pointer, [pointer, ctypes.POINTER(Capacity), ctypes.POINTER(Positions)]),
        ("close", None, [pointer]),
        ("admit", number, [pointer, number, pointer, pointer, pointer]),
        ("advance", number, [pointer, number, pointer, pointer, pointer, pointer, ctypes.c_int64]),
        ("best", number, [pointer, ctypes.POINTER(Choices)]),
        ("run", number, [pointer, ctypes.POINTER(Hypotheses), ctypes.POINTER(Trees), number]),
        ("columns", number, [number]),
        ("kind", ctypes.c_char_p, []),
    ):
        function = getattr(library, f"transduce_{name}")
        function.restype, function.argtypes = result, arguments
    return library
