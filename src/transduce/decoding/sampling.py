"""Translations drawn at random, with temperature, top-k and top-p sampling (Holtzman et al. 2020)."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import SearchConfig


def draw(
    logits: Float[Tensor, "rows vocabulary"], numbers: Float[Tensor, " rows"], config: SearchConfig
) -> Int[Tensor, " rows"]:
    """Draw a token for each row, chosen by a random number between 0 and 1."""
    device = logits.device
    if device.type == "mps":
        logits = logits.cpu()  # MPS lacks float64
    logits = (logits - logits.amax(-1, keepdim=True)) / config.temperature
    order = None
    if config.top_k or config.top_p < 1:
        logits, order = logits.topk(min(config.top_k or logits.shape[-1], logits.shape[-1]))
    shares = logits.softmax(-1).double().cumsum(-1)
    if config.top_p < 1:
        # The share of the first tokens that reach top_p together, including the one that reaches it.
        last = (shares < config.top_p).sum(-1, keepdim=True).clamp(max=shares.shape[-1] - 1)
        whole = shares.gather(-1, last)
    else:
        whole = shares[:, -1:]
    places = torch.searchsorted(shares, numbers.to(shares)[:, None] * whole, right=True)
    # Rounding may put a number beyond the last token that can be drawn at all.
    places = torch.minimum(places, (shares < whole).sum(-1, keepdim=True))
    return (places if order is None else order.gather(-1, places)).flatten().to(device)


def make_key(source: np.ndarray, seed: int) -> bytes:
    """Return the key of a sentence's random numbers, from the seed and its tokens only: neighbours do not matter."""
    return hashlib.blake2b(source.astype("<i4").tobytes(), digest_size=16, salt=seed.to_bytes(16, "little")).digest()


def random_numbers(key: bytes, step: int, lines: int) -> Sequence[float]:
    """Return a number between 0 and 1 for each line at a step."""
    return [
        int.from_bytes(
            hashlib.blake2b(key + step.to_bytes(4, "little") + line.to_bytes(4, "little"), digest_size=8).digest()
        )
        / 2**64
        for line in range(lines)
    ]
