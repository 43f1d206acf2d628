"""What decodes: a model that takes in sentences and then one token of each open line after the other.

The search knows an engine only by this protocol. `TorchEngine` is the plain one, for every model and device, which the
faster ones must equal; an `Ensemble` is several engines as one.

Legend of shapes: a sentence has its `slot`, each slot has `beam` lines; `open` slots are those a step is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.beams import Beams
from transduce.decoding.brackets import Brackets, OpenTrees
from transduce.model.attention import MultiHeadAttention, attend
from transduce.model.layers import DecoderLayer
from transduce.model.positions import rotate
from transduce.model.transformer import Transformer

Slots = Int[np.ndarray, " open"]
Choice = Int[np.ndarray, "open beam"]


class Lines(Protocol):
    """Room for some sentences at a time; they leave and others join at any step."""

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences, given as tokens with their ends, into slots; their lines begin anew."""
        ...

    def advance(self, slots: Slots, tokens: Choice, parents: Choice) -> Float[Tensor, "open*beam vocabulary"]:
        """Take in a token for each line, which goes on from a line of the same slot; return the logits of the next."""
        ...

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """What makes log-probabilities of logits when it is taken away."""
        ...

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The k largest log-probabilities of each row, the largest first, and their tokens."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


@runtime_checkable
class Runs(Protocol):
    """Lines that can also choose by themselves, several steps at a time, where no rule but that of trees has a say."""

    def beams_for(self, config: SearchConfig, brackets: Brackets | None = None) -> tuple[Beams, OpenTrees | None]:
        """The hypotheses they choose among, all slots done; with brackets also how far their trees are."""
        ...

    def run(self, steps: int) -> None:
        """Let the hypotheses go on by so many steps; what is done stays as it is."""
        ...


class Engine(Protocol):
    """A model made ready to decode."""

    @property
    def config(self) -> ModelConfig:
        """The model's sizes."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its logits are."""
        ...

    @property
    def rows(self) -> int:
        """How many lines at once it takes to be at its fastest."""
        ...

    @property
    def tokens(self) -> int:
        """How many tokens it may keep the keys and values of."""
        ...

    def open(self, slots: int, beam: int, source: int, target: int) -> Lines:
        """Make room for so many sentences of at most `source` tokens, and `beam` lines each of at most `target`."""
        ...


