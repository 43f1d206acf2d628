"""The loss that training minimises (section 5.4): cross-entropy against smoothed targets."""

from typing import Any

import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn, stack
from torch.nn import functional

from transduce.model.layers import can_fuse
from transduce.model.transformer import Transformer
from transduce.text.batches import Batch
from transduce.text.subwords import PAD

# Held at a time where our own kernels do not run. Linux's C library keeps no freed block above 32 MiB, so a larger
# tensor is new memory each time, which the system zeroes page by page.
MOST_LOGITS = 1 << 22


def smoothed_loss(
    logits: Float[Tensor, "target vocabulary"], targets: Int[Tensor, " target"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the smoothed and the plain cross-entropy in nats, each summed over all tokens but padding.

    A smoothed target gives 1 - ε to its token and spreads ε evenly over the whole vocabulary, that token included.
    """
    logits = logits.float()
    whole = logits.logsumexp(-1)
    plain = whole - logits.gather(-1, targets.long()[:, None])[:, 0]
    smoothed = (1 - label_smoothing) * plain + label_smoothing * (whole - logits.mean(-1))
    real = targets != PAD
    return (smoothed * real).sum(), (plain * real).sum()


def agreeing_loss(
    logits: Float[Tensor, "target vocabulary"],
    others: Float[Tensor, "target vocabulary"],
    targets: Int[Tensor, " target"],
    label_smoothing: float,
    strength: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the same for two passes with different dropout that must agree (R-Drop, Liang et al. 2021).

    The smoothed loss is the mean of both, plus half the `strength` times the mean of the two divergences: equation 4 of
    that paper, divided by two.
    """
    one, two = (smoothed_loss(some, targets, label_smoothing) for some in (logits, others))
    p, q = (some.float().log_softmax(-1) for some in (logits, others))
    apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) * (targets != PAD)  # the sum of both divergences
    return (one[0] + two[0]) / 2 + strength / 4 * apart.sum(), (one[1] + two[1]) / 2


class _LossByParts(torch.autograd.Function):
    """The smoothed loss of some rows at a time: their logits become gradients at once, and are gone."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        learns: bool,
    ) -> Tensor:
        each = max(1, MOST_LOGITS // len(weight))
        learns = learns and any(ctx.needs_input_grad[:3])
        weight = weight.detach().requires_grad_(learns)
        bias = None if bias is None else bias.detach().requires_grad_(learns)
        sums = states.new_zeros(2, dtype=torch.float32)
        gradients: list[Tensor] = []
        changes: list[Tensor] = []  # of the weight and, if there is one, the bias
        for some, wanted in zip(states.split(each), targets.split(each), strict=True):
            with torch.set_grad_enabled(learns):
                rows = some.detach().requires_grad_(learns)
                losses = smoothed_loss(functional.linear(rows, weight, bias), wanted, label_smoothing)
            sums += torch.stack(losses).detach()
            if learns:
                inputs = [rows, weight] if bias is None else [rows, weight, bias]
                gradient, *more = torch.autograd.grad(losses[0], inputs)
                gradients.append(gradient)
                changes = [change.add_(one) for change, one in zip(changes, more)] if changes else more
        if learns:
            ctx.save_for_backward(torch.cat(gradients), *changes)
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        states, weight, *bias = (each * gradient[0] for each in ctx.saved_tensors)
        return states, weight, *(bias or [None]), None, None, None


class Objective(nn.Module):
    """The model together with its loss: the module that is wrapped for several processes, or captured."""

    def __init__(
        self,
        model: Transformer,
        label_smoothing: float,
        longest: tuple[int, int] | None = None,
        agreement: float = 0.0,
    ):
        super().__init__()
        self.model, self.label_smoothing, self.longest, self.agreement = model, label_smoothing, longest, agreement

    def forward(
        self,
        source: Int[Tensor, " source"],
        source_offsets: Int[Tensor, " sentences+1"],
        target_input: Int[Tensor, " target"],
        target_offsets: Int[Tensor, " sentences+1"],
        target: Int[Tensor, " target"],
        tiles: Int32[Tensor, "3 2 tiles 5"] | None = None,
    ) -> Float[Tensor, "2"]:
        """Return the sums of the smoothed and the plain loss."""
        rows = source, source_offsets, target_input, target_offsets
        states = self.model.states(*rows, longest=self.longest, tiles=tiles)
        if self.agreement and self.training:
            others = self.model.states(*rows, longest=self.longest, tiles=tiles)
            return self._agree(states, others, target)
        if can_fuse(states):
            from transduce.kernels.loss import projected_loss

            output = self.model.output_weight, self.model.output_bias
            return projected_loss(states, *output, target, self.label_smoothing, PAD)
        output = self.model.output_weight, self.model.output_bias
        learns = torch.is_grad_enabled()
        return _LossByParts.apply(states, *output, target, self.label_smoothing, learns)  # pyright: ignore[reportReturnType]

    def _agree(self, states: Tensor, others: Tensor, target: Tensor) -> Float[Tensor, "2"]:
        if can_fuse(states):
            from transduce.kernels import agreement

            output = self.model.output_weight, self.model.output_bias
            return agreement.agreeing_loss(states, others, *output, target, self.label_smoothing, self.agreement, PAD)
        logits = self.model.project(states), self.model.project(others)
        return stack(agreeing_loss(*logits, target, self.label_smoothing, self.agreement))

    def measure(self, batch: Batch) -> Float[Tensor, "2"]:
        """Return the same for a batch."""
        rows = batch.source, batch.source_offsets, batch.target_input, batch.target_offsets, batch.target
        return self(*rows, batch.tiles)
