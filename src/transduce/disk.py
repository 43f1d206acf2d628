"""Files that are whole or not there: synced writes, checksums, one writer to a folder.

What the systems do differently with files is here and nowhere else.
"""

import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from transduce.errors import DataError

LOCK = ".lock"
MOVES = 8  # how often a move is tried, over two and a half seconds in all
FAR = 0x7FFFFFFE  # a place in a file beyond all that is written


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """The names of files; of those with the same name as much of the path before it as tells them apart."""
    names = {path: path.name for path in paths}
    for many in range(2, max((len(path.parts) for path in names), default=0) + 1):
        times = Counter(names.values())
        names = {path: name if times[name] == 1 else "/".join(path.parts[-many:]) for path, name in names.items()}
    return names


def is_taken(path: Path) -> bool:
    """Whether anything is there; an empty folder is a place for what is written."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def refuse_taken(out: Path) -> None:
    """Nothing is written over."""
    if is_taken(out):
        raise DataError(f"{out}: is there already; remove it, or name another --out")


def may_be_page(path: Path) -> bool:
    """Whether a page or a picture may be written there: where nothing is, or another one."""
    if not path.is_file():
        return not path.exists()
    with path.open("rb") as file:
        begin = file.read(64).lstrip().lower()
    return begin.startswith((b"<!doctype html", b"<svg")) or path.stat().st_size == 0


def describe_file(path: Path) -> dict[str, Any]:
    """A file's size and checksum."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_synced(path: Path, data: bytes) -> None:
    """Write a file so that it is on the disk when this returns."""
    path.write_bytes(data)
    sync_file(path)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step, or leave the one that is there; a full disk, which names no file, is told with it."""
    new = path.with_name(path.name + ".new")
    try:
        write_synced(new, data)
        move(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        if error.filename is None:
            error.filename = str(path)
        raise


def write_json(path: Path, value: object) -> None:
    """Write JSON so that it is on the disk when this returns; names of files that are not Unicode are escaped."""
    write_synced(path, json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk; Windows cannot open one to ask for that."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def move(source: Path, target: Path) -> None:
    """Give a file or folder another name in one step; a file of that name is replaced, a folder of it is in the way.

    Windows refuses it while anybody looks into what was just written, as virus scanners do for a moment.
    """
    tries = MOVES if sys.platform == "win32" else 1
    for number in range(tries):
        try:
            if source.is_dir():
                source.rename(target)
            else:
                os.replace(source, target)
            return
        except PermissionError:
            if number == tries - 1:
                raise
            time.sleep(0.01 * 2**number)


def hold(file: IO[Any]) -> bool:
    """Take the lock of an open file, or say that another process has it.

    The system frees it when its holder ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:
        return _hold_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold_windows(file: IO[Any]) -> bool:
    import msvcrt

    # Bytes that are locked cannot be read by others either: take one where no file has any.
    place = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    os.lseek(file.fileno(), FAR, os.SEEK_SET)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    except OSError:
        return False
    finally:
        os.lseek(file.fileno(), place, os.SEEK_SET)
    return True


@contextmanager
def lock(out: Path, busy: str) -> Iterator[None]:
    """One writer at a time."""
    with (out / LOCK).open("wb") as file:
        if not hold(file):
            raise DataError(f"{out}: {busy}")
        yield