class Logits:
    """What every engine in torch does with logits."""

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """The logarithm of the sum of exponentials."""
        return logits.logsumexp(-1)

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The k largest log-probabilities of each row and their tokens."""
        values, tokens = logits.topk(k)
        normaliser = self.normaliser(logits) if normaliser is None else normaliser
        return values - normaliser[:, None], tokens.int()


class TorchLines(Logits):
    """Lines of the plain engine: keys and values in dense tensors, copied where lines go on from one another."""

    # Slots that are no longer asked for are dropped when they are more than this share of those held.
    CLOSED = 0.25

    def __init__(self, model: Transformer, beam: int, target: int):
        self.model, self.beam, self.target = model, beam, target
        self.held = np.empty(0, np.int64)  # line i of every tensor is of slot held[i]
        self.asked = self.held
        self.at = np.empty(0, np.int64)  # the position each is at
        self.mask = torch.empty(0)  # (held, 1, 1, source): which of the source's places are its own
        self.layers: list[_Kept] = []

    @torch.inference_mode()
    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences into slots, beside those that are still asked for."""
        self._keep(np.flatnonzero(np.isin(self.held, self.asked) & ~np.isin(self.held, slots)))
        model, device = self.model, self.model.device
        row = torch.from_numpy(np.concatenate(sources).astype(np.int32)).to(device)
        offsets = torch.from_numpy(np.cumsum([0, *map(len, sources)], dtype=np.int32)).to(device)
        memory = model.encode(row, offsets)
        places, mask = _dense_places(offsets)
        for number, layer in enumerate(model.decoder):
            assert isinstance(layer, DecoderLayer)
            key, value = (rows[places].transpose(1, 2) for rows in layer.cross_attention.project_memory(memory))
            shape = (len(slots), self.beam, key.shape[1], self.target)
            own = (
                key.new_zeros(*shape, key.shape[-1]),
                value.new_zeros(*shape, value.shape[-1]),
            )
            new = _Kept(key, value, *own)
            self.layers[number : number + 1] = [self.layers[number].joined(new) if len(self.held) else new]
        self.mask = _pad_cat(self.mask, mask) if len(self.held) else mask
        self.held = np.concatenate((self.held, np.asarray(slots, np.int64)))
        self.asked = self.held
        self.at = np.concatenate((self.at, np.zeros(len(slots), np.int64)))

    @torch.inference_mode()
    def advance(self, slots: Slots, tokens: Choice, parents: Choice) -> Float[Tensor, "open*beam vocabulary"]:
        """Take in a token for each line and return the logits of the next."""
        self.asked = np.asarray(slots, np.int64)
        rows = self._rows(self.asked)
        if len(rows) < (1 - self.CLOSED) * len(self.held):
            self._keep(rows)
            rows = np.arange(len(rows))
        whole = len(rows) == len(self.held) and bool((rows == np.arange(len(rows))).all())
        if not whole:
            tokens, parents = (
                self._for_all(rows, tokens, 0),
                self._for_all(rows, parents, np.arange(self.beam)),
            )
        logits = self._advance(tokens, parents)
        return (logits if whole else logits[torch.from_numpy(rows).to(logits.device)]).flatten(0, 1)

    def close(self) -> None:
        """Forget everything."""
        self.layers.clear()

    def _advance(self, tokens: np.ndarray, parents: np.ndarray) -> Float[Tensor, "held beam vocabulary"]:
        model, device, held = self.model, self.model.device, len(self.held)
        at = torch.from_numpy(self.at).to(device)
        seen = int(self.at.max()) + 1
        if (parents != np.arange(self.beam)).any():
            lines = torch.from_numpy(np.arange(held)[:, None] * self.beam + parents).to(device).flatten()
            for kept in self.layers:
                kept.reorder(lines, seen)
        positions = at.repeat_interleave(self.beam)
        past = None  # (held * beam, 1, 1, seen), where the slots are at different places
        if (self.at != self.at[0]).any():
            past = (torch.arange(seen, device=device) <= positions[:, None])[:, None, None]
        turn = model.turn(positions)
        x = model.embed(
            torch.from_numpy(tokens.astype(np.int64)).to(device).flatten(),
            positions,
            "target",
        )
        for layer, kept in zip(model.decoder, self.layers):
            assert isinstance(layer, DecoderLayer)
            attend_self = partial(self._attend_self, layer.self_attention, kept, turn, at, past, seen)
            attend_memory = partial(self._attend_memory, layer.cross_attention, kept)
            x = layer(
                x,
                partial(layer.self_residual, sublayer=attend_self),
                partial(layer.cross_residual, sublayer=attend_memory),
            )
        # What is no longer asked for may stand at its end for ever.
        self.at = np.minimum(self.at + 1, self.target - 1)
        logits = model.project(model.decoder_norm(x))
        return logits.float().unflatten(0, (held, self.beam))

    def _attend_self(
        self,
        attention: MultiHeadAttention,
        kept: "_Kept",
        turn: Tensor | None,
        at: Tensor,
        past: Tensor | None,
        seen: int,
        x: Tensor,
    ) -> Tensor:
        query, key, value = attention.project(x)
        if turn is not None:
            query, key = rotate(query, turn), rotate(key, turn)
        slots = torch.arange(len(at), device=at.device)
        kept.key[slots, :, :, at] = key.unflatten(0, (-1, self.beam))
        kept.value[slots, :, :, at] = value.unflatten(0, (-1, self.beam))
        keys, values = (rows.flatten(0, 1)[:, :, :seen] for rows in (kept.key, kept.value))
        heads = attend(query[:, :, None], keys, values, attention.score, mask=past)
        return attention.combine(heads.squeeze(2))

    def _attend_memory(self, attention: MultiHeadAttention, kept: "_Kept", x: Tensor) -> Tensor:
        # The lines of a slot are several queries to the same keys.
        query = attention.project_query(x).unflatten(0, (-1, self.beam)).transpose(1, 2)
        heads = attend(query, kept.memory_key, kept.memory_value, attention.score, mask=self.mask)
        return attention.combine(heads.transpose(1, 2).flatten(0, 1))

    def _rows(self, slots: Slots) -> np.ndarray:
        order = np.argsort(self.held)
        return order[np.searchsorted(self.held[order], slots)]

    def _keep(self, rows: np.ndarray) -> None:
        if len(rows) == len(self.held):
            return
        index = torch.from_numpy(rows).to(self.model.device)
        self.held, self.at, self.mask = self.held[rows], self.at[rows], self.mask[index]
        self.layers = [kept.chosen(index) for kept in self.layers]

    def _for_all(self, rows: np.ndarray, given: np.ndarray, otherwise: int | np.ndarray) -> np.ndarray:
        whole = np.empty((len(self.held), self.beam), np.int64)
        whole[:] = otherwise
        whole[rows] = given
        return whole


