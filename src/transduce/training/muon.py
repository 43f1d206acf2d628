"""Muon (Jordan et al. 2024): momentum made orthogonal, for the matrices of the layers.

Adam's updates go mostly along a few directions of a matrix. Muon makes all directions count alike: a few matrix
products replace the momentum's singular values by numbers near 1. All matrices of one shape are multiplied at once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import FeedForward
from transduce.training.adam import Rate

MOMENTUM = 0.95
# The odd polynomial a x + b x³ + c x⁵ that, applied five times, brings small singular values near 1 the fastest.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5
# The root mean square of an update at rate 1, like Adam's, so that both can follow one schedule (Liu et al. 2025).
SIZE = 0.2


def matrices(model: nn.Module) -> dict[str, list[Tensor]]:
    """Return the trainable weights that are matrices of layers, each with views of the matrices stacked in it."""
    pieces: dict[int, Sequence[Tensor]] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            pieces[id(module.projection)] = module.projection.detach().split(module.widths)
            pieces[id(module.output)] = (module.output.detach(),)
        elif isinstance(module, FeedForward):
            inner, outer = module.inner.weight, module.outer.weight
            pieces[id(inner)] = inner.detach().split(module.outer.in_features)
            pieces[id(outer)] = (outer.detach(),)
    return {
        name: list(pieces[id(weight)])
        for name, weight in model.named_parameters()
        if id(weight) in pieces and weight.requires_grad
    }


class Muon:
    """Muon for matrices; while `broken` is not 0, updates change nothing."""

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        pieces: Mapping[str, list[Tensor]],
        broken: Tensor,
        shares: Mapping[str, float],
    ):
        self.named, self.pieces, self.broken = {name: named[name] for name in pieces}, pieces, broken
        self.shares = shares
        self.momentum = {name: torch.zeros_like(weight) for name, weight in self.named.items()}

    @torch.no_grad()
    def step(self, rate: Rate) -> None:
        """Apply the gradients; weights without one stay unchanged."""
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor, Tensor, float]]] = defaultdict(list)
        for name, weight in self.named.items():
            if weight.grad is not None:
                sizes = [len(piece) for piece in self.pieces[name]]
                momentum, gradients = self.momentum[name].split(sizes), weight.grad.split(sizes)
                for piece in zip(self.pieces[name], momentum, gradients, strict=True):
                    shapes[piece[0].shape].append((*piece, self.shares.get(name, 1.0)))
        good = self.broken == 0
        for shape, alike in shapes.items():
            weights, momenta, gradients, shares = map(list, zip(*alike, strict=True))
            # Select rather than multiply: 0 times infinity is not 0.
            gradient = torch.where(good, torch.stack(gradients), 0.0)
            momentum = torch.stack(momenta).lerp_(gradient, (1 - MOMENTUM) * good)
            update = orthogonal(gradient.lerp_(momentum, MOMENTUM))
            scale = -rate * good * (SIZE * max(shape) ** 0.5)
            torch._foreach_copy_(momenta, momentum.unbind())  # pyright: ignore[reportPrivateImportUsage]
            updates = (update * scale).unbind()
            if any(share != 1 for share in shares):
                updates = torch._foreach_mul(updates, shares)  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(weights, updates)  # pyright: ignore[reportPrivateImportUsage]

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the momentum of every weight."""
        for name, momentum in self.momentum.items():
            yield f"momentum.{name}", momentum

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Restore the momentum of a checkpoint."""
        for name, momentum in self.momentum.items():
            if f"momentum.{name}" in moments:
                momentum.copy_(moments[f"momentum.{name}"])


def orthogonal(batch: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Return approximately U V^T for each U S V^T: its singular values are near 1, not exactly 1 (Newton–Schulz)."""
    wide = batch.mT if batch.shape[1] > batch.shape[2] else batch
    x = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    if x.is_cuda:  # much faster there, and accurate enough
        x = x.bfloat16()
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    x = x.to(batch.dtype)
    return x.mT if batch.shape[1] > batch.shape[2] else x
