"""Lay the sentences of a batch into tiles, each of which one GPU program handles in attention.

A tile is a few whole, neighbouring sentences with at most `SIZE` queries and `SIZE` keys together. So a program holds
all it needs, nothing is read twice, and sentences of 28 tokens do not leave most of a tile empty. A longer sentence is
cut into several tiles: time grows with the square of its length, memory does not.

Shapes: a row of `tiles` has five numbers: first query, end of the queries, first key, end of the keys, and 1 if no
attention crosses the tile's border. In tiles by key, the keys come before the queries.
"""

import numpy as np
from jaxtyping import Int, Int32

SIZE = 64


def lay_tiles(
    query_offsets: Int[np.ndarray, " sentences+1"],
    key_offsets: Int[np.ndarray, " sentences+1"],
    *,
    queries: int,
    keys: int,
    causal: bool = False,
) -> tuple[Int32[np.ndarray, "tiles 5"], Int32[np.ndarray, "tiles 5"]]:
    """Return the tiles by query and the tiles by key; in both, those of whole sentences come last.

    Filler after the last sentence, up to `queries` and `keys` tokens, is in tiles that attend to nothing.
    """
    offsets = np.stack((query_offsets, key_offsets)).astype(np.int64)
    # For each sentence: the first after it that does not fit into the same tile.
    following = np.min([np.searchsorted(side, side[:-1] + SIZE, side="right") - 1 for side in offsets], axis=0)
    following = np.maximum(following, np.arange(1, offsets.shape[1])).tolist()
    firsts = [0]
    while firsts[-1] < len(following):
        firsts.append(following[firsts[-1]])
    ends = offsets[:, firsts]
    spans = np.stack((ends[0, :-1], ends[0, 1:], ends[1, :-1], ends[1, 1:]), 1)
    lengths = spans[:, [1, 3]] - spans[:, [0, 2]]
    whole = (lengths.max(1, initial=0) <= SIZE) & (lengths.min(1, initial=SIZE) > 0)
    common = np.concatenate((spans[whole], np.ones((int(whole.sum()), 1), np.int64)), 1)
    # What takes longest comes first, so that nothing waits for it at the end.
    by_query: list[tuple[int, ...]] = []
    by_key: list[tuple[int, ...]] = []
    for first_query, end_query, first_key, end_key in spans[~whole].tolist():
        for first, end in _steps(first_query, end_query):
            by_query.append((first, end, first_key, end if causal else end_key, 0))
        for first, end in _steps(first_key, end_key):
            by_key.append((first, end, first if causal else first_query, end_query, 0))
    behind = [
        [(first, end, 0, 0, 0) for first, end in _steps(int(side[-1]), tokens)]
        for side, tokens in zip(offsets, (queries, keys))
    ]
    return (
        _join(by_query, behind[0], common),
        _join(by_key, behind[1], common[:, [2, 3, 0, 1, 4]]),
    )


def most_tiles(tokens: int, sentences: int) -> int:
    """Return the most tiles, by query or by key, that a row of so many tokens and sentences can have."""
    # A group of sentences, a cut sentence and the filler each have at most one tile more than they fill.
    return tokens // SIZE + sentences + 1


def _join(cut: list[tuple[int, ...]], behind: list[tuple[int, ...]], whole: np.ndarray) -> np.ndarray:
    rows = np.array([*cut, *behind] or np.empty((0, 5))), whole
    return np.ascontiguousarray(np.concatenate(rows), np.int32)


def _steps(first: int, end: int) -> list[tuple[int, int]]:
    return [(start, min(start + SIZE, end)) for start in range(first, end, SIZE)]


def lay_batch(
    source_offsets: Int[np.ndarray, " sentences+1"],
    target_offsets: Int[np.ndarray, " sentences+1"],
    *,
    source: int,
    target: int,
) -> Int32[np.ndarray, "3 2 tiles 5"]:
    """Return tiles by query and by key of attention from source to source, target to target and target to source.

    `source` and `target` are the lengths of the rows with their filler; empty tiles follow the last tile.
    """
    laid = [
        lay_tiles(source_offsets, source_offsets, queries=source, keys=source),
        lay_tiles(target_offsets, target_offsets, queries=target, keys=target, causal=True),
        lay_tiles(target_offsets, source_offsets, queries=target, keys=source),
    ]
    tiles = np.zeros((3, 2, max(len(side) for kind in laid for side in kind), 5), np.int32)
    for kind, sides in zip(tiles, laid):
        for row, side in zip(kind, sides):
            row[: len(side)] = side
    return tiles
