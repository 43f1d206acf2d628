"""Tiny models, loaded once, and a server of three of them."""

from collections.abc import Iterator

import pytest
from server import Running, running, translators

from transduce.decoding.translator import Translator


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[Translator]:
    """English-German, German-English, English-French."""
    return translators(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def server(loaded: list[Translator]) -> Iterator[Running]:
    """A server of all three, open to everybody."""
    with running(loaded) as server:
        yield server
