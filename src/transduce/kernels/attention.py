"""Attention over rows of short sentences on NVIDIA GPUs, in Triton.

A program computes one head of one tile (`text/tiles.py`) of whole sentences, which it holds all at once; a mask keeps
the sentences apart. Longer sentences are read in steps. A wide head is cut into parts with a program each, which
computes the weights from all parts and then its own part of the result.

Legend of shapes: `query` and `key` count the tokens of a row, `tiles` the tiles, of five numbers each.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false
# pyright: reportGeneralTypeIssues=false

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int, Int32
from torch import Tensor

from transduce.text.tiles import SIZE

LOG2E = math.log2(math.e)
PART = 128  # the widest part of a head that a program holds


class Tiles(NamedTuple):
    """The tiles that programs compute, for one kind of attention in one batch."""

    by_query: Int32[Tensor, "tiles 5"]
    by_key: Int32[Tensor, "tiles 5"]
    seen: Int32[Tensor, "2 query"]  # the first key that each query sees, and the end of those it sees


def seen_keys(
    query_offsets: Int[Tensor, " sentences+1"],
    key_offsets: Int[Tensor, " sentences+1"],
    queries: int,
    *,
    causal: bool = False,
) -> Int32[Tensor, "2 query"]:
    """Return the first key that each query sees and the end of those it sees; filler behind the last sees none."""
    rows = torch.arange(queries, dtype=query_offsets.dtype, device=query_offsets.device)
    sentence = torch.searchsorted(query_offsets, rows, right=True)
    # Behind the last sentence both are the end of the keys.
    first = key_offsets[sentence - 1]
    end = key_offsets[sentence.clamp(max=len(key_offsets) - 1)]
    return torch.stack((first, torch.where(first < end, rows + 1, end) if causal else end)).int()


@triton.jit
def product(left, right):
    """Multiply matrices; float32 is not rounded to TF32."""
    return tl.dot(left, right, input_precision="ieee")


@triton.jit
def is_kept(seed, rows, columns, head, dropout):
    """Return which weights dropout keeps, drawn from their places and so the same in both passes."""
    row = rows + tl.zeros_like(columns)
    column = columns + tl.zeros_like(rows)
    drawn, _, _, _ = tl.philox(seed, row, column, head + tl.zeros_like(row), tl.zeros_like(row))
    return tl.uint_to_uniform_float(drawn) >= dropout


@triton.jit
def load_head(tensor, rows, inside, stride, head, part, width: tl.constexpr, room: tl.constexpr):
    """Load a part of one head of some rows, with zeros for rows that are not inside."""
    places = part * room + tl.arange(0, room)
    here = tensor + rows.to(tl.int64)[:, None] * stride + head * width + places[None, :]
    return tl.load(here, inside[:, None] & (places < width)[None, :], 0.0)


@triton.jit
def store_head(tensor, values, rows, inside, stride, head, part, width: tl.constexpr, room: tl.constexpr):
    """Store a part of one head of those rows that are inside."""
    places = part * room + tl.arange(0, room)
    here = tensor + rows.to(tl.int64)[:, None] * stride + head * width + places[None, :]
    tl.store(here, values, inside[:, None] & (places < width)[None, :])


@triton.jit
def multiply(
    left_part,
    right_part,
    left,
    right,
    rows,
    inside,
    columns,
    there,
    left_stride,
    right_stride,
    head,
    width: tl.constexpr,
    room: tl.constexpr,
):
    """Return left @ right.T for rows of one head, whose first parts are already loaded."""
    sums = product(left_part, tl.trans(right_part))
    for part in tl.static_range(1, (width + room - 1) // room):
        left_part = load_head(left, rows, inside, left_stride, head, part, width, room)
        right_part = load_head(right, columns, there, right_stride, head, part, width, room)
        sums += product(left_part, tl.trans(right_part))
    return sums


@triton.jit
def _forward_kernel(
    query,
    key,
    value,
    output,
    log_sums,
    tiles,
    seen,
    seeds,
    scale,
    dropout,
    queries,
    query_stride,
    key_stride,
    value_stride,
    heads: tl.constexpr,
    d_k: tl.constexpr,
    d_v: tl.constexpr,
    k_width: tl.constexpr,
    v_width: tl.constexpr,
    size: tl.constexpr,
    parts: tl.constexpr,
    drops: tl.constexpr,
):
    head, part = tl.program_id(0), tl.program_id(2) if parts > 1 else 0
    tile = tiles + tl.program_id(1) * 5
    first, end = tl.load(tile), tl.load(tile + 1)
    if first < end:
        step, last = tl.load(tile + 2), tl.load(tile + 3)
        rows = first + tl.arange(0, size)
        inside = rows < end
        low, high = tl.load(seen + rows, inside, 0), tl.load(seen + queries + rows, inside, 0)
        q = load_head(query, rows, inside, query_stride, head, 0, d_k, k_width)
        most = tl.full((size,), -float("inf"), tl.float32)
        total = tl.zeros((size,), tl.float32)
        sums = tl.zeros((size, v_width), tl.float32)
        while step < last:
            columns = step + tl.arange(0, size)
            there = columns < last
            k = load_head(key, columns, there, key_stride, head, 0, d_k, k_width)
            v = load_head(value, columns, there, value_stride, head, part, d_v, v_width)
            visible = (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])
            scores = multiply(
                q, k, query, key, rows, inside, columns, there, query_stride, key_stride, head, d_k, k_width
            )
            scores = tl.where(visible, scores * scale, -float("inf"))
            new_most = tl.maximum(most, tl.max(scores, 1))
            base = tl.where(new_most == -float("inf"), 0.0, new_most)
            shrink, shares = tl.exp2(most - base), tl.exp2(scores - base[:, None])
            total = total * shrink + tl.sum(shares, 1)
            if drops:
                kept = is_kept(tl.load(seeds), rows[:, None], columns[None, :], head, dropout)
                shares = tl.where(kept, shares / (1 - dropout), 0.0)
            sums = sums * shrink[:, None] + product(shares.to(v.dtype), v)
            most = new_most
            step += size
        some = total > 0
        tl.store(
            log_sums + head * queries + rows, tl.where(some, most + tl.log2(tl.where(some, total, 1.0)), 0.0), inside
        )
        result = sums / tl.where(some, total, 1.0)[:, None]
        store_head(output, result, rows, inside, heads * d_v, head, part, d_v, v_width)


class Heads(NamedTuple):
    """The number and widths of heads, the factor of their scores, and the dropout of their weights."""

    heads: int
    d_k: int
    d_v: int
    scale: float
    dropout: float = 0.0


def split_heads(own: Tensor, memory: Tensor | None, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values: `own` holds all three side by side, or `memory` holds the latter two."""
    k_width, v_width = heads.heads * heads.d_k, heads.heads * heads.d_v
    if memory is None:
        query, key, value = own.split((k_width, k_width, v_width), -1)
    else:
        query, (key, value) = own, memory.split((k_width, v_width), -1)
    return query, key, value


