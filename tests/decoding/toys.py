"""Toy models, whose logits are any function of source and output, and plain searches to compare with."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from sentences import make_row
from torch import Tensor

from transduce.config import ModelConfig
from transduce.decoding.beams import Hypothesis
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

Said = tuple[int, ...]
Tell = Callable[[Said], np.ndarray]  # the log-probabilities of what is said next
Found = tuple[list[int], float, bool]  # a translation, its penalised score and whether it came to its end
NEAR = 1e-5  # scores nearer than this may come out in either order


class Toy:
    """An engine without a network: random logits, fixed for each source and each beginning of a target."""

    def __init__(
        self,
        vocabulary: int = 7,
        *,
        seed: int = 0,
        spread: float = 1.5,
        loves: Callable[[Said], Mapping[int, float]] = lambda said: {},
        rows: int = 1 << 10,
        **config: Any,
    ):
        self.config = ModelConfig(vocabulary=vocabulary, **config)
        self.device = torch.device("cpu")
        self.rows, self.tokens = rows, 1 << 20
        self.seed, self.spread, self.loves = seed, spread, loves
        self.known: dict[tuple[Said, Said], np.ndarray] = {}
        self.opened: list[ToyLines] = []

    def logits(self, source: Sequence[int], said: Said) -> np.ndarray:
        """Return the logits of the next token, with the bonus of `loves`."""
        place = (tuple(source), said)
        if place not in self.known:
            random = np.random.default_rng([self.seed, len(source), *source, *said])
            self.known[place] = random.normal(size=self.config.vocabulary) * self.spread
            for token, bonus in self.loves(said).items():
                self.known[place][token] += bonus
        return self.known[place]

    def tell(self, source: Sequence[int]) -> Tell:
        """Return a function that gives these as log-probabilities."""
        return lambda said: log_softmax(self.logits(source, said))

    def open(self, slots: int, beam: int, source: int, target: int) -> "ToyLines":
        """Make room, and check the search against its own request."""
        self.opened.append(ToyLines(self, slots, beam, source, target))
        return self.opened[-1]


class ToyLines:
    """The output of each line of a toy."""

    def __init__(self, toy: Toy, slots: int, beam: int, source: int, target: int):
        self.toy, self.slots, self.beam, self.source, self.target = toy, slots, beam, source, target
        self.sources: dict[int, list[int]] = {}
        self.said: dict[int, list[Said]] = {}
        self.admitted: list[int] = []
        self.advanced: list[int] = []
        self.closed = False

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Admit sentences."""
        assert not self.closed
        assert len(slots) == len(sources) == len(set(slots))
        self.admitted.append(len(slots))
        for slot, source in zip(slots, sources):
            assert 0 <= slot < self.slots
            assert 0 < len(source) <= self.source
            self.sources[slot], self.said[slot] = source.tolist(), [()] * self.beam

    def advance(self, slots: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        """Let each line add a token to another line of its slot; return the logits of the next."""
        assert not self.closed
        assert tokens.shape == parents.shape == (len(slots), self.beam)
        self.advanced.append(len(slots))
        for slot in set(self.said) - set(slots.tolist()):
            del self.said[slot]  # they have left, and must join again
        rows: list[np.ndarray] = []
        for slot, new, origins in zip(slots.tolist(), tokens.tolist(), parents.tolist()):
            self.said[slot] = [(*self.said[slot][parent], token) for parent, token in zip(origins, new)]
            assert all(said[0] == BEGIN for said in self.said[slot])
            assert len(self.said[slot][0]) <= self.target
            rows += [self.toy.logits(self.sources[slot], said[1:]) for said in self.said[slot]]
        return torch.from_numpy(np.stack(rows)).float()

    def normaliser(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the sum of exponentials."""
        return logits.logsumexp(-1)

    def best(self, logits: Tensor, k: int, normaliser: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the best log-probabilities and their tokens."""
        values, tokens = logits.sort(descending=True, stable=True)
        normaliser = self.normaliser(logits) if normaliser is None else normaliser
        return (values - normaliser[:, None])[:, :k], tokens[:, :k].int()

    def close(self) -> None:
        """Close the lines; once only."""
        assert not self.closed
        self.closed = True


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return logits as log-probabilities."""
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def teller(model: Transformer, source: Sequence[int]) -> Tell:
    """Return a model by its definition: everything computed anew for every token."""
    known: dict[Said, np.ndarray] = {}

    @torch.no_grad()
    def tell(said: Said) -> np.ndarray:
        if said not in known:
            logits = model(*make_row([source]), *make_row([[BEGIN, *said]]))[-1]
            known[said] = logits.double().log_softmax(-1).numpy()
        return known[said]

    return tell


def penalty(length: int, alpha: float) -> float:
    """Return the paper's length penalty (Wu et al. 2016, equation 14) for so many tokens, the end included."""
    return (5 + length) ** alpha / (5 + 1) ** alpha


def plain_greedy(tell: Tell, limit: int) -> tuple[list[int], float, bool]:
    """Return the best token of each step, the log-probability of all, and whether the end was reached."""
    said, total = (), 0.0
    while len(said) < limit:
        shares = tell(said).copy()
        shares[[PAD, BEGIN]] = -np.inf
        token = int(shares.argmax())
        total += shares[token]
        if token == END:
            return list(said), total, True
        said += (token,)
    return list(said), total, False


def plain_beam(
    tell: Tell, *, beam: int, alpha: float, limit: int, n_best: int = 1, stop: str = "exact", begun: Said = ()
) -> tuple[list[Found], float]:
    """Return what beam search with lists finds, and the smallest difference between scores it has compared.

    `begun` is the output before the search. An end counts only among the first `beam` of all candidates.
    """
    total = sum(tell(begun[:place])[token] for place, token in enumerate(begun))
    lines: list[tuple[float, Said]] = [(total, begun)]
    ended: list[tuple[float, Said]] = []
    compared: list[list[float]] = []
    for length in range(len(begun) + 1, limit + 1):
        candidates = [
            (total + gain, said, token)
            for total, said in lines
            for token, gain in enumerate(tell(said).tolist())
            if token not in (PAD, BEGIN) and gain > -math.inf
        ]
        candidates.sort(reverse=True)
        compared.append([score for score, *_ in candidates[: 2 * beam + 1]])
        ended += [(score / penalty(length, alpha), said) for score, said, token in candidates[:beam] if token == END]
        ended.sort(reverse=True)
        compared.append([score for score, _ in ended])
        del ended[beam:]
        lines = [(score, (*said, token)) for score, said, token in candidates[: 2 * beam] if token != END][:beam]
        if not lines or (stop != "never" and (stop == "full" or beam == 1) and len(ended) == beam):
            break
        if stop == "exact" and beam > 1 and len(ended) >= n_best:
            bound = lines[0][0] / penalty(limit, alpha)
            compared.append([ended[n_best - 1][0], bound])
            if ended[n_best - 1][0] >= bound:
                break
    found: list[Found] = [(list(said), score, True) for score, said in ended]
    found += [(list(said), score / penalty(len(said), alpha), False) for score, said in lines]
    gaps = [abs(a - b) for scores in compared for a, b in pairwise(scores)]
    return found[:n_best], min(gaps, default=1.0)


def every_translation(
    tell: Tell, words: Sequence[int], alpha: float, limit: int, may: Callable[[Said], bool] = lambda said: True
) -> list[Found]:
    """Return all translations, best first: those that end, then those that are cut; `may` says which are allowed."""
    ended: list[Found] = []
    cut: list[Found] = []

    def visit(said: Said, total: float) -> None:
        if len(said) == limit:
            if may(said):
                cut.append((list(said), total / penalty(limit, alpha), False))
            return
        shares = tell(said)
        if may(said):
            ended.append((list(said), (total + shares[END]) / penalty(len(said) + 1, alpha), True))
        for word in words:
            visit((*said, word), total + shares[word])

    visit((), 0.0)
    return sorted(ended, key=lambda found: -found[1]) + sorted(cut, key=lambda found: -found[1])


def as_found(hypotheses: Sequence[Hypothesis]) -> list[Found]:
    """Return hypotheses in the form of the plain searches."""
    return [(hypothesis.tokens.tolist(), hypothesis.score, hypothesis.ended) for hypothesis in hypotheses]


def assert_same(hypotheses: Sequence[Hypothesis], expected: Sequence[Found], near: float = NEAR) -> None:
    """Fail unless the translations and their order are the same, and the scores but for rounding."""
    found = as_found(hypotheses)
    assert [tokens for tokens, _, _ in found] == [tokens for tokens, _, _ in expected]
    assert [ended for *_, ended in found] == [ended for *_, ended in expected]
    np.testing.assert_allclose([score for _, score, _ in found], [score for _, score, _ in expected], near, near)


def assert_alike(first: Sequence[Hypothesis], second: Sequence[Hypothesis]) -> None:
    """Fail unless two searches have found the same."""
    assert_same(first, as_found(second))


def log_probability(tell: Tell, hypothesis: Hypothesis) -> list[float]:
    """Return a model's log-probability of each token of a translation, and of its end if it has one."""
    tokens = (*hypothesis.tokens.tolist(), *([END] if hypothesis.ended else []))
    return [float(tell(tokens[:place])[token]) for place, token in enumerate(tokens)]


def runs(tokens: Sequence[int], many: int) -> list[Said]:
    """Return all runs of `many` tokens."""
    return [tuple(tokens[place : place + many]) for place in range(len(tokens) - many + 1)]


def contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    """Whether a phrase's tokens occur side by side, in this order."""
    return tuple(phrase) in runs(tokens, len(phrase))


def words(vocabulary: int) -> list[int]:
    """Return the tokens that a translation may be made of."""
    return [token for token in range(vocabulary) if token not in (PAD, BEGIN, END)]


def all_texts(alphabet: Sequence[int], longest: int) -> Iterator[Said]:
    """Yield all tuples of up to `longest` tokens."""
    for length in range(longest + 1):
        yield from product(alphabet, repeat=length)
