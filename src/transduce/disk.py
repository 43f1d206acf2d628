"""Files that are whole or not there: synced writes, checksums, one writer to a folder."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.errors import DataError

LOCK = ".lock"


def describe_file(path: Path) -> dict[str, Any]:
    """A file's size and checksum."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def write_synced(path: Path, data: bytes) -> None:
    """Write a file so that it is on the disk when this returns."""
    path.write_bytes(data)
    sync_file(path)


def write_json(path: Path, value: object) -> None:
    """Write JSON so that it is on the disk when this returns; names of files that are not Unicode are escaped."""
    write_synced(path, json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until a folder's names are on the disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def lock(out: Path, busy: str) -> Iterator[None]:
    """One writer at a time; the system frees the lock when its holder ends, however it ends."""
    with (out / LOCK).open("w") as file:
        try:
            if os.name == "posix":
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
        except OSError as error:
            if os.name == "posix" and not isinstance(error, BlockingIOError):  # such as a disk that cannot lock
                raise
            raise DataError(f"{out}: {busy}") from error
        yield
