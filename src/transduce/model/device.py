"""Where a model computes: the device, its threads, whether bf16 is fast there and our own kernels run."""

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

SMALLEST_SHARED = 256  # d_model from which on threads share the work (docs/log.md)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device asked for, or the best there is for `auto`; one GPU for each process of a machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name} is not known; use auto, cpu, cuda, cuda:1 or mps") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type):
        raise UsageError(f"--device {name} is not there; `transduce doctor` shows what this machine has")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", local_rank)
    if device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise UsageError(f"--device {device} is not there; this machine has {torch.cuda.device_count()} GPUs")
    return device


def choose_threads(model: ModelConfig, given: int | None) -> int:
    """How many threads compute on a CPU: as given, or one for small models, whose threads would mostly wait."""
    return given or (torch.get_num_threads() if model.d_model >= SMALLEST_SHARED else 1)


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 products are faster than float32 ones there."""
    match device.type:
        case "cuda":
            return torch.cuda.get_device_capability(device) >= (8, 0)
        case "cpu":
            return _cpu_has_bf16()
        case _:
            return False


def has_kernels(device: torch.device) -> bool:
    """Whether our own Triton kernels run there."""
    return device.type == "cuda" and has_bf16(device) and find_spec("triton") is not None


_ALONE = threading.Lock()  # torch records one graph at a time


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """A device's stream for what is recorded: its own, and always the same, for memory is kept for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def beside(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """Launch on the stream on which graphs are recorded, between what was launched before and what follows.

    Only one thread at a time does so: what another launches there would be recorded too, and what it waits for would
    spoil the recording.
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
    """Record what this thread launches on a GPU, to launch it again at once.

    Other threads may go on finding memory. Python's collector must not: if it lets go of another graph meanwhile, of a
    model that nobody uses any more, the recording is spoilt.
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
    # torch knows of the instructions it would use itself; the names are those of x86 and ARM.
    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16"))
