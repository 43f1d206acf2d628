"""`parallel_map`: in order, few items ahead, and no worker outlives its work."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from transduce.errors import DataError, TransduceError
from transduce.text.parallel import parallel_map, usable_cores


class Square:
    """A task that takes longer for some items than for others; counts its instances in the process."""

    made = 0

    def __init__(self, seconds: float):
        Square.made += 1
        self.seconds = seconds

    def __call__(self, item: int) -> tuple[int, int, int]:
        time.sleep(self.seconds * random.Random(item).random())
        return item * item, os.getpid(), Square.made


class Fail:
    """A task that does something bad at one item."""

    def __init__(self, wrong: int, how: Callable[[], object]):
        self.wrong, self.how = wrong, how

    def __call__(self, item: int) -> int:
        if item == self.wrong:
            self.how()
        return item


def complain() -> None:
    raise DataError("train: something is wrong")


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Counted:
    """An endless iterable that counts how many items were taken."""

    taken = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.taken += 1
            yield self.taken


def test_order_is_kept_and_every_worker_makes_its_task_once():
    results = list(parallel_map(Square, (0.01,), range(60), 2))
    assert [square for square, _, _ in results] == [item * item for item in range(60)]
    workers = {process for _, process, _ in results}
    assert len(workers) <= 2
    assert os.getpid() not in workers
    assert {made for _, _, made in results} == {1}
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("items", "workers"), [(50, 1), (2, 2), (1, 8), (0, 8)])
def test_little_work_starts_no_process(items: int, workers: int):
    results = list(parallel_map(Square, (0.0,), range(items), workers))
    assert [square for square, _, _ in results] == [item * item for item in range(items)]
    assert {process for _, process, _ in results} <= {os.getpid()}


def test_few_items_are_taken_ahead_and_closing_ends_the_workers():
    items = Counted()
    with closing(parallel_map(Square, (0.0,), items, 2)) as results:
        assert items.taken == 0
        for consumed, _ in enumerate(islice(results, 20), start=1):
            assert consumed < items.taken <= consumed + 3 * 2
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_one_process_takes_three_items_ahead_and_then_one_at_a_time():
    items = Counted()
    with closing(parallel_map(Square, (0.0,), items, 1)) as results:
        assert next(results)[0] == 1
        assert items.taken == 3
        for _ in range(5):
            next(results)
        assert items.taken == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_reaches_the_caller_after_the_results_before_it(workers: int):
    done: list[int] = []
    with (
        pytest.raises(DataError, match="train: something is wrong"),
        closing(parallel_map(Fail, (30, complain), Counted(), workers)) as results,
    ):
        done.extend(results)
    assert done == list(range(1, 30))[: len(done)]
    assert len(done) >= 29
    assert multiprocessing.active_children() == []


def test_an_error_in_the_items_reaches_the_caller_and_ends_the_workers():
    def items() -> Iterator[int]:
        yield from range(10)
        raise DataError("the file ends too soon")

    with pytest.raises(DataError, match="ends too soon"):
        list(parallel_map(Square, (0.0,), items(), 2))
    assert multiprocessing.active_children() == []


def test_a_killed_worker_is_an_error_that_names_the_remedy():
    with pytest.raises(TransduceError, match="use fewer with --workers"):
        list(parallel_map(Fail, (5, be_killed), Counted(), 2))
    assert multiprocessing.active_children() == []


def test_workers_leave_ctrl_c_to_the_main_process():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with closing(parallel_map(Square, (0.0,), Counted(), 2)) as results:
        next(results)
        for worker in multiprocessing.active_children():
            assert worker.pid
            os.kill(worker.pid, signal.SIGINT)
        assert [square for square, _, _ in islice(results, 30)] == [item * item for item in range(2, 32)]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_script_need_not_be_guarded_against_its_own_workers(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import operator\n"
        "from transduce.text.parallel import parallel_map\n"
        "print(*parallel_map(operator.attrgetter, ('imag',), [1j, 2j, 3j, 4j], 2))\n"
    )
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "1.0 2.0 3.0 4.0\n", "")


def test_usable_cores_are_those_of_this_process():
    allowed = os.sched_getaffinity(0)
    assert usable_cores() == len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
