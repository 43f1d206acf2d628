"""Maps a function over blocks on all cores: in order, with few blocks in flight, so that memory stays bounded."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from transduce.errors import TransduceError

Item = TypeVar("Item")
Result = TypeVar("Result")

_task: Any = None


def usable_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    make_task: Callable[..., Callable[[Item], Result]], arguments: tuple[Any, ...], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Apply `make_task(*arguments)` to each item; every worker makes its own task once."""
    items = iter(items)
    start = list(islice(items, 3))
    if workers < 2 or len(start) < 3:  # starting processes would take longer than the work
        task = make_task(*arguments)
        yield from map(task, chain(start, items))
        return
    # Spawned, not forked: the same on every system, and safe whatever threads the caller has.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (make_task, arguments))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in chain(start, items):
            waiting.append(pool.submit(_apply, item))
            if len(waiting) > 3 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TransduceError(
            "a worker process was ended from outside, most likely for want of memory; use fewer with --workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(make_task: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    global _task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process answers Ctrl-C
    _task = make_task(*arguments)


def _apply(item: Any) -> Any:
    return _task(item)
