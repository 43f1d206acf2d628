"""What is recorded on a GPU is not spoilt by Python."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from transduce.model.device import recording


class Knot:
    """Something that only the collector lets go of, as a model whose captured steps know it."""

    def __init__(self):
        self.self = self


@pytest.fixture
def eager() -> Iterator[None]:
    """A collector that looks at every new object."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("eager")
def test_nothing_is_let_go_of_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    def graph(*_: Any, **how: Any) -> Any:
        asked.append(how)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    graph_: Any = None
    with recording(graph_, (0, 7)):
        knot = weakref.ref(Knot())
        filler = [[number] for number in range(1000)]
        assert knot() is not None
    assert [[number] for number in range(1000)] == filler
    assert knot() is None
    assert asked == [{"pool": (0, 7), "capture_error_mode": "thread_local"}]


@pytest.mark.parametrize("collects", [True, False])
def test_a_recording_that_fails_leaves_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch, collects: bool):
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    graph: Any = None
    try:
        if not collects:
            gc.disable()
        with pytest.raises(RuntimeError, match="out of memory"), recording(graph):
            raise RuntimeError("out of memory")
        assert gc.isenabled() == collects
    finally:
        gc.enable()
