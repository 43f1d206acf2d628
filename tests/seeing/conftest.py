"""A tiny model, on disk and loaded; one thread, the fastest for so little work."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from lookers import save_tiny

from transduce.decoding.translator import Translator


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, the fastest for such small tensors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def translator(tiny: Path) -> Translator:
    """The tiny model, loaded."""
    return Translator.load(tiny, device="cpu", engine="torch")
