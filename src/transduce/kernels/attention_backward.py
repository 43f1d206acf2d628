"""The backward pass of attention over rows of short sentences on NVIDIA GPUs, in Triton.

For tiles of whole sentences one kernel computes all gradients. Tiles of longer sentences, which come first, take two
kernels: one for the queries' gradients, one for those of keys and values.

Legend of shapes: `query` and `key` count the tokens of a row, `tiles` the tiles, of five numbers each.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportPrivateImportUsage=false
# pyright: reportGeneralTypeIssues=false

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from transduce.kernels.attention import (
    LOG2E,
    Heads,
    Tiles,
    is_kept,
    launch_with,
    load_head,
    multiply,
    product,
    split_heads,
    store_head,
)

LN2 = tl.constexpr(math.log(2))
PROGRAMS = 128  # per head, that share the tiles of long sentences


@triton.jit
def _is_due(tiles, number, many, every: tl.constexpr):
    """Whether a tile is part of a longer sentence (those come first), or with `every`, whether it holds anything."""
    there = number < many
    tile = tiles + number * 5
    cut = every | (tl.load(tile + 4, there, 1) == 0)
    return (tl.load(tile, there, 0) < tl.load(tile + 1, there, 0)) & cut


@triton.jit
def _look(keys, columns, there, head, log_sums, seen, queries):
    """Return which keys (rows) each query (column) sees, and the logarithm of each query's sum of e^score."""
    low, high = tl.load(seen + columns, there, 0), tl.load(seen + queries + columns, there, 0)
    visible = (keys[:, None] >= low[None, :]) & (keys[:, None] < high[None, :])
    return visible, tl.load(log_sums + head * queries + columns, there, 0.0)


@triton.jit
def _drop(shares, changes, keys, columns, head, seeds, dropout, drops: tl.constexpr):
    """Apply dropout to weights and to their gradients."""
    used = shares
    if drops:
        kept = is_kept(tl.load(seeds), columns[None, :], keys[:, None], head, dropout)
        changes = tl.where(kept, changes / (1 - dropout), 0.0)
        used = tl.where(kept, shares / (1 - dropout), 0.0)
    return used, changes


