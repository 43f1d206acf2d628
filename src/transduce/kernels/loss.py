"""The loss on NVIDIA GPUs: projection, label-smoothed softmax and its gradient, some rows at a time.

The logits of some rows are made, become their own gradients in place, are multiplied with states and weights, and are
gone before the next rows: never in float32, never more of them than `MOST_BYTES`.

Legend of shapes: `rows` are target tokens.
"""

# Triton's kernels take how they are to be launched beside their own arguments, and its functions return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels.products import compute_dtype, in_float32

MOST_BYTES = 1 << 30
BLOCK = 4096


@triton.jit
def _softmax_kernel(
    logits,
    targets,
    losses,
    smoothing,
    padding,
    rows,
    vocabulary: tl.constexpr,
    block: tl.constexpr,
    learns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    logits += row * vocabulary
    places = tl.arange(0, block)
    mosts = tl.full((block,), -float("inf"), tl.float32)
    totals = tl.zeros((block,), tl.float32)
    plain_totals = tl.zeros((block,), tl.float32)
    first = 0
    while first < vocabulary:
        inside = first + places < vocabulary
        some = tl.load(logits + first + places, inside, -float("inf")).to(tl.float32)
        new_mosts = tl.maximum(mosts, some)
        base = tl.where(new_mosts == -float("inf"), 0.0, new_mosts)
        totals = totals * tl.exp(mosts - base) + tl.exp(some - base)
        plain_totals += tl.where(inside, some, 0.0)
        mosts = new_mosts
        first += block
    most = tl.max(mosts, 0)
    whole = most + tl.log(tl.sum(totals * tl.exp(mosts - most), 0))
    plain = whole - tl.load(logits + target).to(tl.float32)
    smoothed = (1 - smoothing) * plain + smoothing * (whole - tl.sum(plain_totals, 0) / vocabulary)
    real = target != padding
    tl.store(losses + row, tl.where(real, smoothed, 0.0))
    tl.store(losses + rows + row, tl.where(real, plain, 0.0))
    if learns:
        tl.debug_barrier()  # the target's logit was read before it is written
        first = 0
        while first < vocabulary:
            inside = first + places < vocabulary
            some = tl.load(logits + first + places, inside, 0.0).to(tl.float32)
            wanted = tl.where(first + places == target, 1 - smoothing, 0.0) + smoothing / vocabulary
            tl.store(logits + first + places, tl.where(real, tl.exp(some - whole) - wanted, 0.0), inside)
            first += block


def softmax_losses(
    logits: Float[Tensor, "rows vocabulary"],
    targets: Int[Tensor, " rows"],
    smoothing: float,
    padding: int,
    *,
    learns: bool,
) -> Float[Tensor, "2 rows"]:
    """The smoothed and the plain loss of each row; if it `learns`, logits become the gradients of the smoothed one."""
    rows, vocabulary = logits.shape
    losses = logits.new_empty(2, rows, dtype=torch.float32)
    _softmax_kernel[(rows,)](
        logits,
        targets,
        losses,
        smoothing,
        padding,
        rows,
        vocabulary,
        block=min(BLOCK, triton.next_power_of_2(vocabulary)),
        learns=learns,
        num_warps=8,
    )
    return losses


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, padding: int) -> Tensor:
        matrix = weight.to(states.dtype)
        each = max(1, MOST_BYTES // (matrix.element_size() * len(matrix)))
        state_learns, weight_learns = ctx.needs_input_grad[:2]
        learns = state_learns or weight_learns
        gradients = torch.empty_like(states) if learns else None
        changes: Tensor | None = None
        losses: list[Tensor] = []
        for first in range(0, len(states), each):
            some = states[first : first + each]
            logits = some @ matrix.T
            losses.append(softmax_losses(logits, targets[first : first + each], smoothing, padding, learns=learns))
            if gradients is not None:
                torch.mm(logits, matrix, out=gradients[first : first + each])
                changes = in_float32(logits.T, some, changes)
        ctx.save_for_backward(gradients, changes)
        return torch.cat(losses, 1).sum(1) if losses else states.new_zeros(2, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients, changes = ctx.saved_tensors
        return gradients * gradient[0], changes * gradient[0], None, None, None


def projected_loss(
    states: Float[Tensor, "rows d_model"],
    weight: Float[Tensor, "vocabulary d_model"],
    targets: Int[Tensor, " rows"],
    smoothing: float,
    padding: int,
) -> Float[Tensor, "2"]:
    """The sums of the smoothed and the plain cross-entropy; only the first one has a gradient."""
    dtype = compute_dtype(states)
    return _ProjectedLoss.apply(states.to(dtype), weight, targets, smoothing, padding)  # pyright: ignore[reportReturnType]
