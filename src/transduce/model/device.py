"""Where a model computes: the device, its threads, whether bf16 is fast and our own kernels run there."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from transduce.config import ModelConfig
from transduce.errors import UsageError

SMALLEST_SHARED = 256  # the smallest d_model for which several threads pay (docs/log.md)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device asked for, or the best one for `auto`; `cuda` is the GPU of this process."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name} is not known; use auto, cpu, cuda, cuda:1 or mps") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type):
        raise UsageError(f"--device {name} is not available; `transduce doctor` shows what this machine has")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", local_rank)
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise UsageError(f"--device {device} is not available; this machine has {torch.cuda.device_count()} GPUs")
    return device


def choose_threads(model: ModelConfig, given: int | None) -> int:
    """Return the number of CPU threads: as given, else torch's, or 1 for small models, whose threads mostly wait."""
    return given or (torch.get_num_threads() if model.d_model >= SMALLEST_SHARED else 1)


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 products are faster than float32 ones on the device."""
    match device.type:
        case "cuda":
            return torch.cuda.get_device_capability(device) >= (8, 0)
        case "cpu":
            return _cpu_has_bf16()
        case _:
            return False


def has_kernels(device: torch.device) -> bool:
    """Whether our own Triton kernels run on the device."""
    return device.type == "cuda" and has_bf16(device) and find_spec("triton") is not None


_ALONE = threading.Lock()  # torch records one graph at a time


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """Return a device's stream for recording: always the same one, because torch keeps memory for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """Launch on the stream that records graphs, after all that was launched before and before all that follows.

    Only one thread at a time may do so: what another launches there would be recorded too, and its waiting would spoil
    the recording.
    """
    with _ALONE, torch.cuda.device(device):
        stream, usual = _side_stream(torch.cuda.current_device()), torch.cuda.current_stream()
        stream.wait_stream(usual)
        try:
            with torch.cuda.stream(stream):
                yield stream
        finally:
            usual.wait_stream(stream)


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None) -> Iterator[None]:
    """Record what this thread launches on a GPU, so that one launch repeats all of it.

    Other threads may allocate memory meanwhile. Python's garbage collector stays off: if it freed another graph, of a
    model no longer used, the recording would be spoilt.
    """
    with beside(device) as stream:
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                yield
        finally:
            if collects:
                gc.enable()


@cache
def _cpu_has_bf16() -> bool:
    # torch reports the instructions that it would use; the names are those of x86 and ARM.
    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16"))
