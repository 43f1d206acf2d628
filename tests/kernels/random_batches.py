"""Batches of random sentences, and where kernels compute in the tests."""

import os

import numpy as np
import torch
from torch import Tensor

from transduce.text.batches import START, Batch
from transduce.text.subwords import BEGIN

DEVICE = torch.device("cuda" if os.environ["TRITON_INTERPRET"] == "0" else "cpu")


def make_batch(lengths: list[tuple[int, int]], filler: int = 5) -> Batch:
    """Return a batch of random sentences on the CPU, with an empty one and filler at the end."""

    def row(side: int) -> tuple[Tensor, Tensor]:
        offsets = np.cumsum([0, *(pair[side] for pair in lengths), 0])
        tokens = torch.randint(4, 40, (int(offsets[-1]) + filler,), dtype=torch.int32, device="cpu")
        tokens[offsets[-1] :] = 0
        return tokens, torch.from_numpy(offsets.astype(np.int32))

    source, source_offsets = row(0)
    target, target_offsets = row(1)
    target_input = target.roll(1)
    target_input[target_offsets[:-2].long()] = BEGIN
    counts = int(source_offsets[-1]), int(target_offsets[-1])
    pairs = np.arange(len(lengths))
    return Batch(source, source_offsets, target, target_input, target_offsets, None, pairs, *counts, START, START)