@triton.jit
def _backward_whole_kernel(
    query,
    key,
    value,
    gradient,
    log_sums,
    query_gradient,
    key_gradient,
    value_gradient,
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
    # Only for tiles of whole sentences, which hold all that their queries see.
    head, part = tl.program_id(0), tl.program_id(2) if parts > 1 else 0
    tile = tiles + tl.program_id(1) * 5
    if tl.load(tile + 4) != 0:
        rows, columns = tl.load(tile) + tl.arange(0, size), tl.load(tile + 2) + tl.arange(0, size)
        here, there = rows < tl.load(tile + 1), columns < tl.load(tile + 3)
        k = load_head(key, rows, here, key_stride, head, 0, d_k, k_width)
        q = load_head(query, columns, there, query_stride, head, 0, d_k, k_width)
        v = load_head(value, rows, here, value_stride, head, 0, d_v, v_width)
        g = load_head(gradient, columns, there, heads * d_v, head, 0, d_v, v_width)
        visible, whole = _look(rows, columns, there, head, log_sums, seen, queries)
        scores = multiply(k, q, key, query, rows, here, columns, there, key_stride, query_stride, head, d_k, k_width)
        shares = tl.exp2(tl.where(visible, scores * scale - whole[None, :], -float("inf")))
        changes = multiply(
            v, g, value, gradient, rows, here, columns, there, value_stride, heads * d_v, head, d_v, v_width
        )
        used, changes = _drop(shares, changes, rows, columns, head, seeds, dropout, drops)
        if parts > 1:
            k = load_head(key, rows, here, key_stride, head, part, d_k, k_width)
            q = load_head(query, columns, there, query_stride, head, part, d_k, k_width)
            g = load_head(gradient, columns, there, heads * d_v, head, part, d_v, v_width)
        store_head(value_gradient, product(used.to(g.dtype), g), rows, here, value_stride, head, part, d_v, v_width)
        common = tl.sum(shares * changes, 0)
        back = (shares * (changes - common[None, :]) * (scale * LN2)).to(q.dtype)
        store_head(key_gradient, product(back, q), rows, here, key_stride, head, part, d_k, k_width)
        store_head(query_gradient, product(tl.trans(back), k), columns, there, query_stride, head, part, d_k, k_width)


@triton.jit
def _backward_query_kernel(
    query,
    key,
    value,
    output,
    gradient,
    log_sums,
    shared,
    query_gradient,
    tiles,
    many,
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
    every: tl.constexpr,
):
    head, part = tl.program_id(0), tl.program_id(2) if parts > 1 else 0
    number = tl.program_id(1)
    going = _is_due(tiles, number, many, every)
    while going:
        tile = tiles + number * 5
        first, end = tl.load(tile), tl.load(tile + 1)
        step, last = tl.load(tile + 2), tl.load(tile + 3)
        rows = first + tl.arange(0, size)
        inside = rows < end
        low, high = tl.load(seen + rows, inside, 0), tl.load(seen + queries + rows, inside, 0)
        q = load_head(query, rows, inside, query_stride, head, 0, d_k, k_width)
        o = load_head(output, rows, inside, heads * d_v, head, 0, d_v, v_width)
        g = load_head(gradient, rows, inside, heads * d_v, head, 0, d_v, v_width)
        whole = tl.load(log_sums + head * queries + rows, inside, 0.0)
        common = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
        for other in tl.static_range(1, (d_v + v_width - 1) // v_width):
            more_o = load_head(output, rows, inside, heads * d_v, head, other, d_v, v_width)
            more_g = load_head(gradient, rows, inside, heads * d_v, head, other, d_v, v_width)
            common += tl.sum(more_o.to(tl.float32) * more_g.to(tl.float32), 1)
        tl.store(shared + head * queries + rows, common, inside)
        sums = tl.zeros((size, k_width), tl.float32)
        while step < last:
            columns = step + tl.arange(0, size)
            there = columns < last
            k = load_head(key, columns, there, key_stride, head, 0, d_k, k_width)
            v = load_head(value, columns, there, value_stride, head, 0, d_v, v_width)
            visible = (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])
            scores = multiply(
                q, k, query, key, rows, inside, columns, there, query_stride, key_stride, head, d_k, k_width
            )
            shares = tl.exp2(tl.where(visible, scores * scale - whole[:, None], -float("inf")))
            changes = multiply(
                g, v, gradient, value, rows, inside, columns, there, heads * d_v, value_stride, head, d_v, v_width
            )
            if drops:
                kept = is_kept(tl.load(seeds), rows[:, None], columns[None, :], head, dropout)
                changes = tl.where(kept, changes / (1 - dropout), 0.0)
            if parts > 1:
                k = load_head(key, columns, there, key_stride, head, part, d_k, k_width)
            sums += product((shares * (changes - common[:, None])).to(k.dtype), k)
            step += size
        store_head(query_gradient, sums * (scale * LN2), rows, inside, query_stride, head, part, d_k, k_width)
        number += tl.num_programs(1)
        going = _is_due(tiles, number, many, every)


@triton.jit
def _backward_key_kernel(
    query,
    key,
    value,
    gradient,
    log_sums,
    shared,
    key_gradient,
    value_gradient,
    tiles,
    many,
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
    every: tl.constexpr,
):
    head, part = tl.program_id(0), tl.program_id(2) if parts > 1 else 0
    number = tl.program_id(1)
    going = _is_due(tiles, number, many, every)
    while going:
        tile = tiles + number * 5
        first, end = tl.load(tile), tl.load(tile + 1)
        step, last = tl.load(tile + 2), tl.load(tile + 3)
        rows = first + tl.arange(0, size)
        here = rows < end
        k = load_head(key, rows, here, key_stride, head, 0, d_k, k_width)
        v = load_head(value, rows, here, value_stride, head, 0, d_v, v_width)
        k_sums = tl.zeros((size, k_width), tl.float32)
        v_sums = tl.zeros((size, v_width), tl.float32)
        while step < last:
            columns = step + tl.arange(0, size)
            there = columns < last
            q = load_head(query, columns, there, query_stride, head, 0, d_k, k_width)
            g = load_head(gradient, columns, there, heads * d_v, head, 0, d_v, v_width)
            visible, whole = _look(rows, columns, there, head, log_sums, seen, queries)
            scores = multiply(
                k, q, key, query, rows, here, columns, there, key_stride, query_stride, head, d_k, k_width
            )
            shares = tl.exp2(tl.where(visible, scores * scale - whole[None, :], -float("inf")))
            changes = multiply(
                v, g, value, gradient, rows, here, columns, there, value_stride, heads * d_v, head, d_v, v_width
            )
            used, changes = _drop(shares, changes, rows, columns, head, seeds, dropout, drops)
            if parts > 1:
                q = load_head(query, columns, there, query_stride, head, part, d_k, k_width)
                g = load_head(gradient, columns, there, heads * d_v, head, part, d_v, v_width)
            v_sums += product(used.to(g.dtype), g)
            common = tl.load(shared + head * queries + columns, there, 0.0)
            k_sums += product((shares * (changes - common[None, :])).to(q.dtype), q)
            step += size
        store_head(key_gradient, k_sums * (scale * LN2), rows, here, key_stride, head, part, d_k, k_width)
        store_head(value_gradient, v_sums, rows, here, value_stride, head, part, d_v, v_width)
        number += tl.num_programs(1)
        going = _is_due(tiles, number, many, every)


def backward(
    gradient: Float[Tensor, "query values"],
    own: Float[Tensor, "query width"],
    memory: Float[Tensor, "key width"] | None,
    output: Float[Tensor, "query values"],
    log_sums: Float[Tensor, "heads query"],
    tiles: Tiles,
    heads: Heads,
    seed: Int[Tensor, " 1"] | None,
) -> tuple[Float[Tensor, "query width"], Float[Tensor, "key width"] | None]:
    """Return the gradients of `own` and `memory` of `forward`."""
    query, key, value = split_heads(own, memory, heads)
    own_gradient, memory_gradient = torch.empty_like(own), None if memory is None else torch.empty_like(memory)
    gradients = split_heads(own_gradient, memory_gradient, heads)
    shared = torch.empty_like(log_sums)
    scale = heads.scale * LOG2E
    shapes = launch_with(query, key, value, heads, seed)
    gradient = gradient.contiguous()
    every = not _hold_tiles(query, shapes)
    if not every:
        _backward_whole_kernel[(heads.heads, len(tiles.by_key), shapes["parts"])](
            query,
            key,
            value,
            gradient,
            log_sums,
            *gradients,
            tiles.by_key,
            tiles.seen,
            seed,
            scale,
            heads.dropout,
            len(query),
            **shapes,
        )
    _backward_query_kernel[(heads.heads, min(PROGRAMS, len(tiles.by_query)), shapes["parts"])](
        query,
        key,
        value,
        output,
        gradient,
        log_sums,
        shared,
        gradients[0],
        tiles.by_query,
        len(tiles.by_query),
        tiles.seen,
        seed,
        scale,
        heads.dropout,
        len(query),
        **shapes,
        every=every,
    )
    _backward_key_kernel[(heads.heads, min(PROGRAMS, len(tiles.by_key)), shapes["parts"])](
        query,
        key,
        value,
        gradient,
        log_sums,
        shared,
        *gradients[1:],
        tiles.by_key,
        len(tiles.by_key),
        tiles.seen,
        seed,
        scale,
        heads.dropout,
        len(query),
        **shapes,
        every=every,
    )
    return own_gradient, memory_gradient


def _hold_tiles(query: Tensor, shapes: dict[str, Any]) -> bool:
    """Whether a program can hold a whole tile in the 99 KiB of most GPUs: wide heads in float32 take 144 KiB."""
    return query.element_size() == 2 or max(shapes["k_width"], shapes["v_width"]) <= 64
