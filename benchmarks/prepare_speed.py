"""Pairs/s of `transduce prepare`, including cleaning and writing, beside bare SentencePiece encoding of the same text.

    python benchmarks/prepare_speed.py train.en train.de [--pairs 200000] [--rounds 3]

Both run on all cores, in turns, in one run; learning the subwords is timed separately. The baseline is the faster of
SentencePiece's own threads and one process per core, with the text already in memory: it reads, cleans and writes
nothing.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import sentencepiece

from transduce.text import prepare as pipeline
from transduce.text.inputs import PrepareConfig
from transduce.text.packed import open_bytes
from transduce.text.parallel import usable_cores
from transduce.text.subwords import SubwordsConfig

learning_seconds = 0.0
_learn = pipeline.learn


def timed_learn(lines: Iterable[str], config: SubwordsConfig) -> bytes:
    """Learn subwords and record how long it took, reading the lines included."""
    global learning_seconds
    begin = time.perf_counter()
    model = _learn(lines, config)
    learning_seconds = time.perf_counter() - begin
    return model


def time_prepare(folder: Path, source: Path, target: Path, size: int) -> tuple[float, bytes]:
    """Return the seconds of a whole `prepare` without the learning, and the learned model."""
    config = PrepareConfig(source=(source,), target=(target,), dev_split=1000, subwords=SubwordsConfig(size=size))
    begin = time.perf_counter()
    data, _ = pipeline.prepare(folder, config)
    return time.perf_counter() - begin - learning_seconds, data.subwords["source"].model


def encode_piece(model: bytes, lines: list[str]) -> int:
    """Encode lines, in a worker process."""
    return sum(map(len, sentencepiece.SentencePieceProcessor(model_proto=model).encode(lines)))


def time_threads(model: bytes, lines: list[str], cores: int) -> float:
    """Return the seconds of SentencePiece on its own threads."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    begin = time.perf_counter()
    processor.encode(lines, num_threads=cores)
    return time.perf_counter() - begin


def time_processes(model: bytes, lines: list[str], cores: int) -> float:
    """Return the seconds of SentencePiece with one process per core."""
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(encode_piece, [model] * cores, [["warm"]] * cores))
        begin = time.perf_counter()
        list(pool.map(encode_piece, [model] * cores, [lines[i::cores] for i in range(cores)]))
        return time.perf_counter() - begin


def main() -> None:
    """Print one line per round and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subwords", type=int, default=16_000)
    given = parser.parse_args()
    pipeline.learn = timed_learn
    cores = usable_cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines: list[str] = []
        for side, path in (("source", given.source), ("target", given.target)):
            text = open_bytes(path)[0].read().decode().split("\n")[: given.pairs]
            (folder / side).write_text("\n".join(text) + "\n", encoding="utf-8")
            lines += text
        pairs = len(lines) // 2
        ratios = []
        for number in range(given.rounds):
            ours, model = time_prepare(folder / f"data{number}", folder / "source", folder / "target", given.subwords)
            threads, processes = time_threads(model, lines, cores), time_processes(model, lines, cores)
            ratios.append(min(threads, processes) / ours)
            print(
                f"round {number + 1}: prepare {pairs / ours:,.0f} pairs/s (learning apart: {learning_seconds:.1f} s); "
                f"bare SentencePiece {pairs / threads:,.0f} with threads, {pairs / processes:,.0f} with processes; "
                f"ratio {ratios[-1]:.2f}",
                flush=True,
            )
        median = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"
        print(f"median ratio {median} on {cores} cores, {pairs:,} pairs, cleaning included")


if __name__ == "__main__":
    main()
