"""Half precision is near float32, and small or odd batches cause no trouble."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from rows import SMALL, make_model, make_row, random_row, run
from threads import always_one_thread as always_one_thread
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model.transformer import Transformer

KINDS: list[dict[str, Any]] = [
    {},
    {"attention": "additive", "positions": "learned", "max_positions": 40},
    {"positions": "rotary", "norm": "pre", "activation": "swiglu", "tie": "none"},
    {"biases": True, "activation": "silu"},
    {"attention": "unscaled", "d_v": 3, "attention_dropout": 0.0},
]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]  # with a GPU the same is held of it


def make_float32(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(SMALL, **{"d_model": 24, **changes}))


def agreement(found: Tensor, expected: Tensor) -> float:
    """Return the cosine of the angle between two results: 1 if they point in the same direction."""
    return torch.cosine_similarity(found.float().flatten(), expected.flatten(), dim=0).item()


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_bf16_is_near_float32(changes: dict[str, Any]):
    model = make_float32(**changes)
    source, target = random_row([7, 30, 1, 12]), random_row([9, 20, 3, 12])
    expected = run(model, source, target)
    expected.square().sum().backward()
    gradients = [torch.as_tensor(parameter.grad) for parameter in model.parameters()]
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        found = run(model, source, target)
    assert found.dtype == torch.bfloat16
    assert not torch.equal(found.float(), expected)
    assert agreement(found, expected) > 0.999
    found.float().square().sum().backward()
    for (name, parameter), gradient in zip(model.named_parameters(), gradients):
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert agreement(parameter.grad, gradient) > 0.97, name


def spoil_memory(device: str) -> None:
    """Fill memory with NaN and free it, so that anything used without being written shows."""
    sizes = [1 << power for power in range(6, 20)]
    spoiled = [torch.full((size,), torch.nan, device=device) for size in sizes for _ in range(20)]
    del spoiled


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "norm": "pre"}, {"attention": "additive"}], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_filler_is_nothing_in_half_precision_too(device: str, changes: dict[str, Any]):
    """bf16 with filler on any device has the results and gradients of float32 without filler on the CPU."""
    torch.manual_seed(0)
    model = Transformer(replace(SMALL, d_model=32, heads=4, **changes))
    lengths = [7, 30, 1, 12], [9, 20, 3, 12]
    source, target = (random_row(some, filler=0, empty=0) for some in lengths)
    expected = run(model, source, target)
    expected.square().sum().backward()
    gradients = [torch.as_tensor(parameter.grad) for parameter in model.parameters()]
    model.zero_grad()
    rows = [make_row(row.split(row.tokens), filler=50, empty=3) for row in (source, target)]
    model.to(device)
    spoil_memory(device)
    with torch.autocast(device, torch.bfloat16):
        logits = model(*(part.to(device) for row in rows for part in (row.tokens, row.offsets)))
        loss = logits[: target.used].float().square().sum()
    spoil_memory(device)
    loss.backward()
    assert agreement(logits[: target.used].cpu(), expected) > 0.999
    for (name, parameter), gradient in zip(model.named_parameters(), gradients):
        assert agreement(torch.as_tensor(parameter.grad).cpu(), gradient) > 0.97, name


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_weights_may_be_bf16_themselves(changes: dict[str, Any]):
    model = make_float32(**changes).eval()
    source, target = random_row([7, 30, 1, 12]), random_row([9, 20, 3, 12])
    with torch.no_grad():
        expected = run(model, source, target)
        found = run(model.bfloat16(), source, target)
    assert found.dtype == torch.bfloat16
    assert agreement(found, expected) > 0.998


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_nothing_changes_without_gradients(changes: dict[str, Any]):
    model = make_float32(**changes)
    rows = random_row([7, 30, 1, 12]), random_row([9, 20, 3, 12])
    expected = run(model, *rows)
    for quiet in (torch.no_grad(), torch.inference_mode()):
        with quiet:
            found = run(model, *rows)
        assert not found.requires_grad
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_one_token_is_a_batch(changes: dict[str, Any]):
    model = make_model(replace(SMALL, **changes))
    one = make_row([torch.tensor([4], dtype=torch.int32)], filler=0, empty=0)
    logits = run(model, one, one)
    assert logits.shape == (1, 23)
    assert logits.isfinite().all()


@pytest.mark.parametrize("filler", [6, 0])
@pytest.mark.parametrize("changes", [*KINDS, {"d_model": 32, "heads": 4}], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_may_hold_no_sentence(device: str, changes: dict[str, Any], filler: int):
    """A process's share of an epoch's last batch may be empty; its gradients are then zeros."""
    model = make_float32(**changes).to(device)
    row = random_row([], filler=filler)
    rows = [part.to(device) for part in (row.tokens, row.offsets) * 2]
    spoil_memory(device)
    with torch.autocast(device, torch.bfloat16):
        logits = model(*rows)
    assert logits.isfinite().all()
    spoil_memory(device)
    logits[: row.used].float().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name  # else the other processes would wait for it
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_and_offsets_may_be_of_either_width(dtype: torch.dtype):
    model = make_model(ModelConfig(vocabulary=23, layers=1, d_model=12, d_ff=20, heads=3))
    source, target = random_row([7, 3]), random_row([9, 2])
    expected = run(model.eval(), source, target)
    rows = [part.to(dtype) for part in (source.tokens, source.offsets, target.tokens, target.offsets)]
    assert torch.equal(model(*rows)[: target.used], expected)
