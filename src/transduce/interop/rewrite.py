"""Rewrite weights of other toolkits as ours, exactly: the model computes what it did before.

Each difference becomes a change of the weights alone. A bias of the keys is dropped, as it cancels in the softmax; one
of the values passes through W^O into the bias of the output. Positions with all sines before all cosines are ours with
the dimensions in another order, if everything that reads or writes them is reordered too; with other frequencies they
are kept as learned ones. Embeddings that are not multiplied by sqrt(d_model) are divided by it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from transduce.config import Config, ModelConfig, SearchConfig
from transduce.errors import DataError
from transduce.interop.vocabulary import Numbering
from transduce.model.saved import check_weights
from transduce.model.transformer import Transformer
from transduce.text.subwords import Subwords

Activation = Literal["relu", "gelu", "silu"]
POSITIONS = 1024  # rows of a table of positions, where theirs or ours is a table and the other computes them
SineOrder = Literal["turns", "halves"]  # of sines and cosines: alternating, as in the paper, or all sines first


@dataclass(frozen=True)
class Imported:
    """A model of another toolkit, ready to be saved as ours."""

    config: Config
    weights: dict[str, Tensor]
    subwords: dict[str, Subwords]
    languages: tuple[str, str] | None


class Linear(NamedTuple):
    """A matrix (outputs, inputs) and its bias."""

    weight: Tensor
    bias: Tensor | None = None


def below(*products: Linear) -> Linear:
    """Join products into one, their outputs one below the other."""
    weights = torch.cat([product.weight for product in products])
    if all(product.bias is None for product in products):
        return Linear(weights)
    biases = (
        product.weight.new_zeros(len(product.weight)) if product.bias is None else product.bias for product in products
    )
    return Linear(weights, torch.cat(list(biases)))


def refuse_turned_bias(key: Linear, origin: str) -> None:
    """Refuse key biases with rotary positions: there they differ by position and do not cancel in the softmax."""
    if key.bias is not None and key.bias.any():
        raise DataError(f"{origin}: has rotary positions and key biases, which our model cannot combine")


class Embeddings(NamedTuple):
    """The embeddings of both sides and the output with its bias, in the other toolkit's numbering."""

    source: Tensor
    target: Tensor
    output: Tensor
    bias: Tensor | None = None
    scaled: bool = True


class Tensors:
    """The other toolkit's tensors by name, with a record of which were used; in the end all must be."""

    def __init__(self, tensors: Mapping[str, Tensor], origin: str):
        self.origin = origin
        self._tensors = dict(tensors)
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __call__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise DataError(f"{self.origin}: {name} is missing; this importer does not support this kind of model")
        self._used.add(name)
        return self._tensors[name].detach().float()

    def find(self, *names: str) -> Tensor | None:
        """Return the first of these that exists, or None; all of them count as used."""
        found = [name for name in names if name in self._tensors]
        self._used.update(found)
        return self(found[0]) if found else None

    def linear(self, name: str) -> Linear:
        """Return NAME.weight and, if there is one, NAME.bias."""
        return Linear(self(f"{name}.weight"), self.find(f"{name}.bias"))

    def count(self, pattern: str) -> int:
        """Count the layers: {} in the pattern is their number, from 0."""
        number = 0
        while pattern.format(number) in self._tensors:
            number += 1
        return number

    def refuse_unused(self) -> None:
        """Refuse weights that were not used, which would be a silent difference."""
        if left := sorted(self._tensors.keys() - self._used):
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise DataError(f"{self.origin}: has weights that our model has no place for: {shown}")


