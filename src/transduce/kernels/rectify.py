"""The gradients of a ReLU and of the bias before it, on NVIDIA GPUs, in one pass over memory."""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from transduce.kernels.sums import add_up

ROWS, COLUMNS, TURNS = 32, 128, 8  # a program reads ROWS tokens by COLUMNS numbers at once, TURNS times


@triton.jit
def _kernel(
    gradient,
    inner,
    sums,
    tokens,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    columns_each: tl.constexpr,
    turns: tl.constexpr,
):
    columns = tl.program_id(0) * columns_each + tl.arange(0, columns_each)
    total = tl.zeros((rows_each, columns_each), tl.float32)
    for turn in range(turns):
        rows = (tl.program_id(1) * turns + turn) * rows_each + tl.arange(0, rows_each)
        inside = (rows < tokens)[:, None] & (columns < width)[None, :]
        here = rows.to(tl.int64)[:, None] * width + columns[None, :]
        g = tl.load(gradient + here, inside, 0.0)
        g = tl.where(tl.load(inner + here, inside, 0.0) > 0, g, 0.0)
        tl.store(gradient + here, g, inside)
        total += g.to(tl.float32)
    tl.store(sums + tl.program_id(1) * width + columns, tl.sum(total, 0), columns < width)


def rectify_backward(
    gradient: Float[Tensor, "tokens d_ff"], inner: Float[Tensor, "tokens d_ff"]
) -> Float[Tensor, " d_ff"]:
    """Turn the gradient of `inner` = max(0, z) into that of z, in place, and return its sum over all tokens."""
    tokens, width = inner.shape
    programs = max(1, triton.cdiv(tokens, ROWS * TURNS))
    sums = inner.new_empty(programs, width, dtype=torch.float32)
    _kernel[(triton.cdiv(width, COLUMNS), programs)](
        gradient,
        inner,
        sums,
        tokens,
        width,
        rows_each=ROWS,
        columns_each=COLUMNS,
        turns=TURNS,
        num_warps=4,
    )
    return add_up(sums[None])[0]
