"""The hypotheses of beam search (section 6.1): open ones, ended ones, and which continue at each step.

All state is in tensors of fixed shapes, and a step reads nothing back from the device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import SearchConfig
from transduce.text.subwords import BEGIN, END, PAD

assert (PAD, BEGIN) == (0, 2)  # `choose` relies on it


@dataclass(frozen=True)
class Hypothesis:
    """A translation as tokens, with its scores."""

    tokens: Int[np.ndarray, " tokens"]
    """without the end token"""
    token_scores: Float[np.ndarray, " said"]
    """the log-probability of each token, and of the end if it has one"""
    score: float
    """log-probability over the length penalty, by which hypotheses are ranked"""
    ended: bool
    """whether it has output the end token; otherwise it was cut"""

    @property
    def log_probability(self) -> float:
        """log P(target | source)."""
        return float(self.token_scores.sum(dtype=np.float64))


@dataclass(frozen=True)
class Ended:
    """A hypothesis that has ended, as a record of the search keeps it."""

    steps: int
    """number of tokens before the end"""
    line: int
    """the line of the beam with the last of them"""
    log_probability: float
    """of all tokens and the end"""
    score: float
    """the same over the length penalty"""


@dataclass(frozen=True)
class Record:
    """The search for one sentence: the lines of the beam at each step, and the best hypotheses that ended."""

    tokens: Int[np.ndarray, "steps beam"]
    """the token of each line"""
    parents: Int[np.ndarray, "steps beam"]
    """the line of the previous step that each continued"""
    sums: Float[np.ndarray, "steps beam"]
    """the log-probability of each line so far; -inf where there is no line"""
    ended: tuple[Ended, ...]
    """the best first, at most as many as the beam has lines"""


def length_penalty(lengths: Tensor, alpha: float) -> Tensor:
    """Return ((5 + |Y|) / 6)^α (Wu et al. 2016); |Y| counts the end token."""
    return ((5 + lengths.double()) / 6) ** alpha


class Beams:
    """The state of several searches: each slot has `beam` open hypotheses (lines) and the best that have ended.

    The output is kept as steps: each line's token, the line it continued and its score so far.
    """

    def __init__(self, slots: int, target: int, config: SearchConfig, device: torch.device, min_tokens: int = 0):
        self.config, self.target, self.min_tokens = config, target, min_tokens
        self.beam = beam = config.n_best if config.sample else config.beam
        # Per line: twice the beam, as half of the best may be ends, and two for PAD and BEGIN, which are never output.
        self.candidates = 2 * beam + 2

        def full(value: float, *shape: int, kind: torch.dtype = torch.int64) -> Tensor:
            return torch.full((slots, *shape), value, dtype=kind, device=device)

        real = torch.float32
        self.length, self.limit = full(0), full(0)
        self.done: Bool[Tensor, " slots"] = full(True, kind=torch.bool)
        self.scores: Float[Tensor, "slots beam"] = full(-torch.inf, beam, kind=real)
        self.next: Int[Tensor, "slots beam"] = full(BEGIN, beam, kind=torch.int32)
        self.parents: Int[Tensor, "slots beam"] = full(0, beam)
        # One step more than the longest target: a slot that is done keeps writing after its last step.
        self.said: Int[Tensor, "slots target+1 beam"] = full(END, target + 1, beam, kind=torch.int32)
        self.came_from: Int[Tensor, "slots target+1 beam"] = full(0, target + 1, beam)
        self.sums: Float[Tensor, "slots target+1 beam"] = full(0, target + 1, beam, kind=real)
        # By penalised score, the best first.
        self.ended: Float[Tensor, "slots beam"] = full(-torch.inf, beam, kind=real)
        self.ended_sums: Float[Tensor, "slots beam"] = full(0, beam, kind=real)
        self.ended_length, self.ended_line = full(0, beam), full(0, beam)
        lengths = torch.arange(target + 2)  # not on the device, which may lack float64
        self.penalty: Float[Tensor, " target+2"] = length_penalty(lengths, config.alpha).float().to(device)
        self.until_full = config.sample or beam == 1 or config.stop == "full"

    def state(self) -> tuple[Tensor, ...]:
        """Return all that changes from step to step, in the order in which the choosing kernel takes it."""
        ended = (self.ended, self.ended_sums, self.ended_line, self.ended_length)
        steps = (self.said, self.came_from, self.sums)
        return (
            self.scores,
            self.next,
            self.parents,
            *steps,
            self.length,
            self.limit,
            self.done,
            *ended,
        )

    def reset(self) -> None:
        """Mark all slots as done."""
        self.done.fill_(True)
        self.length.zero_()

    def begin(self, slots: list[int], limits: list[int]) -> None:
        """Begin sentences in slots, each with one empty line (all lines when sampling); `limits` are most tokens."""
        index = torch.tensor(slots, device=self.length.device)
        self.length[index] = 0
        self.limit[index] = torch.tensor(limits, device=index.device)
        self.done[index] = False
        self.scores[index] = -torch.inf
        self.scores[index, 0] = 0.0
        if self.config.sample:
            self.scores[index] = 0.0
        self.next[index] = BEGIN
        self.parents[index] = torch.arange(self.beam, device=index.device)
        self.ended[index] = -torch.inf

    def choose(
        self,
        values: Float[Tensor, "slots beam k"],
        candidates: Int[Tensor, "slots beam k"],
    ) -> None:
        """Continue or end the best candidates of all lines; `values` are the candidates' log-probabilities."""
        beam, k = self.beam, values.shape[-1]
        never = (candidates & ~BEGIN) == PAD  # PAD or BEGIN
        if self.min_tokens:
            never |= (candidates == END) & (self.length < self.min_tokens)[:, None, None]
        totals = (values + self.scores[..., None]).masked_fill_(never, -torch.inf)
        top, places = totals.flatten(1).topk(2 * beam)
        lines, tokens = places // k, candidates.flatten(1).gather(1, places)
        ends = tokens == END
        self.end(top[:, :beam].masked_fill(~ends[:, :beam], -torch.inf), lines[:, :beam])
        # A line has one end at most among its candidates, so at least half of the 2 × beam best continue.
        scores, going = top.masked_fill_(ends, -torch.inf).topk(beam)
        self.go_on(scores, lines.gather(1, going), tokens.gather(1, going))

    def end(self, sums: Float[Tensor, "slots beam"], lines: Int[Tensor, "slots beam"]) -> None:
        """End hypotheses that continue these lines; `sums` are their log-probabilities, -inf where none ends."""
        now = self.length + 1
        scores = (sums / self.penalty[now][:, None]).masked_fill_(self.done[:, None], -torch.inf)
        ended, kept = torch.cat((self.ended, scores), 1).topk(self.beam)
        self.ended.copy_(ended)
        for old, new in (
            (self.ended_sums, sums),
            (self.ended_line, lines),
            (self.ended_length, now[:, None]),
        ):
            old.copy_(torch.cat((old, new.expand(-1, self.beam)), 1).gather(1, kept))

    def go_on(
        self,
        scores: Float[Tensor, "slots beam"],
        parents: Int[Tensor, "slots beam"],
        tokens: Int[Tensor, "slots beam"],
    ) -> None:
        """Continue the lines `parents` with tokens, and find out which sentences are done."""
        place = self.length[:, None, None].expand(-1, 1, self.beam)
        self.said.scatter_(1, place, tokens[:, None])
        self.came_from.scatter_(1, place, parents[:, None])
        self.sums.scatter_(1, place, scores[:, None])
        self.scores.copy_(torch.where(self.done[:, None], self.scores, scores))
        self.parents.copy_(parents)
        self.next.copy_(tokens)
        self.length += ~self.done
        self.done |= self.is_done()

    def is_done(self) -> Bool[Tensor, " slots"]:
        """Return which searches are over: enough hypotheses have ended (see `search.stop`), or no line can continue."""
        if self.until_full:
            found = self.ended[:, -1] > -torch.inf
        else:
            # A log-probability only falls, and the penalty is largest at the limit: no line can do better than this.
            bound = self.scores.amax(1) / self.penalty[self.limit]
            found = self.ended[:, self.config.n_best - 1] >= bound
        return found | (self.length >= self.limit) | (self.scores.amax(1) == -torch.inf)

    def record(self, slot: int) -> Record:
        """Return the record of a finished search."""
        steps = int(self.length[slot])
        tokens, parents, sums = (part[slot, :steps].cpu().numpy() for part in (self.said, self.came_from, self.sums))
        kept = (self.ended_length - 1, self.ended_line, self.ended_sums, self.ended)
        ended = [Ended(*values) for values in zip(*(part[slot].tolist() for part in kept))]
        best = sorted((one for one in ended if one.score > -np.inf), key=lambda one: -one.score)
        return Record(tokens, parents, sums, tuple(best))

    def results(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Return the best translations of finished sentences: first those that ended, then those that were cut."""
        index = torch.tensor(slots, device=self.done.device)
        said, came_from, sums, length, scores, ended, ended_sums, ended_line, ended_length = (
            part[index].cpu().numpy()
            for part in (
                *(self.said, self.came_from, self.sums, self.length, self.scores),
                *(self.ended, self.ended_sums, self.ended_line, self.ended_length),
            )
        )
        # Where no token was allowed any more, the translation is cut one step earlier.
        stuck = (ended.max(1) == -np.inf) & (scores.max(1) == -np.inf)
        length = length - stuck
        before = sums[np.arange(len(slots)), np.maximum(length - 1, 0)]
        before[length == 0] = np.where(np.arange(self.beam) == 0, 0.0, -np.inf)
        scores = np.where(stuck[:, None], before, scores)
        # Ended hypotheses come before open ones, each by score.
        order = np.concatenate((np.argsort(-ended, 1, "stable"), np.argsort(-scores, 1, "stable") + self.beam), 1)
        penalty = self.penalty.cpu().numpy().astype(np.float64)[length, None]
        sides = (
            (ended, scores / penalty),
            (ended_sums, np.full_like(scores, np.nan)),
            (ended_line, np.broadcast_to(np.arange(self.beam), scores.shape)),
            (ended_length - 1, np.broadcast_to(length[:, None], scores.shape)),
        )
        chances, ends, lines, lengths = (np.take_along_axis(np.concatenate(both, 1), order, 1) for both in sides)
        there = chances > -np.inf
        wanted = there & (there.cumsum(1) <= self.config.n_best)
        rows = wanted.nonzero()[0]
        traced = _trace(rows, lengths[wanted], lines[wanted], ends[wanted], said, came_from, sums)
        found: list[list[Hypothesis]] = [[] for _ in slots]
        for row, score, (tokens, token_scores) in zip(rows.tolist(), chances[wanted].tolist(), traced):
            found[row].append(Hypothesis(tokens, token_scores, score, len(token_scores) > len(tokens)))
        return found


def _trace(
    rows: Int[np.ndarray, " found"],
    lengths: Int[np.ndarray, " found"],
    at: Int[np.ndarray, " found"],
    ends: Float[np.ndarray, " found"],
    said: Int[np.ndarray, "slots target+1 beam"],
    came_from: Int[np.ndarray, "slots target+1 beam"],
    sums: Float[np.ndarray, "slots target+1 beam"],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Follow hypotheses back to their beginnings, all at once; yield the tokens of each and their scores.

    Each has `lengths` tokens, the last in line `at`; `ends` are log-probabilities with the end, NaN without one.
    """
    longest = int(lengths.max(initial=0))
    tokens = np.zeros((len(rows), longest), np.int32)
    totals = np.zeros((len(rows), longest + 2))
    for place in range(longest - 1, -1, -1):
        inside = place < lengths
        tokens[:, place] = said[rows, place, at]
        totals[:, place + 1] = np.where(inside, sums[rows, place, at], 0.0)
        at = np.where(inside, came_from[rows, place, at], at)
    totals[np.arange(len(rows)), lengths + 1] = ends
    scores = np.diff(totals, axis=1).astype(np.float32)
    said_of_each = (lengths + ~np.isnan(ends)).tolist()
    for own, gained, length, many in zip(tokens, scores, lengths.tolist(), said_of_each):
        yield own[:length], gained[:many]
