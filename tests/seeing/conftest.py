"""A tiny model, on disk and loaded; one thread, the fastest for so little work."""

from pathlib import Path

import pytest
from lookers import save_tiny
from threads import always_one_thread as always_one_thread

from transduce.decoding.translator import Translator


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def translator(tiny: Path) -> Translator:
    """The tiny model, loaded."""
    return Translator.load(tiny, device="cpu", engine="torch")
