"""One step of decoding on a GPU: embeddings, attention to each line's own past and to the source, norms.

Beside each kernel is the plain torch that it must equal (`plain_…`). Sums are in float32 whatever the inputs are.

Legend of shapes: `rows` are the lines of all slots, slot by slot, so that `rows = slots * beam`.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

STEPS = 64  # positions of the lines' ancestry that one program updates
WIDEST = 512  # the widest head that fits into a program
HELD = 96 * 1024 // 4  # pairs of numbers in half precision; the smallest GPUs have 99 KiB for a program


def _width(size: int) -> int:
    """Round a side of a product up to a power of two, and to at least 16, as tensor cores need."""
    return max(16, 1 << (size - 1).bit_length())


def _launch(keys: Tensor, values: Tensor, beam: int, block: int) -> dict[str, int]:
    """Return attention's launch options: places read at a time, warps, and how many reads are under way at once."""
    half = keys.element_size() == 2
    # A program holds this many keys and values beside its lines' queries and sums: fewer if heads are wide.
    fits = max(16, HELD // max(_width(keys.shape[-1]), _width(values.shape[-1])) - _width(beam))
    block = min(block, 1 << (fits.bit_length() - 1)) if half else 16
    return {"block": block, "num_warps": 2 if half and beam <= 16 else 4, "num_stages": 2 if half else 1}


# ---- embeddings ----


@triton.jit
def _embed_kernel(
    tokens, table, places, positions, output, scale, beam, d_model, placed: tl.constexpr, width: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, width)
    inside = columns < d_model
    token = tl.load(tokens + row).to(tl.int64)
    x = tl.load(table + token * d_model + columns, mask=inside, other=0.0).to(tl.float32) * scale
    if placed:
        position = tl.load(positions + row // beam)
        x += tl.load(places + position * d_model + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * d_model + columns, x, mask=inside)


def embed(
    tokens: Int[Tensor, "slots beam"],
    table: Float[Tensor, "vocabulary d_model"],
    places: Float[Tensor, "target d_model"] | None,
    positions: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows d_model"]:
    """Return the tokens' embeddings times `scale`, plus the rows of `places` for the slots' positions."""
    slots, beam = tokens.shape
    d_model = table.shape[1]
    output = torch.empty(slots * beam, d_model, dtype=table.dtype, device=table.device)
    _embed_kernel[(slots * beam,)](
        tokens,
        table,
        table if places is None else places,
        positions,
        output,
        scale,
        beam,
        d_model,
        placed=places is not None,
        width=triton.next_power_of_2(d_model),
        num_warps=2,
    )
    return output


def plain_embed(
    tokens: Int[Tensor, "slots beam"],
    table: Float[Tensor, "vocabulary d_model"],
    places: Float[Tensor, "target d_model"] | None,
    positions: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows d_model"]:
    """The same in torch."""
    x = table[tokens.long()].float() * scale
    if places is not None:
        x = x + places[positions].float()[:, None]
    return x.flatten(0, 1).to(table.dtype)


# ---- attention ----


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
    beam: tl.constexpr,
    heads: tl.constexpr,
    d_k: tl.constexpr,
    d_v: tl.constexpr,
    lines_width: tl.constexpr,
    k_width: tl.constexpr,
    v_width: tl.constexpr,
    block: tl.constexpr,
):
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(positions + slot)
    lines, k_places, v_places = tl.arange(0, lines_width), tl.arange(0, k_width), tl.arange(0, v_width)
    rows = slot * beam + lines
    k_own = (lines < beam)[:, None] & (k_places < d_k)[None, :]
    v_own = (lines < beam)[:, None] & (v_places < d_v)[None, :]
    q = tl.load(query + rows[:, None] * query_stride + head * d_k + k_places[None, :], mask=k_own, other=0.0)
    k = tl.load(key + rows[:, None] * key_stride + head * d_k + k_places[None, :], mask=k_own, other=0.0)
    v = tl.load(value + rows[:, None] * value_stride + head * d_v + v_places[None, :], mask=v_own, other=0.0)
    # Offsets within a slot's own cache fit 32 bits.
    keys += slot * target * beam * heads * d_k + head * d_k
    values += slot * target * beam * heads * d_v + head * d_v
    here = (position.to(tl.int32) * beam + lines) * heads
    tl.store(keys + here[:, None] * d_k + k_places[None, :], k, mask=k_own)
    tl.store(values + here[:, None] * d_v + v_places[None, :], v, mask=v_own)
    most = tl.sum(q.to(tl.float32) * k.to(tl.float32), 1) * scale
    total = tl.full((lines_width,), 1.0, tl.float32)
    sums = v.to(tl.float32)
    # The cache of earlier positions has rows (position, line); at each position a line sees only its ancestor's.
    said = position.to(tl.int32) * beam
    for first in range(0, said, block):
        kept = first + tl.arange(0, block)
        inside = kept < said
        ancestors = tl.load(
            ancestry + rows[:, None] * target + (kept // beam)[None, :],
            mask=(lines < beam)[:, None] & inside[None, :],
            other=-1,
        )
        places = kept * heads
        k_seen = inside[:, None] & (k_places < d_k)[None, :]
        k_kept = tl.load(keys + places[:, None] * d_k + k_places[None, :], mask=k_seen, other=0.0)
        v_seen = inside[:, None] & (v_places < d_v)[None, :]
        v_kept = tl.load(values + places[:, None] * d_v + v_places[None, :], mask=v_seen, other=0.0)
        scores = tl.dot(q, tl.trans(k_kept), input_precision="ieee") * scale
        scores = tl.where(ancestors == (kept % beam)[None, :], scores, -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        shrink, shares = tl.exp(most - new_most), tl.exp(scores - new_most[:, None])
        total = total * shrink + tl.sum(shares, 1)
        sums = sums * shrink[:, None] + tl.dot(shares.to(v.dtype), v_kept, input_precision="ieee")
        most = new_most
    place = output + (rows[:, None] * heads + head) * d_v + v_places[None, :]
    tl.store(place, sums / total[:, None], mask=v_own)


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
    """Cache each line's new key and value, and attend to them and to its ancestors' at earlier positions."""
    slots, target, beam, heads, d_k = keys.shape
    d_v = values.shape[-1]
    output = torch.empty(len(query), heads, d_v, dtype=query.dtype, device=query.device)
    _attend_own_kernel[(slots, heads)](
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
        lines_width=_width(beam),
        k_width=_width(d_k),
        v_width=_width(d_v),
        **_launch(keys, values, beam, 64 if beam > 1 else 32),
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
    """Do the same in torch, one line at a time."""
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
    beam: tl.constexpr,
    heads: tl.constexpr,
    d_k: tl.constexpr,
    d_v: tl.constexpr,
    lines_width: tl.constexpr,
    k_width: tl.constexpr,
    v_width: tl.constexpr,
    block: tl.constexpr,
):
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lengths + slot).to(tl.int32)
    keys += slot * source * heads * d_k + head * d_k
    values += slot * source * heads * d_v + head * d_v
    lines, k_places, v_places = tl.arange(0, lines_width), tl.arange(0, k_width), tl.arange(0, v_width)
    rows = slot * beam + lines
    k_own = (lines < beam)[:, None] & (k_places < d_k)[None, :]
    q = tl.load(query + rows[:, None] * query_stride + head * d_k + k_places[None, :], mask=k_own, other=0.0)
    most = tl.full((lines_width,), -1e30, tl.float32)
    total = tl.full((lines_width,), 1e-30, tl.float32)
    sums = tl.zeros((lines_width, v_width), tl.float32)
    for first in range(0, length, block):
        steps = first + tl.arange(0, block)
        inside = steps < length
        places = steps * heads
        k_seen = inside[:, None] & (k_places < d_k)[None, :]
        k = tl.load(keys + places[:, None] * d_k + k_places[None, :], mask=k_seen, other=0.0)
        v_seen = inside[:, None] & (v_places < d_v)[None, :]
        v = tl.load(values + places[:, None] * d_v + v_places[None, :], mask=v_seen, other=0.0)
        scores = tl.where(inside[None, :], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        shrink, shares = tl.exp(most - new_most), tl.exp(scores - new_most[:, None])
        total = total * shrink + tl.sum(shares, 1)
        sums = sums * shrink[:, None] + tl.dot(shares.to(v.dtype), v, input_precision="ieee")
        most = new_most
    place = output + (rows[:, None] * heads + head) * d_v + v_places[None, :]
    tl.store(place, sums / total[:, None], mask=(lines < beam)[:, None] & (v_places < d_v)[None, :])


def attend_source(
    query: Float[Tensor, "rows heads d_k"],
    keys: Float[Tensor, "slots source heads d_k"],
    values: Float[Tensor, "slots source heads d_v"],
    lengths: Int[Tensor, " slots"],
    scale: float,
) -> Float[Tensor, "rows heads d_v"]:
    """Attend to the first `lengths` places of each slot's source; zeros where a slot has none."""
    slots, source, heads, d_k = keys.shape
    d_v, beam = values.shape[-1], len(query) // slots
    output = torch.empty(len(query), heads, d_v, dtype=query.dtype, device=query.device)
    _attend_source_kernel[(slots, heads)](
        query,
        keys,
        values,
        lengths,
        output,
        scale,
        query.stride(0),
        source,
        beam,
        heads,
        d_k,
        d_v,
        lines_width=_width(beam),
        k_width=_width(d_k),
        v_width=_width(d_v),
        **_launch(keys, values, beam, 32),
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


@triton.jit
def _inherit_kernel(ancestry, parents, positions, target, beam, lines_width: tl.constexpr, width: tl.constexpr):
    slot = tl.program_id(0).to(tl.int64)
    lines, steps = tl.arange(0, lines_width), tl.program_id(1) * width + tl.arange(0, width)
    last = tl.load(positions + slot) - 1
    own = lines < beam
    parent = tl.load(parents + slot * beam + lines, mask=own, other=0)
    before = own[:, None] & (steps < last)[None, :]
    old = tl.load(ancestry + (slot * beam + parent)[:, None] * target + steps[None, :], mask=before, other=0)
    tl.debug_barrier()  # all is read before any is written; other programs have other steps
    new = tl.where((steps == last)[None, :], parent[:, None].to(old.dtype), old)
    place = ancestry + (slot * beam + lines)[:, None] * target + steps[None, :]
    tl.store(place, new, mask=own[:, None] & (steps <= last)[None, :])


def inherit(
    ancestry: Int[Tensor, "slots beam target"], parents: Int[Tensor, "slots beam"], positions: Int[Tensor, " slots"]
) -> None:
    """Give each line the ancestors of its parent, and the parent itself for the last position."""
    slots, beam, target = ancestry.shape
    grid = (slots, triton.cdiv(target, STEPS))
    widths = {"lines_width": triton.next_power_of_2(beam), "width": STEPS}
    _inherit_kernel[grid](ancestry, parents, positions, target, beam, **widths, num_warps=2)


def plain_inherit(
    ancestry: Int[Tensor, "slots beam target"], parents: Int[Tensor, "slots beam"], positions: Int[Tensor, " slots"]
) -> None:
    """The same in torch."""
    for own, parent, position in zip(ancestry, parents.tolist(), positions.tolist()):
        own[:, : max(0, position - 1)] = own[parent, : max(0, position - 1)]
        if position:
            own[:, position - 1] = own.new_tensor(parent)


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
    """Return x + y and its norm."""
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
