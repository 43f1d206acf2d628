"""Adam (section 5.3) or Muon, with clipping, a guard against non-finite updates, a moving average, and freezing."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from transduce.config import TrainingConfig
from transduce.errors import ConfigError
from transduce.model.transformer import Transformer
from transduce.training.adam import Adam
from transduce.training.distributed import whole
from transduce.training.muon import Muon, matrices


class Optimiser:
    """Updates the model; its moments are named after their weights."""

    def __init__(self, model: Transformer, config: TrainingConfig):
        self.config = config
        self.named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        # Not 0 if an update is not finite. It blocks only that one, or all later ones too, until the log is read.
        self.broken = torch.zeros((), device=model.device)
        pieces = matrices(model) if config.optimiser == "muon" else {}
        shares = dict.fromkeys(filter(is_of_encoder, self.named), config.encoder_rate)
        self.muon = Muon(self.named, pieces, self.broken, shares)
        others = {name: self.named[name] for name in self.named if name not in pieces}
        self.adam = Adam(others, config, self.broken, shares)
        # The rate is on the device, where a captured graph reads it.
        self.rate = torch.zeros((), device=model.device)
        self.number = 0.0

    def update(self, rate: float, loss: Tensor) -> Tensor:
        """Apply the gradients of a loss at a learning rate; return their norm without waiting for it."""
        self.number = rate
        self.rate.fill_(rate)
        return self.apply(loss)

    def apply(self, loss: Tensor) -> Tensor:
        """Apply the gradients of a loss at the rate that was set; return their norm without waiting for it.

        A loss or norm that is not finite leaves the weights unchanged; if training is to stop at it, so do later ones.
        """
        gradients = [weight.grad for weight in self.named.values() if weight.grad is not None]
        norm = whole(get_total_norm(gradients))
        if self.config.clip is not None:
            clip_grads_with_norm_(self.named.values(), self.config.clip, norm)
        broken = (~(norm + loss).isfinite()).float()
        self.broken.copy_(torch.maximum(self.broken, broken) if self.config.not_finite == "stop" else broken)
        if self.adam.fused or not self.broken.item():
            rate = self.rate if self.rate.is_cuda and self.adam.fused else self.number
            self.adam.step(rate)
            self.muon.step(rate)
        self.zero_grad()
        return norm

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for weight in self.named.values():
            weight.grad = None

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the moments of Adam and Muon, by name."""
        yield from self.adam.moments()
        yield from self.muon.moments()

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Restore the moments of a checkpoint; weights without any start afresh."""
        self.adam.restore(moments)
        self.muon.restore(moments)


def is_of_encoder(name: str) -> bool:
    """Return whether a weight is the encoder's alone: part of its layers, or of what only sources pass through."""
    return name.split(".")[0] in ("encoder", "encoder_norm", "source_embedding", "source_positions")


class MovingAverage:
    """An exponential moving average of the weights; it forgets faster early on, so that the start leaves no trace."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Add the weights after a step, counted from 1."""
        decay = min(self.decay, step / (step + 10))
        current = [weight.detach() for weight in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), current, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]


def freeze(model: Transformer, patterns: tuple[str, ...]) -> list[str]:
    """Exclude the weights with matching names from training; return those names."""
    names = [name for name, _ in model.named_parameters()]
    unused = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if unused:
        examples = ", ".join(dict.fromkeys(f"{name.split('.')[0]}.*" for name in names))
        raise ConfigError(
            "\n".join(f"training.freeze: no weight matches {pattern}; there are {examples}" for pattern in unused)
        )
    frozen = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if len(frozen) == len(names):
        raise ConfigError("training.freeze leaves no weights to train; name fewer")
    for name, weight in model.named_parameters():
        weight.requires_grad_(name not in frozen)
    return frozen
