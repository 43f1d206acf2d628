"""A whole update on an NVIDIA GPU as one captured graph: Python then says one word a step instead of a thousand.

A graph repeats the same kernels on the same memory. So a batch is copied to where the last one was, the learning rate
and the seed of random numbers are put in their places, and the numbers that come out are copied away.
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
    """Takes steps on batches of one shape; where another comes, it is captured anew."""

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
        """One update; returns the sums of both losses, the number of targets and the gradient's norm."""
        self._place(batch)
        self.targets.fill_(float(batch.target_tokens))
        self.optimiser.rate.fill_(rate)
        torch.manual_seed(seed)
        if self.warm and self.graph is None:
            graph = torch.cuda.CUDAGraph()
            with recording(graph, self.device):  # meanwhile the loader's thread goes on finding memory
                self.numbers = self._compute()
            self.graph = graph
        if self.graph is not None:
            self.graph.replay()
            return self.numbers.clone()
        # The first step of each shape is computed as it comes: kernels are compiled and memory is found.
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
        """Copy a batch to where the graph looks for it."""
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
    """The weights of all products; norms are computed as they are."""
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
    """More tiles than this batch has: the next may have some more."""
    return -(-tiles * 5 // 4 // 32) * 32
