"""Tiles of a batch for attention: never more than announced."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.text.tiles import lay_tiles, most_tiles

LENGTH = st.one_of(st.integers(0, 40), st.sampled_from([0, 1, 63, 64, 65, 127, 128, 129, 200]))
PAIRS = st.lists(st.tuples(LENGTH, LENGTH), max_size=40)
many = settings(max_examples=300, deadline=None)


def offsets_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)


@given(lengths=st.lists(LENGTH, max_size=40), filler=st.integers(0, 300), causal=st.booleans())
@many
def test_sentences_that_see_themselves_have_no_more_tiles_than_said(lengths: list[int], filler: int, causal: bool):
    offsets = offsets_of(lengths)
    tokens = sum(lengths) + filler
    most = most_tiles(tokens, len(lengths))
    for tiles in lay_tiles(offsets, offsets, queries=tokens, keys=tokens, causal=causal):
        assert len(tiles) <= most


@given(lengths=PAIRS, fillers=st.tuples(st.integers(0, 300), st.integers(0, 300)))
@many
def test_sentences_that_see_others_have_no_more_tiles_than_said(
    lengths: list[tuple[int, int]], fillers: tuple[int, int]
):
    sides = offsets_of([s for s, _ in lengths]), offsets_of([t for _, t in lengths])
    tokens = [int(side[-1]) + filler for side, filler in zip(sides, fillers)]
    by_query, by_key = lay_tiles(*sides, queries=tokens[0], keys=tokens[1])
    assert len(by_query) <= most_tiles(tokens[0], len(lengths))
    assert len(by_key) <= most_tiles(tokens[1], len(lengths))
