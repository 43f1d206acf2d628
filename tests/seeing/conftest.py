"""A minute model on disk and loaded; one thread, which is the fastest for so little."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from lookers import save_tiny

from transduce.decoding.translator import Translator


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small are computed faster by one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def translator(tiny: Path) -> Translator:
    """The same, loaded."""
    return Translator.load(tiny, device="cpu", engine="torch")
