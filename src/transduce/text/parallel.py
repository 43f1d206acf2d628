"""Map a function over blocks on all cores: in order, with few blocks in flight, so that memory stays bounded."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from types import ModuleType
from typing import Any, TypeVar

from transduce.errors import TransduceError

Item = TypeVar("Item")
Result = TypeVar("Result")

_task: Any = None


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    make_task: Callable[..., Callable[[Item], Result]], arguments: tuple[Any, ...], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Apply `make_task(*arguments)` to each item; each worker makes its task once. Closing this ends the workers."""
    items = iter(items)
    start = list(islice(items, 3))
    if workers < 2 or len(start) < 3:  # starting processes would take longer than the work
        task = make_task(*arguments)
        yield from map(task, chain(start, items))
        return
    if sys.platform == "win32":
        workers = min(workers, 61)  # as many as Windows can wait for
    # Spawned, not forked: the same on every system, and safe whatever threads the caller has.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (make_task, arguments))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in chain(start, items):
            with _starting_workers():
                waiting.append(pool.submit(_apply, item))
            if len(waiting) > 3 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TransduceError(
            "a worker process was killed, most likely because memory ran out; use fewer with --workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _starting_workers() -> Iterator[None]:
    """Let workers start without being interrupted while they import, and without running the caller's script again."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    # A worker inherits the blocked Ctrl-C; this process answers it a moment later. Windows cannot block signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    # A library's own thread may still get the signal, and Python would answer it in the middle of a worker's start.
    asked: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: asked.append(number)) if here else None
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if here:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if asked and callable(handler):
        handler(asked[0], None)


def _begin(make_task: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process answers Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _task = make_task(*arguments)


def _end_with_parent() -> None:
    """End this worker if the main process is killed; otherwise it would wait for its next item for ever."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _apply(item: Any) -> Any:
    return _task(item)
