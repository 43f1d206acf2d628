"""Decoding on NVIDIA GPUs: caches of fixed shapes, each step one captured graph, several steps between checks.

A step on a GPU is a hundred small kernels; launched one by one from Python they would take ten times as long as they
run. The graph holds the model's step, the best tokens and the choice of hypotheses, so nothing returns to Python until
the search asks which sentences are done. Shapes are rounded up, and their captured graphs are kept for reuse.
"""

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.beams import Beams
from transduce.decoding.brackets import Brackets, OpenTrees
from transduce.decoding.engine import Logits, known_positions
from transduce.kernels import beams as choice
from transduce.kernels import decode
from transduce.model.attention import MultiHeadAttention
from transduce.model.device import beside, recording
from transduce.model.layers import DecoderLayer, FeedForward, Residual
from transduce.model.positions import rotate, rotations, sinusoids
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END
from transduce.text.tiles import lay_tiles, most_tiles

ROOM = 64  # room for sources and targets is a multiple of this many tokens
RECORDED = 1 << 16  # tokens of the longest row whose encoding is captured; a graph keeps its memory
LOGITS = 1 << 25  # logits of a step; a small vocabulary, such as a parser's, lets more lines run together
SHARE = 0.2  # share of the free memory for keys and values in use, and as much again for those kept for reuse

Key = tuple[int, int, int, int]
Pair = tuple[Tensor, Tensor]
Made = TypeVar("Made")


