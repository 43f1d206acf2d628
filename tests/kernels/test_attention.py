"""Attention in tiles equals the plain one, whatever the lengths, forward and backward."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from random_batches import DEVICE
from torch import Tensor

from transduce.kernels import attention, attention_backward
from transduce.kernels.attention import PART, Heads, Tiles, seen_keys
from transduce.model.attention import Score, Spans
from transduce.text.tiles import SIZE, lay_tiles

pytestmark = pytest.mark.usefixtures("on_device")
LENGTHS = {
    "one": [1],
    "around a tile": [15, 16, 17, 63, 64, 65],
    "long ones": [127, 128, 129, 3, 200, 1],
    "one long among short ones": [5, 7, 4, 150, 6, 2],
    "short ones": [9, 3, 12, 28, 1, 1, 30, 17, 22, 5, 40, 8],
    "empty ones": [0, 4, 0, 0, 7, 0],
    "nothing": [0],
}


def offsets_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)


def make_tiles(spans: Spans, empty: int = 0) -> Tiles:
    sides = spans.query_offsets.numpy(force=True), spans.key_offsets.numpy(force=True)
    laid = lay_tiles(*sides, queries=spans.queries, keys=spans.keys, causal=spans.causal)
    by_query, by_key = (torch.from_numpy(np.pad(tiles, ((0, empty), (0, 0)))).to(DEVICE) for tiles in laid)
    seen = seen_keys(spans.query_offsets, spans.key_offsets, spans.queries, causal=spans.causal)
    return Tiles(by_query, by_key, seen)


def make_spans(lengths: list[int], others: list[int] | None, *, filler: int, causal: bool) -> Spans:
    """Let the sentences of a row attend to themselves, or to those of another row."""
    query, key = offsets_of(lengths), offsets_of(others or lengths)
    return Spans(query, key, queries=int(query[-1]) + filler, keys=int(key[-1]) + filler, causal=causal)


@pytest.mark.parametrize("filler", [0, 1, 100])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("name", LENGTHS)
def test_every_query_and_key_is_in_one_tile(name: str, kind: str, filler: int):
    lengths = LENGTHS[name]
    spans = make_spans(lengths, lengths[::-1] if kind == "cross" else None, filler=filler, causal=kind == "causal")
    tiles = make_tiles(spans)
    first, end = tiles.seen
    for side, tokens in ((tiles.by_query, spans.queries), (tiles.by_key, spans.keys)):
        assert sorted(token for start, stop, *_ in side.tolist() for token in range(start, stop)) == list(range(tokens))
        assert (side[:, 1] - side[:, 0] <= SIZE).all()
    for start, stop, low, high, _ in tiles.by_query.tolist():
        needed = [(int(first[row]), int(end[row])) for row in range(start, stop) if first[row] < end[row]]
        assert all(low <= a and b <= high for a, b in needed)
    for start, stop, low, high, _ in tiles.by_key.tolist():
        users = [q for q in range(spans.queries) if max(start, first[q]) < min(stop, end[q])]
        assert all(low <= user < high for user in users)
    whole = [tile for tile in tiles.by_query.tolist() if tile[4]]
    assert sorted(whole) == sorted([c, d, a, b, e] for a, b, c, d, e in tiles.by_key.tolist() if e)
    assert all(0 < b - a <= SIZE and 0 < d - c <= SIZE for a, b, c, d, _ in whole)


@pytest.mark.parametrize("causal", [False, True])
def test_each_query_sees_its_own_sentence(causal: bool):
    lengths, others = [3, 0, 2, 4], [3, 0, 2, 4] if causal else [2, 1, 0, 5]
    query, key = offsets_of(lengths), offsets_of(others)
    first, end = seen_keys(query, key, 12, causal=causal).tolist()
    for (start, stop), (low, high) in zip(pairwise(query.tolist()), pairwise(key.tolist())):
        for row in range(start, stop):
            expected = range(low, row + 1) if causal else range(low, high)
            assert range(first[row], end[row]) == expected
    assert all(first[row] >= end[row] for row in range(9, 12))


def plain(own: Tensor, memory: Tensor | None, spans: Spans, heads: Heads) -> Tensor:
    parts = attention.split_heads(own, memory, heads)
    query, key, value = (part.unflatten(-1, (heads.heads, -1)) for part in parts)
    score = Score("scaled", heads.heads, heads.d_k)
    score.scale = heads.scale
    return spans.attend(query, key, value, score).flatten(-2)


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("name", LENGTHS)
def test_values_and_gradients_are_the_plain_ones(name: str, kind: str):
    assert_plain(LENGTHS[name], kind, Heads(2, 8, 24, 0.3))


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize(("d_k", "d_v"), [(20, 2 * PART + 9), (PART + 1, 3 * PART), (2 * PART, 16)])
def test_heads_wider_than_a_program_holds(d_k: int, d_v: int, kind: str):
    assert_plain([5, 70, 3, 9], kind, Heads(2, d_k, d_v, 0.1))


def assert_plain(lengths: list[int], kind: str, heads: Heads) -> None:
    """Fail unless values and gradients are those of plain attention."""
    torch.manual_seed(1)
    spans = make_spans(lengths, lengths[::-1] if kind == "cross" else None, filler=9, causal=kind == "causal")
    k_width, v_width = heads.heads * heads.d_k, heads.heads * heads.d_v
    width = k_width if kind == "cross" else 2 * k_width + v_width
    own = torch.randn(spans.queries, width, requires_grad=True)
    memory = torch.randn(spans.keys, k_width + v_width, requires_grad=True) if kind == "cross" else None
    tiles = make_tiles(spans, empty=3)
    found, sums = attention.forward(own.detach(), memory if memory is None else memory.detach(), tiles, heads, None)
    expected = plain(own, memory, spans, heads)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradient = torch.randn_like(found)
    expected.backward(gradient)
    inputs = own.detach(), memory if memory is None else memory.detach()
    own_gradient, memory_gradient = attention_backward.backward(gradient, *inputs, found, sums, tiles, heads, None)
    torch.testing.assert_close(own_gradient, own.grad, rtol=1e-4, atol=2e-5)
    if memory is not None:
        torch.testing.assert_close(memory_gradient, memory.grad, rtol=1e-4, atol=2e-5)


def test_dropout_drops_the_same_weights_from_all_parts_of_a_head():
    torch.manual_seed(1)
    spans, seed = make_spans([5, 70, 9], None, filler=0, causal=True), torch.tensor([7])
    wide, narrow = Heads(1, 16, PART + 20, 0.1, 0.4), Heads(1, 16, 20, 0.1, 0.4)
    own = torch.randn(spans.queries, 2 * 16 + PART + 20)
    first, last = own[:, : 2 * 16 + 20], torch.cat((own[:, : 2 * 16], own[:, -20:]), 1)
    tiles = make_tiles(spans)
    found, sums = attention.forward(own, None, tiles, wide, seed)
    gradient = torch.randn_like(found)
    changes, _ = attention_backward.backward(gradient, own, None, found, sums, tiles, wide, seed)
    for part, places in ((first, slice(20)), (last, slice(-20, None))):
        expected, sums = attention.forward(part.contiguous(), None, tiles, narrow, seed)
        torch.testing.assert_close(found[:, places], expected)
        part_gradient = gradient[:, places].contiguous()
        expected_changes, _ = attention_backward.backward(
            part_gradient, part.contiguous(), None, expected, sums, tiles, narrow, seed
        )
        torch.testing.assert_close(changes[:, 2 * 16 :][:, places], expected_changes[:, 2 * 16 :])
