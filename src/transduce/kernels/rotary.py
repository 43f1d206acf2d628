"""Rotary positions on NVIDIA GPUs: queries and keys are turned in place."""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS = 32  # tokens of one head that a program reads at once


@triton.jit
def _kernel(rows, turn, sign, tokens, stride, d_k: tl.constexpr, width: tl.constexpr, rows_each: tl.constexpr):
    row = tl.program_id(0) * rows_each + tl.arange(0, rows_each)
    places, halves = tl.arange(0, width), tl.arange(0, width // 2)
    inside = (row < tokens)[:, None] & (places < d_k)[None, :]
    inside_half = (row < tokens)[:, None] & (halves < d_k // 2)[None, :]
    here = rows + row.to(tl.int64)[:, None] * stride + tl.program_id(1) * d_k + places[None, :]
    angle = turn + row.to(tl.int64)[:, None] * (d_k // 2) + halves[None, :]
    cosine = tl.load(angle, inside_half, 0.0)
    sine = tl.load(angle + tokens * (d_k // 2), inside_half, 0.0) * sign
    even, odd = tl.split(tl.reshape(tl.load(here, inside, 0.0).to(tl.float32), (rows_each, width // 2, 2)))
    tl.store(here, tl.interleave(even * cosine - odd * sine, even * sine + odd * cosine), inside)


def turn_heads(
    rows: Float[Tensor, "tokens width"], turn: Float[Tensor, "2 tokens half"], heads: int, *, back: bool = False
) -> None:
    """Turn the first `heads` heads of each row by the angles of its position, or back, in place."""
    tokens, d_k = len(rows), 2 * turn.shape[2]
    _kernel[(triton.cdiv(tokens, ROWS), heads)](
        rows,
        turn,
        -1.0 if back else 1.0,
        tokens,
        rows.stride(0),
        d_k,
        width=max(2, triton.next_power_of_2(d_k)),
        rows_each=ROWS,
        num_warps=4,
    )
