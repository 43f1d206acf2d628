"""What our kernels need of GPUs that are not there: they are compiled for them, but not launched.

    TRITON_INTERPRET=0 python tests/kernels/elsewhere.py 8.0 8.6 9.0 12.0

A training step and a decoding step go their usual way on the CPU, whatever the results, with all the shapes and
settings that kernels are launched with. Prints each kernel and the shared memory that one of its programs takes.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from random_batches import make_batch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.gpu import GraphEngine
from transduce.model import layers, transformer
from transduce.training import loss
from transduce.training.loss import Objective

BASE = ModelConfig(vocabulary=400, layers=1, d_model=512, d_ff=64, heads=8, dropout=0.1)
KINDS = {
    "heads of 64": BASE,
    "biases": replace(BASE, biases=True, norm="pre", activation="silu"),
    "heads of 128": replace(BASE, heads=4),
    "heads of 512": replace(BASE, heads=1),
}
BEAMS = 1, 4, 21


class Elsewhere:
    """A driver with the answers that Triton needs in order to compile."""

    capability = 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # so that each has kernels of its own

    def get_current_stream(self, device: int) -> int:
        return 0


def train(config: ModelConfig, half: bool) -> None:
    """Compile what a training step launches, for short and for long sentences."""
    objective = Objective(transformer.Transformer(config), 0.1, (20, 20))
    with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
        objective.measure(make_batch([(3, 5), (70, 65), (9, 1)]).tile())[0].backward()


def decode(config: ModelConfig, half: bool, beam: int) -> None:
    """Compile what encoding, a step of the search and the choice of hypotheses launch."""
    model = transformer.Transformer(config).eval().to(torch.bfloat16 if half else torch.float32)
    lines = GraphEngine(model).open(2, beam, 64, 64)
    lines.admit([0, 1], [np.array([4, 5, 3], np.int32)] * 2)
    lines.advance(np.arange(2), np.ones((2, beam), np.int64), np.zeros((2, beam), np.int64))
    lines.beams_for(SearchConfig(beam=beam))
    with torch.inference_mode():
        lines.run(1)


def compile_all(capability: int) -> Iterator[dict[str, Any]]:
    """Yield all kernels of both, for all kinds of models."""
    here = Elsewhere()
    here.capability = capability
    driver.set_active(cast(Any, here))
    compile_kernel: Callable[..., Any] = JITFunction.run
    found: dict[str, dict[str, Any]] = {}

    def compile_only(self: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        kernel = compile_kernel(self, *given, grid=grid, warmup=True, **named)
        found[kernel.hash] = {"kernel": f"{self.module}.{self.__name__}", "shared": kernel.metadata.shared}
        return kernel

    JITFunction.run = compile_only
    try:
        for name, config in KINDS.items():
            for half in (True, False):
                known = len(found)
                train(config, half)
                for beam in BEAMS:
                    decode(config, half, beam)
                about = {"capability": capability, "kind": name, "precision": "bf16" if half else "float32"}
                yield from ({**about, **kernel} for kernel in list(found.values())[known:])
    finally:
        JITFunction.run = compile_kernel


def main() -> None:
    """Compile for the GPUs whose compute capabilities are given."""
    layers.can_fuse = transformer.can_fuse = loss.can_fuse = lambda _: True
    multiply = torch.mm

    def mm(left: Any, right: Any, out_dtype: Any = None, out: Any = None) -> Any:  # a CPU's has no other kind of result
        return multiply(left, right, out=out) if out_dtype is None else multiply(left, right).to(out_dtype)

    torch.mm = mm
    for capability in sys.argv[1:]:
        for kernel in compile_all(int(capability.replace(".", ""))):
            print(json.dumps(kernel))


if __name__ == "__main__":
    main()
