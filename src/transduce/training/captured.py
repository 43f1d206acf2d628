"""A whole update on an NVIDIA GPU as one captured graph: Python launches one graph per step, not a thousand kernels.

A graph repeats the same kernels on the same memory. So each batch is copied to where the last one was, the learning
rate and the random seed are set in place, and the resulting numbers are copied out.
"""

from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transduce.kernels.products import Rounding, compute_dtype
from transduce.model.device import beside, recording
from transduce.model.transformer import Transformer
from transduce.text.batches import Batch
from transduce.training.loss import Objective
from transduce.training.optimiser import Optimiser


class CapturedStep:
    """Takes steps on batches of one shape; a batch of another shape is captured anew."""

    def __init__(self, objective: Objective, optimiser: Optimiser, autocast: AbstractContextManager[object]):
        self.objective, self.optimiser, self.autocast = objective, optimiser, autocast
        self.device = objective.model.device
        with autocast:
            dtype = compute_dtype(objective.model.embedding.weight)
        self.rounding = Rounding(_multiplied(objective.model), dtype)
        self.targets = torch.ones((), device=self.device)
        self.held: Batch | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.numbers = torch.zeros(4, device=self.device)
        self.warm = False

    def __call__(self, batch: Batch, seed: int, rate: float) -> Float[Tensor, "4"]:
        """Make one update; return the sums of both losses, the number of targets and the gradient's norm."""
        self._place(batch)
        self.targets.fill_(float(batch.target_tokens))
        self.optimiser.rate.fill_(rate)
        torch.manual_seed(seed)
        if self.warm and self.graph is None:
            graph = torch.cuda.CUDAGraph()
            with recording(graph, self.device):  # the loader's thread may allocate memory meanwhile
                self.numbers = self._compute()
            self.graph = graph
        if self.graph is not None:
            self.graph.replay()
            return self.numbers.clone()
        # The first step of each shape runs uncaptured: it compiles kernels and allocates memory.
        with beside(self.device):
            numbers = self._compute()
        self.warm = True
        return numbers

    def _compute(self) -> Float[Tensor, "4"]:
        assert self.held is not None
        with self.autocast, self.rounding:
            sums = self.objective.measure(self.held)
        (sums[0] / self.targets).backward()
        norm = self.optimiser.apply(sums[0].detach())
        return torch.stack((*sums.detach(), self.targets, norm))

    def _place(self, batch: Batch) -> None:
        """Copy a batch to where the graph reads it; drop the graph if the batch does not fit."""
        assert batch.tiles is not None
        held = self.held
        if held is None or held.tiles is None or not _fits(batch, held):
            self.graph, self.warm = None, False
            tiles = batch.tiles.new_zeros(*batch.tiles.shape[:2], _room(batch.tiles.shape[2]), 5)
            self.held = held = replace(batch, tiles=tiles).to(self.device)
        for name in _TENSORS:
            getattr(held, name).copy_(getattr(batch, name), non_blocking=True)
        assert held.tiles is not None
        many = batch.tiles.shape[2]
        held.tiles[:, :, :many].copy_(batch.tiles, non_blocking=True)
        held.tiles[:, :, many:].zero_()


def _multiplied(model: Transformer) -> list[Tensor]:
    """Return the weights to round for matrix products: all but those of norms and of a separate source embedding."""
    norms = {
        id(weight) for module in model.modules() if isinstance(module, nn.LayerNorm) for weight in module.parameters()
    }
    inputs = model.source_embedding.weight if model.config.tie != "all" else None
    return [weight for weight in model.parameters() if id(weight) not in norms and weight is not inputs]


_TENSORS = ("source", "source_offsets", "target", "target_input", "target_offsets")


def _fits(batch: Batch, held: Batch) -> bool:
    assert batch.tiles is not None
    assert held.tiles is not None
    same = all(getattr(batch, name).shape == getattr(held, name).shape for name in _TENSORS)
    return same and batch.tiles.shape[2] <= held.tiles.shape[2]


def _room(tiles: int) -> int:
    """Return a number of tiles with room for more than this batch has, since the next may have some more."""
    return -(-tiles * 5 // 4 // 32) * 32