class Draft:
    """Our weights, added part by part."""

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}

    def attention(self, name: str, query: Linear, key: Linear, value: Linear, output: Linear) -> None:
        """Add multi-head attention, whose heads lie side by side in all toolkits."""
        own = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias
        passed = 0 if value.bias is None else output.weight @ value.bias
        self.weights |= {
            f"{name}.projection": torch.cat((query.weight, key.weight, value.weight)),
            f"{name}.output": output.weight,
            f"{name}.query_bias": query.weight.new_zeros(len(query.weight)) if query.bias is None else query.bias,
            f"{name}.output_bias": own + passed,
        }

    def linear(self, name: str, linear: Linear) -> None:
        """Add a product with its bias, or zeros if it has none; or a norm."""
        weight, bias = linear
        self.weights[f"{name}.weight"] = weight
        self.weights[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias

    def feed_forward(self, name: str, inner: Linear, outer: Linear) -> None:
        """Add the two products of a feed-forward network."""
        self.linear(f"{name}.inner", inner)
        self.linear(f"{name}.outer", outer)

    def layer(self, tensors: Tensors, theirs: str, stack: str, number: int) -> None:
        """Add a layer with the names of fairseq and Hugging Face; `theirs` is the prefix of the stack's name."""
        there, here = f"{theirs}{stack}.layers.{number}", f"{stack}.{number}"
        kinds = {"self": "self_attn", "cross": "encoder_attn"} if stack == "decoder" else {"self": "self_attn"}
        for kind, name in kinds.items():
            parts = (tensors.linear(f"{there}.{name}.{part}_proj") for part in ("q", "k", "v", "out"))
            self.attention(f"{here}.{kind}_attention", *parts)
            self.linear(f"{here}.{kind}_residual.norm", tensors.linear(f"{there}.{name}_layer_norm"))
        self.feed_forward(f"{here}.feed_forward", tensors.linear(f"{there}.fc1"), tensors.linear(f"{there}.fc2"))
        self.linear(f"{here}.feed_forward_residual.norm", tensors.linear(f"{there}.final_layer_norm"))

    def embeddings(self, given: Embeddings, source: Numbering, target: Numbering) -> dict[str, Any]:
        """Add embeddings and output in our numbering; return the vocabularies' sizes and which matrices are one."""
        share = 1.0 if given.scaled else given.source.shape[1] ** -0.5
        own = source is target and torch.equal(given.source, given.target)
        tied = given.scaled and (given.output is given.target or torch.equal(given.output, given.target))
        tie = "none" if not tied else "all" if own else "output"
        self.weights["embedding.weight"] = target.take(given.target) * share
        if tie != "all":
            self.weights["source_embedding.weight"] = source.take(given.source) * share
        if tie == "none":
            self.weights["output.weight"] = target.take(given.output)
        self.weights["output_bias"] = target.bias(given.bias)
        separate = None if source is target else len(source.rows)
        return {"tie": tie, "vocabulary": len(target.rows), "source_vocabulary": separate}

    def positions(self, source: Tensor, target: Tensor) -> None:
        """Add tables of positions that are learned or not the paper's; both become learned ones."""
        self.weights |= {"source_positions.weight": source, "target_positions.weight": target}

    def finish(self, model: ModelConfig, order: SineOrder, origin: str) -> dict[str, Tensor]:
        """Return all weights, with positions in our order; refuse any that do not fit the settings."""
        if order == "halves" and model.positions == "sinusoidal":
            half = torch.arange(model.d_model // 2)
            places = torch.stack((half, half + model.d_model // 2), 1).flatten()  # sine, cosine, sine, …
            self.weights = {name: reorder(name, weight, places) for name, weight in self.weights.items()}
        with torch.device("meta"):
            check_weights(Transformer(model), self.weights, origin)
        return {name: weight.contiguous() for name, weight in self.weights.items()}


def timed_positions(count: int, d_model: int, first: int = 0) -> Tensor:
    """Return sines, then cosines, of frequencies from 1 to exactly 1/10000, as in tensor2tensor and its successors.

    In the paper's equation the frequencies end one step earlier.
    """
    half = d_model // 2
    angles = torch.arange(first, first + count).double()[:, None] * torch.exp(
        torch.arange(half).double() * -(math.log(10_000) / (half - 1))
    )
    return torch.cat((angles.sin(), angles.cos()), 1).float()


def reorder(name: str, weight: Tensor, places: Tensor) -> Tensor:
    """Return the weight with the d_model dimensions that it reads or writes in another order."""
    *_, module, part = ("", *name.split("."))
    if name == "output_bias" or part == "query_bias" or (module, part) == ("inner", "bias"):
        return weight  # over the vocabulary, the heads or the inner layer, not over d_model
    # These products write the residual sums; norms and biases have only this axis.
    writes = part in ("output", "output_bias") or module == "outer" or weight.ndim == 1
    return weight.index_select(0 if writes else 1, places)


def find_activation(name: str, origin: str) -> Activation:
    """Return our name of an activation."""
    match name:
        case "relu" | "gelu" | "silu":
            return name
        case "swish":
            return "silu"
        case _:
            raise DataError(f"{origin}: the activation {name!r} is not supported; relu, gelu, silu and swish are")


def make_config(model: ModelConfig, beam: int | None = None, alpha: float | None = None) -> Config:
    """Return all settings of an imported model: its sizes, and the search it came with."""
    search = SearchConfig()
    search = replace(search, beam=beam or search.beam, alpha=search.alpha if alpha is None else max(0.0, alpha))
    return Config(model=model, search=search)
