"""How our own kernels multiply matrices on NVIDIA GPUs."""

from collections.abc import Iterable
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """What products are computed in: what autocast says, or as they come."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class Rounding:
    """Weights as products need them, all rounded at once: a context in which `rounded` finds them."""

    _held: "Rounding | None" = None

    def __init__(self, weights: Iterable[Tensor], dtype: torch.dtype):
        self.weights = [weight for weight in weights if weight.dtype != dtype]
        self.copies = [torch.empty_like(weight, dtype=dtype) for weight in self.weights]
        self.places = {id(weight): place for place, weight in enumerate(self.weights)}

    def __enter__(self) -> Self:
        if self.copies:  # torch takes no empty list
            with torch.no_grad():
                torch._foreach_copy_(self.copies, self.weights)  # pyright: ignore[reportPrivateImportUsage]
        Rounding._held = self
        return self

    def __exit__(self, *_: object) -> None:
        Rounding._held = None


def rounded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in this precision: as was rounded before, or else now."""
    held = Rounding._held
    place = None if held is None else held.places.get(id(weight))
    if held is None or place is None or held.copies[place].dtype != dtype:
        return weight.to(dtype)
    return held.copies[place]


def in_float32(
    left: Float[Tensor, "m k"], right: Float[Tensor, "k n"], into: Float[Tensor, "m n"] | None = None
) -> Float[Tensor, "m n"]:
    """The product in float32, whatever its inputs are, added to what `into` holds: for the gradients of weights."""
    if left.dtype == torch.float32:
        return left @ right if into is None else into.addmm_(left, right)
    product = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
    return product if into is None else into.add_(product)
