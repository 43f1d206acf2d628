"""What `transduce inspect` shows: sizes, lengths, vocabulary, examples, and what padding would have cost."""

from typing import Any

import numpy as np

from transduce.errors import DataError
from transduce.text.shards import SIDES, DataSet, Side

LONGEST_SAMPLE = 200_000
COUNTED_TOKENS = 20_000_000
BUDGET = 25_000
BINS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 1 << 32)


def inspect(data: DataSet, examples: int = 3) -> dict[str, Any]:
    """Measure a data set."""
    return {
        "folder": str(data.folder),
        "bytes": sum(entry["bytes"] for entry in data.files().values()),
        "splits": {name: _measure_split(data, name) for name in data.splits},
        "inputs": data.manifest["inputs"],
        "vocabulary": {side: _measure_vocabulary(data, side) for side in SIDES},
        "padding": measure_padding(*(data.train.lengths(side) for side in SIDES)),
        "examples": [_example(data, pair) for pair in data.train.spread(examples)],
    }


def _measure_split(data: DataSet, name: str) -> dict[str, Any]:
    split = data.splits[name]
    measured: dict[str, Any] = {"pairs": split.pairs}
    for side in SIDES:
        lengths = split.lengths(side)
        if not len(lengths):
            continue
        counts, _ = np.histogram(lengths, bins=np.array([0, *(edge + 1 for edge in BINS)]))
        measured[side] = {
            "tokens": int(lengths.sum(dtype=np.int64)),
            "mean": round(float(lengths.mean()), 1),
            "median": int(np.median(lengths)),
            "longest": int(lengths.max()),
            "lengths": {f"≤ {edge}" if edge < BINS[-1] else "more": int(n) for edge, n in zip(BINS, counts) if n},
        }
    return measured


def _measure_vocabulary(data: DataSet, side: Side) -> dict[str, Any]:
    subwords = data.subwords[side]
    counts = np.zeros(len(subwords), np.int64)
    read = 0
    for tokens in data.train.token_arrays(side):
        counted = np.bincount(tokens[: COUNTED_TOKENS - read], minlength=len(subwords))
        if len(counted) > len(counts):
            raise DataError(f"{data.parts}: has token ids outside the vocabulary; find the damaged file with --verify")
        counts += counted
        read = min(COUNTED_TOKENS, read + len(tokens))
    is_byte = np.array([subwords.processor.is_byte(i) for i in range(len(subwords))])
    ranked = np.argsort(-counts, kind="stable").tolist()
    frequent = [i for i in ranked[:20] if counts[i] and not subwords.processor.is_control(i)]
    return {
        "size": len(subwords),
        "kind": subwords.kind,
        "joint": data.manifest["subwords"]["source"] == data.manifest["subwords"]["target"],
        "used": int((counts > 0).sum()),
        "used_often": int((counts >= 100).sum()),
        "spelled_in_bytes": round(float(counts[is_byte].sum() / max(1, counts.sum())), 6),
        "most_frequent": subwords.pieces(frequent[:12]),
    }


def measure_padding(source: np.ndarray, target: np.ndarray) -> dict[str, float]:
    """Return the share of padding that batches of 25,000 tokens a side would have, in random order and by length."""
    chosen = np.random.default_rng(0).permutation(len(source))[:LONGEST_SAMPLE]
    shares: dict[str, float] = {}
    for name, order in (
        ("random_order", chosen),
        ("similar_lengths", chosen[np.argsort(np.maximum(source[chosen], target[chosen]), kind="stable")]),
    ):
        real = padded = 0
        first = 0
        while first < len(order):
            # As trainers that pad count: sentences times the longest of them must fit the budget.
            some = order[first : first + BUDGET]
            longest = np.maximum.accumulate(np.maximum(source[some], target[some]).astype(np.int64))
            end = max(1, int(np.searchsorted(longest * np.arange(1, len(some) + 1), BUDGET, side="right")))
            for side in (source, target):
                real += int(side[some[:end]].sum(dtype=np.int64))
                padded += end * int(side[some[:end]].max())
            first += end
        shares[name] = round(1 - real / max(1, padded), 4)
    return shares


def _example(data: DataSet, pair: int) -> dict[str, str]:
    subwords = data.subwords
    return {side: " ".join(subwords[side].pieces(subwords[side].open(data.train.tokens(side, pair)))) for side in SIDES}


def show_inspection(found: dict[str, Any]) -> None:
    """Print what `inspect` measured, for a person."""
    print(f"{found['folder']}: {found['bytes'] / 2**20:,.1f} MiB")
    for name, split in found["splits"].items():
        print(f"{name}: {split['pairs']:,} pairs")
        for side in SIDES:
            if side in split:
                entry = split[side]
                print(
                    f"  {side}: {entry['tokens']:,} tokens, {entry['mean']} a sentence "
                    f"(median {entry['median']}, longest {entry['longest']})"
                )
    if any(entry["weight"] != 1 for entry in found["inputs"]) or len(found["inputs"]) > 1:
        print("inputs:")
        for entry in found["inputs"]:
            first, end = entry["pairs"]
            print(f"  {end - first:>11,} pairs × {entry['weight']:g}  {' + '.join(entry['files'])}")
    print("lengths in tokens (train):")
    _show_histogram(found["splits"]["train"])
    for side in SIDES:
        entry = found["vocabulary"][side]
        both = "joint" if entry["joint"] else side
        used = f"{entry['used']:,} used on the {side} side, {entry['used_often']:,} a hundred times or more"
        print(f"vocabulary: {entry['size']:,} {entry['kind']} subwords, {both}; {used}")
        print(f"  most frequent: {' '.join(entry['most_frequent'])}")
        print(f"  spelled in bytes: {entry['spelled_in_bytes']:.3%} of the tokens")
    padding = found["padding"]
    print(
        f"padding: none; padded batches would waste {padding['random_order']:.0%} in random order, "
        f"{padding['similar_lengths']:.0%} sorted by length"
    )
    for example in found["examples"]:
        print(f"  | {example['source']}\n  | {example['target']}")


def _show_histogram(split: dict[str, Any]) -> None:
    sides = [split[side]["lengths"] for side in SIDES if side in split]
    edges = [edge for edge in (*(f"≤ {e}" for e in BINS[:-1]), "more") if any(edge in side for side in sides)]
    most = max(count for side in sides for count in side.values())
    for edge in edges:
        bars = [f"{'█' * round(24 * side.get(edge, 0) / most):<24} {side.get(edge, 0):>10,}" for side in sides]
        print(f"  {edge:>6}  source {bars[0]}   target {bars[1]}")
