"""Shared by the tests of the CPU engine: its builds, a record of its steps, its quantisation in plain torch."""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentences import make_row
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from transduce.decoding.cpu import CpuLines
from transduce.model.transformer import Transformer

AVX2 = ("-mavx2", "-mfma", "-mf16c")


def find_builds() -> dict[str, tuple[str, ...] | None]:
    """Return the compiler flags of each build that this machine can run: native, and for lesser processors."""
    builds: dict[str, tuple[str, ...] | None] = {"native": None}
    information = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64":
        builds["plain"] = ("-march=x86-64",)
        if information.exists() and {"avx2", "fma", "f16c"} <= set(information.read_text(encoding="utf-8").split()):
            builds["avx2"] = AVX2
    return builds


class Talk:
    """Lines that are fed tokens, with a record of all they were fed, so that every logit can be computed again."""

    def __init__(self, lines: CpuLines, seed: int = 0):
        self.lines, self.random = lines, np.random.default_rng(seed)
        self.sources: dict[int, np.ndarray] = {}
        self.said: dict[int, list[list[int]]] = {}
        self.records: list[tuple[np.ndarray, list[int], Tensor]] = []  # source, what was said, logits of the next

    def join(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        """Admit sentences to slots."""
        self.lines.admit(slots, sources)
        for slot, source in zip(slots, sources):
            self.sources[slot], self.said[slot] = source, [[] for _ in range(self.lines.beam)]

    def step(self, slots: Sequence[int], parents: np.ndarray | None = None) -> Tensor:
        """Feed one random token to each line of these slots, after random parents unless given; return the logits."""
        shape, beam = (len(slots), self.lines.beam), self.lines.beam
        tokens = self.random.integers(0, self.lines.engine.config.vocabulary, shape, np.int32)
        parents = self.random.integers(0, beam, shape, np.int32) if parents is None else parents
        logits = self.lines.advance(np.array(slots), tokens, parents).clone()
        for place, slot in enumerate(slots):
            old = self.said[slot]
            self.said[slot] = [[*old[parents[place, line]], int(tokens[place, line])] for line in range(beam)]
            for line in range(beam):
                self.records.append((self.sources[slot], self.said[slot][line], logits[place * beam + line]))
        return logits

    def found(self) -> Tensor:
        """Return all logits so far."""
        return torch.stack([logits for _, _, logits in self.records])

    def expected(self, model: Transformer) -> Tensor:
        """Return the same logits by the model, from whole sentences."""
        source, source_offsets = make_row([source.tolist() for source, _, _ in self.records])
        target, target_offsets = make_row([said for _, said, _ in self.records])
        states = model.decode(target, target_offsets, model.encode(source, source_offsets), source_offsets)
        return model.project(states[target_offsets[1:] - 1])


class Quantised(TorchFunctionMode):
    """Computes products and attention as the engine does in a precision."""

    def __init__(self, precision: str):
        super().__init__()
        self.precision, self.half = precision, False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.linear:
            return self._linear(*args, **kwargs)
        if function is functional.scaled_dot_product_attention and self.half:
            query, key, value, *others = args
            return function(query, key.half().to(query), value.half().to(query), *others, **kwargs)
        return function(*args, **kwargs)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.precision == "int8":
            (x, scales), (weight, weight_scales) = to_integers(x), to_integers(weight)
            result = (x @ weight.T) * scales * weight_scales.T
        else:
            result = x @ weight.bfloat16().to(x).T
        return result if bias is None else result + bias


def to_integers(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row as integers from -127 to 127, and its scale."""
    scales = rows.float().abs().amax(1, keepdim=True) / 127
    return (rows.float() * (1 / scales)).round().to(rows), scales.to(rows)


def quantised(talk: Talk, model: Transformer, precision: str) -> Tensor:
    """Return the logits of all records, with the engine's quantisation but in float64 otherwise."""
    source, source_offsets = make_row([source.tolist() for source, _, _ in talk.records])
    target, target_offsets = make_row([said for _, said, _ in talk.records])
    with Quantised(precision) as mode:
        memory = model.encode(source, source_offsets)
        mode.half = True  # only the decoder keeps its keys and values
        states = model.decode(target, target_offsets, memory, source_offsets)
        return model.project(states[target_offsets[1:] - 1])
