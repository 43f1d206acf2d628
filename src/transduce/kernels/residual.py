"""Residual connections on NVIDIA GPUs: dropout, sum and norm in one pass over memory, and their gradients in another.

Dropout is drawn again from the same counters in the backward pass, so no mask is kept. Sums are in float32 whatever the
inputs are.

Legend of shapes: `tokens` counts the tokens of a row, `programs` the programs that share a sum over all tokens.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels.sums import add_up

ROWS = 4  # tokens that a program reads at once in a forward pass


class Dropout(NamedTuple):
    """The share that is dropped, and the seed of the random numbers."""

    share: float
    seed: Int[Tensor, " 1"]


class Norm(NamedTuple):
    """The weight, bias and epsilon of a layer norm."""

    weight: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    epsilon: float


def draw_seed(device: torch.device) -> Int[Tensor, " 1"]:
    """Draw a seed of random numbers, on the device, so that a captured graph draws a new one each time."""
    return torch.empty(1, dtype=torch.int64, device=device).random_()


@triton.jit
def draw_factors(seed, rows, width: tl.constexpr, dropout):
    """Return the factors (rows, width) of dropout: 0 for what is dropped, 1 / (1 - dropout) for the rest."""
    counters = rows[:, None] * (width // 8) + tl.arange(0, width // 8)[None, :]
    # Seven rounds are random enough (Salmon et al. 2011), and so are sixteen bits for each number.
    one, two, three, four = tl.randint4x(tl.load(seed), counters, n_rounds=7)  # pyright: ignore[reportGeneralTypeIssues]
    halves = tl.interleave(tl.interleave(one, three), tl.interleave(two, four)).to(tl.uint32, bitcast=True)
    drawn = tl.interleave(halves & 0xFFFF, halves >> 16)
    return tl.where(drawn.to(tl.float32) >= dropout * 65536, 1 / (1 - dropout), 0.0)


@triton.jit
def _forward_kernel(
    x,
    change,
    weight,
    bias,
    result,
    means,
    scales,
    seed,
    dropout,
    epsilon,
    tokens,
    d_model: tl.constexpr,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    adds: tl.constexpr,
    norms: tl.constexpr,
    drops: tl.constexpr,
):
    rows = tl.program_id(0) * rows_each + tl.arange(0, rows_each)
    places = tl.arange(0, width)
    inside = (rows < tokens)[:, None] & (places < d_model)[None, :]
    here = rows.to(tl.int64)[:, None] * d_model + places[None, :]
    total = tl.load(x + here, inside, 0.0).to(tl.float32)
    if adds:
        added = tl.load(change + here, inside, 0.0).to(tl.float32)
        if drops:
            added *= draw_factors(seed, rows, width, dropout)
        total += added
    if norms:
        mean = tl.sum(total, 1) / d_model
        total = tl.where(inside, total - mean[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(total * total, 1) / d_model + epsilon)
        w = tl.load(weight + places, places < d_model, 0.0).to(tl.float32)
        b = tl.load(bias + places, places < d_model, 0.0).to(tl.float32)
        total = total * scale[:, None] * w[None, :] + b[None, :]
        tl.store(means + rows, mean, rows < tokens)
        tl.store(scales + rows, scale, rows < tokens)
    tl.store(result + here, total, inside)


@triton.jit
def _backward_kernel(
    gradient,
    x,
    change,
    weight,
    means,
    scales,
    also,
    x_gradient,
    change_gradient,
    sums,
    seed,
    dropout,
    tokens,
    programs,
    d_model: tl.constexpr,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    adds: tl.constexpr,
    drops: tl.constexpr,
):
    program = tl.program_id(0)
    places = tl.arange(0, width)
    w = tl.load(weight + places, places < d_model, 0.0).to(tl.float32)[None, :]
    w_sums = tl.zeros((rows_each, width), tl.float32)
    b_sums = tl.zeros((rows_each, width), tl.float32)
    change_sums = tl.zeros((rows_each, width), tl.float32)
    first = program * rows_each
    while first < tokens:
        rows = first + tl.arange(0, rows_each)
        inside = (rows < tokens)[:, None] & (places < d_model)[None, :]
        here = rows.to(tl.int64)[:, None] * d_model + places[None, :]
        g = tl.load(gradient + here, inside, 0.0).to(tl.float32)
        total = tl.load(x + here, inside, 0.0).to(tl.float32)
        factors = tl.full((rows_each, width), 1.0, tl.float32)
        if drops:
            factors = draw_factors(seed, rows, width, dropout)
        if adds:
            total += tl.load(change + here, inside, 0.0).to(tl.float32) * factors
        mean = tl.load(means + rows, rows < tokens, 0.0)
        scale = tl.load(scales + rows, rows < tokens, 0.0)
        total = tl.where(inside, (total - mean[:, None]) * scale[:, None], 0.0)
        w_sums += g * total
        b_sums += g
        g *= w
        along = tl.sum(g * total, 1) / d_model
        g = (g - tl.sum(g, 1)[:, None] / d_model - total * along[:, None]) * scale[:, None]
        if adds:
            tl.store(x_gradient + here, g, inside)
            g *= factors
            change_sums += tl.where(inside, g, 0.0)
            tl.store(change_gradient + here, g, inside)
        else:
            tl.store(x_gradient + here, g + tl.load(also + here, inside, 0.0).to(tl.float32), inside)
        first += programs * rows_each
    kept = places < d_model
    tl.store(sums + program * d_model + places, tl.sum(w_sums, 0), kept)
    tl.store(sums + (programs + program) * d_model + places, tl.sum(b_sums, 0), kept)
    if adds:
        tl.store(sums + (2 * programs + program) * d_model + places, tl.sum(change_sums, 0), kept)


@triton.jit
def _drop_kernel(
    gradient,
    change_gradient,
    sums,
    seed,
    dropout,
    tokens,
    programs,
    d_model: tl.constexpr,
    width: tl.constexpr,
    rows_each: tl.constexpr,
    drops: tl.constexpr,
):
    program = tl.program_id(0)
    places = tl.arange(0, width)
    change_sums = tl.zeros((rows_each, width), tl.float32)
    first = program * rows_each
    while first < tokens:
        rows = first + tl.arange(0, rows_each)
        inside = (rows < tokens)[:, None] & (places < d_model)[None, :]
        here = rows.to(tl.int64)[:, None] * d_model + places[None, :]
        g = tl.load(gradient + here, inside, 0.0).to(tl.float32)
        if drops:
            g *= draw_factors(seed, rows, width, dropout)
        change_sums += g
        tl.store(change_gradient + here, g, inside)
        first += programs * rows_each
    tl.store(sums + program * d_model + places, tl.sum(change_sums, 0), places < d_model)


class Kept(NamedTuple):
    """What the backward pass of a norm needs from the forward pass."""

    means: Float[Tensor, " tokens"]
    scales: Float[Tensor, " tokens"]


def add_norm(
    x: Float[Tensor, "tokens d_model"],
    change: Float[Tensor, "tokens d_model"] | None,
    norm: Norm,
    dropout: Dropout | None,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "tokens d_model"], Kept]:
    """Return the norm of x + dropout(change), or of x if there is no change."""
    tokens, d_model = x.shape
    result = x.new_empty(x.shape, dtype=dtype)
    means, scales = x.new_empty(2, tokens, dtype=torch.float32)
    _forward_kernel[(triton.cdiv(tokens, ROWS),)](
        x,
        change,
        norm.weight,
        norm.bias,
        result,
        means,
        scales,
        dropout and dropout.seed,
        dropout.share if dropout else 0.0,
        norm.epsilon,
        tokens,
        d_model,
        width=width_of(d_model),
        rows_each=ROWS,
        adds=change is not None,
        norms=True,
        drops=dropout is not None,
        num_warps=4,
    )
    return result, Kept(means, scales)


def add(
    x: Float[Tensor, "tokens d_model"], change: Float[Tensor, "tokens d_model"], dropout: Dropout | None
) -> Float[Tensor, "tokens d_model"]:
    """Return x + dropout(change)."""
    tokens, d_model = x.shape
    result = torch.empty_like(x)
    _forward_kernel[(triton.cdiv(tokens, ROWS),)](
        x,
        change,
        None,
        None,
        result,
        None,
        None,
        dropout and dropout.seed,
        dropout.share if dropout else 0.0,
        0.0,
        tokens,
        d_model,
        width=width_of(d_model),
        rows_each=ROWS,
        adds=True,
        norms=False,
        drops=dropout is not None,
        num_warps=4,
    )
    return result


class AddNormGradients(NamedTuple):
    """The gradients of `add_norm`, and that of the change summed over all tokens."""

    x: Float[Tensor, "tokens d_model"]
    change: Float[Tensor, "tokens d_model"] | None
    weight: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    change_sum: Float[Tensor, " d_model"] | None


def add_norm_backward(
    gradient: Float[Tensor, "tokens d_model"],
    x: Float[Tensor, "tokens d_model"],
    change: Float[Tensor, "tokens d_model"] | None,
    norm: Norm,
    kept: Kept,
    dropout: Dropout | None,
    also: Float[Tensor, "tokens d_model"] | None = None,
) -> AddNormGradients:
    """Return the gradients of `add_norm`; if there is no change, `also` is added to that of x."""
    tokens, d_model = x.shape
    adds = change is not None
    x_gradient = torch.empty_like(x)
    change_gradient = torch.empty_like(change) if adds else None
    rows_each = _rows_each(d_model)
    programs = _programs(x, rows_each)
    sums = x.new_empty(3 if adds else 2, programs, d_model, dtype=torch.float32)
    _backward_kernel[(programs,)](
        gradient.contiguous(),
        x,
        change,
        norm.weight,
        kept.means,
        kept.scales,
        also,
        x_gradient,
        change_gradient,
        sums,
        dropout and dropout.seed,
        dropout.share if dropout else 0.0,
        tokens,
        programs,
        d_model,
        width=width_of(d_model),
        rows_each=rows_each,
        adds=adds,
        drops=dropout is not None,
        num_warps=2,
    )
    weight, bias, *rest = add_up(sums)
    return AddNormGradients(x_gradient, change_gradient, weight, bias, rest[0] if rest else None)


def drop(
    gradient: Float[Tensor, "tokens d_model"], dropout: Dropout | None, dtype: torch.dtype
) -> tuple[Float[Tensor, "tokens d_model"], Float[Tensor, " d_model"]]:
    """Return the gradient of the change in `add`, and its sum over all tokens."""
    tokens, d_model = gradient.shape
    change_gradient = gradient.new_empty(gradient.shape, dtype=dtype)
    rows_each = _rows_each(d_model)
    programs = _programs(gradient, rows_each)
    sums = gradient.new_empty(programs, d_model, dtype=torch.float32)
    _drop_kernel[(programs,)](
        gradient.contiguous(),
        change_gradient,
        sums,
        dropout and dropout.seed,
        dropout.share if dropout else 0.0,
        tokens,
        programs,
        d_model,
        width=width_of(d_model),
        rows_each=rows_each,
        drops=dropout is not None,
        num_warps=2,
    )
    return change_gradient, add_up(sums[None])[0]


def width_of(d_model: int) -> int:
    """Return the power of two, at least 8, that holds a row of d_model numbers."""
    return max(8, 1 << (d_model - 1).bit_length())


def _rows_each(d_model: int) -> int:
    """Return how many tokens a program reads at once in a backward pass: as many as its registers hold."""
    return max(1, min(16, 2048 // width_of(d_model)))


def _programs(x: Tensor, rows_each: int) -> int:
    """Return how many programs to launch: as many as a GPU runs at once, and few elsewhere."""
    at_once = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 3
    return max(1, min(at_once, -(-len(x) // rows_each)))
