"""Data sets of random tokens for the tests of batches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transduce.text.shards import DataSet, SplitWriter

MakeData = Callable[..., DataSet]


@pytest.fixture
def make_data(tmp_path_factory: pytest.TempPathFactory) -> MakeData:
    """Write real shards of random tokens with given lengths; pair i's tokens begin with i in base 1000."""

    def make(source: list[int], target: list[int], weights: list[tuple[int, int, float]] | None = None) -> DataSet:
        folder: Path = tmp_path_factory.mktemp("data")
        (folder / "parts-1").mkdir()
        writer = SplitWriter(folder / "parts-1", "train", {"source": 2000, "target": 2000}, shard_pairs=7)
        chance = np.random.default_rng(len(source))
        for first in range(0, len(source), 5):
            block = {}
            for side, lengths in (("source", source), ("target", target)):
                some = np.array(lengths[first : first + 5])
                block[side] = (chance.integers(4, 2000, int(some.sum())), some)
            writer.append(block)
        inputs = [
            {"files": {}, "weight": weight, "pairs": [begin, end]}
            for begin, end, weight in weights or [(0, len(source), 1.0)]
        ]
        return DataSet(folder, {"parts": "parts-1", "splits": {"train": writer.close()}, "inputs": inputs, "files": {}})

    return make
