"""Where a token stands in its sentence (section 3.5): sinusoids, learned vectors, or rotations.

Legend of shapes, here and in the whole model: `tokens` are the tokens of all sentences in one row, `source` and
`target` the same for one side, `sentences` the sentences in it; `heads`, `d_model`, `d_k`, `d_v` are the paper's.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def token_positions(offsets: Int[Tensor, " offsets"], tokens: int) -> Int[Tensor, " tokens"]:
    """The place of each token in its own sentence, counted from 0; what lies behind the last sentence counts on."""
    index = torch.arange(tokens, dtype=offsets.dtype, device=offsets.device)
    sentence = torch.searchsorted(offsets, index, right=True) - 1
    return index - offsets[sentence]


def sinusoids(positions: Int[Tensor, " tokens"], d_model: int) -> Float[Tensor, "tokens d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same) (section 3.5)."""
    angles = _angles(positions, d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # sine and cosine take turns


def rotations(positions: Int[Tensor, " tokens"], d_k: int) -> Float[Tensor, "2 tokens half"]:
    """Cosines and sines of the angles by which rotary positions (Su et al. 2021) turn queries and keys."""
    angles = _angles(positions, d_k)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(
    heads: Float[Tensor, "tokens heads d_k"], turn: Float[Tensor, "2 tokens half"]
) -> Float[Tensor, "tokens heads d_k"]:
    """Turn each pair of neighbouring numbers by its position's angle, so that q · k depends on the distance alone."""
    cosine, sine = turn.unsqueeze(-2)  # one for all heads
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    return turned.flatten(-2).to(heads.dtype)


def _angles(positions: Int[Tensor, " tokens"], width: int) -> Float[Tensor, "tokens half"]:
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width
    return positions[:, None].float() * torch.exp(exponents * -math.log(10_000.0))
