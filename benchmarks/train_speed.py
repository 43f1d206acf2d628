"""Training steps on one device: ours, Hugging Face's Marian and torch.nn.Transformer, in turns.

A step is forward, backward and Adam with dropout 0.1 and label smoothing 0.1, in bf16 if the device has it, on the
sentences of a data set. Ours takes them from the loader as they come, without padding; the others get sentences of
similar length, padded, already on the device. Tokens are counted without padding, on both sides; the product of an m×n
and an n×k matrix counts as 2·m·n·k operations.

    pip install transformers
    python benchmarks/train_speed.py DATA                      base and big, 25,000 + 25,000 tokens
    python benchmarks/train_speed.py DATA --size tiny          4 + 4 layers of 128, 4,096 + 4,096 tokens
    python benchmarks/train_speed.py DATA --lengths            how a step grows with sentences and batches
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from marian import make_sized
from torch import Tensor, nn
from torch.nn import functional

from transduce.config import BatchConfig, ModelConfig, TrainingConfig
from transduce.model.device import choose_device, has_bf16
from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer
from transduce.text.batches import START, Batch, Batches, Loader
from transduce.text.shards import DataSet
from transduce.text.subwords import PAD
from transduce.text.tiles import lay_batch
from transduce.training.captured import CapturedStep
from transduce.training.hardware import training_work
from transduce.training.loss import Objective
from transduce.training.optimiser import Optimiser

VOCABULARY = 37_000  # as in the paper, section 5.1
SIZES = {
    "base": ModelConfig(vocabulary=VOCABULARY),
    "big": ModelConfig(vocabulary=VOCABULARY, d_model=1024, d_ff=4096, heads=16),
    "tiny": ModelConfig(vocabulary=8_000, layers=4, d_model=128, d_ff=512, heads=4),
}
Step = Callable[[Any], object]


@dataclass(frozen=True)
class Padded:
    """A batch of sentences of similar length, padded to rectangles, with its tokens and operations."""

    source: Tensor
    target: Tensor
    target_input: Tensor
    tokens: int
    work: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["base", "big"])
    parser.add_argument("--tokens", type=int, help="tokens of each side in a batch (default: 25,000; tiny: 4,096)")
    parser.add_argument("--steps", type=int, default=20, help="steps in a round; the first rounds are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("ours", "marian", "torch"), default=["ours", "marian", "torch"])
    parser.add_argument(
        "--lengths", action="store_true", help="measure only ours, by length of sentences and size of batches"
    )
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    device = choose_device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    peak = measure_peak(device)
    print(f"{name}, torch {torch.__version__}; a large product {peak / 1e12:.3g} TFLOP/s", flush=True)
    data = DataSet.open(given.data)
    for size in given.size:
        vocabulary = max(SIZES[size].vocabulary, *(len(subwords) for subwords in data.subwords.values()))
        config = replace(SIZES[size], vocabulary=vocabulary)
        tokens = given.tokens or (4_096 if size == "tiny" else 25_000)
        if given.lengths:
            show_lengths(size, config, device, given.steps)
        else:
            compare(size, config, data, tokens, device, peak, given)


def measure_peak(device: torch.device) -> float:
    """Return the operations per second of a large product."""
    side = 8192 if device.type == "cuda" else 1024
    left = torch.randn(side, side, device=device, dtype=torch.bfloat16 if has_bf16(device) else torch.float32)
    seconds = min(timed(device, lambda: left @ left) for _ in range(10))
    return 2 * side**3 / seconds


def timed(device: torch.device, work: Callable[[], object]) -> float:
    """Return the seconds until the device is done."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


# ---- the three models ----


def autocast(device: torch.device) -> Any:
    """Compute in bf16 if the device has it."""
    return torch.autocast(device.type, torch.bfloat16) if has_bf16(device) else nullcontext()


def make_ours(config: ModelConfig, device: torch.device) -> Step:
    """Return our step, on batches as they come from the loader."""
    torch.manual_seed(1)
    model = Transformer(config).to(device).train()
    objective, optimiser = Objective(model, 0.1, (1 << 14, 1 << 14)), Optimiser(model, TrainingConfig())
    if device.type == "cuda":
        captured = CapturedStep(objective, optimiser, autocast(device))
        return lambda batch: captured(batch, 1, 1e-4)

    def step(batch: Batch) -> None:
        (part,) = batch.split(1)
        with autocast(device):
            losses = objective.measure(part.to(device))
        (losses[0] / batch.target_tokens).backward()
        optimiser.update(1e-4, losses[0].detach())

    return step