def forward(
    own: Float[Tensor, "query width"],
    memory: Float[Tensor, "key width"] | None,
    tiles: Tiles,
    heads: Heads,
    seed: Int[Tensor, " 1"] | None,
) -> tuple[Float[Tensor, "query values"], Float[Tensor, "heads query"]]:
    """Return the attention of every sentence, and the logarithm to base 2 of each query's sum of e^score.

    `own` holds queries, keys and values side by side, or only queries if `memory` holds keys and values.
    """
    query, key, value = split_heads(own, memory, heads)
    output = own.new_empty(len(query), heads.heads * heads.d_v)
    log_sums = own.new_empty(heads.heads, len(query), dtype=torch.float32)
    shapes = launch_with(query, key, value, heads, seed)
    _forward_kernel[(heads.heads, len(tiles.by_query), shapes["parts"])](
        query,
        key,
        value,
        output,
        log_sums,
        tiles.by_query,
        tiles.seen,
        seed,
        heads.scale * LOG2E,
        heads.dropout,
        len(query),
        **shapes,
    )
    return output, log_sums


def launch_with(query: Tensor, key: Tensor, value: Tensor, heads: Heads, seed: Tensor | None) -> dict[str, Any]:
    # Wide heads are cut into parts, half as wide in float32, which takes twice the space.
    wide = max(heads.d_k, heads.d_v)
    part = PART // 2 if wide > PART and query.element_size() == 4 else PART
    return {
        "query_stride": query.stride(0),
        "key_stride": key.stride(0),
        "value_stride": value.stride(0),
        "heads": heads.heads,
        "d_k": heads.d_k,
        "d_v": heads.d_v,
        "k_width": min(part, max(16, triton.next_power_of_2(heads.d_k))),
        "v_width": min(part, max(16, triton.next_power_of_2(heads.d_v))),
        "size": SIZE,
        "parts": triton.cdiv(wide, part),
        "drops": seed is not None,
        "num_warps": 4 if query.element_size() == 2 else 8,  # float32 takes twice the registers
    }
