"""Matrix products around our own kernels on NVIDIA GPUs: their precision, and weights rounded to it."""

from collections.abc import Iterable
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the precision of products: autocast's if it is on, or that of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


class Rounding:
    """A context in which weights are rounded for products, all at once; `rounded` returns these copies."""

    _held: "Rounding | None" = None

    def __init__(self, weights: Iterable[Tensor], dtype: torch.dtype):
        self.weights = [weight for weight in weights if weight.dtype != dtype]
        self.copies = [torch.empty_like(weight, dtype=dtype) for weight in self.weights]
        self.places = {id(weight): place for place, weight in enumerate(self.weights)}

    def __enter__(self) -> Self:
        if self.copies:  # torch refuses an empty list
            with torch.no_grad():
                torch._foreach_copy_(self.copies, self.weights)  # pyright: ignore[reportPrivateImportUsage]
        Rounding._held = self
        return self

    def __exit__(self, *_: object) -> None:
        Rounding._held = None


def rounded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight in this precision: the copy of a `Rounding`, or else rounded now."""
    held = Rounding._held
    place = None if held is None else held.places.get(id(weight))
    if held is None or place is None or held.copies[place].dtype != dtype:
        return weight.to(dtype)
    return held.copies[place]


def in_float32(
    left: Float[Tensor, "m k"], right: Float[Tensor, "k n"], into: Float[Tensor, "m n"] | None = None
) -> Float[Tensor, "m n"]:
    """Return the product in float32, whatever its inputs are, added to `into` if given: for gradients of weights."""
    if left.dtype == torch.float32:
        return left @ right if into is None else into.addmm_(left, right)
    product = torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
    return product if into is None else into.add_(product)
