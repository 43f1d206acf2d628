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

    window = (-1, 0) if causal else (-1, -1)
    heads = varlen_attn(query, key, value, query_offsets, key_offsets, *longest, scale=scale, window_size=window)
    assert isinstance(heads, Tensor)
    # The kernel leaves what lies behind the last sentence as it was in memory.
    inside = torch.arange(len(query), device=query.device) < query_offsets[-1]
    return torch.where(inside[:, None, None], heads, 0)
