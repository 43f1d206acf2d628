"""Adam (section 5.3), on torch's own kernels.

`torch.optim.Adam` calls the same kernels, but first imports torch's compiler, which takes a second or more.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

# pyright: reportPrivateImportUsage=false
from transduce.config import TrainingConfig
from transduce.training.distributed import is_split, put

Rate = Tensor | float  # on a GPU a tensor, where a captured graph reads it


class Adam:
    """Adam for the named weights; while `broken` is not 0, no update may be made."""

    def __init__(
        self, named: Mapping[str, nn.Parameter], config: TrainingConfig, broken: Tensor, shares: Mapping[str, float]
    ):
        self.named, self.config, self.broken, self.shares = named, config, broken, shares
        # One kernel updates all weights and reads `broken` on the device, so that Python need not wait for the norm.
        self.fused = broken.device.type in ("cpu", "cuda") and not any(map(is_split, named.values()))
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.updates: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, rate: Rate) -> None:
        """Apply the gradients; weights without one stay unchanged."""
        groups: dict[float, dict[str, Tensor]] = defaultdict(dict)
        for name, weight in self.named.items():
            if weight.grad is not None:
                groups[self.shares.get(name, 1.0)][name] = weight.grad
                if name not in self.first:
                    self._begin(name)
        for share, found in groups.items():
            own = rate if share == 1 else rate * share
            if self.fused:
                self._step_at_once(found, own)
            else:
                self._step(found, float(own))

    def _step_at_once(self, gradients: Mapping[str, Tensor], rate: Rate) -> None:
        weights, first, second, updates = (
            [kept[name] for name in gradients] for kept in (self.named, self.first, self.second, self.updates)
        )
        torch._foreach_add_(updates, 1)
        torch._fused_adam_(
            weights,
            list(gradients.values()),
            first,
            second,
            [],
            updates,
            lr=rate,
            beta1=self.config.beta1,
            beta2=self.config.beta2,
            weight_decay=0.0,
            eps=self.config.epsilon,
            amsgrad=False,
            maximize=False,
            found_inf=self.broken,
        )
        torch._foreach_sub_(updates, [self.broken] * len(updates))

    def _step(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        beta1, beta2 = self.config.beta1, self.config.beta2
        for name, gradient in gradients.items():
            updates = self.updates[name].add_(1).item()
            first = self.first[name].lerp_(gradient, 1 - beta1)
            second = self.second[name].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = (second / (1 - beta2**updates)).sqrt_().add_(self.config.epsilon)
            self.named[name].addcdiv_(first, root, value=-rate / (1 - beta1**updates))

    def _begin(self, name: str) -> None:
        weight = self.named[name]
        self.first[name], self.second[name] = torch.zeros_like(weight), torch.zeros_like(weight)
        self.updates[name] = torch.zeros((), device=weight.device if self.fused else "cpu")

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """Yield both moments of every weight updated so far, and its number of updates."""
        for name in self.first:
            yield f"first.{name}", self.first[name]
            yield f"second.{name}", self.second[name]
            yield f"updates.{name}", self.updates[name]

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Restore the moments of a checkpoint; weights without any start afresh."""
        for name in self.named:
            if f"first.{name}" in moments:
                self._begin(name)
                put(self.first[name], moments[f"first.{name}"])
                put(self.second[name], moments[f"second.{name}"])
                self.updates[name].copy_(moments[f"updates.{name}"])
