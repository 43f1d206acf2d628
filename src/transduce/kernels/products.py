"""How our own kernels multiply matrices on NVIDIA GPUs."""

import torch
from jaxtyping import Float
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """What products are computed in: what autocast says, or as they come."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def in_float32(
    left: Float[Tensor, "m k"], right: Float[Tensor, "k n"], into: Float[Tensor, "m n"] | None = None
) -> Float[Tensor, "m n"]:
    """The product in float32, whatever its inputs are, added to what `into` holds: for the gradients of weights."""
    if left.dtype == torch.float32:
        return left @ right if into is None else into.addmm_(left, right)
    product = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
    return product if into is None else into.add_(product)
