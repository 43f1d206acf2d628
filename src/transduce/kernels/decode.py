"""One step of decoding on a GPU: attention to what each line has said and to the source, norms, the best tokens.

Every kernel stands beside the plain torch it must equal (`plain_…`). Sums are in float32 whatever the inputs are.

Legend of shapes: `rows` are the lines of all slots, slot by slot, so that `rows = slots * beam`.
"""

# Triton's kernels take how they are to be launched beside their own arguments, and its functions return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 4096  # tokens of the vocabulary that one program looks through


# ---- attention of a line to what it has said ----


@triton.jit
def _attend_own_kernel(
    query,
    key,
    value,
    keys,
    values,
    ancestry,
    positions,
    output,
    scale,
    query_stride,
    key_stride,
    value_stride,
    target,
    beam,
    heads,
    d_k,
    d_v,
    k_width: tl.constexpr,
    v_width: tl.constexpr,
    step: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot, line = row // beam, row % beam
    position = tl.load(positions + slot)
    k_places, v_places = tl.arange(0, k_width), tl.arange(0, v_width)
    k_inside, v_inside = k_places < d_k, v_places < d_v
    q = tl.load(query + row * query_stride + head * d_k + k_places, mask=k_inside, other=0.0).to(tl.float32) * scale
    k = tl.load(key + row * key_stride + head * d_k + k_places, mask=k_inside, other=0.0)
    v = tl.load(value + row * value_stride + head * d_v + v_places, mask=v_inside, other=0.0)
    here = ((slot * target + position) * beam + line) * heads + head
    tl.store(keys + here * d_k + k_places, k, mask=k_inside)
    tl.store(values + here * d_v + v_places, v, mask=v_inside)
    most = tl.sum(q * k.to(tl.float32), 0)
    total = 1.0
    sums = v.to(tl.float32)
    first = 0
    while first < position:
        steps = first + tl.arange(0, step)
        before = steps < position
        lines = tl.load(ancestry + row * target + steps, mask=before, other=0)
        places = ((slot * target + steps) * beam + lines) * heads + head
        seen = before[:, None] & k_inside[None, :]
        k_seen = tl.load(keys + places[:, None] * d_k + k_places[None, :], mask=seen, other=0.0).to(tl.float32)
        scores = tl.where(before, tl.sum(k_seen * q[None, :], 1), -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 0))
        shrink, shares = tl.exp(most - new_most), tl.exp(scores - new_most)
        seen = before[:, None] & v_inside[None, :]
        v_seen = tl.load(values + places[:, None] * d_v + v_places[None, :], mask=seen, other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(shares, 0)
        sums = sums * shrink + tl.sum(shares[:, None] * v_seen, 0)
        most = new_most
        first += step
    tl.store(output + (row * heads + head) * d_v + v_places, sums / total, mask=v_inside)


def attend_own(
    query: Float[Tensor, "rows heads d_k"],
    key: Float[Tensor, "rows heads d_k"],
    value: Float[Tensor, "rows heads d_v"],
    keys: Float[Tensor, "slots target beam heads d_k"],
    values: Float[Tensor, "slots target beam heads d_v"],
    ancestry: Int[Tensor, "slots beam target"],
    positions: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows heads d_v"]:
    """Keep each line's new key and value, and attend to them and to those of its ancestors at earlier positions."""
    _, target, beam, heads, d_k = keys.shape
    d_v = values.shape[-1]
    output = torch.empty(len(query), heads, d_v, dtype=query.dtype, device=query.device)
    _attend_own_kernel[(len(query), heads)](
        query,
        key,
        value,
        keys,
        values,
        ancestry,
        positions,
        output,
        scale,
        query.stride(0),
        key.stride(0),
        value.stride(0),
        target,
        beam,
        heads,
        d_k,
        d_v,
        k_width=triton.next_power_of_2(d_k),
        v_width=triton.next_power_of_2(d_v),
        step=16,
        num_warps=2,
    )
    return output


def plain_attend_own(
    query: Float[Tensor, "rows heads d_k"],
    key: Float[Tensor, "rows heads d_k"],
    value: Float[Tensor, "rows heads d_v"],
    keys: Float[Tensor, "slots target beam heads d_k"],
    values: Float[Tensor, "slots target beam heads d_v"],
    ancestry: Int[Tensor, "slots beam target"],
    positions: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows heads d_v"]:
    """The same, a line at a time."""
    slots, _, beam, *_ = keys.shape
    results: list[Tensor] = []
    for row in range(slots * beam):
        slot, line = divmod(row, beam)
        position = int(positions[slot])
        keys[slot, position, line], values[slot, position, line] = key[row], value[row]
        lines = torch.cat((ancestry[slot, line, :position], ancestry.new_tensor([line])))
        steps = torch.arange(position + 1, device=lines.device)
        k, v = keys[slot, steps, lines].float(), values[slot, steps, lines].float()  # (said, heads, d)
        shares = torch.einsum("hd,thd->ht", query[row].float() * scale, k).softmax(-1)
        results.append(torch.einsum("ht,thd->hd", shares, v))
    return torch.stack(results).to(query.dtype)


# ---- attention of a line to the source ----


@triton.jit
def _attend_source_kernel(
    query,
    keys,
    values,
    lengths,
    output,
    scale,
    query_stride,
    source,
    beam,
    heads,
    d_k,
    d_v,
    k_width: tl.constexpr,
    v_width: tl.constexpr,
    step: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = row // beam
    length = tl.load(lengths + slot)
    k_places, v_places = tl.arange(0, k_width), tl.arange(0, v_width)
    k_inside, v_inside = k_places < d_k, v_places < d_v
    q = tl.load(query + row * query_stride + head * d_k + k_places, mask=k_inside, other=0.0).to(tl.float32) * scale
    most = -float("inf")
    total = 0.0
    sums = tl.zeros((v_width,), tl.float32)
    first = 0
    while first < length:
        steps = first + tl.arange(0, step)
        inside = steps < length
        places = (slot * source + steps) * heads + head
        seen = inside[:, None] & k_inside[None, :]
        k_seen = tl.load(keys + places[:, None] * d_k + k_places[None, :], mask=seen, other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(k_seen * q[None, :], 1), -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 0))
        shrink, shares = tl.exp(most - new_most), tl.exp(scores - new_most)
        seen = inside[:, None] & v_inside[None, :]
        v_seen = tl.load(values + places[:, None] * d_v + v_places[None, :], mask=seen, other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(shares, 0)
        sums = sums * shrink + tl.sum(shares[:, None] * v_seen, 0)
        most = new_most
        first += step
    tl.store(output + (row * heads + head) * d_v + v_places, sums / tl.maximum(total, 1e-30), mask=v_inside)


def attend_source(
    query: Float[Tensor, "rows heads d_k"],
    keys: Float[Tensor, "slots source heads d_k"],
    values: Float[Tensor, "slots source heads d_v"],
    lengths: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows heads d_v"]:
    """Attend to the first `lengths` places of each slot's source; zeros where a slot has none."""
    slots, source, heads, d_k = keys.shape
    d_v = values.shape[-1]
    output = torch.empty(len(query), heads, d_v, dtype=query.dtype, device=query.device)
    _attend_source_kernel[(len(query), heads)](
        query,
        keys,
        values,
        lengths,
        output,
        scale,
        query.stride(0),
        source,
        len(query) // slots,
        heads,
        d_k,
        d_v,
        k_width=triton.next_power_of_2(d_k),
        v_width=triton.next_power_of_2(d_v),
        step=16,
        num_warps=2,
    )
    return output


def plain_attend_source(
    query: Float[Tensor, "rows heads d_k"],
    keys: Float[Tensor, "slots source heads d_k"],
    values: Float[Tensor, "slots source heads d_v"],
    lengths: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows heads d_v"]:
    """The same in torch."""
    beam = len(query) // len(keys)
    inside = torch.arange(keys.shape[1], device=keys.device) < lengths[:, None]
    scores = torch.einsum("sbhd,sthd->sbht", query.float().unflatten(0, (-1, beam)) * scale, keys.float())
    shares = scores.masked_fill(~inside[:, None, None], -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("sbht,sthd->sbhd", shares, values.float()).flatten(0, 1).to(query.dtype)


# ---- residual and norm ----


@triton.jit
def _add_norm_kernel(x, y, weight, bias, total, output, d_model, epsilon, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, width)
    inside = places < d_model
    a = tl.load(x + row * d_model + places, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(y + row * d_model + places, mask=inside, other=0.0).to(tl.float32)
    both = a + b
    tl.store(total + row * d_model + places, both, mask=inside)
    mean = tl.sum(both, 0) / d_model
    away = tl.where(inside, both - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away, 0) / d_model + epsilon)
    w = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(bias + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * d_model + places, away * scale * w + c, mask=inside)


def add_norm(
    x: Float[Tensor, "rows d_model"], y: Float[Tensor, "rows d_model"], norm: torch.nn.LayerNorm
) -> tuple[Float[Tensor, "rows d_model"], Float[Tensor, "rows d_model"]]:
    """x + y, and its norm."""
    total, output = torch.empty_like(x), torch.empty_like(x)
    d_model = x.shape[1]
    width = triton.next_power_of_2(d_model)
    _add_norm_kernel[(len(x),)](
        x,
        y,
        norm.weight,
        norm.bias,
        total,
        output,
        d_model,
        norm.eps,
        width=width,
        num_warps=min(8, max(1, width // 256)),
    )
    return total, output


def plain_add_norm(
    x: Float[Tensor, "rows d_model"], y: Float[Tensor, "rows d_model"], norm: torch.nn.LayerNorm
) -> tuple[Float[Tensor, "rows d_model"], Float[Tensor, "rows d_model"]]:
    """The same in torch."""
    total = x.float() + y.float()
    normed = torch.nn.functional.layer_norm(total, total.shape[1:], norm.weight.float(), norm.bias.float(), norm.eps)
    return total.to(x.dtype), normed.to(x.dtype)


# ---- the best tokens ----


@triton.jit
def _best_of_blocks_kernel(
    logits,
    values,
    tokens,
    most,
    sums,
    vocabulary,
    stride,
    k: tl.constexpr,
    block: tl.constexpr,
):
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    ids = part * block + tl.arange(0, block)
    x = tl.load(logits + row * stride + ids, mask=ids < vocabulary, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    place = row * parts + part
    tl.store(most + place, top)
    tl.store(sums + place, tl.sum(tl.where(x > -float("inf"), tl.exp(x - top), 0.0), 0))
    for rank in range(k):
        top = tl.max(x, 0)
        best = tl.min(tl.where(x == top, ids, 2147483647), 0)
        tl.store(values + place * k + rank, top)
        tl.store(tokens + place * k + rank, best)
        x = tl.where(ids == best, -float("inf"), x)


@triton.jit
def _best_of_all_kernel(
    values,
    tokens,
    most,
    sums,
    best_values,
    best_tokens,
    parts,
    k: tl.constexpr,
    width: tl.constexpr,
    part_width: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, part_width)
    block_most = tl.load(most + row * parts + blocks, mask=blocks < parts, other=-float("inf"))
    block_sums = tl.load(sums + row * parts + blocks, mask=blocks < parts, other=0.0)
    top = tl.max(block_most, 0)
    normaliser = top + tl.log(
        tl.sum(tl.where(block_most > -float("inf"), block_sums * tl.exp(block_most - top), 0.0), 0)
    )
    places = tl.arange(0, width)
    inside = places < parts * k
    x = tl.load(values + row * parts * k + places, mask=inside, other=-float("inf"))
    ids = tl.load(tokens + row * parts * k + places, mask=inside, other=2147483647)
    for rank in range(k):
        top = tl.max(x, 0)
        best = tl.min(tl.where(x == top, ids, 2147483647), 0)
        tl.store(best_values + row * k + rank, top - normaliser)
        tl.store(best_tokens + row * k + rank, best)
        x = tl.where(ids == best, -float("inf"), x)
        ids = tl.where(ids == best, 2147483647, ids)


def best(logits: Float[Tensor, "rows vocabulary"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """The k largest log-probabilities of each row, the largest first, and their tokens; of equal ones the lower."""
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, BLOCK)

    def empty(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=kind, device=logits.device)

    values, tokens = empty(rows, parts, k), empty(rows, parts, k, kind=torch.int32)
    most, sums = empty(rows, parts), empty(rows, parts)
    best_values, best_tokens = empty(rows, k), empty(rows, k, kind=torch.int32)
    _best_of_blocks_kernel[(rows, parts)](
        logits, values, tokens, most, sums, vocabulary, logits.stride(0), k, block=BLOCK, num_warps=8
    )
    _best_of_all_kernel[(rows,)](
        values,
        tokens,
        most,
        sums,
        best_values,
        best_tokens,
        parts,
        k,
        width=triton.next_power_of_2(parts * k),
        part_width=triton.next_power_of_2(parts),
        num_warps=1,
    )
    return best_values, best_tokens


def plain_best(
    logits: Float[Tensor, "rows vocabulary"], k: int
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """The same in torch."""
    logits = logits.float()
    order = logits.sort(dim=-1, descending=True, stable=True)
    return order.values[:, :k] - logits.logsumexp(-1, keepdim=True), order.indices[:, :k].int()
