"""Several processes on one or more machines, started by torchrun, and what they exchange."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transduce.errors import TransduceError
from transduce.model.device import choose_device
from transduce.training.loss import Objective

if TYPE_CHECKING:  # importing it takes a second, and few need it
    from torch.distributed.tensor import DTensor

T = TypeVar("T")
# How long the others wait while process 0 validates or saves.
PATIENCE = timedelta(hours=2)
SAYING = 1.0  # seconds for the process that reports an error to do so and end


@dataclass(frozen=True)
class Processes:
    """This process among all of them: its rank of `world`, 0 of 1 if it is alone."""

    device: torch.device
    rank: int = 0
    world: int = 1
    control: Any = None  # a group on the CPUs for Python values, which need not wait for a GPU

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def highest(self, *numbers: float) -> list[float]:
        """Return the highest value of each number over all processes; all must call."""
        if self.world == 1:
            return list(numbers)
        highest = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=self.control)
        return highest.tolist()

    def add(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place and on the device; all must call."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def share(self, value: T) -> T:
        """Return process 0's value in every process; all must call."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self.control)
        return box[0]

    def share_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return process 0's tensors in every process; all must call."""
        if self.world == 1:
            return tensors
        shapes = self.share({name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
        shared: dict[str, Tensor] = {}
        for name, (shape, dtype) in shapes.items():
            shared[name] = tensors[name] if self.first else torch.empty(shape, dtype=dtype)
            dist.broadcast(shared[name], 0, group=self.control)
        return shared

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block in each process; if one fails, all end, and the same error is reported once; all must enter."""
        error = None
        try:
            yield
        except (TransduceError, OSError) as mistake:
            error = mistake
        if self.world > 1:
            said: list[str | None] = [None] * self.world
            dist.all_gather_object(said, None if error is None else str(error), group=self.control)
            if any(text is not None for text in said) and (error is None or said.index(str(error)) < self.rank):
                time.sleep(SAYING)  # another reports it, and torchrun would end that one as soon as this one ends
                raise SystemExit(1)
        if error is not None:
            raise error

    def wrap(self, objective: Objective, sharded: bool) -> nn.Module:
        """Return the objective with gradients averaged over the processes; `sharded` also splits its weights."""
        if sharded:
            from torch.distributed.fsdp import fully_shard

            for layer in (*objective.model.encoder, *objective.model.decoder):
                fully_shard(layer)
            fully_shard(objective)
            return objective
        if self.world == 1:
            return objective
        return DistributedDataParallel(objective, device_ids=[self.device] if self.device.type == "cuda" else None)


def without_exchange(objective: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Return a block that keeps gradients in their process if `wanted`: for all backward passes but a step's last."""
    if isinstance(objective, DistributedDataParallel):
        return objective.no_sync() if wanted else nullcontext()
    if hasattr(objective, "set_requires_gradient_sync"):  # FSDP2 keeps this until it is set again
        objective.set_requires_gradient_sync(not wanted)  # pyright: ignore[reportCallIssue]
    return nullcontext()


def is_split(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Return whether each process holds only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with all its parts, if it is split over the processes; all must call."""
    return tensor.full_tensor() if is_split(tensor) else tensor


def put(tensor: Tensor, values: Tensor) -> None:
    """Copy values into a tensor, of which this process may hold only a part."""
    with torch.no_grad():
        values = values.to(tensor.device, tensor.dtype)
        if is_split(tensor):
            from torch.distributed.tensor import distribute_tensor

            values = distribute_tensor(values, tensor.device_mesh, tensor.placements)
        tensor.copy_(values)


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the other processes, if torchrun has started any, and leave them when the block ends."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", 0)))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if "RANK" not in os.environ:
        yield Processes(chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(chosen, rank, world, dist.new_group(backend="gloo", timeout=PATIENCE))
    finally:
        dist.destroy_process_group()
