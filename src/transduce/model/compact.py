"""Weights in a quarter of the space: matrices as integers from -127 to 127, each row with its own scale.

Products on a CPU with `--precision int8` round weights the same way, so they lose nothing more.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"


def compact(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round all matrices to int8, with the scales of their rows in NAME.scale; norms and biases stay in float32."""
    small: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim != 2:
            small[name] = weight.float()
            continue
        scale = weight.float().abs().amax(1) / 127
        small[name] = (
            (weight.float() / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round().to(torch.int8)
        )
        small[name + SCALE] = scale
    return small


def expand(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Turn rounded weights back into float32; return those never rounded as they are."""
    return {
        name: weight.float() * weights[name + SCALE][:, None] if weight.dtype == torch.int8 else weight
        for name, weight in weights.items()
        if not name.endswith(SCALE)
    }
