"""Decoding on one GPU: this project's engine against Hugging Face generate, in turns.

Both have the paper's base model with the same random weights, in bf16. Sources have 28 tokens, and targets exactly 32,
because neither may end earlier. A cell is tokens/s; the ratio is the median of the rounds' ratios. Beside it is the
share of the memory-bandwidth limit: a step must read all weights of the decoder and the keys and values kept so far, at
the rate at which this GPU copies.

    pip install transformers
    python benchmarks/decode_gpu.py
    python benchmarks/decode_gpu.py --model RUN --file news.en     sentences/s on a file, beside generate
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from marian import make_marian

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.engine import TorchEngine
from transduce.decoding.gpu import GraphEngine
from transduce.decoding.search import Task, search_all
from transduce.model.saved import load_model
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, PAD

SOURCE, TARGET = 28, 32
CELLS = [(1, 1), (64, 1), (256, 1), (1, 4), (64, 4), (256, 4)]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds until the GPU is done."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def copy_rate() -> float:
    """Return the bytes per second that a copy on this GPU reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * len(source) * 10 / timed(lambda: [target.copy_(source) for _ in range(10)])


def floor_seconds(config: ModelConfig, batch: int, beam: int, rate: float) -> float:
    """Return the least time of a mean step: it reads weights, keys and values once, and writes and reads the logits."""
    layers = config.stacks()[1]
    each = 2 * config.heads * sum(config.head_widths())  # bytes per token and layer
    feed_forward = 2 * config.d_model * config.d_ff
    attention = 6 * config.d_model * config.heads * config.head_widths()[0]
    weights = 2 * (layers * (attention + feed_forward) + config.vocabulary * config.d_model)
    kept = layers * each * batch * (beam * TARGET / 2 + SOURCE)
    logits = 2 * 4 * batch * beam * config.vocabulary
    return (weights + kept + logits) / rate


def generate(
    marian: torch.nn.Module, sources: list[np.ndarray], beam: int, tokens: int | None = TARGET
) -> torch.Tensor:
    """Translate with Hugging Face's search."""
    longest = max(map(len, sources))
    rows = np.full((len(sources), longest), PAD)
    for row, source in zip(rows, sources):
        row[: len(source)] = source
    ids = torch.from_numpy(rows).cuda()
    limits = {"min_new_tokens": tokens, "max_new_tokens": tokens} if tokens else {"max_new_tokens": longest + 50}
    with torch.inference_mode():
        return marian.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids,
            attention_mask=(ids != PAD).long(),
            num_beams=beam,
            do_sample=False,
            length_penalty=0.6,
            **limits,
        )


def compare_cells(rounds: int, baseline: bool) -> None:
    """Print the table of cells."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig(vocabulary=32_000)).eval()
    marian = make_marian(model).to("cuda", torch.bfloat16)
    model = model.to("cuda", torch.bfloat16)
    engines = {"ours": GraphEngine(model)} | ({"torch": TorchEngine(model)} if baseline else {})
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copies at {rate / 1e12:.2f} TB/s")
    random = np.random.default_rng(1)
    for batch, beam in CELLS:
        sources = [np.append(random.integers(4, 32_000, SOURCE - 1), END).astype(np.int32) for _ in range(batch)]
        tasks = [Task(source) for source in sources]
        config = SearchConfig(beam=beam, min_tokens=TARGET, max_tokens=TARGET)
        for engine in engines.values():
            assert all(len(found[0].tokens) == TARGET for found in search_all(engine, tasks, config))
        generate(marian, sources, beam)
        works: dict[str, Callable[[], object]] = {
            name: partial(search_all, engine, tasks, config) for name, engine in engines.items()
        }
        works["theirs"] = partial(generate, marian, sources, beam)
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                times[name].append(timed(work))
        ratios = sorted(theirs / ours for ours, theirs in zip(times["ours"], times["theirs"]))
        seconds = statistics.median(times["ours"])
        shown = "  ".join(f"{name} {batch * TARGET / statistics.median(own):10,.0f}" for name, own in times.items())
        floor = floor_seconds(model.config, batch, beam, rate)
        print(
            f"batch {batch:3} beam {beam}: tokens/s {shown}  {statistics.median(ratios):5.1f} × "
            f"[{ratios[0]:.1f}–{ratios[-1]:.1f}]  {1e3 * seconds / TARGET:.3f} ms a step, encoding included; "
            f"{floor * TARGET / seconds:.0%} of the bandwidth limit",
            flush=True,
        )


def compare_file(path: str, file: Path, beam: int, size: int) -> None:
    """Translate a file with both, tokens in and tokens out."""
    loaded = load_model(path)
    subwords = loaded.subwords["source"]
    lines = file.read_text(encoding="utf-8").splitlines()
    sources = [np.array([*subwords.encode(line), END], np.int32) for line in lines]
    marian = make_marian(loaded.model).to("cuda", torch.bfloat16)
    engine = GraphEngine(loaded.model.to("cuda", torch.bfloat16))
    config = SearchConfig(beam=beam)
    tasks = [Task(source) for source in sources]
    for warm in (True, False):
        seconds = timed(lambda: search_all(engine, tasks, config))
        print(f"ours{' the first time' if warm else ''}: {len(lines) / seconds:,.0f} sentences/s, {seconds:.2f} s")
    order = sorted(sources, key=len, reverse=True)
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    seconds = timed(lambda: [generate(marian, batch, beam, None) for batch in batches])
    print(f"generate, sorted by length, {size} at a time: {len(lines) / seconds:,.0f} sentences/s, {seconds:.2f} s")


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", action="store_true", help="also measure the plain torch engine")
    parser.add_argument("--model", help="run or model to translate --file with")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--size", type=int, default=128, help="sentences in a batch of generate")
    given = parser.parse_args()
    if given.model:
        compare_file(given.model, given.file, given.beam, given.size)
    else:
        compare_cells(given.rounds, given.torch)


if __name__ == "__main__":
    main()
