"""Files that are complete or not there: synced writes, checksums, one writer per folder.

All differences between operating systems in handling files are dealt with here.
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
MOVES = 8  # how often a move is tried, with 1.3 seconds of waiting in all
FAR = 0x7FFFFFFE  # an offset beyond the end of any file


def short_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the files' names; those with the same name get as much of the path as tells them apart."""
    names = {path: path.name for path in paths}
    for many in range(2, max((len(path.parts) for path in names), default=0) + 1):
        times = Counter(names.values())
        names = {path: name if times[name] == 1 else "/".join(path.parts[-many:]) for path, name in names.items()}
    return names


def is_taken(path: Path) -> bool:
    """Return whether anything is there; an empty folder does not count, as it can be written to."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def refuse_taken(out: Path) -> None:
    """Refuse an `out` where something is already: nothing is overwritten."""
    if is_taken(out):
        raise DataError(f"{out}: already exists; remove it, or name another --out")


def may_be_page(path: Path) -> bool:
    """Return whether a page or picture may be written there: over nothing, an empty file or another one."""
    if not path.is_file():
        return not path.exists()
    with path.open("rb") as file:
        begin = file.read(64).lstrip().lower()
    return begin.startswith((b"<!doctype html", b"<svg")) or path.stat().st_size == 0


def describe_file(path: Path) -> dict[str, Any]:
    """Return a file's size and checksum."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_synced(path: Path, data: bytes) -> None:
    """Write a file, and return when it is on the disk."""
    path.write_bytes(data)
    sync_file(path)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step, or leave the old one as it is; the error of a full disk gets the file's name."""
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
    """Write JSON, and return when it is on the disk; file names that are not Unicode are escaped."""
    write_synced(path, json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk; on Windows, which cannot open folders, do nothing."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder in one step; a file replaces a file of that name, but not a folder.

    Windows refuses while another program reads what was just written, as virus scanners do briefly, so try again.
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
    """Lock an open file; return False if another process holds the lock.

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

    # Locked bytes cannot be read by others either: lock one beyond the end of any file.
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
    """Hold a folder's lock, so that it has one writer at a time; `busy` is the error if another process holds it."""
    with (out / LOCK).open("wb") as file:
        if not hold(file):
            raise DataError(f"{out}: {busy}")
        yield
