"""Decoding on CPUs by our own compiled code (kernels/cpu): float32, bf16 or int8 weights, one C call a step.

A sentence's result has the same bits whatever is translated beside it and however many threads run.
"""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.beams import Beams
from transduce.decoding.brackets import Brackets, OpenTrees
from transduce.kernels import native
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from transduce.model.positions import rotations, sinusoids
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

Precision = Literal["float32", "bf16", "int8"]
PRECISIONS: dict[str, int] = {"float32": 0, "bf16": 1, "int8": 2}  # as in cpu/matrix.h
ACTIVATIONS: dict[str, int] = {"relu": 1, "gelu": 2, "swiglu": 3, "silu": 4}  # as in cpu/product.h
assert PAD == 0  # as in cpu/hypotheses.h
MOST_INPUTS = 1 << 16  # inputs of a matrix: sums of this many integer products fit in 32 bits


class CpuEngine:
    """A model's weights, packed for this processor.

    int8 has one scale for each output of a matrix, and one for each row multiplied with it, found at run time. Keys and
    values are kept in half precision, except with float32. Embeddings are read from the model's own tensors.
    """

    rows = 64
    tokens = 1 << 15

    def __init__(
        self,
        model: Transformer,
        *,
        precision: Precision = "int8",
        threads: int = 1,
        flags: tuple[str, ...] | None = None,
    ):
        if not self.supports(model.config):
            raise ValueError(f"the CPU engine does not support this kind of model: {model.config}")
        if threads < 1:
            raise ValueError(f"threads = {threads}; at least one is needed")
        config = self.config = model.config
        self.device, self.precision, self.threads = torch.device("cpu"), precision, threads
        self.library = native.load(flags)
        d_k, d_v = config.head_widths()
        encoder_layers, decoder_layers = config.stacks()
        sizes = native.Sizes(
            vocabulary=config.vocabulary,
            source_vocabulary=config.source_vocabulary or config.vocabulary,
            encoder_layers=encoder_layers,
            decoder_layers=decoder_layers,
            d_model=config.d_model,
            d_ff=config.d_ff,
            heads=config.heads,
            d_k=d_k,
            d_v=d_v,
            pre_norm=config.norm == "pre",
            rotary=config.positions == "rotary",
            biases=config.biases,
            activation=ACTIVATIONS[config.activation],
            precision=PRECISIONS[precision],
            scale=d_k**-0.5 if config.attention == "scaled" else 1.0,
            epsilon=config.norm_epsilon,
        )
        tensors = [_plain(tensor) for tensor in _tensors(model)]
        addresses = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        self.handle = self.library.transduce_engine(sizes, addresses)
        if not self.handle:
            raise MemoryError("not enough memory for the model's weights")
        weakref.finalize(self, self.library.transduce_engine_free, self.handle)
        self._embeddings = tensors[:2]
        learned = config.positions == "learned"
        self._learned = (
            [_plain(table.weight) for table in (model.source_positions, model.target_positions)] if learned else None
        )
        self._tables: list[Tensor] = []

    @staticmethod
    def supports(config: ModelConfig) -> bool:
        """Whether this engine can decode such a model."""
        widest = max(config.d_model, config.d_ff, config.heads * config.head_widths()[1])
        return config.attention != "additive" and widest <= MOST_INPUTS

    def open(self, slots: int, beam: int, source: int, target: int) -> "CpuLines":
        """Make room for `slots` sentences of at most `source` tokens, and `beam` lines each of at most `target`."""
        return CpuLines(self, slots, beam, source, target)

    def positions(self, source: int, target: int) -> list[Tensor | None]:
        """Return tables of positions for sentences of these lengths: source, target, cosines, sines."""
        if self._learned is not None:
            return [*self._learned, None, None]
        longest, tables = max(source, target), self._tables
        if not tables or len(tables[0]) < longest:
            steps = torch.arange(longest)
            if self.config.positions == "rotary":
                tables = list(rotations(steps, self.config.head_widths()[0]).contiguous().unbind())
            else:
                tables = [sinusoids(steps, self.config.d_model).contiguous()]
            self._tables = tables
        return [None, None, *tables] if self.config.positions == "rotary" else [tables[0], tables[0], None, None]


