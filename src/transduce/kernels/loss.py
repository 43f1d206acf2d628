"""The loss on NVIDIA GPUs: projection, label-smoothed softmax and its gradient, some rows at a time.

The logits of some rows are computed, replaced in place by their gradients, multiplied with states and weights, and
overwritten by those of the next rows. They are kept in the products' precision, and never take more than a small share
of the GPU's memory.

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

from transduce.kernels.products import compute_dtype, in_float32, rounded

SHARE = 1 / 64  # of the GPU's memory that logits may take
BLOCK, WARPS = 4096, 16  # logits that a program reads at once, and its warps
ALIGNED = 8  # each row of logits begins at a multiple of this


@triton.jit
def _softmax_kernel(
    logits,
    targets,
    losses,
    smoothing,
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
    places = tl.arange(0, block)
    mosts = tl.full((block,), -float("inf"), tl.float32)
    totals = tl.zeros((block,), tl.float32)
    logit_sums = tl.zeros((block,), tl.float32)
    for first in range(0, vocabulary, 2 * block):  # two blocks at once, to rescale the sum so far half as often
        here, there = first + places, first + block + places
        some = tl.load(logits + here, here < vocabulary, -float("inf")).to(tl.float32)
        more = tl.load(logits + there, there < vocabulary, -float("inf")).to(tl.float32)
        new_mosts = tl.maximum(mosts, tl.maximum(some, more))
        base = tl.where(new_mosts == -float("inf"), 0.0, new_mosts)
        totals = totals * tl.exp(mosts - base) + tl.exp(some - base) + tl.exp(more - base)
        logit_sums += tl.where(here < vocabulary, some, 0.0) + tl.where(there < vocabulary, more, 0.0)
        mosts = new_mosts
    most = tl.max(mosts, 0)
    whole = most + tl.log(tl.sum(totals * tl.exp(mosts - most), 0))
    wanted = tl.load(logits + target).to(tl.float32)
    plain = whole - wanted
    smoothed = (1 - smoothing) * plain + smoothing * (whole - tl.sum(logit_sums, 0) / vocabulary)
    real = target != padding
    tl.store(losses + row, tl.where(real, smoothed, 0.0))
    tl.store(losses + rows + row, tl.where(real, plain, 0.0))
    if learns:
        tl.debug_barrier()  # the target's logit is read before it is written
        each = smoothing / vocabulary
        for first in range(0, vocabulary, block):
            here = first + places
            some = tl.load(logits + here, here < vocabulary, 0.0).to(tl.float32)
            tl.store(logits + here, tl.where(real, tl.exp(some - whole) - each, 0.0), here < vocabulary)
        tl.debug_barrier()
        tl.store(logits + target, tl.where(real, tl.exp(wanted - whole) - each - (1 - smoothing), 0.0))


def softmax_losses(
    logits: Float[Tensor, "rows vocabulary"],
    targets: Int[Tensor, " rows"],
    smoothing: float,
    padding: int,
    *,
    learns: bool,
) -> Float[Tensor, "2 rows"]:
    """Return each row's smoothed and plain loss; `learns` turns logits into the gradients of the smoothed one."""
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
        logits.stride(0),
        block=min(BLOCK, triton.next_power_of_2(vocabulary)),
        learns=learns,
        num_warps=WARPS,
    )
    return losses


def room_for_logits(
    states: Float[Tensor, "rows d_model"], matrix: Float[Tensor, "vocabulary d_model"], among: int = 1
) -> Float[Tensor, "some vocabulary"]:
    """Return memory for the logits of as many rows as fit, if `among` such rooms share the memory allowed."""
    device = states.device
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 1 << 32
    stride = -(-len(matrix) // ALIGNED) * ALIGNED
    each = max(1, min(len(states), int(SHARE * total) // (among * matrix.element_size() * stride)))
    return states.new_empty(each, stride)[:, : len(matrix)]


def project(
    states: Float[Tensor, "rows d_model"],
    matrix: Float[Tensor, "vocabulary d_model"],
    bias: Float[Tensor, " vocabulary"] | None,
    room: Float[Tensor, "rows vocabulary"],
) -> Float[Tensor, "rows vocabulary"]:
    """Compute the logits of some rows in `room`."""
    if bias is None:
        return torch.mm(states, matrix.T, out=room)
    return torch.addmm(rounded(bias, states.dtype), states, matrix.T, out=room)


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        padding: int,
        learns: bool,
    ) -> Tensor:
        matrix = rounded(weight, states.dtype)
        room = room_for_logits(states, matrix)
        each = len(room)
        learns = learns and any(ctx.needs_input_grad[:3])
        gradients = torch.empty_like(states) if learns else None
        changes: Tensor | None = None
        bias_changes = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        losses: list[Tensor] = []
        for first in range(0, len(states), each):
            some = states[first : first + each]
            logits = project(some, matrix, bias, room[: len(some)])
            losses.append(softmax_losses(logits, targets[first : first + each], smoothing, padding, learns=learns))
            if gradients is not None:
                torch.mm(logits, matrix, out=gradients[first : first + each])
                changes = in_float32(logits.T, some, changes)
                if bias_changes is not None:
                    bias_changes += logits.sum(0, dtype=torch.float32)
        ctx.save_for_backward(gradients, changes, bias_changes)
        return torch.cat(losses, 1).sum(1) if losses else states.new_zeros(2, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = (None if each is None else each * gradient[0] for each in ctx.saved_tensors)
        return *found, None, None, None, None


def projected_loss(
    states: Float[Tensor, "rows d_model"],
    weight: Float[Tensor, "vocabulary d_model"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " rows"],
    smoothing: float,
    padding: int,
) -> Float[Tensor, "2"]:
    """Return the sums of the smoothed and the plain cross-entropy; only the first has a gradient."""
    dtype = compute_dtype(states)
    rows = states.to(dtype), weight, bias, targets
    with torch.cuda.device_of(states):
        return _ProjectedLoss.apply(*rows, smoothing, padding, torch.is_grad_enabled())  # pyright: ignore[reportReturnType]
