"""Embeddings on NVIDIA GPUs: lookup, scaling, positions and dropout in one pass over memory."""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels.residual import ROWS, Dropout, draw_factors, draw_seed, width_of


@triton.jit
def _forward_kernel(
    tokens,
    weight,
    positions,
    table,
    result,
    seed,
    factor,
    dropout,
    many,
    longest,
    d_model: tl.constexpr,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    moves: tl.constexpr,
    drops: tl.constexpr,
):
    rows = tl.program_id(0) * rows_each + tl.arange(0, rows_each)
    places = tl.arange(0, width)
    inside = (rows < many)[:, None] & (places < d_model)[None, :]
    token = tl.load(tokens + rows, rows < many, 0).to(tl.int64)
    x = tl.load(weight + token[:, None] * d_model + places[None, :], inside, 0.0).to(tl.float32) * factor
    if moves:
        # Only filler behind the last sentence can lie beyond the table.
        position = tl.minimum(tl.load(positions + rows, rows < many, 0), longest - 1).to(tl.int64)
        x += tl.load(table + position[:, None] * d_model + places[None, :], inside, 0.0)
    if drops:
        x *= draw_factors(seed, rows, width, dropout)
    tl.store(result + rows.to(tl.int64)[:, None] * d_model + places[None, :], x, inside)


@triton.jit
def _backward_kernel(
    gradient,
    result,
    seed,
    factor,
    dropout,
    many,
    d_model: tl.constexpr,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    drops: tl.constexpr,
):
    rows = tl.program_id(0) * rows_each + tl.arange(0, rows_each)
    places = tl.arange(0, width)
    inside = (rows < many)[:, None] & (places < d_model)[None, :]
    here = rows.to(tl.int64)[:, None] * d_model + places[None, :]
    g = tl.load(gradient + here, inside, 0.0).to(tl.float32) * factor
    if drops:
        g *= draw_factors(seed, rows, width, dropout)
    tl.store(result + here, g, inside)


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        weight: Tensor,
        positions: Tensor,
        table: Tensor | None,
        factor: float,
        dropout: Dropout | None,
        dtype: torch.dtype,
    ) -> Tensor:
        many, d_model = len(tokens), weight.shape[1]
        result = weight.new_empty(many, d_model, dtype=dtype)
        _forward_kernel[(triton.cdiv(many, ROWS),)](
            tokens,
            weight,
            positions,
            table,
            result,
            dropout and dropout.seed,
            factor,
            dropout.share if dropout else 0.0,
            many,
            0 if table is None else len(table),
            d_model,
            width=width_of(d_model),
            rows_each=ROWS,
            moves=table is not None,
            drops=dropout is not None,
            num_warps=4,
        )
        ctx.save_for_backward(tokens)
        ctx.factor, ctx.dropout, ctx.vocabulary = factor, dropout, len(weight)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (tokens,) = ctx.saved_tensors
        many, d_model = gradient.shape
        dropout: Dropout | None = ctx.dropout
        scaled = gradient.new_empty(many, d_model, dtype=torch.float32)
        _backward_kernel[(triton.cdiv(many, ROWS),)](
            gradient.contiguous(),
            scaled,
            dropout and dropout.seed,
            ctx.factor,
            dropout.share if dropout else 0.0,
            many,
            d_model,
            width=width_of(d_model),
            rows_each=ROWS,
            drops=dropout is not None,
            num_warps=4,
        )
        weight = torch.ops.aten.embedding_dense_backward(scaled, tokens, ctx.vocabulary, -1, False)
        return None, weight, None, None, None, None, None


def embed(
    tokens: Int[Tensor, " tokens"],
    weight: Float[Tensor, "vocabulary d_model"],
    positions: Int[Tensor, " tokens"],
    table: Float[Tensor, "longest d_model"] | None,
    dropout: float,
    dtype: torch.dtype,
) -> Float[Tensor, "tokens d_model"]:
    """Return embeddings times sqrt(d_model), plus the positions' rows of a table, then dropout."""
    drawn = Dropout(dropout, draw_seed(weight.device)) if dropout else None
    factor = weight.shape[1] ** 0.5
    with torch.cuda.device_of(weight):
        return _Embed.apply(tokens, weight, positions, table, factor, drawn, dtype)  # pyright: ignore[reportReturnType]
