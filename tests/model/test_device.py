"""Recordings on a GPU are not spoilt by Python, nor by other threads and GPUs."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from transduce.model import device as module
from transduce.model.device import beside, recording

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)
GRAPH: Any = None


class Stream:
    """A stand-in for a GPU's stream."""

    def __init__(self, gpu: int):
        self.gpu, self.awaited = gpu, list[Stream]()

    def wait_stream(self, other: "Stream") -> None:
        self.awaited.append(other)


class Gpus(threading.local):
    """GPUs as each thread sees them: one is current, and each has a current stream."""

    def __init__(self):
        self.current, self.streams = 0, {gpu: Stream(gpu) for gpu in range(2)}

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, device.index
        yield
        self.current = before

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, current = self.streams[stream.gpu], self.current
        self.streams[stream.gpu], self.current = stream, stream.gpu
        try:
            yield
        finally:
            self.streams[stream.gpu], self.current = before, current


class Recorder:
    """Stands in for `torch.cuda.graph`: one recording at a time; one that fails stays on its stream."""

    def __init__(self, gpus: Gpus):
        self.gpus, self.asked, self.under_way = gpus, list[dict[str, Any]](), 0

    @contextmanager
    def __call__(self, graph: Any, *, stream: Stream, **how: Any) -> Iterator[None]:
        self.asked.append({"stream": stream, "gpu": self.gpus.current, **how})
        self.under_way += 1
        self.gpus.streams[stream.gpu] = stream
        time.sleep(0.01)
        assert self.under_way == 1
        yield
        self.under_way -= 1


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    gpus = Gpus()
    monkeypatch.setattr(torch.cuda, "device", gpus.device)
    monkeypatch.setattr(torch.cuda, "stream", gpus.stream)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: gpus.current)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: gpus.streams[gpus.current])
    module._side_stream.cache_clear()
    yield gpus
    module._side_stream.cache_clear()


@pytest.fixture
def recorder(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(gpus)
    monkeypatch.setattr(torch.cuda, "graph", recorder)
    return recorder


class Knot:
    """An object that only the collector can free, like a model whose captured steps refer to it."""

    def __init__(self):
        self.self = self


@pytest.fixture
def eager() -> Iterator[None]:
    """Let the collector run at every new object."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("eager")
def test_nothing_is_let_go_of_while_a_graph_is_recorded(recorder: Recorder):
    with recording(GRAPH, FIRST, (0, 7)):
        knot = weakref.ref(Knot())
        filler = [[number] for number in range(1000)]
        assert knot() is not None
    assert [[number] for number in range(1000)] == filler
    assert knot() is None
    assert (recorder.asked[0]["pool"], recorder.asked[0]["capture_error_mode"]) == ((0, 7), "thread_local")


@pytest.mark.parametrize("collects", [True, False])
def test_a_recording_that_fails_leaves_all_as_it_was(gpus: Gpus, recorder: Recorder, collects: bool):
    usual = torch.cuda.current_stream()
    try:
        if not collects:
            gc.disable()
        with pytest.raises(RuntimeError, match="out of memory"), recording(GRAPH, FIRST):
            raise RuntimeError("out of memory")
        assert recorder.asked[0]["stream"] is not usual
        assert gc.isenabled() == collects
        assert torch.cuda.current_stream() is usual
    finally:
        gc.enable()


def test_threads_record_one_after_the_other(recorder: Recorder):
    """Two models on one GPU would spoil each other's recordings."""

    def record(number: int) -> None:
        with recording(GRAPH, FIRST):
            assert not gc.isenabled()
        with beside(FIRST):
            assert not recorder.under_way

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(record, range(12)))
    assert len(recorder.asked) == 12
    assert gc.isenabled()


def test_each_gpu_records_on_a_stream_of_its_own(gpus: Gpus, recorder: Recorder):
    """Always the same one, because memory is kept per stream; it waits for earlier launches, and later ones for it."""
    for device in (FIRST, SECOND, FIRST, SECOND):
        usual = gpus.streams[device.index]
        with beside(device) as given:
            stream: Any = given
            assert stream.gpu == torch.cuda.current_device() == device.index
            assert torch.cuda.current_stream() is stream
            assert stream.awaited[-1:] == [usual]
        assert usual.awaited[-1] is stream
        with recording(GRAPH, device):
            pass
        assert recorder.asked[-1]["stream"] is stream
        assert recorder.asked[-1]["gpu"] == device.index
        assert torch.cuda.current_device() == 0
    assert recorder.asked[0]["stream"] is recorder.asked[2]["stream"]
