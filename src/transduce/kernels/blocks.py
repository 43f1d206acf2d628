"""The Transformer's sub-layers on NVIDIA GPUs, each a single step of the backward pass.

A block is a sub-layer with its residual connection and norm (section 3.1). Its products are torch's, and our kernels do
everything between them. Weights stay in float32, are rounded for the products, and get gradients in float32. Triton
launches on the current GPU, wherever the tensors are, so each public function first makes the tensors' GPU current.

Legend of shapes: `query` and `key` count the tokens of a row.
"""

# pyright: reportIncompatibleMethodOverride=false, reportPrivateImportUsage=false

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.kernels import attention, attention_backward, residual
from transduce.kernels.attention import Heads, Tiles
from transduce.kernels.products import compute_dtype, in_float32, rounded
from transduce.kernels.rectify import rectify_backward
from transduce.kernels.residual import Dropout, Kept, Norm
from transduce.kernels.rotary import turn_heads


class Around(NamedTuple):
    """What surrounds a sub-layer: its norm, before it (`pre`) or behind the sum, and the dropout of its result."""

    weight: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    epsilon: float
    pre: bool
    dropout: float

    @property
    def norm(self) -> Norm:
        """The norm alone."""
        return Norm(self.weight, self.bias, self.epsilon)

    def draw(self, x: Tensor) -> Dropout | None:
        """Draw the dropout of this pass; None if nothing is dropped."""
        return Dropout(self.dropout, residual.draw_seed(x.device)) if self.dropout else None


def _enter(x: Tensor, around: Around, dtype: torch.dtype) -> tuple[Tensor, Kept | None]:
    """Return the input of the sub-layer: x, or its norm and what the norm's gradient will need."""
    return residual.add_norm(x, None, around.norm, None, dtype) if around.pre else (x, None)


def _leave(
    x: Tensor, change: Tensor, around: Around, kept: Kept | None, dropout: Dropout | None
) -> tuple[Tensor, Kept]:
    """Return the output of the block: x plus the change, normed unless the norm came first."""
    if kept is not None:
        return residual.add(x, change, dropout), kept
    return residual.add_norm(x, change, around.norm, dropout, change.dtype)


class _Back(NamedTuple):
    """The gradients where the sub-layer's result, the change, is added to x."""

    x: Tensor
    change: Tensor
    change_sum: Tensor
    norm: tuple[Tensor, Tensor] | None  # of its weight and bias; not yet known if the norm comes before the sub-layer


def _leave_backward(
    gradient: Tensor,
    x: Tensor,
    change: Tensor | None,
    around: Around,
    kept: Kept,
    dropout: Dropout | None,
    dtype: torch.dtype,
) -> _Back:
    if change is None:
        return _Back(gradient, *residual.drop(gradient, dropout, dtype), None)
    found = residual.add_norm_backward(gradient, x, change, around.norm, kept, dropout)
    assert found.change is not None
    assert found.change_sum is not None
    return _Back(found.x, found.change, found.change_sum, (found.weight, found.bias))


