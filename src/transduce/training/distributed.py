"""Several processes on one or more machines, started by torchrun: who they are and what they say to each other."""

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

if TYPE_CHECKING:  # it takes a second to be imported, and few need it
    from torch.distributed.tensor import DTensor

T = TypeVar("T")
# While process 0 validates or saves, the others wait for it.
PATIENCE = timedelta(hours=2)
SAYING = 1.0  # seconds in which a process says what is wrong and ends


@dataclass(frozen=True)
class Processes:
    """This process among all of them; alone it is number 0 of 1."""

    device: torch.device
    rank: int = 0
    world: int = 1
    control: Any = None  # for what concerns Python, so that nobody waits for a GPU

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def highest(self, *numbers: float) -> list[float]:
        """The highest that anyone says of each number; all must call."""
        if self.world == 1:
            return list(numbers)
        highest = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=self.control)
        return highest.tolist()

    def add(self, tensor: Tensor) -> Tensor:
        """Add up everyone's tensor, in place and on the device; all must call."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def share(self, value: T) -> T:
        """Process 0's value, for everyone; all must call."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self.control)
        return box[0]

    def share_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Process 0's tensors, for everyone."""
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
        """A block in which each works for itself: where one fails all end, and what is wrong is said once; all call."""
        error = None
        try:
            yield
        except (TransduceError, OSError) as mistake:
            error = mistake
        if self.world > 1:
            said: list[str | None] = [None] * self.world
            dist.all_gather_object(said, None if error is None else str(error), group=self.control)
            if any(text is not None for text in said) and (error is None or said.index(str(error)) < self.rank):
                time.sleep(SAYING)  # another says it, whom torchrun would end once this one has ended
                raise SystemExit(1)
        if error is not None:
            raise error

    def wrap(self, objective: Objective, sharded: bool) -> nn.Module:
        """The objective with gradients averaged over the processes; `sharded` also splits its weights among them."""
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
    """A block in which gradients stay in their process: all backward passes of a step but the last."""
    if isinstance(objective, DistributedDataParallel):
        return objective.no_sync() if wanted else nullcontext()
    if hasattr(objective, "set_requires_gradient_sync"):  # FSDP2 keeps it until it is set again
        objective.set_requires_gradient_sync(not wanted)  # pyright: ignore[reportCallIssue]
    return nullcontext()


def is_split(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether each process holds a part of it."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts, if it is split over the processes; all must call."""
    return tensor.full_tensor() if is_split(tensor) else tensor


def put(tensor: Tensor, values: Tensor) -> None:
    """Write values into a tensor, of which this process may hold a part."""
    with torch.no_grad():
        values = values.to(tensor.device, tensor.dtype)
        if is_split(tensor):
            from torch.distributed.tensor import distribute_tensor

            values = distribute_tensor(values, tensor.device_mesh, tensor.placements)
        tensor.copy_(values)


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the other processes, if torchrun has started several, and leave them at the end."""
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
