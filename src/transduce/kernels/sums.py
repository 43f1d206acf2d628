"""Adding up the partial sums of a kernel's programs, on NVIDIA GPUs."""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS, COLUMNS = 256, 8


@triton.jit
def _kernel(parts, sums, programs, width, rows_each: tl.constexpr, columns_each: tl.constexpr):
    kind = tl.program_id(0)
    columns = tl.program_id(1) * columns_each + tl.arange(0, columns_each)
    total = tl.zeros((rows_each, columns_each), tl.float32)
    first = 0
    while first < programs:
        rows = first + tl.arange(0, rows_each)
        inside = (rows < programs)[:, None] & (columns < width)[None, :]
        total += tl.load(parts + (kind * programs + rows)[:, None] * width + columns[None, :], inside, 0.0)
        first += rows_each
    tl.store(sums + kind * width + columns, tl.sum(total, 0), columns < width)


def add_up(parts: Float[Tensor, "kinds programs width"]) -> Float[Tensor, "kinds width"]:
    """Return the sums over all programs."""
    kinds, programs, width = parts.shape
    sums = parts.new_empty(kinds, width, dtype=torch.float32)
    _kernel[(kinds, triton.cdiv(width, COLUMNS))](
        parts, sums, programs, width, rows_each=ROWS, columns_each=COLUMNS, num_warps=4
    )
    return sums