def make_marian(config: ModelConfig, device: torch.device) -> Step:
    """Return a step of Hugging Face's Marian."""
    marian = make_sized(config, dropout=config.dropout)

    def logits(batch: Padded) -> Tensor:
        inputs = {
            "input_ids": batch.source,
            "attention_mask": batch.source != PAD,
            "decoder_input_ids": batch.target_input,
            "use_cache": False,
        }
        return marian(**inputs).logits

    return make_step(marian, logits, device)


class Torch(nn.Module):
    """torch.nn.Transformer with sinusoids, and one matrix for embeddings and output."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        layers = config.stacks()
        sizes = config.d_model, config.heads, *layers, config.d_ff, config.dropout
        self.embedding = nn.Embedding(config.vocabulary, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.dropout, self.d_model = nn.Dropout(config.dropout), config.d_model
        self.table = nn.Parameter(sinusoids(torch.arange(1024), config.d_model), requires_grad=False)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.d_model**0.5 + self.table[: tokens.shape[1]])

    def forward(self, batch: Padded) -> Tensor:
        padding = batch.source == PAD
        states = self.transformer(
            self.embed(batch.source),
            self.embed(batch.target_input),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(batch.target.shape[1], device=batch.target.device),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(states, self.embedding.weight)


def make_torch(config: ModelConfig, device: torch.device) -> Step:
    """Return a step of torch.nn.Transformer."""
    model = Torch(config)
    return make_step(model, model, device)


def make_step(model: nn.Module, logits: Callable[[Padded], Tensor], device: torch.device) -> Step:
    """Return a plain step on padded batches."""
    model.to(device).train()
    adam = torch.optim.Adam(
        [weight for weight in model.parameters() if weight.requires_grad],
        lr=1e-4,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )

    def step(batch: Padded) -> None:
        with autocast(device):
            found = logits(batch)
            loss = functional.cross_entropy(
                found.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, label_smoothing=0.1
            )
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


# ---- their batches ----


def work_of(config: ModelConfig, source: np.ndarray, target: np.ndarray) -> float:
    """Return the operations of a step on sentences of these lengths."""
    source, target = source.astype(float), target.astype(float)
    squares = float(source @ source), float(target @ target), float(source @ target)
    return training_work(config, int(source.sum()), int(target.sum()), squares)


def lengths_of(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of a batch's sentences."""
    offsets = batch.source_offsets[: batch.sentences + 1].numpy(), batch.target_offsets[: batch.sentences + 1].numpy()
    return np.diff(offsets[0]), np.diff(offsets[1])


