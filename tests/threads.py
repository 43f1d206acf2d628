"""Work on one thread, which is the fastest for tiny models, and adds up in the same order in every process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in a `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def always_one_thread() -> Iterator[None]:
    """Use one thread in every test of a file that imports this."""
    with one_thread():
        yield
