"""Adam (section 5.3), by torch's own kernels.

`torch.optim.Adam` calls the same ones, and imports torch's compiler first, which takes a second and more.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

# pyright: reportPrivateImportUsage=false
from transduce.config import TrainingConfig
from transduce.training.distributed import is_split, put

Rate = Tensor | float  # on a GPU a tensor, so that a captured graph finds it there


class Adam:
    """Updates weights; `broken` is a number that is not 0 where an update must not be made."""

    def __init__(
        self, named: Mapping[str, nn.Parameter], config: TrainingConfig, broken: Tensor, shares: Mapping[str, float]
    ):
        self.named, self.config, self.broken, self.shares = named, config, broken, shares
        # One kernel for all weights, which looks at `broken` itself, so that nobody has to wait for the norm.
        self.fused = broken.device.type in ("cpu", "cuda") and not any(map(is_split, named.values()))
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.updates: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, rate: Rate) -> None:
        """Apply the gradients; weights without one stay as they are."""
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
        """The two moments of every weight that was updated, and how often it was."""
        for name in self.first:
            yield f"first.{name}", self.first[name]
            yield f"second.{name}", self.second[name]
            yield f"updates.{name}", self.updates[name]

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Put the moments of a checkpoint in place; weights that had none begin anew."""
        for name in self.named:
            if f"first.{name}" in moments:
                self._begin(name)
                put(self.first[name], moments[f"first.{name}"])
                put(self.second[name], moments[f"second.{name}"])
                self.updates[name].copy_(moments[f"updates.{name}"])