class CpuLines:
    """Sentences being decoded; see `CpuEngine.open`."""

    def __init__(self, engine: CpuEngine, slots: int, beam: int, source: int, target: int):
        config = engine.config
        if min(slots, beam, source, target) < 1:
            raise ValueError(
                f"slots = {slots}, beam = {beam}, source = {source}, target = {target}: all must be at least 1"
            )
        if config.positions == "learned" and max(source, target) > config.max_positions:
            raise ValueError(
                f"source = {source}, target = {target}, but the model has learned positions for only "
                f"{config.max_positions} tokens (model.max_positions)"
            )
        self.engine, self.slots, self.beam, self.source, self.target = engine, slots, beam, source, target
        self._library = engine.library
        self._tables = engine.positions(source, target)
        positions = native.Positions(*(None if table is None else table.data_ptr() for table in self._tables))
        capacity = native.Capacity(slots, beam, source, target, engine.threads)
        self._handle = self._library.transduce_open(engine.handle, capacity, positions)
        if not self._handle:
            raise MemoryError(f"not enough memory for {slots} sentences of {source} + {target} tokens, beam {beam}")
        self._closed = weakref.finalize(self, self._library.transduce_close, self._handle)
        columns = self._library.transduce_columns(config.vocabulary)
        with torch.inference_mode(False):  # inference tensors do not count their changes
            self._logits = torch.empty(slots * beam, columns)
        self._version = -1  # of the logits, as the last step left them
        self._steps = np.full(slots, -1, np.int64)  # each slot's position; -1: it holds no sentence

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Encode sentences (tokens with their ends) into slots, whose lines start afresh."""
        assert self._closed.alive, "these lines are closed"
        chosen = self._slots(slots)
        lengths = [len(source) for source in sources]
        if len(chosen) != len(lengths):
            raise ValueError(f"{len(chosen)} slots for {len(lengths)} sentences")
        if not lengths:
            return
        if min(lengths) < 1 or max(lengths) > self.source:
            raise ValueError(
                f"sentences of {min(lengths)} to {max(lengths)} tokens; there is room for 1 to {self.source}"
            )
        tokens = _check(np.concatenate(sources), self.engine.config.source_vocabulary or self.engine.config.vocabulary)
        offsets = np.cumsum([0, *lengths], dtype=np.int32)
        self._call("admit", len(chosen), chosen.ctypes.data, tokens.ctypes.data, offsets.ctypes.data)
        self._steps[chosen] = 0

    def advance(
        self, slots: np.ndarray, tokens: Int[np.ndarray, "slots beam"], parents: Int[np.ndarray, "slots beam"]
    ) -> Float[Tensor, "lines vocabulary"]:
        """Continue the line `parents` of each slot with tokens; return the logits of the next ones.

        They are in memory that the next call overwrites.
        """
        assert self._closed.alive, "these lines are closed"
        if tokens.shape != (len(slots), self.beam) or parents.shape != tokens.shape:
            raise ValueError(f"tokens {tokens.shape} and parents {parents.shape} for {(len(slots), self.beam)}")
        arrays = [_as_int32(array) for array in (slots, tokens, parents)]
        addresses = [array.ctypes.data for array in arrays]
        if self._call("advance", len(slots), *addresses, self._logits.data_ptr(), self._logits.stride(0)) < 0:
            raise ValueError(self._refusal(*arrays))
        self._steps[arrays[0]] += 1
        self._version = self._logits._version
        return self._logits[: tokens.size, : self.engine.config.vocabulary]

    def best(
        self,
        logits: Float[Tensor, "lines vocabulary"],
        k: int,
        normaliser: Float[Tensor, " lines"] | None = None,
        banned: Sequence[int] | np.ndarray = (),
    ) -> tuple[Float[Tensor, "lines k"], Int[Tensor, "lines k"]]:
        """Return each row's k largest log-probabilities and their tokens; of equal ones the lower token first.

        If the logits were changed after it was computed, pass the normaliser. To exclude tokens, passing them as
        `banned` is faster than changing the logits: they count for the normaliser, but are not chosen.
        """
        if not 1 <= k <= logits.shape[1]:
            raise ValueError(f"k = {k} is out of range for {logits.shape[1]} tokens")
        values = torch.empty(len(logits), k)
        tokens = torch.empty(len(logits), k, dtype=torch.int32)
        self._choose(logits, normaliser, values, tokens, _check(np.asarray(banned, np.int64), logits.shape[1]))
        return values, tokens

    def normaliser(self, logits: Float[Tensor, "lines vocabulary"]) -> Float[Tensor, " lines"]:
        """Return the log of each row's sum of exponentials, in float64."""
        return self._choose(logits, None, None, None, np.empty(0, np.int32))

    def beams_for(self, config: SearchConfig, brackets: Brackets | None = None) -> tuple[Beams, OpenTrees | None]:
        """Return the hypotheses that `run` extends, and their trees; slots are done until sentences begin in them."""
        device = self.engine.device
        beams = self._beams = Beams(self.slots, self.target, config, device, config.min_tokens)
        sizes = self.slots, self.beam, self.target
        trees = OpenTrees(brackets, *sizes, device, config.word_share) if brackets else None
        self._trees = trees  # keeps them alive, as C++ uses their memory
        named = {name: getattr(beams, name) for name in (*native.Hypotheses.STATE, *native.Hypotheses.ENDED, "penalty")}
        self._hypotheses = native.Hypotheses(
            slots=self.slots,
            steps=beams.said.shape[1],
            candidates=min(beams.candidates, trees.many if trees else self.engine.config.vocabulary),
            n_best=config.n_best,
            min_tokens=config.min_tokens,
            until_full=beams.until_full,
            begin_token=BEGIN,
            end_token=END,
            logits=self._logits.data_ptr(),
            stride=self._logits.stride(0),
            **{name: tensor.data_ptr() for name, tensor in named.items()},
        )
        self._growing = trees and native.Trees(
            many=len(trees.symbols),
            to_a_word=trees.to_a_word,
            labelled=trees.labelled,
            steps=trees.following.shape[1],
            deepest=trees.stack.shape[2],
            word_share=trees.word_share,
            **{name: getattr(trees, name).data_ptr() for name in (*native.Trees.KNOWN, *native.Trees.STATE)},
        )
        return beams, trees

    def run(self, steps: int) -> None:
        """Extend the hypotheses by this many steps; finished ones stay as they are."""
        assert self._closed.alive, "these lines are closed"
        before = self._beams.length.numpy().copy()
        self._call("run", self._hypotheses, self._growing, steps)
        self._steps += self._beams.length.numpy() - before
        self._version = -1

    def close(self) -> None:
        """Free the memory."""
        self._closed()

    def _choose(
        self,
        logits: Tensor,
        normaliser: Tensor | None,
        values: Tensor | None,
        tokens: Tensor | None,
        banned: np.ndarray,
    ) -> Tensor:
        assert self._closed.alive, "these lines are closed"
        if logits.dtype != torch.float32 or logits.device.type != "cpu" or (logits.stride(1) != 1 and len(logits)):
            raise ValueError(f"logits are {logits.dtype} on {logits.device}; pass them as advance returns them")
        normalised = normaliser is not None
        normaliser = normaliser.double().contiguous() if normalised else torch.empty(len(logits), dtype=torch.float64)
        if len(normaliser) != len(logits):
            raise ValueError(f"{len(normaliser)} normalisers for {len(logits)} rows")
        # Torch counts the changes of a tensor, which tells whether these are still the logits of the last step.
        ours = logits.data_ptr() == self._logits.data_ptr() and logits.shape[1] == self.engine.config.vocabulary
        choices = native.Choices(
            logits=logits.data_ptr(),
            stride=logits.stride(0),
            rows=len(logits),
            vocabulary=logits.shape[1],
            count=0 if values is None else values.shape[1],
            banned=banned.ctypes.data,
            banned_count=len(banned),
            summed_up=ours and self._logits._version == self._version,
            normalised=normalised,
            normaliser=normaliser.data_ptr(),
            values=None if values is None else values.data_ptr(),
            tokens=None if tokens is None else tokens.data_ptr(),
        )
        self._call("best", choices)
        return normaliser

    def _slots(self, slots: Sequence[int] | np.ndarray) -> np.ndarray:
        chosen = _check(np.asarray(slots, np.int64), self.slots)
        if len(np.unique(chosen)) != len(chosen):
            raise ValueError(f"a slot is named twice: {chosen.tolist()}")
        return chosen

    def _refusal(self, slots: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> str:
        """Return why a step with these arguments was refused."""
        try:
            steps = self._steps[self._slots(slots)]
            _check(tokens, self.engine.config.vocabulary)
            _check(parents, self.beam)
        except ValueError as error:
            return str(error)
        if steps.min() < 0:
            return f"slot {slots[steps.argmin()]} holds no sentence"
        return f"slot {slots[steps.argmax()]} is full: it has room for {self.target} tokens"

    def _call(self, name: str, *arguments: object) -> int:
        done = getattr(self._library, f"transduce_{name}")(self._handle, *arguments)
        if not done:
            raise MemoryError(f"not enough memory to {name}")
        return done


def _check(numbers: np.ndarray, end: int) -> np.ndarray:
    """Return the numbers as int32 for native code; refuse any that is below 0, or not below `end`."""
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < end):
        raise ValueError(f"numbers from {numbers.min()} to {numbers.max()}; wanted 0 to {end - 1}")
    return np.ascontiguousarray(numbers, np.int32)


