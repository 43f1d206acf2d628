"""Attention over rows of sentences by torch's flash kernel for variable lengths, on NVIDIA GPUs."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def can_attend(query: Float[Tensor, "query heads d_k"], value: Float[Tensor, "key heads d_v"]) -> bool:
    """Whether the kernel takes these: half precision on a GPU that has it, heads of one width that it knows."""
    d_k, d_v = query.shape[-1], value.shape[-1]
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and d_k == d_v <= 256 and d_k % 8 == 0


def attend(
    query: Float[Tensor, "query heads d_k"],
    key: Float[Tensor, "key heads d_k"],
    value: Float[Tensor, "key heads d_v"],
    query_offsets: Int[Tensor, " sentences+1"],
    key_offsets: Int[Tensor, " sentences+1"],
    longest: tuple[int, int],
    *,
    causal: bool,
    scale: float,
) -> Float[Tensor, "query heads d_v"]:
    """Attention of every sentence; zeros behind the last one."""
    from torch.nn.attention.varlen import varlen_attn

    # The kernel leaves what lies behind the last sentence as it was in memory: results, and gradients of its inputs.
    query, key, value = _only(query, query_offsets), _only(key, key_offsets), _only(value, key_offsets)
    window = (-1, 0) if causal else (-1, -1)
    heads = varlen_attn(query, key, value, query_offsets, key_offsets, *longest, scale=scale, window_size=window)
    assert isinstance(heads, Tensor)
    return _only(heads, query_offsets)


def _only(
    rows: Float[Tensor, "tokens heads d"], offsets: Int[Tensor, " sentences+1"]
) -> Float[Tensor, "tokens heads d"]:
    """The rows of sentences, and zeros behind the last one, forward and backward."""
    inside = torch.arange(len(rows), device=rows.device) < offsets[-1]
    return torch.where(inside[:, None, None], rows, 0)
