"""Peak memory and time of `transduce prepare` on millions of pairs, made by repeating and perturbing real text.

    python benchmarks/prepare_memory.py train.en train.de [--pairs 5000000] [--folder /tmp/large]

Memory is the sum of the proportional set sizes of the process tree (Linux), sampled ten times a second.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from transduce.text.packed import open_bytes


def perturb(pairs: list[tuple[list[str], list[str]]], count: int) -> Iterator[tuple[str, str]]:
    """Yield the given pairs, then new ones like them, whose ends are replaced by those of other pairs."""
    chance = random.Random(1)
    for number in range(count):
        source, target = pairs[number % len(pairs)]
        if number >= len(pairs):
            other_source, other_target = pairs[chance.randrange(len(pairs))]
            cut = chance.random()
            source = source[: int(cut * len(source))] + other_source[int(cut * len(other_source)) :]
            target = target[: int(cut * len(target))] + other_target[int(cut * len(other_target)) :]
        yield " ".join(source), " ".join(target)


def tree_memory(root: int) -> int:
    """Return the proportional set size of a process and its descendants in bytes."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    total = 0
    for process in parents:
        ancestor: int | None = process
        while ancestor and ancestor != root:
            ancestor = parents.get(ancestor)
        if ancestor == root:
            try:
                rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            except OSError:
                continue
            total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def main() -> None:
    """Make the corpus, prepare it in a process of its own, and print its peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--subwords", type=int, default=32_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        sides = [open_bytes(path)[0].read().decode().splitlines() for path in (given.source, given.target)]
        pairs = [(source.split(), target.split()) for source, target in zip(*sides)]
        with (folder / "en").open("w") as source_file, (folder / "de").open("w") as target_file:
            for source, target in perturb(pairs, given.pairs):
                source_file.write(source + "\n")
                target_file.write(target + "\n")
        size = sum((folder / side).stat().st_size for side in ("en", "de"))
        print(f"made {given.pairs:,} pairs, {size / 2**20:,.0f} MiB", flush=True)
        command = [sys.executable, "-m", "transduce", "prepare", str(folder / "data"), "--dev-split", "2000"]
        command += ["--source", str(folder / "en"), "--target", str(folder / "de"), "--subwords", str(given.subwords)]
        begin = time.perf_counter()
        process = subprocess.Popen(command)
        peak = 0
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.1):
                peak = max(peak, tree_memory(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        ended.set()
        watcher.join()
        seconds = time.perf_counter() - begin
        print(f"exit {code}; {seconds:,.0f} s, {given.pairs / seconds:,.0f} pairs/s; peak {peak / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
