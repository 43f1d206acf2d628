"""Checkpoints of torch are read as torch reads them, and nothing in them is run."""

import argparse
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transduce.errors import DataError
from transduce.interop.checkpoint import StandIn, read_checkpoint

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def equal(found: Any, expected: Any) -> bool:
    """Whether two values are the same containers with tensors of the same kind and numbers."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(equal(found[key], value) for key, value in expected.items())
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(equal, found, expected))
    return found == expected


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_come_back(tmp_path: Path, zipped: bool, dtype: torch.dtype):
    whole = torch.randn(4, 6).mul(3).to(dtype)
    saved = {
        "whole": whole,
        "turned": whole.t(),
        "part": whole[1:3, ::2],
        "none": whole[:0],
        "one": whole[2, 3],
        "ordered": OrderedDict(first=whole, second=[1, "two", (3.0, None, True)], third={4, 5}),
    }
    torch.save(saved, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(tmp_path / "x.pt")
    assert equal(found, saved)
    assert equal(found, torch.load(tmp_path / "x.pt", weights_only=True))


def test_weights_of_modules_come_back(tmp_path: Path):
    layer = nn.TransformerEncoderLayer(8, 2)
    torch.save({"model": layer.state_dict(), "bare": layer.linear1.weight}, tmp_path / "x.pt")
    found = read_checkpoint(tmp_path / "x.pt")
    assert equal(dict(found["model"]), dict(layer.state_dict()))
    assert torch.equal(found["bare"], layer.linear1.weight)


def test_settings_can_be_looked_at(tmp_path: Path):
    torch.save({"args": argparse.Namespace(layers=6, share=True, path=Path("a"))}, tmp_path / "x.pt")
    found = read_checkpoint(tmp_path / "x.pt")["args"]
    assert isinstance(found, StandIn)
    assert found.name == "argparse.Namespace"
    assert (found.get("layers"), found.get("share"), found.get("nothing", 7)) == (6, True, 7)
    assert isinstance(found.get("path"), StandIn)


class _Runs:
    """An attacker's object, whose unpickling makes a folder."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_is_run(tmp_path: Path, zipped: bool):
    torch.save({"x": _Runs(tmp_path / "made")}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(tmp_path / "x.pt")
    assert not (tmp_path / "made").exists()
    assert found["x"].arguments == (str(tmp_path / "made"),)
    torch.load(tmp_path / "x.pt", weights_only=False)  # which does run it
    assert (tmp_path / "made").exists()


def attempt(path: Path) -> bool:
    """Read a damaged file; return whether it was read as plain data or refused with an error that names it."""
    try:
        found = read_checkpoint(path)
    except DataError as error:
        return str(error).startswith(f"{path}: not a readable torch checkpoint")
    return isinstance(found, StandIn | dict)


def write_pickle(path: Path, program: bytes) -> None:
    """Write a checkpoint whose pickle is given byte by byte."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", program)


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(S'1+1'\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c\x011\x85R.",
        b"ctorch._utils\n_rebuild_tensor_v2\n}S'__class__'\nI1\nsb.",  # writes into what it is given
        b"ctorch._utils\n_rebuild_tensor_v2\n(I1\nI2\n(I3\nt(I4\nttR.",
        b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI9\ntQ.",  # there is none
        b"cbuiltins\ngetattr\n(ccollections\nOrderedDict\nS'__init__'\ntR.",
        b"no pickle",
    ],
)
def test_programs_do_nothing_or_are_refused(tmp_path: Path, program: bytes):
    write_pickle(tmp_path / "x.pt", program)
    assert attempt(tmp_path / "x.pt")


@given(cut=st.integers(0, 2000), noise=st.binary(max_size=4), zipped=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_one_error(tmp_path: Path, cut: int, noise: bytes, zipped: bool):
    path = tmp_path / "x.pt"
    torch.save({"a": torch.arange(20.0), "b": [1, 2]}, path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[:cut] + noise + data[cut + len(noise) :][: cut // 2])
    assert attempt(path)


def test_a_pickle_alone_is_refused(tmp_path: Path):
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="neither a zip file nor a torch pickle"):
        read_checkpoint(tmp_path / "x.pt")
