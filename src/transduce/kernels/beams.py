"""A step of beam search: the best tokens of all lines, and the choice of which hypotheses go on or end.

`best` must equal `plain_best`, in plain torch. `choose` must equal `decoding.beams.Beams.choose`, except that ended
hypotheses are kept in another order and that the lower of equal candidates comes first.
"""

# Triton kernels take launch options besides their own arguments, and some functions are typed to return constants.
# pyright: reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 4096  # tokens of the vocabulary that one program reads
SPAN = 64  # neighbouring tokens whose largest logit is kept
NONE = tl.constexpr(2147483647)  # larger than the number of any token or span

# ---- the best tokens ----

# The k best tokens are in the k spans with the largest maxima: each of these has a token that beats any of the other
# spans, or is equal and lower. So all logits are read once, and only k spans of each row a second time.


@triton.jit
def _spans_kernel(logits, maxima, most, sums, vocabulary, stride, spans, block: tl.constexpr, span: tl.constexpr):
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    numbers = part * (block // span) + tl.arange(0, block // span)
    ids = numbers[:, None] * span + tl.arange(0, span)[None, :]
    x = tl.load(logits + row * stride + ids, mask=ids < vocabulary, other=-float("inf")).to(tl.float32)
    largest = tl.max(x, 1)
    tl.store(maxima + row * spans + numbers, largest, mask=numbers < spans)
    top = tl.max(largest, 0)
    tl.store(most + row * parts + part, top)
    tl.store(sums + row * parts + part, tl.sum(tl.where(x > -float("inf"), tl.exp(x - top), 0.0)))


@triton.jit
def _best_kernel(
    logits,
    maxima,
    most,
    sums,
    given,
    best_values,
    best_tokens,
    vocabulary,
    stride,
    spans,
    parts,
    is_given: tl.constexpr,
    k: tl.constexpr,
    span: tl.constexpr,
    spans_width: tl.constexpr,
    parts_width: tl.constexpr,
    k_width: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, parts_width)
    block_most = tl.load(most + row * parts + blocks, mask=blocks < parts, other=-float("inf"))
    block_sums = tl.load(sums + row * parts + blocks, mask=blocks < parts, other=0.0)
    numbers = tl.arange(0, spans_width)
    x = tl.load(maxima + row * spans + numbers, mask=numbers < spans, other=-float("inf"))
    numbers = tl.where(numbers < spans, numbers, NONE)
    if is_given:
        normaliser = tl.load(given + row)
    else:
        top = tl.max(block_most, 0)
        shares = tl.where(block_most > -float("inf"), block_sums * tl.exp(block_most - top), 0.0)
        normaliser = top + tl.log(tl.sum(shares, 0))
    ranks = tl.arange(0, k_width)
    chosen = tl.full((k_width,), NONE, tl.int32)
    for rank in range(k):
        best = tl.min(tl.where(x == tl.max(x, 0), numbers, NONE), 0)
        chosen = tl.where(ranks == rank, best, chosen)
        x = tl.where(numbers == best, -float("inf"), x)
        numbers = tl.where(numbers == best, NONE, numbers)
    ids = tl.where(chosen < spans, chosen, spans)[:, None] * span + tl.arange(0, span)[None, :]
    inside = ids < vocabulary
    y = tl.load(logits + row * stride + ids, mask=inside, other=-float("inf")).to(tl.float32)
    ids = tl.where(inside, ids, NONE)
    for rank in range(k):
        largest = tl.max(y)
        best = tl.min(tl.where(y == largest, ids, NONE))
        tl.store(best_values + row * k + rank, largest - normaliser)
        tl.store(best_tokens + row * k + rank, tl.minimum(best, vocabulary - 1))  # NONE if all are NaN
        y = tl.where(ids == best, -float("inf"), y)
        ids = tl.where(ids == best, NONE, ids)


def best(
    logits: Float[Tensor, "rows vocabulary"], k: int, normaliser: Float[Tensor, " rows"] | None = None
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """Return the k largest log-probabilities of each row, largest first, and their tokens; of equal ones the lower.

    If some logits were set to -inf, `normaliser` is the logarithm of the sum of e^logit from before.
    """
    rows, vocabulary = logits.shape
    spans, parts = triton.cdiv(vocabulary, SPAN), triton.cdiv(vocabulary, BLOCK)
    k_width = triton.next_power_of_2(k)

    def empty(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=kind, device=logits.device)

    maxima, most, sums = empty(rows, spans), empty(rows, parts), empty(rows, parts)
    best_values, best_tokens = empty(rows, k), empty(rows, k, kind=torch.int32)
    _spans_kernel[(rows, parts)](
        logits, maxima, most, sums, vocabulary, logits.stride(0), spans, block=BLOCK, span=SPAN, num_warps=4
    )
    _best_kernel[(rows,)](
        logits,
        maxima,
        most,
        sums,
        sums if normaliser is None else normaliser,
        best_values,
        best_tokens,
        vocabulary,
        logits.stride(0),
        spans,
        parts,
        is_given=normaliser is not None,
        k=k,
        span=SPAN,
        spans_width=triton.next_power_of_2(spans),
        parts_width=triton.next_power_of_2(parts),
        k_width=k_width,
        num_warps=min(8, max(1, k_width // 16)),
    )
    return best_values, best_tokens


def plain_best(
    logits: Float[Tensor, "rows vocabulary"], k: int, normaliser: Float[Tensor, " rows"] | None = None
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """Return the same, in plain torch."""
    logits = logits.float()
    order = logits.sort(dim=-1, descending=True, stable=True)
    normaliser = logits.logsumexp(-1) if normaliser is None else normaliser
    return order.values[:, :k] - normaliser[:, None], order.indices[:, :k].int()


# ---- the choice ----


@triton.jit
def _choose_kernel(
    values,
    candidates,
    scores,
    following,
    parents,
    said,
    came_from,
    sums,
    length,
    limit,
    done,
    ended,
    ended_sums,
    ended_line,
    ended_length,
    penalty,
    min_tokens,
    n_best,
    steps,
    beam: tl.constexpr,
    k: tl.constexpr,
    until_full: tl.constexpr,
    begin_token: tl.constexpr,
    end_token: tl.constexpr,
    width: tl.constexpr,
    lines_width: tl.constexpr,
):
    slot = tl.program_id(0).to(tl.int64)
    was_done = tl.load(done + slot) != 0
    said_so_far = tl.load(length + slot)
    flat = tl.arange(0, width)
    inside = flat < beam * k
    token = tl.load(candidates + slot * beam * k + flat, mask=inside, other=0)
    x = tl.load(values + slot * beam * k + flat, mask=inside, other=-float("inf"))
    x += tl.load(scores + slot * beam + flat // k, mask=inside, other=-float("inf"))
    never = ((token & ~begin_token) == 0) | ((token == end_token) & (said_so_far < min_tokens))
    x = tl.where(never, -float("inf"), x)
    lines = tl.arange(0, lines_width)
    own, rows = lines < beam, slot * beam + lines
    # Places beyond the beam hold scores of inf, so nothing replaces them.
    kept = tl.load(ended + rows, mask=own, other=float("inf"))
    kept_sums = tl.load(ended_sums + rows, mask=own, other=0.0)
    kept_line = tl.load(ended_line + rows, mask=own, other=0)
    kept_length = tl.load(ended_length + rows, mask=own, other=0)
    now = tl.load(penalty + said_so_far + 1)
    new_scores = tl.full((lines_width,), -float("inf"), tl.float32)
    new_parents = tl.zeros((lines_width,), tl.int64)
    new_tokens = tl.full((lines_width,), end_token, tl.int32)
    going = 0
    for rank in range(2 * beam):
        top = tl.max(x, 0)
        place = tl.minimum(tl.min(tl.where(x == top, flat, width), 0), beam * k - 1)  # a NaN equals nothing
        chosen = tl.sum(tl.where(flat == place, token, 0), 0)
        x = tl.where(flat == place, -float("inf"), x)
        line = place // k
        # An end counts only among the `beam` best candidates; it replaces the worst of those that have ended.
        score = tl.where((chosen == end_token) & (rank < beam) & (was_done == 0), top / now, -float("inf"))
        worst = tl.min(kept, 0)
        here = lines == tl.where(score > worst, tl.min(tl.where(kept == worst, lines, lines_width), 0), lines_width)
        kept = tl.where(here, score, kept)
        kept_sums = tl.where(here, top, kept_sums)
        kept_line = tl.where(here, line.to(tl.int64), kept_line)
        kept_length = tl.where(here, said_so_far + 1, kept_length)
        goes = lines == tl.where(chosen != end_token, going, lines_width)
        new_scores = tl.where(goes, top, new_scores)
        new_parents = tl.where(goes, line.to(tl.int64), new_parents)
        new_tokens = tl.where(goes, chosen, new_tokens)
        going += tl.where(chosen != end_token, 1, 0)
    place = (slot * steps + said_so_far) * beam + lines
    tl.store(said + place, new_tokens, mask=own)
    tl.store(came_from + place, new_parents, mask=own)
    tl.store(sums + place, new_scores, mask=own)
    tl.store(parents + rows, new_parents, mask=own)
    tl.store(following + rows, new_tokens, mask=own)
    old = tl.load(scores + rows, mask=own, other=0.0)
    tl.store(scores + rows, tl.where(was_done, old, new_scores), mask=own)
    tl.store(ended + rows, kept, mask=own)
    tl.store(ended_sums + rows, kept_sums, mask=own)
    tl.store(ended_line + rows, kept_line, mask=own)
    tl.store(ended_length + rows, kept_length, mask=own)
    most = tl.load(limit + slot)
    best = tl.max(new_scores, 0)
    if until_full:
        found = tl.min(kept, 0) > -float("inf")
    else:
        bound = best / tl.load(penalty + most)
        found = tl.sum(tl.where(own & (kept >= bound), 1, 0), 0) >= n_best
    said_now = said_so_far + 1
    is_done = was_done | found | (said_now >= most) | (best == -float("inf"))
    tl.store(length + slot, tl.where(was_done, said_so_far, said_now))
    tl.store(done + slot, is_done)


def choose(
    values: Float[Tensor, "slots beam k"],
    candidates: Int[Tensor, "slots beam k"],
    state: tuple[Tensor, ...],
    penalty: Float[Tensor, " target+2"],
    *,
    min_tokens: int,
    n_best: int,
    until_full: bool,
    begin_token: int,
    end_token: int,
) -> None:
    """Let the best candidates go on or end, by changing `state`, the tensors of the hypotheses.

    These are, in order, scores, next, parents, said, came_from, sums, length, limit, done, ended, ended_sums,
    ended_line and ended_length.
    """
    slots, beam, k = values.shape
    _choose_kernel[(slots,)](
        values,
        candidates,
        *state,
        penalty,
        min_tokens,
        n_best,
        state[3].shape[1],
        beam=beam,
        k=k,
        until_full=until_full,
        begin_token=begin_token,
        end_token=end_token,
        width=triton.next_power_of_2(beam * k),
        lines_width=triton.next_power_of_2(beam),
        num_warps=1 if beam * k <= 256 else 4,
    )
