"""Positions of tokens in their sentences (section 3.5), and the sinusoids and rotations made of them.

Legend of shapes, here and in the whole model: `tokens` counts the tokens of all sentences in a row, `source` and
`target` those of one side, `sentences` the sentences; `heads`, `d_model`, `d_k` and `d_v` are the paper's.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def token_positions(offsets: Int[Tensor, " offsets"], tokens: int) -> Int[Tensor, " tokens"]:
    """Return each token's position in its sentence, from 0; filler behind the last sentence has its own count."""
    index = torch.arange(tokens, dtype=offsets.dtype, device=offsets.device)
    sentence = torch.searchsorted(offsets, index, right=True) - 1
    return index - offsets[sentence]


def sinusoids(positions: Int[Tensor, " tokens"], d_model: int) -> Float[Tensor, "tokens d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same) (section 3.5)."""
    angles = _angles(positions, d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # sines and cosines alternate


def rotations(positions: Int[Tensor, " tokens"], d_k: int) -> Float[Tensor, "2 tokens half"]:
    """Return cosines and sines of the angles by which rotary positions (Su et al. 2021) turn queries and keys."""
    angles = _angles(positions, d_k)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(
    heads: Float[Tensor, "tokens heads d_k"], turn: Float[Tensor, "2 tokens half"]
) -> Float[Tensor, "tokens heads d_k"]:
    """Turn each pair of neighbouring numbers by its position's angle, so that q · k depends on the distance alone."""
    cosine, sine = turn.unsqueeze(-2)  # the same for all heads
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    return turned.flatten(-2).to(heads.dtype)


def _angles(positions: Int[Tensor, " tokens"], width: int) -> Float[Tensor, "tokens half"]:
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width
    return positions[:, None].float() * torch.exp(exponents * -math.log(10_000.0))
