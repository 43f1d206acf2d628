"""Positions: the paper's sinusoids and the property they were chosen for, rotations, learned vectors, places."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import SMALL, assert_near, make_model, random_row
from threads import always_one_thread as always_one_thread
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from transduce.model.attention import MultiHeadAttention, Spans
from transduce.model.positions import rotate, rotations, sinusoids, token_positions


@pytest.mark.parametrize("d_model", [2, 6, 128, 512])
def test_sinusoids_are_the_papers(d_model: int):
    pos, i = np.arange(1001.0)[:, None], np.arange(d_model // 2)
    found = sinusoids(torch.arange(1001), d_model).numpy()
    assert found.shape == (1001, d_model)
    # float32 holds an angle of 1000 to within 3e-5.
    np.testing.assert_allclose(found[:, 0::2], np.sin(pos / 10_000 ** (2 * i / d_model)), rtol=0, atol=2e-4)
    np.testing.assert_allclose(found[:, 1::2], np.cos(pos / 10_000 ** (2 * i / d_model)), rtol=0, atol=2e-4)


@pytest.mark.parametrize("k", [1, 7, 100])
def test_a_fixed_offset_is_one_linear_function(k: int):
    """Section 3.5: "for any fixed offset k, PE(pos+k) can be represented as a linear function of PE(pos)"."""
    d_model = 16
    angle = k / 10_000 ** (2 * np.arange(d_model // 2) / d_model)
    matrix = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [np.cos(angle[i]), np.sin(angle[i])],
            [-np.sin(angle[i]), np.cos(angle[i])],
        ]
    table = sinusoids(torch.arange(200 + k), d_model).double().numpy()
    np.testing.assert_allclose(table[k:], table[:-k] @ matrix.T, atol=1e-4)


@given(distance=st.integers(0, 60), shift=st.integers(1, 200), d_k=st.sampled_from([2, 6, 64]))
@settings(max_examples=40, deadline=None)
def test_rotary_products_depend_on_the_distance_alone(distance: int, shift: int, d_k: int):
    torch.manual_seed(d_k)
    query, key = torch.randn(2, 1, 3, d_k, dtype=torch.float64)

    def product(query_position: int, key_position: int) -> torch.Tensor:
        turned = rotate(query, rotations(torch.tensor([query_position]), d_k))
        return (turned * rotate(key, rotations(torch.tensor([key_position]), d_k))).sum(-1)

    assert_near(product(distance + shift, shift), product(distance, 0), 1e-3)
    assert_near(product(distance, distance), (query * key).sum(-1), 1e-5)
    if distance:
        assert (product(distance, 0) - product(0, distance)).abs().max() > 1e-6  # and on which comes first


def test_rotary_positions_are_llamas():
    """Llama turns number i with number i + d_k/2, we turn neighbours: the same but for the order of the numbers."""
    torch.manual_seed(0)
    heads, d_k, tokens = 3, 8, 50
    llama = LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=heads * d_k,
            num_attention_heads=heads,
            head_dim=d_k,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        )
    )
    query, key = torch.randn(2, tokens, heads, d_k)
    cosine, sine = llama(query, torch.arange(tokens)[None])
    halves = torch.cat((torch.arange(0, d_k, 2), torch.arange(1, d_k, 2)))
    theirs = apply_rotary_pos_emb(
        query[..., halves].transpose(0, 1)[None], key[..., halves].transpose(0, 1)[None], cosine, sine
    )
    turn = rotations(torch.arange(tokens), d_k)
    for ours, other in zip((query, key), theirs):
        assert_near(rotate(ours, turn)[..., halves].transpose(0, 1), other[0], 1e-4)


def test_rotations_are_in_self_attention_and_nowhere_else():
    """They turn queries and keys of the same row; values, embeddings and attention to the source stay."""
    model = make_model(replace(SMALL, positions="rotary"))
    tokens = torch.full((4,), 5)
    assert torch.equal(*model.embed(tokens, torch.arange(4), "source")[[0, 3]])
    # A sentence of one word repeated: all values are equal, so turning the queries and keys must not show.
    memory = model.encode(tokens, torch.tensor([0, 4]))
    assert_near(memory, memory[:1].expand_as(memory))
    row = random_row([9], filler=0, empty=0)
    turned = model.encode(row.tokens, row.offsets)
    backwards = model.encode(row.tokens.flip(0), row.offsets).flip(0)
    assert (turned - backwards).abs().max() > 1e-4


def test_only_distances_count_in_rotary_attention():
    """Queries and keys turn alike: shifting all positions changes nothing, doubling them does."""
    torch.manual_seed(0)
    module = MultiHeadAttention(12, 3, 4, 4).double()
    x, offsets = torch.randn(9, 12, dtype=torch.float64), torch.tensor([0, 9])
    for causal in (False, True):
        spans = Spans(offsets, offsets, queries=9, keys=9, causal=causal)
        found = module(x, None, spans, turn=rotations(torch.arange(9), 4))
        assert_near(module(x, None, spans, turn=rotations(torch.arange(9) + 5, 4)), found, 1e-5)
        assert (module(x, None, spans, turn=rotations(torch.arange(9) * 2, 4)) - found).abs().max() > 1e-3


def test_a_table_stays_where_it_was_when_longer_sentences_come():
    """A graph that was captured with it reads it for as long as the model lives."""
    model = make_model(SMALL)
    first = model._table(5)
    assert first is not None
    places, begin = weakref.ref(first), first.data_ptr()
    assert_near(first, sinusoids(torch.arange(len(first)), SMALL.d_model), 0.0)
    del first
    for longest in (9, 300, 301, 4):
        table = model._table(longest)
        assert table is not None
        assert len(table) >= longest
    assert places() is not None
    again = model._table(5)
    assert again is not None
    assert again.data_ptr() == begin
    assert sum(map(len, model._tables)) < 2 * 512 + 1  # what is kept is bounded by the longest


def test_learned_positions_are_rows_of_a_table_of_each_side():
    model = make_model(replace(SMALL, positions="learned", max_positions=6))
    tokens, positions = torch.tensor([3, 4, 5, 3]), torch.tensor([0, 1, 5, 1])
    embedded = model.embedding.weight[tokens] * 12**0.5
    assert_near(model.embed(tokens, positions, "source"), embedded + model.source_positions.weight[positions])
    assert_near(model.embed(tokens, positions, "target"), embedded + model.target_positions.weight[positions])
    assert not torch.equal(model.source_positions.weight, model.target_positions.weight)
    # Filler positions continue after the last sentence, past the end of the table; that must not be an error.
    row = random_row([6], filler=40)
    assert model.encode(row.tokens, row.offsets).isfinite().all()


@given(
    lengths=st.lists(st.integers(0, 9), max_size=12),
    empty=st.integers(0, 5),
    filler=st.integers(0, 5),
    dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_places_count_from_the_start_of_each_sentence(lengths: list[int], empty: int, filler: int, dtype: torch.dtype):
    offsets = torch.tensor([0, *np.cumsum(lengths, dtype=int).tolist()], dtype=dtype)
    offsets = torch.cat((offsets, offsets[-1:].expand(empty)))
    found = token_positions(offsets, sum(lengths) + filler).tolist()
    assert found[: sum(lengths)] == [place for length in lengths for place in range(length)]
    assert found[sum(lengths) :] == list(range(filler))