def _as_int32(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers as int32 for native code, which checks their range itself."""
    return np.ascontiguousarray(numbers) if numbers.dtype == np.int32 else _check(numbers, 1 << 31)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32).contiguous()


def _tensors(model: Transformer) -> list[Tensor]:
    """Return all weights but the positions, in the order in which cpu/model.h reads them."""
    config = model.config
    source = model.embedding if config.tie == "all" else model.source_embedding
    output = model.output if config.tie == "none" else model.embedding
    tensors = [source.weight, model.embedding.weight, output.weight]
    if model.output_bias is not None:
        tensors.append(model.output_bias)
    if config.norm == "pre":
        tensors += [*model.encoder_norm.parameters(), *model.decoder_norm.parameters()]
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        tensors += _attention(layer.self_attention, layer.self_residual)
        tensors += _feed_forward(layer.feed_forward, layer.feed_forward_residual)
    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
        tensors += _attention(layer.self_attention, layer.self_residual)
        tensors += _attention(layer.cross_attention, layer.cross_residual)
        tensors += _feed_forward(layer.feed_forward, layer.feed_forward_residual)
    return tensors


def _attention(attention: MultiHeadAttention, residual: Residual) -> list[Tensor]:
    tensors: list[Tensor] = [attention.projection, attention.output, residual.norm.weight, residual.norm.bias]
    if attention.query_bias is not None and attention.output_bias is not None:
        keys_and_values = attention.query_bias.new_zeros(sum(attention.widths[1:]))
        tensors += [torch.cat((attention.query_bias, keys_and_values)), attention.output_bias]
    return tensors


def _feed_forward(layer: FeedForward, residual: Residual) -> list[Tensor]:
    inner, outer = layer.inner, layer.outer
    return [inner.weight, inner.bias, outer.weight, outer.bias, residual.norm.weight, residual.norm.bias]
