"""Read checkpoints of torch.save without running anything in them.

A checkpoint is a pickle with its tensors beside it. A pickle is a small program that may call any Python function by
name. Here it can call none of them: our own code builds tensors, ordered dictionaries and a few plain containers, and
any other name becomes a `StandIn`, which stores what it is given and does nothing. So settings that were pickled as
objects can be read, where torch.load(weights_only=True) would refuse the file.
"""

import io
import pickle
import struct
import sys
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from transduce.errors import DataError

# Files of torch.save before version 1.6: a pickled magic number, more pickles, then the tensors.
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_CONTAINERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("torch", "Size"): tuple,
}
_Storages = Callable[[str, torch.dtype, int], Tensor]


class StandIn:
    """Stands in for an object of an unknown class: keeps its arguments, its state and its items."""

    name = ""

    arguments: tuple[Any, ...]
    state: Any
    items: dict[Any, Any]

    def __new__(cls, *arguments: Any, **more: Any) -> "StandIn":
        """Set the fields here, since some objects are never initialised."""
        made = super().__new__(cls)
        made.arguments, made.state, made.items = arguments, more, {}
        return made

    def __init__(self, *arguments: Any, **more: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def append(self, value: Any) -> None:
        """Add an item, if the object was a list."""
        self.items[len(self.items)] = value

    def extend(self, values: Any) -> None:
        """Add items, if the object was a list."""
        for value in values:
            self.append(value)

    def get(self, key: str, otherwise: Any = None) -> Any:
        """Return an attribute of the object, or else an item."""
        state = self.state if isinstance(self.state, dict) else {}
        return state.get(key, self.items.get(key, otherwise))


def read_checkpoint(path: Path) -> Any:
    """Read a file of torch.save, with its tensors on the CPU."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    with file:
        try:
            if zipfile.is_zipfile(file):
                return _read_zip(file)
            file.seek(0)
            return _read_old(file)
        except Exception as error:  # a pickle or a damaged archive can fail in any way
            raise DataError(f"{path}: not a readable torch checkpoint ({type(error).__name__}: {error})") from error


def as_tensors(found: Any, path: Path) -> dict[str, Tensor]:
    """Return what was found as a dictionary of tensors, or raise an error."""
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path}: contains no dictionary of tensors")
    return {str(name): tensor for name, tensor in found.items()}


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        (main,) = (name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl")
        folder = main.removesuffix("data.pkl")
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("written on a machine with another byte order")
        kept: dict[str, Tensor] = {}

        def storage(key: str, dtype: torch.dtype, count: int) -> Tensor:
            if key not in kept:
                kept[key] = _numbers(archive.read(f"{folder}data/{key}"), dtype, count)
            return kept[key]

        return _Reader(io.BytesIO(archive.read(main)), storage).load()


def _read_old(file: BinaryIO) -> Any:
    kept: dict[str, Tensor] = {}

    def storage(key: str, dtype: torch.dtype, count: int) -> Tensor:
        if key not in kept:  # filled below, in place
            kept[key] = torch.empty(count, dtype=dtype)
        return kept[key]

    if file.read(len(_OLD_START)) != _OLD_START:
        raise ValueError("neither a zip file nor a torch pickle")
    file.seek(0)
    magic, _, system = (_Reader(file, storage).load() for _ in range(3))
    if magic != _OLD_MAGIC or not system.get("little_endian", True):
        raise ValueError("written in another way, or on a machine with another byte order")
    found = _Reader(file, storage).load()
    for key in _Reader(file, storage).load():
        (count,) = struct.unpack("<q", file.read(8))
        tensor = kept[str(key)]
        if count != len(tensor):
            raise ValueError(f"storage {key} has {count} numbers, its tensors {len(tensor)}")
        tensor.copy_(_numbers(file.read(count * tensor.element_size()), tensor.dtype, count))
    return found


def _numbers(data: bytes, dtype: torch.dtype, count: int) -> Tensor:
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes for {count} numbers of {dtype}")
    return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


class _Storage:
    """Stands in for a class of storages: the type of its numbers."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype


class _Reader(pickle.Unpickler):
    """An unpickler that knows only the names in this file."""

    def __init__(self, file: Any, storage: _Storages):
        super().__init__(file, encoding="utf-8", errors="backslashreplace")
        self._storage = storage
        # Each reader has its own: a pickle may write into a class that it is given.
        self._kinds: dict[str, type[StandIn]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name in the pickle stands for."""
        if (module, name) in _CONTAINERS:
            return _CONTAINERS[module, name]
        if (module, name) == ("collections", "defaultdict"):
            return _make_dict
        if module == "torch._utils" and name in _REBUILD:
            return _REBUILD[name]
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return _Storage(_DTYPES[name])
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        whole = sys.intern(f"{module}.{name}")
        if whole not in self._kinds:
            self._kinds[whole] = type("StandIn", (StandIn,), {"name": whole})
        return self._kinds[whole]

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage for a reference: its kind, its key, its device, how many numbers."""
        what, kind, key, _, count, *view = pid
        if what != "storage" or not isinstance(kind, _Storage) or any(view):
            raise ValueError(f"a reference to {pid!r}")
        return self._storage(str(key), kind.dtype, int(count))


class _Call:
    """A function that a pickle may call, but neither read nor change."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]):
        object.__setattr__(self, "_call", call)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _rebuild(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Tensor:
    if not isinstance(storage, Tensor):
        raise ValueError("a tensor without a storage")
    return storage.as_strided(size, stride, offset)


_REBUILD = {
    "_rebuild_tensor": _Call(_rebuild),
    "_rebuild_tensor_v2": _Call(_rebuild),
    "_rebuild_parameter": _Call(lambda tensor, *_: tensor),
}
_make_dict = _Call(lambda *_: defaultdict(lambda: None))
