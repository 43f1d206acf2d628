"""A data set, and runs that tests can start from."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import SHORT, Forks, command, prepare, train


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 300 pairs."""
    return prepare(tmp_path_factory.mktemp("training") / "data")


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A server for trainings that are to be killed."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of 20 steps without interruption."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert train(data, out) == 0
    return out


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory: pytest.TempPathFactory, data: Path, forks: Forks) -> Path:
    """A run killed after step 13, with checkpoints of steps 5 and 10; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert forks.run("at_step(13, die)", *command(data, out)).code == -9
    return out


@pytest.fixture
def killed(tmp_path: Path, killed_run: Path) -> Path:
    """A copy of it, which may be changed."""
    return shutil.copytree(killed_run, tmp_path / "run")


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of 8 steps without interruption."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert train(data, out, *SHORT) == 0
    return out


@pytest.fixture(scope="session")
def short_killed_run(tmp_path_factory: pytest.TempPathFactory, data: Path, forks: Forks) -> Path:
    """A run killed after step 5, with checkpoints of steps 2 and 4; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert forks.run("at_step(5, die)", *command(data, out, *SHORT)).code == -9
    return out


@pytest.fixture
def short_killed(tmp_path: Path, short_killed_run: Path) -> Path:
    """A copy of it, which may be changed."""
    return shutil.copytree(short_killed_run, tmp_path / "run")
