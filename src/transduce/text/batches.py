"""Padding-free batches (section 5.1): the order of an epoch as a pure function, and a loader that prepares them ahead.

Shapes: `source` and `target` are the fixed numbers of tokens in a batch's rows, `sentences` is the fixed number of
sentences that it can hold.
"""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from transduce.config import BatchConfig
from transduce.errors import ConfigError, DataError
from transduce.text.sampling import Sampler
from transduce.text.shards import SIDES, DataSet, Side, Split
from transduce.text.subwords import BEGIN, PAD
from transduce.text.tiles import lay_batch


class Position(NamedTuple):
    """A place in the endless sequence of batches."""

    epoch: int
    step: int


START = Position(0, 0)


@dataclass(frozen=True)
class Batch:
    """Sentences back to back in rows of fixed length; the rest of a row is filler that belongs to no sentence.

    Sentence i is `source[source_offsets[i]:source_offsets[i + 1]]`. The offsets repeat their last value to the end, so
    surplus sentences are empty. `target` is what the decoder must output; `target_input` is the same, one token later,
    with BEGIN at the start of each sentence.
    """

    source: Int32[Tensor, " source"]
    source_offsets: Int32[Tensor, "sentences+1"]
    target: Int32[Tensor, " target"]
    target_input: Int32[Tensor, " target"]
    target_offsets: Int32[Tensor, "sentences+1"]
    tiles: Int32[Tensor, "3 2 tiles 5"] | None  # for attention on a GPU
    pairs: np.ndarray  # which pairs of the split these are, in order
    source_tokens: int
    target_tokens: int
    position: Position
    next_position: Position

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return len(self.pairs)

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device, without waiting for the copy."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: t.to(device, non_blocking=True) for name, t in tensors.items() if isinstance(t, Tensor)}
        return replace(self, **moved)

    def split(self, pieces: int) -> list["Batch"]:
        """Return the same sentences as at most `pieces` batches of about equally many tokens, without filler."""
        ends = self.source_offsets[1 : self.sentences + 1].long() + self.target_offsets[1 : self.sentences + 1]
        shares = torch.arange(1, pieces + 1) * (self.source_tokens + self.target_tokens) / pieces
        cuts = sorted({0, *(torch.searchsorted(ends, shares.ceil().long()) + 1).clamp(max=self.sentences).tolist()})
        return [self._cut(first, end) for first, end in pairwise(cuts)]

    def _cut(self, first: int, end: int) -> "Batch":
        sources, targets = self.source_offsets[first : end + 1], self.target_offsets[first : end + 1]
        source, target = slice(int(sources[0]), int(sources[-1])), slice(int(targets[0]), int(targets[-1]))
        return replace(
            self,
            source=self.source[source],
            source_offsets=sources - sources[0],
            target=self.target[target],
            target_input=self.target_input[target],
            target_offsets=targets - targets[0],
            tiles=None,
            pairs=self.pairs[first:end],
            source_tokens=source.stop - source.start,
            target_tokens=target.stop - target.start,
        )

    def tile(self) -> "Batch":
        """Return the batch with tiles for attention."""
        sides = self.source_offsets.numpy(), self.target_offsets.numpy()
        laid = lay_batch(*sides, source=len(self.source), target=len(self.target))
        return replace(self, tiles=torch.from_numpy(laid))

    def pin(self) -> "Batch":
        """Return the batch in pinned memory, which a GPU can copy from on its own."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: t.pin_memory() for name, t in tensors.items() if isinstance(t, Tensor)})


class ShareSizes(NamedTuple):
    """The capacity of a share of a batch: tokens of each side, and sentences."""

    source: int
    target: int
    sentences: int


@dataclass(frozen=True)
class Plan:
    """The order of one epoch: a sequence of pairs, cut into parts; batch b has the parts from `batches[b]` on."""

    pairs: np.ndarray
    part_offsets: np.ndarray
    batches: np.ndarray
    parts: int
    sizes: "ShareSizes"

    def __len__(self) -> int:
        return len(self.batches)

    def part_numbers(self, step: int) -> range:
        """Return the numbers of a batch's parts; one batch of the epoch may have fewer than `parts`."""
        first = int(self.batches[step])
        return range(first, min(first + self.parts, len(self.part_offsets) - 1))

    def share(self, step: int, share: int, shares: int) -> list[np.ndarray]:
        """Return the pairs of one share of a batch, part by part; no pairs if the batch has too few parts."""
        numbers = self.part_numbers(step)[share::shares]
        return [self.pairs[self.part_offsets[n] : self.part_offsets[n + 1]] for n in numbers] or [self.pairs[:0]]


