"""Which sentences of a batch the programs of a GPU look at together, in attention.

A tile is some whole sentences that stand side by side and have at most `SIZE` queries and as many keys together. So
what one program holds is all that it needs, nothing is read twice, and sentences of 28 tokens do not leave most of a
tile empty. What is longer is cut into several tiles: time grows with the square of its length, memory does not.

Legend of shapes: `tiles` are numbers of five: the first query and the end of the queries, the first key and the end of
the keys, and whether nobody in it sees what is outside, nor is seen from there; or the same beginning with the keys.
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
    """Tiles by query and by key, and last of all those that are whole.

    What lies behind the last sentence, up to so many, is in tiles that see nothing.
    """
    offsets = np.stack((query_offsets, key_offsets)).astype(np.int64)
    # From each sentence on: the first that does not fit into the same tile.
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
    # What takes longest comes first, so that nobody waits for it at the end.
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
    """No row of so many tokens, cut into so many sentences, has more tiles by query or by key."""
    # What stands together or is cut has no more tiles than it fills and one; so has what lies behind.
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
    """Tiles by query and by key of the source to itself, of the target to itself, of the target to the source.

    Source and target have so many tokens with what lies behind the last sentence; tiles of nothing follow the last.
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
