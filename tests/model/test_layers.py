"""Feed-forward networks follow their formulas, and dropout is where the paper has it and nowhere else."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
import torch
from rows import SMALL, Row, assert_near, make_model, random_row, run
from threads import always_one_thread as always_one_thread
from torch import Tensor, nn

from transduce.model.layers import FeedForward, Residual
from transduce.model.transformer import Transformer

LENGTHS = [5, 2, 7]


def relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.0)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def make_rows() -> tuple[Row, Row]:
    torch.manual_seed(7)
    return random_row(LENGTHS), random_row(LENGTHS[::-1])


@pytest.mark.parametrize(("activation", "function"), [("relu", relu), ("gelu", gelu)])
def test_feed_forward_is_equation_2(activation: Literal["relu", "gelu"], function: Callable[[Tensor], Tensor]):
    torch.manual_seed(0)
    module = FeedForward(4, 6, activation, 0.0).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    w_1, b_1, w_2, b_2 = module.inner.weight.T, module.inner.bias, module.outer.weight.T, module.outer.bias
    assert (w_1.shape, w_2.shape) == ((4, 6), (6, 4))
    assert_near(module(x), function(x @ w_1 + b_1) @ w_2 + b_2)


def test_swiglu_gates_with_its_first_matrix():
    torch.manual_seed(0)
    module = FeedForward(4, 6, "swiglu", 0.0).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    (w, v), (b, c) = module.inner.weight.split(6), module.inner.bias.split(6)
    gated = x @ w.T + b
    inner = gated * torch.sigmoid(gated) * (x @ v.T + c)  # Swish(x W + b) ⊗ (x V + c)
    assert_near(module(x), inner @ module.outer.weight.T + module.outer.bias)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_sublayer_is_normed_in_its_place(norm: Literal["post", "pre"]):
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)); with a norm by hand, as in Ba et al. (2016)."""
    torch.manual_seed(0)
    module = Residual(4, 0.0, norm).double()
    nn.init.normal_(module.norm.weight)
    nn.init.normal_(module.norm.bias)
    x = torch.randn(9, 4, dtype=torch.float64)

    def by_hand(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return module.norm.weight * centred / (variance + 1e-5).sqrt() + module.norm.bias

    expected = by_hand(x + 3 * x.square()) if norm == "post" else x + 3 * by_hand(x).square()
    assert_near(module(x, lambda x: 3 * x.square()), expected)


def dropouts(model: Transformer) -> dict[str, nn.Dropout]:
    """Return the modules that drop anything."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p}


def test_dropout_is_on_the_embeddings_and_on_every_sublayers_output():
    model = make_model(replace(SMALL, dropout=0.5, encoder_layers=3))
    calls: list[str] = []
    for name, module in dropouts(model).items():
        module.register_forward_hook(lambda module, inputs, output, name=name: calls.append(name))
    run(model.train(), *make_rows())
    encoder = [f"encoder.{n}.{part}_residual.dropout" for n in range(3) for part in ("self", "feed_forward")]
    decoder = [f"decoder.{n}.{part}_residual.dropout" for n in range(2) for part in ("self", "cross", "feed_forward")]
    assert calls == ["dropout", *encoder, "dropout", *decoder]


def test_nothing_else_is_random():
    """With the output of the known dropouts restored, training gives what evaluation gives."""
    model = make_model(replace(SMALL, dropout=0.5))
    rows = make_rows()
    expected = run(model.eval(), *rows)
    assert torch.equal(run(model, *rows), expected)
    dropped = run(model.train(), *rows)
    assert not torch.equal(dropped, expected)
    assert not torch.equal(dropped, run(model, *rows))
    for module in dropouts(model).values():
        module.register_forward_hook(lambda module, inputs, output: inputs[0])
    assert torch.equal(run(model, *rows), expected)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_spares_the_way_around_the_sublayer(norm: Literal["post", "pre"]):
    """If every sub-layer's whole output is dropped, only the norms of the encoder remain."""
    model = make_model(replace(SMALL, dropout=0.5, norm=norm)).train()
    seen: list[Tensor] = []

    def see(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen.append(output)

    def drop_all(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return torch.zeros_like(output)

    for name, module in dropouts(model).items():
        module.register_forward_hook(see if name == "dropout" else drop_all)
    source, _ = make_rows()
    found = model.encode(source.tokens, source.offsets)
    (expected,) = seen
    kept = (expected != 0).double().mean().item()
    assert 0.3 < kept < 0.7  # of the embeddings with their positions
    if norm == "pre":
        expected = model.encoder_norm(expected)
    else:
        for layer in model.encoder:
            assert isinstance(layer, nn.Module)
            for part in ("self_residual", "feed_forward_residual"):
                expected = layer.get_submodule(f"{part}.norm")(expected)
    assert_near(found, expected)


@pytest.mark.parametrize("attention", ["scaled", "additive"])
@pytest.mark.parametrize("setting", ["attention_dropout", "feed_forward_dropout"])
def test_dropout_inside_acts_in_training_alone(setting: str, attention: Literal["scaled", "additive"]):
    plain, dropping = (
        make_model(replace(SMALL, attention=attention)),
        make_model(replace(SMALL, attention=attention, **{setting: 0.5})),
    )
    rows = make_rows()
    expected = run(plain, *rows)
    assert torch.equal(run(dropping.eval(), *rows), expected)
    first, second = (run(dropping.train(), *rows) for _ in range(2))
    assert not torch.equal(first, expected)
    assert not torch.equal(first, second)
    assert torch.equal(run(plain.train(), *rows), expected)


def test_feed_forward_dropout_is_behind_the_activation():
    torch.manual_seed(0)
    module = FeedForward(4, 1000, "gelu", 0.25).double().train()
    x = torch.randn(9, 4, dtype=torch.float64)
    nn.init.eye_(module.outer.weight)  # the first four inner numbers come out as they are
    nn.init.zeros_(module.outer.bias)
    seen: list[Tensor] = []

    def see(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen.extend((*inputs, output))

    module.dropout.register_forward_hook(see)
    result = module(x)
    before, after = seen
    assert_near(before, gelu(module.inner(x)))
    assert_near(result, after[:, :4])
    kept = after != 0
    assert_near(after[kept], before[kept] / 0.75)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
