"""Adam as in the paper, clipping as in torch, the moving average, and weights that stay as they are."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transduce.config import ModelConfig, TrainingConfig
from transduce.errors import ConfigError
from transduce.model.transformer import Transformer
from transduce.training.optimiser import MovingAverage, Optimiser, freeze

LOSS = torch.tensor(1.0)
STEPS = range(1, 8)


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocabulary": 11, "layers": 1, "d_model": 8, "d_ff": 6, "heads": 2}
    return Transformer(ModelConfig(**{**sizes, **changes})).double()


def give_gradients(weights: list[Any], step: int, scale: float = 1.0) -> None:
    """Give the same random gradients for the same step, of different sizes in different weights."""
    torch.manual_seed(step)
    for number, weight in enumerate(weights):
        weight.grad = scale * 10.0 ** (number % 5 - 3) * torch.randn_like(weight)


def copies(model: Transformer) -> list[Tensor]:
    return [weight.detach().clone().requires_grad_() for weight in model.parameters()]


def assert_near(found: Any, expected: Any) -> None:
    torch.testing.assert_close(list(found), list(expected), rtol=1e-12, atol=1e-14)


def test_by_default_it_is_the_papers_adam():
    """Section 5.3: β1 = 0.9, β2 = 0.98, ε = 10^-9, written out here once more."""
    model = make_model()
    optimiser = Optimiser(model, TrainingConfig())
    weights = copies(model)
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    for step in STEPS:
        give_gradients(list(model.parameters()), step)
        gradients = [torch.as_tensor(weight.grad).clone() for weight in model.parameters()]
        rate = 0.01 * step
        optimiser.update(rate, LOSS)
        with torch.no_grad():
            for weight, gradient, m, v in zip(weights, gradients, first, second):
                m.copy_(0.9 * m + 0.1 * gradient)
                v.copy_(0.98 * v + 0.02 * gradient**2)
                weight -= rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
        assert_near(model.parameters(), weights)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip": 0.5},
        {"clip": 1e6},
        {"beta1": 0.8, "beta2": 0.997, "epsilon": 1e-4},
        {"clip": 0.01, "not_finite": "skip"},
    ],
    ids=str,
)
@pytest.mark.parametrize("fused", [True, False])
def test_it_is_torchs_plain_adam_and_clipping(changes: dict[str, Any], fused: bool):
    model = make_model()
    config = TrainingConfig(**changes)
    optimiser = Optimiser(model, config)
    assert optimiser.adam.fused
    optimiser.adam.fused = fused
    weights = copies(model)
    betas = (config.beta1, config.beta2)
    adam = torch.optim.Adam(weights, betas=betas, eps=config.epsilon, fused=False, foreach=False)
    for step in STEPS:
        give_gradients(list(model.parameters()), step)
        give_gradients(weights, step)
        rate = 0.02 / step
        norm = optimiser.update(rate, LOSS)
        assert all(weight.grad is None for weight in model.parameters())
        # The norm that is shown is that of the gradient as it was.
        expected = torch.nn.utils.clip_grad_norm_(weights, config.clip or torch.inf)
        assert norm.item() == pytest.approx(expected.item(), rel=1e-12)
        assert 0.1 < norm.item() < 1e6
        adam.param_groups[0]["lr"] = rate
        adam.step()
        assert_near(model.parameters(), weights)


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
@pytest.mark.parametrize("fused", [True, False])
def test_the_encoder_may_learn_more_slowly(optimiser: Any, fused: bool):
    """Each update of its weights is that share of what it would have been; the others do not change."""
    moved: list[dict[str, Tensor]] = []
    for share in (1.0, 0.25):
        model = make_model(tie="output", norm="pre", positions="learned", max_positions=5)
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        updates = Optimiser(model, TrainingConfig(optimiser=optimiser, encoder_rate=share))
        updates.adam.fused = fused
        for step in STEPS:
            give_gradients(list(model.parameters()), step)
            updates.update(0.01 * step, LOSS)
        moved.append({name: weight.detach() - before[name] for name, weight in model.named_parameters()})
    whole, slower = moved
    of_encoder = {name for name in whole if name.startswith(("encoder", "source_"))}
    assert {name.split(".")[0] for name in of_encoder} == {
        *("encoder", "encoder_norm", "source_embedding", "source_positions")
    }
    for name, change in whole.items():
        assert change.abs().max() > 1e-3
        torch.testing.assert_close(slower[name], change * (0.25 if name in of_encoder else 1.0), rtol=1e-9, atol=1e-12)


def test_frozen_weights_stay_and_count_for_nothing():
    model = make_model(tie="none")
    frozen = freeze(model, ("encoder.*", "source_embedding.weight", "decoder.*.norm.bias"))
    names = [name for name, _ in model.named_parameters()]
    assert frozen == [
        name
        for name in names
        if name.startswith("encoder.")
        or name == "source_embedding.weight"
        or re.fullmatch(r"decoder\..*\.norm\.bias", name)
    ]
    assert 0 < len(frozen) < len(names)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimiser = Optimiser(model, TrainingConfig())
    free = [weight for name, weight in model.named_parameters() if name not in frozen]
    assert all(weight.requires_grad for weight in free)
    give_gradients(free, 1)
    expected = torch.nn.utils.get_total_norm([torch.as_tensor(weight.grad) for weight in free])
    norm = optimiser.update(0.01, LOSS)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-12)
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == [name for name in names if name not in frozen]
    assert {name.partition(".")[2] for name, _ in optimiser.moments()} == set(changed)


def test_patterns_that_freeze_nothing_or_all_are_refused():
    model = make_model()
    message = (
        r"training.freeze: no weight matches encodr\.\*; there are embedding.*, encoder.*, decoder.*\n"
        r"training.freeze: no weight matches Decoder\.\*; there are"
    )
    with pytest.raises(ConfigError, match=message):
        freeze(model, ("encodr.*", "encoder.*", "Decoder.*"))
    with pytest.raises(ConfigError, match="leaves no weights to train; name fewer"):
        freeze(model, ("embedding.*", "encoder.*", "decoder.*"))
    assert all(weight.requires_grad for weight in model.parameters())  # nothing was frozen on the way
    assert freeze(model, ()) == []


# ---- the moving average ----


@given(decay=st.floats(0.01, 0.9999), steps=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_average_is_the_sum_it_stands_for(decay: float, steps: int, seed: int):
    """Each step's weights count 1 - d_step, all before them d_step as much, and d grows from 1/11 to the decay."""
    model = torch.nn.Linear(3, 2).double()
    average = MovingAverage(model, decay)
    torch.manual_seed(seed)
    path = [torch.randn(2, 3, dtype=torch.float64) for _ in range(steps)]
    expected = average.weights["weight"].clone()
    for step, weight in enumerate(path, 1):
        with torch.no_grad():
            model.weight.copy_(weight)
        average.update(model, step)
        share = min(decay, step / (step + 10))
        expected = share * expected + (1 - share) * weight
    torch.testing.assert_close(average.weights["weight"], expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(model.weight, path[-1])  # the model itself goes its own way
    assert torch.equal(average.weights["bias"], model.bias)  # the mean of what does not change


def test_the_average_soon_forgets_the_beginning():
    """The weights before the first step hardly count after a hundred, even with a slow decay."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.constant_(model.weight, 1e6)
    average = MovingAverage(model, 0.9999)
    torch.nn.init.constant_(model.weight, 1.0)
    for step in range(1, 101):
        average.update(model, step)
    assert average.weights["weight"].item() == pytest.approx(1.0, abs=1e-3)
