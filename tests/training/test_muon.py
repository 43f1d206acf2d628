"""Muon against torch's own, against a decomposition of the matrices, and beside Adam."""

from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.config import ModelConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.model.transformer import Transformer
from transduce.training.muon import matrices, orthogonal
from transduce.training.optimiser import Optimiser, freeze

LOSS = torch.tensor(1.0)


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocabulary": 11, "layers": 1, "d_model": 8, "d_ff": 12, "heads": 2, "d_k": 3}
    return Transformer(ModelConfig(**{**sizes, **changes}))


def make_optimiser(model: Transformer, **changes: Any) -> Optimiser:
    return Optimiser(model, TrainingConfig(**{"optimiser": "muon", **changes}))


def give_gradients(model: Transformer, step: int) -> None:
    torch.manual_seed(step)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def weights(model: Transformer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_it_is_torchs_muon_for_each_matrix_and_torchs_adam_for_the_rest(activation: str):
    """Queries, keys and values of a layer share one weight, and so do the halves of SwiGLU: each counts alone."""
    model, other = make_model(activation=activation), make_model(activation=activation)
    optimiser = make_optimiser(model)
    pieces = matrices(other)
    assert [len(pieces[f"encoder.0.self_attention.{name}"]) for name in ("projection", "output")] == [3, 1]
    assert [len(piece) for piece in pieces["encoder.0.self_attention.projection"]] == [6, 6, 8]
    inner = next(name for name in pieces if name.endswith("inner.weight"))
    assert len(pieces[inner]) == (2 if activation == "swiglu" else 1)
    alone = {name: [piece.clone().requires_grad_() for piece in of] for name, of in pieces.items()}
    rest = [weight for name, weight in other.named_parameters() if name not in pieces]
    muon = torch.optim.Muon(
        [piece for of in alone.values() for piece in of], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    adam = torch.optim.Adam(rest, lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 5):
        give_gradients(model, step)
        give_gradients(other, step)
        for name, weight in other.named_parameters():
            if name in alone:
                gradients = torch.as_tensor(weight.grad).split([len(piece) for piece in alone[name]])
                for piece, gradient in zip(alone[name], gradients, strict=True):
                    piece.grad = gradient
        optimiser.update(0.01, LOSS)
        muon.step()
        adam.step()
    for name, weight in model.named_parameters():
        if name in alone:
            moved = weight.detach() - dict(make_model(activation=activation).named_parameters())[name].detach()
            expected = torch.cat([piece.detach() for piece in alone[name]])
            # Torch computes in bf16 also on a CPU.
            assert (weight.detach() - expected).norm() < 0.03 * moved.norm()
        else:
            torch.testing.assert_close(weight, dict(other.named_parameters())[name])


@pytest.mark.parametrize("shape", [(2, 6, 6), (3, 4, 9), (1, 9, 4)])
def test_singular_values_become_nearly_one(shape: tuple[int, int, int]):
    torch.manual_seed(1)
    batch = torch.randn(shape, dtype=torch.float64) * 10.0 ** torch.arange(shape[0])[:, None, None]
    left, before, right = torch.linalg.svd(batch, full_matrices=False)
    values = before / before.norm(dim=1, keepdim=True)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    found = orthogonal(batch)
    torch.testing.assert_close(found, left @ torch.diag_embed(values) @ right)
    assert before.amax() > 3 * before.amin()
    assert values.amax() < 1.3
    assert orthogonal(torch.zeros(shape)).eq(0).all()


def test_it_goes_on_where_it_was():
    """A checkpoint keeps enough: momentum for the matrices, Adam's moments for the rest."""
    model, resumed = make_model(), make_model()
    optimiser = make_optimiser(model)
    for step in (1, 2):
        give_gradients(model, step)
        optimiser.update(0.01, LOSS)
    kept = {name: tensor.clone() for name, tensor in optimiser.moments()}
    assert {name.partition(".")[0] for name in kept} == {"first", "second", "updates", "momentum"}
    assert {name.partition(".")[2] for name in kept if name.startswith("momentum.")} == set(matrices(model))
    assert not {name.partition(".")[2] for name in kept if name.startswith("first.")} & set(matrices(model))
    resumed.load_state_dict(model.state_dict())
    again = make_optimiser(resumed)
    again.restore(kept)
    for one, other in ((model, optimiser), (resumed, again)):
        give_gradients(one, 3)
        other.update(0.01, LOSS)
    torch.testing.assert_close(weights(model), weights(resumed), rtol=0, atol=0)
    before = weights(model)
    give_gradients(model, 4)
    optimiser.update(0.01, LOSS)
    assert all(not torch.equal(weight, before[name]) for name, weight in weights(model).items())


@pytest.mark.parametrize("then", ["stop", "skip"])
def test_an_update_that_is_not_finite_changes_nothing(then: str):
    model = make_model()
    optimiser = make_optimiser(model, not_finite=then)
    give_gradients(model, 1)
    optimiser.update(0.01, LOSS)
    before, kept = weights(model), {name: tensor.clone() for name, tensor in optimiser.moments()}
    give_gradients(model, 2)
    torch.as_tensor(next(iter(model.parameters())).grad).fill_(torch.nan)
    torch.as_tensor(model.get_parameter("encoder.0.self_attention.projection").grad).fill_(torch.inf)
    optimiser.update(0.01, LOSS)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)
    torch.testing.assert_close(dict(optimiser.moments()), kept, rtol=0, atol=0)
    give_gradients(model, 3)
    optimiser.update(0.01, LOSS)
    stayed = [name for name, weight in weights(model).items() if torch.equal(weight, before[name])]
    assert stayed == (list(before) if then == "stop" else [])


def test_frozen_matrices_stay_and_it_needs_them_whole():
    model = make_model()
    freeze(model, ("*norm*", "*bias", "embedding.*", "encoder.*"))  # nothing is left for Adam
    optimiser = make_optimiser(model)
    before = weights(model)
    give_gradients(model, 1)
    optimiser.update(0.01, LOSS)
    changed = {name for name, weight in weights(model).items() if not torch.equal(weight, before[name])}
    assert changed == {name for name in matrices(make_model()) if name.startswith("decoder.")}
    with pytest.raises(ConfigError, match="needs whole matrices"):
        TrainingConfig(optimiser="muon", sharded=True)
