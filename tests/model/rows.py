"""Small models and rows of random sentences for the tests of the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model.transformer import Transformer

SMALL = ModelConfig(vocabulary=23, layers=2, d_model=12, d_ff=20, heads=3, dropout=0.0)
FILLER, EMPTY = 3, 2  # tokens behind the last sentence, and empty sentences behind it, as batches have them


@dataclass
class Row:
    """Sentences back to back, with filler after the last, as in a batch."""

    tokens: Tensor
    offsets: Tensor
    sentences: int

    def split(self, values: Tensor) -> list[Tensor]:
        """Return the part of each sentence."""
        return [values[first:end] for first, end in pairwise(self.offsets.tolist())][: self.sentences]

    @property
    def used(self) -> int:
        """The number of tokens in sentences."""
        return int(self.offsets[-1])


def make_row(sentences: Sequence[Tensor], *, filler: int = FILLER, empty: int = EMPTY) -> Row:
    """Put sentences into a row; filler tokens are 0, as in batches."""
    offsets = [0]
    for sentence in sentences:
        offsets.append(offsets[-1] + len(sentence))
    tokens = torch.cat((*sentences, torch.zeros(filler, dtype=torch.int32)))
    return Row(tokens, torch.tensor(offsets + offsets[-1:] * empty, dtype=torch.int32), len(sentences))


def random_row(lengths: Sequence[int], *, vocabulary: int = 23, filler: int = FILLER, empty: int = EMPTY) -> Row:
    """Return a row of random sentences of these lengths, without the filler's token 0."""
    draw: Callable[..., Tensor] = torch.randint
    sentences = [draw(1, vocabulary, (length,), dtype=torch.int32) for length in lengths]
    return make_row(sentences, filler=filler, empty=empty)


def make_model(config: ModelConfig, *, seed: int = 0) -> Transformer:
    """Return a model in float64 whose norms and biases are random too, so that leaving one out shows."""
    torch.manual_seed(seed)
    model = Transformer(config).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(mean=float(name.endswith("norm.weight")), std=0.3)
    return model


def run(model: Transformer, source: Row, target: Row) -> Tensor:
    """Return the logits of all target tokens in sentences."""
    return model(source.tokens, source.offsets, target.tokens, target.offsets)[: target.used]


def gradients(model: Transformer) -> dict[str, Tensor]:
    """Return each parameter's gradient, by name."""
    found: dict[str, Any] = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(isinstance(gradient, Tensor) for gradient in found.values()), found
    return found


def assert_near(found: Tensor, expected: Tensor, tolerance: float = 1e-10, what: str = "values") -> None:
    """Fail unless all numbers are within the tolerance, relative where they are large."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}")