class Batches:
    """All batches of a split, by (epoch, step), each divided among `shares` processes and accumulation steps."""

    config: BatchConfig
    seed: int
    shares: int
    weights: list[tuple[int, int, float]]
    part_sentences: int
    most: ShareSizes
    sampler: Sampler | None

    def __init__(self, data: DataSet, config: BatchConfig, *, seed: int = 1, split: str = "train", shares: int = 1):
        if not 1 <= shares <= config.parts:
            raise ConfigError(
                f"batch.parts = {config.parts} is too few to split a batch among {shares} processes and accumulation "
                f"steps; raise it to {shares} or a multiple of it"
            )
        self.split: Split = data.splits[split]
        self.config, self.seed, self.shares = config, seed, shares
        self.lengths: dict[Side, np.ndarray] = {
            "source": self.split.lengths("source"),
            "target": self.split.lengths("target"),
        }
        everything = [(0, self.split.pairs, 1.0)]
        self.weights = data.weights() if split == "train" else everything
        most = -(-config.parts // shares)
        self.part_tokens: dict[Side, int] = {
            "source": config.source_tokens // config.parts,
            "target": config.target_tokens // config.parts,
        }
        sentences = config.sentences or max(config.source_tokens, config.target_tokens) // 4
        self.part_sentences = max(1, sentences // config.parts)
        # No share ever holds more than this.
        tokens = self.part_tokens
        self.most = ShareSizes(most * tokens["source"], most * tokens["target"], most * self.part_sentences)
        self.sampler = (
            Sampler(data, config.subword_dropout, seed) if config.subword_dropout and split == "train" else None
        )
        self._check_lengths()
        # The longest possible sentence: as in the data, or as long as sampling may make one.
        self.longest: dict[Side, int] = {
            side: tokens if self.sampler else int(self.lengths[side].max(initial=0))
            for side, tokens in self.part_tokens.items()
        }
        self._plans: dict[int, Plan] = {}

    def _check_lengths(self) -> None:
        for side, capacity in self.part_tokens.items():
            longest = int(self.lengths[side].max(initial=0))
            if longest > capacity:
                pair = int(self.lengths[side].argmax())
                raise DataError(
                    f"pair {pair} has {longest:,} {side} tokens, but a part of a batch holds {capacity:,} "
                    f"(batch.{side}_tokens / batch.parts); raise batch.{side}_tokens, lower batch.parts, "
                    f"or prepare with --clean.tokens {capacity - 1}"
                )

    def plan(self, epoch: int) -> Plan:
        """Return the order of an epoch: a pure function of the data, the settings, the seed and the epoch."""
        plan = self._plans.get(epoch)
        if plan is None:
            plan = self._make_plan(epoch)
            # The loader plans the epoch after the next while batches of this one are still in use.
            near = {number: kept for number, kept in self._plans.items() if abs(number - epoch) <= 2}
            self._plans = near | {epoch: plan}
        return plan

    def _make_plan(self, epoch: int) -> Plan:
        # Raw bits of a counter-based generator: unlike NumPy's shuffles they are the same in every version.
        bits = np.random.Philox(key=[self.seed, epoch])
        pairs = self._draw_pairs(bits)
        keys = bits.random_raw(len(pairs))
        if self.config.similar_lengths:
            longer = np.maximum(self.lengths["source"][pairs], self.lengths["target"][pairs])
            keys = (longer.astype(np.uint64) << np.uint64(48)) | (keys >> np.uint64(16))
        pairs = pairs[np.argsort(keys)]
        offsets = self._cut(pairs)
        firsts = np.arange(0, len(offsets) - 1, self.config.parts)
        if self.config.similar_lengths:
            firsts = firsts[np.argsort(bits.random_raw(len(firsts)))]
        return Plan(pairs, offsets, firsts, self.config.parts, self._measure(pairs, offsets))

    def _measure(self, pairs: np.ndarray, offsets: np.ndarray) -> ShareSizes:
        """Return sizes that every share of an epoch fits in, rounded up a little so that most epochs have the same."""
        if self.sampler:
            return self.most
        ends = [np.concatenate(([0], np.cumsum(self.lengths[side][pairs], dtype=np.int64))) for side in SIDES]
        parts = np.stack((ends[0][offsets], ends[1][offsets], offsets)).astype(np.int64)
        parts = np.diff(parts, axis=1)
        padded = np.pad(parts, ((0, 0), (0, -parts.shape[1] % self.config.parts)))
        batches = padded.reshape(3, -1, self.config.parts)
        shares = [batches[:, :, share :: self.shares].sum(2).max(1, initial=0) for share in range(self.shares)]
        steps = [max(8, most // 64 // 8 * 8) for most in self.most]
        return ShareSizes(
            *(min(most, -(-int(used) // step) * step) for most, used, step in zip(self.most, np.max(shares, 0), steps))
        )

    def _draw_pairs(self, bits: np.random.Philox) -> np.ndarray:
        """Return each pair as often as its input's weight says; the fraction is sampled anew each epoch."""
        drawn = [np.empty(0, np.int64)]
        for first, end, weight in self.weights:
            drawn += [np.arange(first, end)] * int(weight)
            if some := round((weight - int(weight)) * (end - first)):
                drawn.append(first + np.sort(np.argsort(bits.random_raw(end - first))[:some]))
        return np.concatenate(drawn)

    def _cut(self, pairs: np.ndarray) -> np.ndarray:
        """Cut a sequence of pairs greedily into parts that fit the budgets of tokens and sentences."""
        slack = self.sampler.growth if self.sampler else 1.0
        ends = {side: np.cumsum(self.lengths[side][pairs], dtype=np.int64) for side in self.part_tokens}
        budgets = {
            side: max(int(tokens / slack), self.lengths[side].max(initial=0))
            for side, tokens in self.part_tokens.items()
        }
        offsets = [0]
        while (first := offsets[-1]) < len(pairs):
            end = first + self.part_sentences
            for side, cumulative in ends.items():
                before = cumulative[first - 1] if first else 0
                end = min(end, int(np.searchsorted(cumulative, before + budgets[side], side="right")))
            offsets.append(end)
        offsets[-1] = min(offsets[-1], len(pairs))
        return np.array(offsets, np.int64)

    def tokens(self, epoch: int, step: int) -> int:
        """Count the source and target tokens of a whole batch as they are in the data set, before subword dropout."""
        pairs = np.concatenate(self.plan(epoch).share(step, 0, 1))
        return sum(int(lengths[pairs].sum(dtype=np.int64)) for lengths in self.lengths.values())

    def batch(self, epoch: int, step: int, share: int = 0) -> Batch:
        """Return one share of one batch."""
        plan = self.plan(epoch)
        parts = plan.share(step, share, self.shares)
        source, source_offsets = self._row("source", parts, epoch)
        target, target_offsets = self._row("target", parts, epoch)
        target_input = np.empty_like(target)
        target_input[1:] = target[:-1]
        target_input[target_offsets[:-1]] = BEGIN
        sizes = plan.sizes
        return Batch(
            source=_fill(source, sizes.source, PAD),
            source_offsets=_fill(source_offsets, sizes.sentences + 1, len(source)),
            target=_fill(target, sizes.target, PAD),
            target_input=_fill(target_input, sizes.target, PAD),
            target_offsets=_fill(target_offsets, sizes.sentences + 1, len(target)),
            tiles=None,
            pairs=np.concatenate(parts),
            source_tokens=len(source),
            target_tokens=len(target),
            position=Position(epoch, step),
            next_position=Position(epoch, step + 1) if step + 1 < len(plan) else Position(epoch + 1, 0),
        )

    def _row(self, side: Side, parts: list[np.ndarray], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self.sampler is None:
            return self.split.gather(side, np.concatenate(parts))
        # Part by part, so that the samples do not depend on how a batch is divided.
        sampled = [
            self.sampler.sample(side, *self.split.gather(side, pairs), pairs, epoch, self.part_tokens[side])
            for pairs in parts
        ]
        rows = [row for row, _ in sampled]
        lengths = np.concatenate([np.diff(offsets) for _, offsets in sampled])
        return np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths)])

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches of epoch 0 in order, for evaluation."""
        return (self.batch(0, step) for step in range(len(self.plan(0))))


def _fill(values: np.ndarray, length: int, filler: int) -> Tensor:
    row = np.full(length, filler, np.int32)
    row[: len(values)] = values
    return torch.from_numpy(row)


class Loader:
    """Endless batches from a position on, prepared ahead in a thread; use it in a `with` block."""

    batches: Batches
    share: int
    pin: bool

    def __init__(self, batches: Batches, start: Position = START, *, share: int = 0, ahead: int = 8, pin: bool = False):
        self.batches, self.share, self.pin = batches, share, pin
        self._ready: queue.Queue[Batch | BaseException] = queue.Queue(ahead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(start,), name="batches", daemon=True)
        self._thread.start()

    def _work(self, position: Position) -> None:
        planner = ThreadPoolExecutor(1)
        following: Future[Plan] | None = None
        epoch = -1
        try:
            while not self._stopped.is_set():
                if position.epoch != epoch:
                    epoch = position.epoch
                    if following:
                        following.result()
                    self.batches.plan(epoch)
                    # The order of the next epoch is made while this one is used.
                    following = planner.submit(self.batches.plan, epoch + 1)
                batch = self.batches.batch(*position, share=self.share)
                position = batch.next_position
                self._put(batch.tile().pin() if self.pin else batch)
        except BaseException as error:  # raised again where the batches are used
            self._put(error)
        finally:
            planner.shutdown(cancel_futures=True)

    def _put(self, item: Batch | BaseException) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._ready.put(item, timeout=0.1)
                return

    def __iter__(self) -> Iterator[Batch]:
        while True:
            item = self._ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
