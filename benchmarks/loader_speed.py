"""Tokens/s (source + target) of the loader alone: prefetched and, if there is a GPU, pinned and copied to it.

python benchmarks/loader_speed.py DATA [--batches 400]
"""

import argparse
import time
from itertools import islice

import torch

from transduce.config import BatchConfig
from transduce.text.batches import Batches, Loader, Position
from transduce.text.shards import DataSet


def measure(data: DataSet, config: BatchConfig, count: int, pin: bool) -> str:
    """Time loading alone, twice over the same batches: the second time, sampled subwords find all words known."""
    begin = time.perf_counter()
    batches = Batches(data, config)
    steps = len(batches.plan(0))
    planned = time.perf_counter() - begin
    rates: list[float] = []
    tokens = room = 0
    for _ in range(2):
        tokens = room = 0
        begin = time.perf_counter()
        with Loader(batches, Position(0, 0), pin=pin) as loader:
            for batch in islice(loader, min(count, steps)):
                used = batch.to("cuda") if pin else batch
                tokens += used.source_tokens + used.target_tokens
                room += len(used.source) + len(used.target)
        if pin:
            torch.cuda.synchronize()
        rates.append(tokens / (time.perf_counter() - begin))
    speed = f"{rates[0] / 1e6:6.2f} M tokens/s, {rates[1] / 1e6:6.2f} M the second time"
    return f"{speed}; buffers {tokens / room:.1%} full; {steps:,} batches, planned in {planned:.2f} s"


def main() -> None:
    """Print one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--batches", type=int, default=400)
    given = parser.parse_args()
    data = DataSet.open(given.data)
    pin = torch.cuda.is_available()
    print(f"{data.train.pairs:,} pairs; {'pinned and copied to ' + torch.cuda.get_device_name() if pin else 'no GPU'}")
    for name, config in (
        ("similar lengths", BatchConfig()),
        ("random order", BatchConfig(similar_lengths=False)),
        ("4 × 1,024 tokens", BatchConfig(source_tokens=4096, target_tokens=4096, parts=4)),
        ("BPE-dropout 0.1", BatchConfig(subword_dropout=0.1)),
    ):
        print(f"{name:<17} {measure(data, config, given.batches, pin)}", flush=True)


if __name__ == "__main__":
    main()
