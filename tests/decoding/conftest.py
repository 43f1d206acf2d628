"""Tiny models as folders on disk, and processes that can be killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Forks
from models import save_tiny

from transduce.decoding.translator import Translator


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model: its output is always the same, and nothing else is asked of it."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def translator(tiny: Path) -> Translator:
    """The tiny model, loaded."""
    return Translator.load(tiny, device="cpu")


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A server for jobs that are to be killed."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()