class GraphEngine:
    """A model on a GPU, or several as an ensemble, with the captured graphs of their steps."""

    def __init__(self, *models: Transformer):
        assert all(self.supports(model.config) for model in models)
        self.models, self.device = models, models[0].device
        self.config = min((model.config for model in models), key=known_positions)
        self.rows = min(8192, max(1024, LOGITS // self.config.vocabulary))
        each = sum(map(_bytes_of_a_token, models))
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 1 << 30
        self.tokens = max(1 << 12, min(1 << 21, int(SHARE * free / each)))
        self._idle: list[GraphLines] = []  # the most recently used last
        self._lock = threading.Lock()

    @staticmethod
    def supports(config: ModelConfig) -> bool:
        """Whether this engine can decode such a model."""
        return config.attention != "additive" and max(config.head_widths()) <= decode.WIDEST

    def open(self, slots: int, beam: int, source: int, target: int) -> "GraphLines":
        """Return room of a rounded-up shape: kept from an earlier use, or new."""
        slots = 1 << (slots - 1).bit_length()
        source, target = (-(-tokens // ROOM) * ROOM for tokens in (source, target))
        if self.config.positions == "learned":
            source, target = (min(tokens, self.config.max_positions) for tokens in (source, target))
        key = (slots, beam, source, target)
        with self._lock:
            for place, lines in enumerate(self._idle):
                if lines.key == key:
                    return self._idle.pop(place)
        return self.find_memory(lambda: GraphLines(self, key))

    def find_memory(self, work: Callable[[], Made]) -> Made:
        """Run `work`; if memory runs out, drop all room kept for reuse and run it once more."""
        try:
            return work()
        except torch.OutOfMemoryError:
            with self._lock:
                if not self._idle:
                    raise
                self._idle.clear()
        return work()

    def put_back(self, lines: "GraphLines") -> None:
        """Keep room for reuse, as capturing takes long; drop the least recently used when there is too much."""
        with self._lock:
            self._idle.append(lines)
            while len(self._idle) > 1 and sum(each.tokens_kept for each in self._idle) > self.tokens:
                del self._idle[0]


class _Encoder(NamedTuple):
    """The encoder for rows of one size: its inputs, where each token's output goes, and the function that runs it."""

    row: Int[Tensor, " room"]
    offsets: Int[Tensor, " slots+1"]
    tiles: Int[Tensor, "2 tiles 5"]
    places: Int[Tensor, " room"]
    encode: Callable[[], Tensor]


class _Run(NamedTuple):
    """A captured step of the search: its settings, the hypotheses and trees it changes, and what runs it."""

    config: SearchConfig
    brackets: Brackets | None
    beams: Beams
    trees: OpenTrees | None
    step: Callable[[], Tensor]


class GraphLines(Logits):
    """Caches of fixed shapes: keys and values are written once and found through each line's ancestry."""

    def __init__(self, engine: GraphEngine, key: Key):
        self.key, self.config, self.device = key, engine.config, engine.device
        self._engine = weakref.ref(engine)  # weak, as the engine keeps this room: both are freed once unused
        self.slots, self.beam, self.source, self.target = key
        self.tokens_kept = self.slots * (self.source + self.beam * self.target)
        self.models = [_Model(model, key) for model in engine.models]

        def zeros(*shape: int, kind: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=self.device)

        self.lengths = zeros(self.slots)
        self.ancestry: Int[Tensor, "slots beam target"] = zeros(self.slots, self.beam, self.target, kind=torch.int32)
        self.tokens = zeros(self.slots, self.beam)
        self.parents = zeros(self.slots, self.beam)
        self.at = zeros(self.slots)
        self.moves = zeros(self.slots)
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._encoders: dict[int, _Encoder] = {}
        self._advance: Callable[[], Tensor] | None = None
        self._runs: _Run | None = None

    @torch.inference_mode()
    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences into slots, whose lines start afresh."""
        lengths = np.array([len(source) for source in sources])
        tokens = int(lengths.sum())
        room = 1 << max(6, (tokens - 1).bit_length())
        if room not in self._encoders:
            self._encoders[room] = self._capture_encoder(room)
        encoder = self._encoders[room]
        # Where each token goes: slots lie one behind the other, and filler goes to the extra slot behind them.
        places = self.slots * self.source + np.arange(room) % self.source
        first = np.repeat(np.asarray(slots) * self.source - (np.cumsum(lengths) - lengths), lengths)
        places[:tokens] = first + np.arange(tokens)
        row = np.zeros(room, np.int32)
        row[:tokens] = np.concatenate(sources)
        offsets = np.full(self.slots + 1, tokens, np.int32)
        offsets[: len(sources) + 1] = np.cumsum([0, *lengths])
        by_query, _ = lay_tiles(offsets, offsets, queries=room, keys=room)
        tiles = np.zeros(tuple(encoder.tiles.shape), np.int32)
        tiles[0, : len(by_query)] = by_query
        statics = encoder.row, encoder.offsets, encoder.tiles, encoder.places
        for static, new in zip(statics, (row, offsets, tiles, places)):
            static.copy_(torch.from_numpy(new))
        index = torch.tensor(list(slots), device=self.device)
        self.lengths[index] = torch.from_numpy(lengths).to(index.device)
        self.at[index] = 0
        encoder.encode()

    def _capture_encoder(self, room: int) -> _Encoder:
        models, device = self.models, self.device  # `encode` must not refer to self: the cycle would keep its memory
        row = torch.zeros(room, dtype=torch.int32, device=device)
        offsets = torch.zeros(self.slots + 1, dtype=torch.int32, device=device)
        offsets[1:] = min(room, self.source)
        tiles = torch.zeros(2, most_tiles(room, self.slots), 5, dtype=torch.int32, device=device)
        places = torch.full((room,), self.slots * self.source, device=device)

        def encode() -> Tensor:
            for model in models:
                model.encode(row, offsets, tiles, places)
            return places

        return _Encoder(row, offsets, tiles, places, self._capture(encode) if room <= RECORDED else encode)

    @torch.inference_mode()
    def advance(self, slots: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> Float[Tensor, "lines vocabulary"]:
        """Continue each line with a token; return the logits of the next, in memory that the next call overwrites."""
        if self._advance is None:
            self._advance = self._capture(self._step)
        # Slots not asked for stay as they are: each of their lines is its own parent.
        all_tokens, all_parents = (
            np.zeros((self.slots, self.beam), np.int64),
            np.tile(np.arange(self.beam), (self.slots, 1)),
        )
        moves = np.zeros(self.slots, np.int64)
        all_tokens[slots], all_parents[slots], moves[slots] = tokens, parents, 1
        for static, new in ((self.tokens, all_tokens), (self.parents, all_parents), (self.moves, moves)):
            static.copy_(torch.from_numpy(new))
        logits = self._advance().unflatten(0, (self.slots, self.beam))
        if np.array_equal(slots, np.arange(self.slots)):
            return logits.flatten(0, 1)
        return logits[torch.from_numpy(slots).to(logits.device)].flatten(0, 1)

    def best(
        self,
        logits: Float[Tensor, "rows vocabulary"],
        k: int,
        normaliser: Float[Tensor, " rows"] | None = None,
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """Return the k largest log-probabilities of each row and their tokens."""
        with torch.cuda.device_of(logits):  # our kernels are launched on the current device
            return choice.best(logits, k, normaliser)

    @torch.inference_mode()
    def beams_for(self, config: SearchConfig, brackets: Brackets | None = None) -> tuple[Beams, OpenTrees | None]:
        """Return hypotheses and trees in the memory that the captured graph works on."""
        if self._runs is None or (self._runs.config, self._runs.brackets) != (config, brackets):
            self._runs = self._prepare(config, brackets)
        self._runs.beams.reset()
        return self._runs.beams, self._runs.trees

    def _prepare(self, config: SearchConfig, brackets: Brackets | None) -> "_Run":
        beams = Beams(self.slots, self.target, config, self.device, config.min_tokens)
        sizes = self.slots, self.beam, self.target
        trees = OpenTrees(brackets, *sizes, self.device, config.word_share) if brackets else None
        k = min(beams.candidates, trees.many if trees else self.config.vocabulary)

        def step() -> Tensor:
            logits = self._forward(beams.next, beams.parents, beams.length.clamp(max=self.target - 1))
            if trees:
                normaliser = logits.logsumexp(-1)
                found, names = trees.choices(logits, None, normaliser)
                values, places = choice.best(found, k, normaliser)
                tokens = names.gather(1, places.long()).int()
            else:
                values, tokens = choice.best(logits, k)
            shape = (self.slots, self.beam, k)
            choice.choose(
                values.view(shape),
                tokens.view(shape),
                beams.state(),
                beams.penalty,
                min_tokens=beams.min_tokens,
                n_best=config.n_best,
                until_full=beams.until_full,
                begin_token=BEGIN,
                end_token=END,
            )
            if trees:
                trees.go_on(beams.parents, beams.next)
            return beams.done

        return _Run(config, brackets, beams, trees, self._capture(step))

    def run(self, steps: int) -> None:
        """Extend the hypotheses by this many steps."""
        assert self._runs
        for _ in range(steps):
            self._runs.step()

    def close(self) -> None:
        """Give the room back to the engine, for reuse."""
        if engine := self._engine():
            engine.put_back(self)

    def _capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Capture what `work` launches; return a function that launches all of it again at once."""
        if self.device.type != "cuda":  # Triton's interpreter launches nothing that could be captured
            return work
        engine = self._engine()
        with beside(self.device):  # a warm-up, which compiles kernels and loads libraries
            engine.find_memory(work) if engine else work()
        graph = torch.cuda.CUDAGraph()
        # No graph reads what another leaves in their shared memory, so they may be launched in any order.
        with recording(graph, self.device, self._pool):
            result = work()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    def _step(self) -> Tensor:
        logits = self._forward(self.tokens, self.parents, self.at)
        self.at.copy_((self.at + self.moves).clamp(max=self.target - 1))
        return logits

    def _forward(
        self,
        tokens: Int[Tensor, "slots beam"],
        parents: Int[Tensor, "slots beam"],
        at: Int[Tensor, " slots"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return the logits of the next tokens; for several models the logs of their mean probabilities."""
        decode.inherit(self.ancestry, parents, at)
        found = [model.forward(tokens, self.ancestry, self.lengths, at) for model in self.models]
        if len(found) == 1:
            return found[0]
        return reduce(torch.logaddexp, [logits.log_softmax(-1) for logits in found]) - math.log(len(found))


class _Model:
    """One model's caches for sentences and lines, and its part of a step."""

    def __init__(self, model: Transformer, key: Key):
        self.model, self.config = model, model.config
        self.slots, self.beam, self.source, self.target = key
        config, weight = model.config, model.embedding.weight
        d_k, d_v = config.head_widths()
        # One slot more, for the filler after the last sentence of a row.
        memory = (self.slots + 1, self.source, config.heads)
        own = (self.slots, self.target, self.beam, config.heads)

        def room(shape: tuple[int, ...]) -> list[Pair]:
            return [(weight.new_zeros(*shape, d_k), weight.new_zeros(*shape, d_v)) for _ in model.decoder]

        self.memory, self.own = room(memory), room(own)
        steps = torch.arange(self.target, device=weight.device)
        self.places = self.turns = None
        match config.positions:
            case "sinusoidal":
                self.places = sinusoids(steps, config.d_model).to(weight.dtype)
            case "learned":
                self.places = model.target_positions.weight
            case "rotary":
                self.turns = rotations(steps, d_k)

    def encode(
        self,
        row: Int[Tensor, " room"],
        offsets: Int[Tensor, " slots+1"],
        tiles: Int[Tensor, "2 tiles 5"],
        places: Int[Tensor, " room"],
    ) -> None:
        """Encode sentences and cache the keys and values of each token at its place."""
        memory = self.model.encode(row, offsets, longest=self.source, tiles=tiles)
        for layer, kept in zip(self.model.decoder, self.memory):
            assert isinstance(layer, DecoderLayer)
            for cache, new in zip(kept, layer.cross_attention.project_memory(memory)):
                cache.flatten(0, 1).index_copy_(0, places, new)

    def forward(
        self,
        tokens: Int[Tensor, "slots beam"],
        ancestry: Int[Tensor, "slots beam target"],
        lengths: Int[Tensor, " slots"],
        at: Int[Tensor, " slots"],
    ) -> Float[Tensor, "rows vocabulary"]:
        """Continue each line with a token and return the logits of the next."""
        model, config = self.model, self.config
        x = decode.embed(tokens, model.embedding.weight, self.places, at, config.d_model**0.5)
        turn = None if self.turns is None else self.turns[:, at[:, None].expand(-1, self.beam).reshape(-1)]
        parts = self._parts(turn, ancestry, lengths, at)
        norms = [part.norm for layer in model.decoder for part in _residuals(layer)]
        if isinstance(model.decoder_norm, nn.LayerNorm):  # norms come before the sub-layers
            norms.append(model.decoder_norm)
            hidden = functional.layer_norm(x, x.shape[1:], norms[0].weight, norms[0].bias, norms[0].eps)
            for part, norm in zip(parts, norms[1:]):
                x, hidden = decode.add_norm(x, part(hidden), norm)
        else:
            hidden = x
            for part, norm in zip(parts, norms):
                _, hidden = decode.add_norm(hidden, part(hidden), norm)
        if hidden.dtype == torch.float32:
            return model.project(hidden)
        logits = torch.mm(hidden, model.output_weight.t(), out_dtype=torch.float32)
        return logits if model.output_bias is None else logits.add_(model.output_bias)

    def _parts(
        self, turn: Tensor | None, ancestry: Tensor, lengths: Tensor, at: Tensor
    ) -> list[Callable[[Tensor], Tensor]]:
        """Return the sub-layers of all layers, in order."""
        found: list[Callable[[Tensor], Tensor]] = []
        for layer, own, memory in zip(self.model.decoder, self.own, self.memory):
            assert isinstance(layer, DecoderLayer)

            def attend_own(x: Tensor, attention: MultiHeadAttention = layer.self_attention, own: Pair = own) -> Tensor:
                query, key, value = attention.project(x)
                if turn is not None:
                    query, key = rotate(query, turn), rotate(key, turn)
                heads = decode.attend_own(query, key, value, *own, ancestry, at, attention.score.scale)
                return attention.combine(heads)

            def attend_source(
                x: Tensor,
                attention: MultiHeadAttention = layer.cross_attention,
                memory: Pair = memory,
            ) -> Tensor:
                query = attention.project_query(x)
                keys, values = (part[: self.slots] for part in memory)
                heads = decode.attend_source(query, keys, values, lengths, attention.score.scale)
                return attention.combine(heads)

            def feed_forward(x: Tensor, network: FeedForward = layer.feed_forward) -> Tensor:
                if network.activation != "relu":
                    return network(x)
                inner = torch.ops.aten._addmm_activation(
                    network.inner.bias, x, network.inner.weight.t()
                )  # with ReLU, in one kernel
                return network.outer(inner)

            found += [attend_own, attend_source, feed_forward]
        return found


def _bytes_of_a_token(model: Transformer) -> int:
    """Return the bytes of a token's keys and values in all layers."""
    return (
        len(model.decoder)
        * model.config.heads
        * sum(model.config.head_widths())
        * model.embedding.weight.element_size()
    )


def _residuals(layer: nn.Module) -> tuple[Residual, Residual, Residual]:
    assert isinstance(layer, DecoderLayer)
    return layer.self_residual, layer.cross_residual, layer.feed_forward_residual