@dataclass
class _Kept:
    """Keys and values of one layer."""

    memory_key: Float[Tensor, "held heads source d_k"]
    memory_value: Float[Tensor, "held heads source d_v"]
    key: Float[Tensor, "held beam heads target d_k"]
    value: Float[Tensor, "held beam heads target d_v"]

    def joined(self, other: "_Kept") -> "_Kept":
        """These and others, the shorter memory padded."""
        memory_key, memory_value = (
            _pad_cat(own.transpose(-1, -2), new.transpose(-1, -2)).transpose(-1, -2)
            for own, new in (
                (self.memory_key, other.memory_key),
                (self.memory_value, other.memory_value),
            )
        )
        return _Kept(
            memory_key,
            memory_value,
            torch.cat((self.key, other.key)),
            torch.cat((self.value, other.value)),
        )

    def chosen(self, rows: Tensor) -> "_Kept":
        """Some of the slots."""
        return _Kept(
            self.memory_key[rows],
            self.memory_value[rows],
            self.key[rows],
            self.value[rows],
        )

    def reorder(self, lines: Int[Tensor, " held*beam"], seen: int) -> None:
        """Let each line go on from another of its slot."""
        for rows in (self.key.flatten(0, 1), self.value.flatten(0, 1)):
            rows[:, :, :seen] = rows[lines, :, :seen]


class TorchEngine:
    """The model itself, with the keys and values of earlier tokens kept: for any kind of model and any device."""

    rows = 256
    tokens = 1 << 15

    def __init__(self, model: Transformer):
        self.model, self.config = model, model.config

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def open(self, slots: int, beam: int, source: int, target: int) -> TorchLines:
        """Make room; the memory is taken as sentences come."""
        return TorchLines(self.model, beam, target)


class Ensemble:
    """Several engines as one: the mean of their probabilities."""

    def __init__(self, engines: Sequence[Engine]):
        self.engines = list(engines)
        # The one that knows the fewest positions.
        self.config = min((engine.config for engine in self.engines), key=known_positions)
        self.device = self.engines[0].device
        self.rows = min(engine.rows for engine in engines)
        self.tokens = min(engine.tokens for engine in engines) // len(self.engines)

    def open(self, slots: int, beam: int, source: int, target: int) -> "EnsembleLines":
        """Make room in each."""
        return EnsembleLines(
            [engine.open(slots, beam, source, target) for engine in self.engines],
            self.device,
        )


class EnsembleLines:
    """The lines of several engines, in step; their logits are logarithms of mean probabilities."""

    def __init__(self, lines: Sequence[Lines], device: torch.device):
        self.lines, self.device = list(lines), device

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences in each."""
        for lines in self.lines:
            lines.admit(slots, sources)

    def advance(self, slots: Slots, tokens: Choice, parents: Choice) -> Float[Tensor, "open*beam vocabulary"]:
        """Advance each and take the mean of what they find probable."""
        logits = [lines.advance(slots, tokens, parents).to(self.device) for lines in self.lines]
        return torch.stack([part.log_softmax(-1) for part in logits]).logsumexp(0) - np.log(len(logits))

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """As the first of them does it."""
        return self.lines[0].normaliser(logits)

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """As the first of them does it."""
        return self.lines[0].best(logits, k, normaliser)

    def close(self) -> None:
        """Close each."""
        for lines in self.lines:
            lines.close()


def known_positions(config: ModelConfig) -> float:
    """How many a model has learnt; others go on for ever."""
    return config.max_positions if config.positions == "learned" else np.inf


def _pad_cat(first: Tensor, second: Tensor) -> Tensor:
    """One below the other; the last dimension of the narrower is filled with zeros."""
    width = max(first.shape[-1], second.shape[-1])
    return torch.cat([functional.pad(part, (0, width - part.shape[-1])) for part in (first, second)])


def _dense_places(offsets: Int[Tensor, " sentences+1"]) -> tuple[Tensor, Tensor]:
    """For each sentence a line of places in the row, and where they are its own: (sentences, longest) and a mask."""
    first, lengths = offsets[:-1, None], offsets.diff()
    steps = torch.arange(int(lengths.max()), device=offsets.device)
    inside = steps < lengths[:, None]
    return torch.where(inside, first + steps, first), inside[:, None, None, :]
