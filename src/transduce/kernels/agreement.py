"""R-Drop on NVIDIA GPUs (Liang et al. 2021): the loss of two passes with different dropout, which should agree.

As in loss.py, logits are computed for some rows at a time, and replaced in place by their gradients.

Legend of shapes: `rows` are target tokens.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels.loss import BLOCK, WARPS, project, room_for_logits
from transduce.kernels.products import compute_dtype, in_float32, rounded


@triton.jit
def _pair_kernel(
    logits,
    others,
    targets,
    losses,
    smoothing,
    strength,
    padding,
    rows,
    vocabulary: tl.constexpr,
    stride: tl.constexpr,
    block: tl.constexpr,
    learns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    logits += row * stride
    others += row * stride
    places = tl.arange(0, block)
    one_mosts = tl.full((block,), -float("inf"), tl.float32)
    two_mosts = tl.full((block,), -float("inf"), tl.float32)
    one_totals = tl.zeros((block,), tl.float32)
    two_totals = tl.zeros((block,), tl.float32)
    sums = tl.zeros((block,), tl.float32)
    for first in range(0, vocabulary, block):
        here = first + places
        one = tl.load(logits + here, here < vocabulary, -float("inf")).to(tl.float32)
        two = tl.load(others + here, here < vocabulary, -float("inf")).to(tl.float32)
        one_new, two_new = tl.maximum(one_mosts, one), tl.maximum(two_mosts, two)
        one_base = tl.where(one_new == -float("inf"), 0.0, one_new)
        two_base = tl.where(two_new == -float("inf"), 0.0, two_new)
        one_totals = one_totals * tl.exp(one_mosts - one_base) + tl.exp(one - one_base)
        two_totals = two_totals * tl.exp(two_mosts - two_base) + tl.exp(two - two_base)
        sums += tl.where(here < vocabulary, one + two, 0.0)
        one_mosts, two_mosts = one_new, two_new
    one_most, two_most = tl.max(one_mosts, 0), tl.max(two_mosts, 0)
    one_whole = one_most + tl.log(tl.sum(one_totals * tl.exp(one_mosts - one_most), 0))
    two_whole = two_most + tl.log(tl.sum(two_totals * tl.exp(two_mosts - two_most), 0))
    one_apart = tl.zeros((block,), tl.float32)
    two_apart = tl.zeros((block,), tl.float32)
    for first in range(0, vocabulary, block):
        here = first + places
        one = tl.load(logits + here, here < vocabulary, 0.0).to(tl.float32) - one_whole
        two = tl.load(others + here, here < vocabulary, 0.0).to(tl.float32) - two_whole
        inside = here < vocabulary
        one_apart += tl.where(inside, tl.exp(one) * (one - two), 0.0)
        two_apart += tl.where(inside, tl.exp(two) * (two - one), 0.0)
    one_from_two, two_from_one = tl.sum(one_apart, 0), tl.sum(two_apart, 0)
    one_wanted = tl.load(logits + target).to(tl.float32)
    two_wanted = tl.load(others + target).to(tl.float32)
    plain = (one_whole - one_wanted + two_whole - two_wanted) / 2
    spread = (one_whole + two_whole - tl.sum(sums, 0) / vocabulary) / 2
    smoothed = (1 - smoothing) * plain + smoothing * spread + strength / 4 * (one_from_two + two_from_one)
    real = target != padding
    tl.store(losses + row, tl.where(real, smoothed, 0.0))
    tl.store(losses + rows + row, tl.where(real, plain, 0.0))
    if learns:
        tl.debug_barrier()  # everything is read before anything is written
        each = smoothing / vocabulary
        for first in range(0, vocabulary, block):
            here = first + places
            one = tl.load(logits + here, here < vocabulary, 0.0).to(tl.float32) - one_whole
            two = tl.load(others + here, here < vocabulary, 0.0).to(tl.float32) - two_whole
            p, q = tl.exp(one), tl.exp(two)
            wanted = each + tl.where(here == target, 1 - smoothing, 0.0)
            one_gradient = (p - wanted) / 2 + strength / 4 * (p * (one - two - one_from_two) + p - q)
            two_gradient = (q - wanted) / 2 + strength / 4 * (q * (two - one - two_from_one) + q - p)
            tl.store(logits + here, tl.where(real, one_gradient, 0.0), here < vocabulary)
            tl.store(others + here, tl.where(real, two_gradient, 0.0), here < vocabulary)


def pair_losses(
    logits: Float[Tensor, "rows vocabulary"],
    others: Float[Tensor, "rows vocabulary"],
    targets: Int[Tensor, " rows"],
    smoothing: float,
    strength: float,
    padding: int,
    *,
    learns: bool,
) -> Float[Tensor, "2 rows"]:
    """Return each row's smoothed loss with the disagreement, and plain loss; `learns` turns logits into gradients."""
    rows, vocabulary = logits.shape
    losses = logits.new_empty(2, rows, dtype=torch.float32)
    _pair_kernel[(rows,)](
        logits,
        others,
        targets,
        losses,
        smoothing,
        strength,
        padding,
        rows,
        vocabulary,
        logits.stride(0),
        block=min(BLOCK, triton.next_power_of_2(vocabulary)),
        learns=learns,
        num_warps=WARPS,
    )
    return losses


class _AgreeingLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        others: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        strength: float,
        padding: int,
    ) -> Tensor:
        matrix = rounded(weight, states.dtype)
        rooms = [room_for_logits(states, matrix, among=2) for _ in range(2)]
        learns = any(ctx.needs_input_grad[:4])
        gradients = [torch.empty_like(states) for _ in range(2)] if learns else []
        changes: Tensor | None = None
        bias_changes = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        losses: list[Tensor] = []
        for first in range(0, len(states), len(rooms[0])):
            span = slice(first, first + len(rooms[0]))
            pieces = states[span], others[span]
            one, two = (project(some, matrix, bias, room[: len(some)]) for some, room in zip(pieces, rooms))
            losses.append(pair_losses(one, two, targets[span], smoothing, strength, padding, learns=learns))
            for gradient, logits, some in zip(gradients, (one, two), pieces):
                torch.mm(logits, matrix, out=gradient[span])
                changes = in_float32(logits.T, some, changes)
                if bias_changes is not None:
                    bias_changes += logits.sum(0, dtype=torch.float32)
        ctx.save_for_backward(*gradients, changes, bias_changes)
        return torch.cat(losses, 1).sum(1) if losses else states.new_zeros(2, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = (None if each is None else each * gradient[0] for each in ctx.saved_tensors)
        return *found, *(None,) * 4


def agreeing_loss(
    states: Float[Tensor, "rows d_model"],
    others: Float[Tensor, "rows d_model"],
    weight: Float[Tensor, "vocabulary d_model"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " rows"],
    smoothing: float,
    strength: float,
    padding: int,
) -> Float[Tensor, "2"]:
    """Return what `training.loss.agreeing_loss` does, given the states of both passes."""
    dtype = compute_dtype(states)
    rows = states.to(dtype), others.to(dtype), weight, bias, targets
    with torch.cuda.device_of(states):
        return _AgreeingLoss.apply(*rows, smoothing, strength, padding)  # pyright: ignore[reportReturnType]
