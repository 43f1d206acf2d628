"""Engines: models made ready to encode sentences and then to continue each hypothesis token by token.

The search knows an engine only by this protocol. `TorchEngine` is the plain one, for every model and device, which the
faster ones must equal; an `Ensemble` is several engines as one.

In shapes, each sentence has a `slot`, each slot `beam` lines (hypotheses), and `open` slots are those of this step.
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
PerLine = Int[np.ndarray, "open beam"]


class Lines(Protocol):
    """Room for several sentences at a time; at any step some may leave and others join."""

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences (tokens with their ends) into slots, whose lines start afresh."""
        ...

    def advance(self, slots: Slots, tokens: PerLine, parents: PerLine) -> Float[Tensor, "open*beam vocabulary"]:
        """Continue the line `parents` of each slot with tokens; return the logits of the next ones."""
        ...

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """Return what to subtract from logits to get log-probabilities."""
        ...

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """Return the k largest log-probabilities of each row, the largest first, and their tokens."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


@runtime_checkable
class Runs(Protocol):
    """Lines that can also choose tokens themselves, several steps at a time, if no rule but that of trees applies."""

    def beams_for(self, config: SearchConfig, brackets: Brackets | None = None) -> tuple[Beams, OpenTrees | None]:
        """Return the hypotheses that `run` extends, all slots done, and with brackets the state of their trees."""
        ...

    def run(self, steps: int) -> None:
        """Extend the hypotheses by this many steps; finished ones stay as they are."""
        ...


class Engine(Protocol):
    """A model ready to decode."""

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of its logits."""
        ...

    @property
    def rows(self) -> int:
        """How many lines at a time make it fastest."""
        ...

    @property
    def tokens(self) -> int:
        """The most tokens whose keys and values it may keep."""
        ...

    def open(self, slots: int, beam: int, source: int, target: int) -> Lines:
        """Make room for `slots` sentences of at most `source` tokens, and `beam` lines each of at most `target`."""
        ...


class Logits:
    """The methods of `Lines` for logits, shared by engines in torch."""

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """Return the log of each row's sum of exponentials."""
        return logits.logsumexp(-1)

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """Return the k largest log-probabilities of each row and their tokens."""
        values, tokens = logits.topk(k)
        normaliser = self.normaliser(logits) if normaliser is None else normaliser
        return values - normaliser[:, None], tokens.int()


class TorchLines(Logits):
    """Lines of the plain engine: keys and values in dense tensors, copied when a line continues another one."""

    # Slots no longer asked for are dropped once they are more than this share of those held.
    CLOSED = 0.25

    def __init__(self, model: Transformer, beam: int, target: int):
        self.model, self.beam, self.target = model, beam, target
        self.held = np.empty(0, np.int64)  # row i of every tensor belongs to slot held[i]
        self.asked = self.held
        self.at = np.empty(0, np.int64)  # the position of each
        self.mask = torch.empty(0)  # (held, 1, 1, source): which source positions are not padding
        self.layers: list[_Kept] = []

    @torch.inference_mode()
    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences into slots, beside those still in use."""
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
    def advance(self, slots: Slots, tokens: PerLine, parents: PerLine) -> Float[Tensor, "open*beam vocabulary"]:
        """Continue each line with a token and return the logits of the next."""
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
        """Drop all keys and values."""
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
        past = None  # (held * beam, 1, 1, seen), if the slots are at different positions
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
        # Slots no longer asked for stay at the last position.
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
    """One layer's keys and values, of the source (memory) and of the output so far."""

    memory_key: Float[Tensor, "held heads source d_k"]
    memory_value: Float[Tensor, "held heads source d_v"]
    key: Float[Tensor, "held beam heads target d_k"]
    value: Float[Tensor, "held beam heads target d_v"]

    def joined(self, other: "_Kept") -> "_Kept":
        """Return the slots of both, with the shorter memory padded."""
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
        """Return only some of the slots."""
        return _Kept(
            self.memory_key[rows],
            self.memory_value[rows],
            self.key[rows],
            self.value[rows],
        )

    def reorder(self, lines: Int[Tensor, " held*beam"], seen: int) -> None:
        """Give each line the keys and values of the line that it continues."""
        for rows in (self.key.flatten(0, 1), self.value.flatten(0, 1)):
            rows[:, :, :seen] = rows[lines, :, :seen]


class TorchEngine:
    """The model itself with cached keys and values, for any kind of model and any device."""

    rows = 256
    tokens = 1 << 15

    def __init__(self, model: Transformer):
        self.model, self.config = model, model.config

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.model.device

    def open(self, slots: int, beam: int, source: int, target: int) -> TorchLines:
        """Make room; memory is allocated as sentences arrive."""
        return TorchLines(self.model, beam, target)


class Ensemble:
    """Several engines as one, with the mean of their probabilities."""

    def __init__(self, engines: Sequence[Engine]):
        self.engines = list(engines)
        # Of the model that knows the fewest positions.
        self.config = min((engine.config for engine in self.engines), key=known_positions)
        self.device = self.engines[0].device
        self.rows = min(engine.rows for engine in engines)
        self.tokens = min(engine.tokens for engine in engines) // len(self.engines)

    def open(self, slots: int, beam: int, source: int, target: int) -> "EnsembleLines":
        """Make room in each engine."""
        return EnsembleLines(
            [engine.open(slots, beam, source, target) for engine in self.engines],
            self.device,
        )


class EnsembleLines:
    """The lines of several engines in step; the logits are logs of mean probabilities."""

    def __init__(self, lines: Sequence[Lines], device: torch.device):
        self.lines, self.device = list(lines), device

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences in each engine."""
        for lines in self.lines:
            lines.admit(slots, sources)

    def advance(self, slots: Slots, tokens: PerLine, parents: PerLine) -> Float[Tensor, "open*beam vocabulary"]:
        """Advance each engine and return the logs of their mean probabilities."""
        logits = [lines.advance(slots, tokens, parents).to(self.device) for lines in self.lines]
        return torch.stack([part.log_softmax(-1) for part in logits]).logsumexp(0) - np.log(len(logits))

    def normaliser(self, logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, " rows"]:
        """Let the first engine do it."""
        return self.lines[0].normaliser(logits)

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """Let the first engine do it."""
        return self.lines[0].best(logits, k, normaliser)

    def close(self) -> None:
        """Close all of them."""
        for lines in self.lines:
            lines.close()


def known_positions(config: ModelConfig) -> float:
    """Return how many positions a model has learned; infinity for other kinds of positions."""
    return config.max_positions if config.positions == "learned" else np.inf


def _pad_cat(first: Tensor, second: Tensor) -> Tensor:
    """Concatenate along the first dimension, padding the last dimension of the narrower with zeros."""
    width = max(first.shape[-1], second.shape[-1])
    return torch.cat([functional.pad(part, (0, width - part.shape[-1])) for part in (first, second)])


def _dense_places(offsets: Int[Tensor, " sentences+1"]) -> tuple[Tensor, Tensor]:
    """Return the places of each sentence's tokens in the row, (sentences, longest), and the mask of real ones."""
    first, lengths = offsets[:-1, None], offsets.diff()
    steps = torch.arange(int(lengths.max()), device=offsets.device)
    inside = steps < lengths[:, None]
    return torch.where(inside, first + steps, first), inside[:, None, None, :]
