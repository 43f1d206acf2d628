"""Attention over rows against equation 1 written out, sentence by sentence, head by head, query by query."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import EMPTY, FILLER, assert_near
from threads import always_one_thread as always_one_thread
from torch import Tensor
from torch.nn import functional

from transduce.model import attention
from transduce.model.attention import MultiHeadAttention, Score, Spans, Weights, attend

Kind = Literal["scaled", "unscaled", "additive"]
KINDS: list[Kind] = ["scaled", "unscaled", "additive"]
PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=8)
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_offsets(lengths: list[int]) -> Tensor:
    """Return offsets with a tail of empty sentences, as batches have them."""
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    return torch.tensor(offsets + offsets[-1:] * EMPTY, dtype=torch.int32)


def make_case(
    query_lengths: list[int],
    key_lengths: list[int],
    *,
    d_k: int = 4,
    d_v: int = 4,
    heads: int = 2,
    causal: bool = False,
) -> tuple[Spans, Tensor, Tensor, Tensor]:
    """Return spans and random queries, keys and values, filler included."""
    queries, keys = sum(query_lengths) + FILLER, sum(key_lengths) + FILLER
    offsets = make_offsets(query_lengths), make_offsets(key_lengths)
    spans = Spans(*offsets, queries=queries, keys=keys, causal=causal)
    query, key = (torch.randn(tokens, heads, d_k, dtype=torch.float64) for tokens in (queries, keys))
    return spans, query, key, torch.randn(keys, heads, d_v, dtype=torch.float64)


def make_score(kind: Kind, heads: int, d_k: int) -> Score:
    score = Score(kind, heads, d_k).double()
    if score.additive is not None:
        torch.nn.init.normal_(score.additive)
    return score


def formula(
    query: Tensor, key: Tensor, value: Tensor, spans: Spans, kind: Kind, v: Tensor | None
) -> tuple[Tensor, Weights]:
    """Return softmax(score(Q, K)) V, number by number, and the softmax of each sentence."""
    result = torch.zeros(len(query), query.shape[1], value.shape[2], dtype=query.dtype)
    weights: Weights = []
    bounds = zip(pairwise(spans.query_offsets.tolist()), pairwise(spans.key_offsets.tolist()))
    for (query_first, query_end), (key_first, key_end) in bounds:
        weights.append(torch.zeros(query.shape[1], query_end - query_first, key_end - key_first, dtype=query.dtype))
        for head in range(query.shape[1]):
            for i in range(query_first, query_end):
                seen = range(key_first, min(key_end, key_first + i - query_first + 1) if spans.causal else key_end)
                scores = []
                for j in seen:
                    match kind:
                        case "scaled":
                            scores.append(query[i, head] @ key[j, head] / math.sqrt(query.shape[2]))
                        case "unscaled":
                            scores.append(query[i, head] @ key[j, head])
                        case "additive":
                            assert v is not None
                            scores.append(v[head] @ torch.tanh(query[i, head] + key[j, head]))
                exponentials = torch.stack(scores).exp()
                shares = exponentials / exponentials.sum()
                weights[-1][head, i - query_first, : len(seen)] = shares
                result[i, head] = sum(share * value[j, head] for share, j in zip(shares, seen))
    return result, weights


@pytest.mark.parametrize("d_v", [4, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["self", "causal", "cross"])
def test_attention_is_the_formula(pattern: str, kind: Kind, d_v: int):
    torch.manual_seed(0)
    query_lengths = [3, 7, 1, 6, 7, 2]
    key_lengths = [9, 1, 4, 6, 5, 8] if pattern == "cross" else query_lengths
    spans, query, key, value = make_case(query_lengths, key_lengths, d_v=d_v, causal=pattern == "causal")
    score = make_score(kind, 2, 4)
    expected, expected_weights = formula(query, key, value, spans, kind, score.additive)
    result = spans.attend(query, key, value, score)
    assert_near(result, expected)
    assert torch.equal(result[-FILLER:], torch.zeros_like(result[-FILLER:]))

    layers: list[Weights] = []
    assert_near(spans.attend(query, key, value, score, weights=layers), expected)
    (weights,) = layers
    assert [share.shape for share in weights] == [share.shape for share in expected_weights]
    assert [tuple(share.shape) for share in weights[:6]] == [(2, q, k) for q, k in zip(query_lengths, key_lengths)]
    for share, expected_share in zip(weights[:6], expected_weights):
        assert_near(share, expected_share)
        assert_near(share.sum(-1), torch.ones_like(share[..., 0]))
        if pattern == "causal":
            assert torch.equal(share.triu(1), torch.zeros_like(share))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["self", "causal", "cross"])
def test_gradients_are_those_of_finite_differences(pattern: str, kind: Kind, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    monkeypatch.setattr(attention, "SIMILAR", 0.5)  # two blocks, one with padding in it
    query_lengths = [3, 1, 2]
    key_lengths = [2, 1, 4] if pattern == "cross" else query_lengths
    spans, query, key, value = make_case(query_lengths, key_lengths, d_k=2, d_v=3, causal=pattern == "causal")
    score = make_score(kind, 2, 2)
    inputs = [part.requires_grad_() for part in (query, key, value)] + list(score.parameters())

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: Tensor) -> Tensor:
        return spans.attend(query, key, value, score)

    assert torch.autograd.gradcheck(attend, inputs)
    attend(*inputs).sum().backward()
    for part in (query, key, value):
        assert part.grad is not None
        assert torch.equal(part.grad[-FILLER:], torch.zeros_like(part.grad[-FILLER:]))


@given(
    lengths=PAIRS,
    pairs=st.sampled_from([1, 100, 2000, 1 << 21]),
    similar=st.sampled_from([0.0, 0.7, 1.0]),
    causal=st.booleans(),
)
@many
def test_blocks_change_nothing(
    monkeypatch: pytest.MonkeyPatch, lengths: list[tuple[int, int]], pairs: int, similar: float, causal: bool
):
    """However sentences are grouped, the result is that of each sentence by itself."""
    monkeypatch.setattr(attention, "BLOCK_PAIRS", pairs)
    monkeypatch.setattr(attention, "SIMILAR", similar)
    torch.manual_seed(len(lengths))
    query_lengths = [query for query, _ in lengths]
    key_lengths = query_lengths if causal else [key for _, key in lengths]
    spans, query, key, value = make_case(query_lengths, key_lengths, causal=causal)
    score = make_score("scaled", 2, 4)
    layers: list[Weights] = []
    result, again = spans.attend(query, key, value, score), spans.attend(query, key, value, score, weights=layers)
    bounds = zip(pairwise(spans.query_offsets.tolist()), pairwise(spans.key_offsets.tolist()), layers[0])
    for (query_first, query_end), (key_first, key_end), share in bounds:
        scores = torch.einsum("qhd,khd->hqk", query[query_first:query_end], key[key_first:key_end]) / 2
        if causal:
            scores += torch.full_like(scores, -torch.inf).triu(1)
        expected_share = scores.softmax(-1)
        expected = torch.einsum("hqk,khd->qhd", expected_share, value[key_first:key_end])
        assert_near(share, expected_share)
        assert_near(result[query_first:query_end], expected)
        assert_near(again[query_first:query_end], expected)


@given(lengths=PAIRS, pairs=st.integers(1, 4000))
@many
def test_blocks_are_small_and_hold_each_sentence_once(
    monkeypatch: pytest.MonkeyPatch, lengths: list[tuple[int, int]], pairs: int
):
    monkeypatch.setattr(attention, "BLOCK_PAIRS", pairs)
    spans, *_ = make_case([query for query, _ in lengths], [key for _, key in lengths])
    blocks, _, _ = spans._dense
    assert sorted(sentence for block in blocks for sentence in block.sentences) == list(range(len(lengths)))
    for block in blocks:
        longest = [max(lengths[sentence]) for sentence in block.sentences]
        assert len(longest) == 1 or len(longest) * max(longest) ** 2 <= pairs
        assert min(longest) >= attention.SIMILAR * max(longest)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_concatenated_in_order(kind: Kind):
    """Concat(head_1 … head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), one head at a time."""
    torch.manual_seed(0)
    d_model, heads, d_k, d_v = 6, 3, 2, 5
    module = MultiHeadAttention(d_model, heads, d_k, d_v, kind).double()
    spans, *_ = make_case([3, 2], [4, 1])
    x, memory = (torch.randn(tokens, d_model, dtype=torch.float64) for tokens in (spans.queries, spans.keys))
    w_q, w_k, w_v = (
        part.unflatten(0, (heads, -1)).transpose(1, 2)
        for part in module.projection.split([heads * d_k, heads * d_k, heads * d_v])
    )
    expected = []
    for head in range(heads):
        v = None if module.score.additive is None else module.score.additive[head : head + 1]
        query, key, value = ((x @ w_q[head])[:, None], (memory @ w_k[head])[:, None], (memory @ w_v[head])[:, None])
        expected.append(formula(query, key, value, spans, kind, v)[0][:, 0])
    assert_near(module(x, memory, spans), torch.cat(expected, -1) @ module.output.T)
    same, *_ = make_case([3, 2], [3, 2], causal=True)
    assert_near(module(x, None, same), module(x, x, same))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_takes_whole_weights_and_scales_the_rest(kind: Kind):
    """With unit vectors as values, the result is the weights themselves: each is 0 or w / (1 - p)."""
    torch.manual_seed(0)
    lengths = [40, 38, 40]
    spans, query, key, _ = make_case(lengths, lengths)
    value = torch.zeros(sum(lengths) + FILLER, 2, 40, dtype=torch.float64)
    for first, end in pairwise(spans.key_offsets.tolist()[: len(lengths) + 1]):
        value[first:end] = torch.eye(40, dtype=torch.float64)[: end - first, None]
    score = make_score(kind, 2, 4)
    layers: list[Weights] = []
    plain = spans.attend(query, key, value, score, weights=layers)
    dropped = spans.attend(query, key, value, score, dropout=0.25, weights=layers)
    assert all(map(torch.equal, *layers))  # what is shown is what the softmax says
    for some in (dropped, spans.attend(query, key, value, score, dropout=0.25)):
        kept = some != 0
        assert_near(some[kept], plain[kept] / 0.75)
        assert kept[plain != 0].double().mean().item() == pytest.approx(0.75, abs=0.02)


def test_a_row_without_sentences_gives_zeros_and_a_gradient():
    offsets = torch.zeros(4, dtype=torch.int32)
    module = MultiHeadAttention(6, 3, 2, 2)
    x = torch.randn(5, 6, requires_grad=True)
    layers: list[Weights] = []
    result = module(x, None, Spans(offsets, offsets, queries=5, keys=5), weights=layers)
    assert torch.equal(result, torch.zeros(5, 6))
    assert [tuple(share.shape) for share in layers[0]] == [(3, 0, 0)] * 3
    result.sum().backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [3, 28, 100])
def test_in_bf16_on_a_cpu_gradients_are_as_exact_as_torchs_fused_ones(length: int, causal: bool):
    """Both are compared with float64; the formula is taken because its gradients are several times as fast there."""
    torch.manual_seed(0)
    parts = [(scale * torch.randn(6, 4, length, 16)).bfloat16() for scale in (3, 3, 1)]
    weights = torch.randn(6, 4, length, 16).bfloat16()
    fused = partial(functional.scaled_dot_product_attention, is_causal=causal)

    def differentiate(attention: Callable[..., Tensor], dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
        inputs = [part.detach().to(dtype).requires_grad_() for part in parts]
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            found = attention(*inputs)
        assert found.dtype == dtype
        return [found.double(), *(one.double() for one in torch.autograd.grad(found, inputs, weights.to(dtype)))]

    exact = differentiate(fused, torch.float64)
    ours = differentiate(lambda q, k, v: attend(q, k, v, Score("scaled", 4, 16), causal=causal))
    for one, other, true in zip(ours, differentiate(fused), exact):
        assert (one - true).norm() < 1.5 * (other - true).norm()
        assert (one - true).norm() < 0.01 * true.norm()