def _enter_backward(
    left: Tensor, right: Tensor, x: Tensor, around: Around, kept: Kept, back: _Back
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of x and of the norm's weight and bias; left @ right is that of the sub-layer's input."""
    if back.norm is not None:
        return back.x.addmm_(left, right), *back.norm  # in place: nothing else uses it
    found = residual.add_norm_backward(left @ right, x, None, around.norm, kept, None, also=back.x)
    return found.x, found.weight, found.bias


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        memory: Tensor | None,
        projection: Tensor,
        output: Tensor,
        query_bias: Tensor | None,
        output_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        turn: Tensor | None,
        tiles: Tiles,
        heads: Heads,
        around: Around,
        dtype: torch.dtype,
    ) -> Tensor:
        dropout = around.draw(x)
        seed = residual.draw_seed(x.device) if heads.dropout else None
        w_in, w_out = rounded(projection, dtype), rounded(output, dtype)
        inputs, kept = _enter(x, around, dtype)
        cut = heads.heads * heads.d_k
        own, other = (inputs @ w_in.T, None) if memory is None else (inputs @ w_in[:cut].T, memory @ w_in[cut:].T)
        if query_bias is not None:
            own[:, :cut] += rounded(query_bias, dtype)
        if turn is not None:
            turn_heads(own, turn, 2 * heads.heads)
        mixed, log_sums = attention.forward(own, other, tiles, heads, seed)
        change = mixed @ w_out.T if output_bias is None else torch.addmm(rounded(output_bias, dtype), mixed, w_out.T)
        result, kept = _leave(x, change, around, kept, dropout)
        ctx.save_for_backward(
            x, inputs, memory, w_in, w_out, own, other, mixed, log_sums, turn, None if around.pre else change
        )
        ctx.kept, ctx.dropout, ctx.seed, ctx.tiles, ctx.heads, ctx.around = kept, dropout, seed, tiles, heads, around
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, inputs, memory, w_in, w_out, own, other, mixed, log_sums, turn, change = ctx.saved_tensors
        heads: Heads = ctx.heads
        back = _leave_backward(gradient, x, change, ctx.around, ctx.kept, ctx.dropout, own.dtype)
        own_gradient, other_gradient = attention_backward.backward(
            back.change @ w_out, own, other, mixed, log_sums, ctx.tiles, heads, ctx.seed
        )
        if turn is not None:
            turn_heads(own_gradient, turn, 2 * heads.heads, back=True)
        cut = heads.heads * heads.d_k
        biases: tuple[Tensor | None, Tensor | None] = None, None
        if any(ctx.needs_input_grad[4:6]):
            biases = own_gradient[:, :cut].sum(0, dtype=torch.float32), back.change_sum
        output_gradient = in_float32(back.change.T, mixed)
        if other_gradient is None:
            memory_gradient, w_own = None, w_in
            projection_gradient = in_float32(own_gradient.T, inputs)
        else:
            w_own = w_in[:cut]
            memory_gradient = other_gradient @ w_in[cut:]
            parts = in_float32(own_gradient.T, inputs), in_float32(other_gradient.T, memory)
            projection_gradient = torch.cat(parts)
        x_gradient, *norm = _enter_backward(own_gradient, w_own, x, ctx.around, ctx.kept, back)
        return x_gradient, memory_gradient, projection_gradient, output_gradient, *biases, *norm, *(None,) * 5


def attend(
    x: Float[Tensor, "query d_model"],
    memory: Float[Tensor, "key d_model"] | None,
    projection: Float[Tensor, "width d_model"],
    output: Float[Tensor, "d_model values"],
    tiles: Tiles,
    heads: Heads,
    around: Around,
    turn: Float[Tensor, "2 query half"] | None = None,
    query_bias: Float[Tensor, " queries"] | None = None,
    output_bias: Float[Tensor, " d_model"] | None = None,
) -> Float[Tensor, "query d_model"]:
    """Compute a block of attention, to x itself (with rotary positions if `turn` is given) or to a memory."""
    dtype = compute_dtype(x)
    x, memory = x if around.pre else x.to(dtype), memory if memory is None else memory.to(dtype)
    rows = x, memory, projection, output, query_bias, output_bias, around.weight, around.bias, turn
    with torch.cuda.device_of(x):
        return _Attention.apply(*rows, tiles, heads, around, dtype)  # pyright: ignore[reportReturnType]


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        inner_weight: Tensor,
        inner_bias: Tensor,
        outer_weight: Tensor,
        outer_bias: Tensor,
        weight: Tensor,
        bias: Tensor,
        around: Around,
        dtype: torch.dtype,
    ) -> Tensor:
        dropout = around.draw(x)
        w_inner, w_outer = rounded(inner_weight, dtype), rounded(outer_weight, dtype)
        inputs, kept = _enter(x, around, dtype)
        inner = torch._addmm_activation(rounded(inner_bias, dtype), inputs, w_inner.T)
        change = torch.addmm(rounded(outer_bias, dtype), inner, w_outer.T)
        result, kept = _leave(x, change, around, kept, dropout)
        ctx.save_for_backward(x, inputs, w_inner, w_outer, inner, None if around.pre else change)
        ctx.kept, ctx.dropout, ctx.around = kept, dropout, around
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, inputs, w_inner, w_outer, inner, change = ctx.saved_tensors
        back = _leave_backward(gradient, x, change, ctx.around, ctx.kept, ctx.dropout, inner.dtype)
        inner_gradient = back.change @ w_outer
        outer_weight = in_float32(back.change.T, inner)
        inner_bias = rectify_backward(inner_gradient, inner)
        inner_weight = in_float32(inner_gradient.T, inputs)
        x_gradient, *norm = _enter_backward(inner_gradient, w_inner, x, ctx.around, ctx.kept, back)
        return x_gradient, inner_weight, inner_bias, outer_weight, back.change_sum, *norm, None, None


def feed_forward(
    x: Float[Tensor, "tokens d_model"],
    inner_weight: Float[Tensor, "d_ff d_model"],
    inner_bias: Float[Tensor, " d_ff"],
    outer_weight: Float[Tensor, "d_model d_ff"],
    outer_bias: Float[Tensor, " d_model"],
    around: Around,
) -> Float[Tensor, "tokens d_model"]:
    """Compute a feed-forward block: max(0, x W_1 + b_1) W_2 + b_2 (equation 2) with what surrounds it."""
    dtype = compute_dtype(x)
    weights = inner_weight, inner_bias, outer_weight, outer_bias, around.weight, around.bias
    with torch.cuda.device_of(x):
        return _FeedForward.apply(x if around.pre else x.to(dtype), *weights, around, dtype)  # pyright: ignore[reportReturnType]
