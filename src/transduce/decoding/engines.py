"""Choose the engine for a model, by the device, the precision asked for and what the machine can compile."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import torch

from transduce.config import ModelConfig
from transduce.decoding.engine import Engine, Ensemble, TorchEngine
from transduce.errors import DataError, UsageError
from transduce.kernels.native import NativeError
from transduce.model.device import choose_device, choose_threads, has_bf16, has_kernels
from transduce.model.saved import Loaded, load_model
from transduce.model.saved import Precision as Stored
from transduce.model.transformer import Transformer

Precision = Literal["auto", "float32", "bf16", "int8"]
Name = Literal["auto", "native", "torch"]


def load_engine(
    paths: Sequence[Path | str], device: str, precision: Precision, threads: int | None, name: Name
) -> tuple[list[Loaded], Engine]:
    """Load runs, checkpoints or models, and make one engine for all of them."""
    loaded = [load_model(path) for path in paths]
    for other in loaded[1:]:
        if any(other.subwords[side].model != loaded[0].subwords[side].model for side in other.subwords):
            raise DataError(f"{other.folder}: cannot form an ensemble with {loaded[0].folder}: its subwords differ")
    engines = [make_engine(one.model, device, precision, threads, name, one.precision) for one in loaded]
    return loaded, engines[0] if len(engines) == 1 else unite(engines)


def unite(engines: Sequence[Engine]) -> Engine:
    """Combine engines into an ensemble; those with captured steps share one graph."""
    if has_kernels(engines[0].device):
        from transduce.decoding.gpu import GraphEngine

        graphs = [engine for engine in engines if isinstance(engine, GraphEngine)]
        if len(graphs) == len(engines):
            return GraphEngine(*(model for engine in graphs for model in engine.models))
    return Ensemble(engines)


def make_engine(
    model: Transformer,
    device: str = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    name: Name = "auto",
    stored: Stored = "float32",
) -> Engine:
    """Make the fastest engine for a model on a device: our own code on CPUs and NVIDIA GPUs, torch elsewhere.

    With precision auto, our code for CPUs uses the precision in which the weights are `stored`.
    """
    _check("precision", precision, get_args(Precision))
    _check("engine", name, get_args(Name))
    place = choose_device(device)
    if place.type != "cpu":
        return _on_device(model, place, precision, name)
    threads = choose_threads(model.config, threads)
    exact = "float32" if precision == "auto" else precision
    if name != "torch":
        from transduce.decoding.cpu import CpuEngine

        try:
            if CpuEngine.supports(model.config):
                fast = stored if precision == "auto" else exact
                return CpuEngine(model, precision=fast, threads=threads)
            reason = _unsupported(model.config)
        except NativeError as error:
            reason = str(error)
        if name == "native" or exact != "float32":
            raise UsageError(f"{reason}\nwithout it, only --engine torch with --precision float32 works")
        _say_once(f"note: {reason}\nnote: translating with torch instead, which is slower")
    elif exact == "int8":
        raise UsageError("--engine torch does not support --precision int8 on a CPU; use float32, or --engine native")
    torch.set_num_threads(threads)
    return TorchEngine(_in_bf16(model) if exact == "bf16" else model)


def _on_device(model: Transformer, place: torch.device, precision: Precision, name: Name) -> Engine:
    if name == "native":
        raise UsageError("--engine native is for CPUs; add --device cpu")
    if precision == "int8":
        raise UsageError(f"--precision int8 is for CPUs; use bf16 or float32 on {place}")
    half = precision == "bf16" or (precision == "auto" and has_bf16(place))
    model.to(place)
    chosen = _in_bf16(model) if half else model
    if name == "auto" and has_kernels(place):
        from transduce.decoding.gpu import GraphEngine

        if GraphEngine.supports(model.config):
            return GraphEngine(chosen)
    return TorchEngine(chosen)


def _check(flag: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UsageError(f"--{flag} {given} is not known; use {', '.join(known)}")


@cache
def _say_once(text: str) -> None:
    """Print a note once, which an ensemble would repeat for each of its models."""
    print(text, file=sys.stderr)


def _in_bf16(model: Transformer) -> Transformer:
    """Return a copy in bf16; the model itself stays exact, for scores and alignments."""
    return deepcopy(model).to(torch.bfloat16)


def _unsupported(config: ModelConfig) -> str:
    return f"--engine native does not support models with model.attention = {config.attention!r}"