def rectangles(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sentences of a batch padded to rectangles: source, target, decoder's input."""

    def rectangle(row: Tensor, offsets: Tensor) -> Tensor:
        bounds = offsets[: batch.sentences + 1].long()
        lengths = bounds.diff()
        found = torch.full((batch.sentences, int(lengths.max())), PAD)
        found[torch.arange(found.shape[1]) < lengths[:, None]] = row[: bounds[-1]].long()
        return found

    return (
        rectangle(batch.source, batch.source_offsets),
        rectangle(batch.target, batch.target_offsets),
        rectangle(batch.target_input, batch.target_offsets),
    )


def pad(batch: Batch, config: ModelConfig, device: torch.device) -> Padded:
    """Return the same sentences padded to rectangles, on the device."""
    source, target, target_input = (row.to(device) for row in rectangles(batch))
    tokens, work = batch.source_tokens + batch.target_tokens, work_of(config, *lengths_of(batch))
    return Padded(source, target, target_input, tokens, work)


def compare(
    size: str, config: ModelConfig, data: DataSet, tokens: int, device: torch.device, peak: float, given: Any
) -> None:
    """Print a table of all three models."""
    parts = 8 if tokens >= 4_096 else 1  # each part holds whole sentences
    mixed = Batches(data, BatchConfig(source_tokens=tokens, target_tokens=tokens, parts=parts))
    similar = Batches(data, BatchConfig(source_tokens=tokens, target_tokens=tokens, similar_lengths=True, parts=1))
    steps = given.steps
    padded = [pad(similar.batch(0, step), config, device) for step in range(min(steps, len(similar.plan(0))))]
    makers = {"ours": make_ours, "marian": make_marian, "torch": make_torch}
    rates: dict[str, list[tuple[float, float, float]]] = {name: [] for name in given.only}
    memory: dict[str, float] = {}
    for name in given.only:
        taken = makers[name](config, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with Loader(mixed, pin=device.type == "cuda") as loader:
            batches = iter(loader)
            for number in range(given.rounds + 1):
                chosen: list[Any] = list(islice(batches, steps)) if name == "ours" else padded
                seconds = timed(device, lambda taken=taken, chosen=chosen: [taken(batch) for batch in chosen])
                if name == "ours":
                    count = sum(batch.source_tokens + batch.target_tokens for batch in chosen)
                    work = sum(work_of(config, *lengths_of(batch)) for batch in chosen)
                else:
                    count, work = sum(batch.tokens for batch in chosen), sum(batch.work for batch in chosen)
                if number:
                    rates[name].append((seconds / len(chosen), count / seconds, work / seconds))
        memory[name] = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        del taken
    print(f"\n{size}, {tokens:,} + {tokens:,} tokens")
    print(f"{'':8}{'ms':>9}{'tokens/s':>13}{'TFLOP/s':>10}{'of peak':>9}{'GiB':>7}")
    for name, rounds in rates.items():
        seconds, rate, work = (statistics.median(column) for column in zip(*rounds))
        line = f"{1e3 * seconds:9.2f}{rate:13,.0f}{work / 1e12:10.4g}{work / peak:9.1%}{memory[name]:7.1f}"
        print(f"{name:8}{line}   {min(r for _, r, _ in rounds):,.0f}–{max(r for _, r, _ in rounds):,.0f}")
    for name in given.only:
        if name != "ours" and "ours" in rates:
            ratio = statistics.median(r for _, r, _ in rates["ours"]) / statistics.median(r for _, r, _ in rates[name])
            print(f"ours is {ratio:.2f} × {name}")


def one_length(length: int, sentences: int, vocabulary: int) -> Batch:
    """Return a batch of random sentences of one length."""
    offsets = torch.arange(sentences + 1, dtype=torch.int32) * length
    rows = [torch.randint(4, vocabulary, (length * sentences,), dtype=torch.int32) for _ in range(2)]
    tiles = lay_batch(offsets.numpy(), offsets.numpy(), source=length * sentences, target=length * sentences)
    size = length * sentences
    return Batch(
        rows[0],
        offsets,
        rows[1],
        rows[1],
        offsets,
        torch.from_numpy(tiles),
        np.arange(sentences),
        size,
        size,
        START,
        START,
    )


def show_lengths(size: str, config: ModelConfig, device: torch.device, steps: int) -> None:
    """Print how the time of our step grows with the length of sentences and the size of batches."""
    cells = [(length, 32_768) for length in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)]
    cells += [(32, tokens) for tokens in (2_048, 8_192, 32_768, 131_072)]
    print(f"\n{size}\n{'length':>7}{'tokens':>17}{'ms':>9}{'tokens/s':>13}{'TFLOP/s':>10}{'GiB':>7}")
    for length, tokens in cells:
        batch = one_length(length, max(1, tokens // length), config.vocabulary)
        work = work_of(config, *lengths_of(batch))
        if device.type == "cuda":
            batch = batch.pin()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        taken = make_ours(replace(config, dropout=0.1), device)
        for _ in range(3):
            taken(batch)
        seconds = timed(device, lambda taken=taken, batch=batch: [taken(batch) for _ in range(steps)]) / steps
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        rate = (batch.source_tokens + batch.target_tokens) / seconds
        both = f"{batch.source_tokens:,} + {batch.target_tokens:,}"
        print(
            f"{length:7}{both:>17}{1e3 * seconds:9.2f}{rate:13,.0f}{work / seconds / 1e12:10.1f}{memory:7.1f}",
            flush=True,
        )
        del taken


if __name__ == "__main__":
    main()
