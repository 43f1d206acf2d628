"""The training kernels other than attention equal torch's own operations, forward and backward."""

import pytest
import torch
from random_batches import DEVICE
from torch import Tensor
from torch.nn import functional

from transduce.kernels import agreement, residual
from transduce.kernels import loss as loss_module
from transduce.kernels.embedding import embed
from transduce.kernels.loss import projected_loss
from transduce.kernels.products import Rounding, in_float32, rounded
from transduce.kernels.rectify import rectify_backward
from transduce.kernels.residual import Dropout, Norm, draw_seed
from transduce.kernels.rotary import turn_heads
from transduce.kernels.sums import add_up
from transduce.model.positions import rotate, rotations
from transduce.training.loss import agreeing_loss, smoothed_loss

pytestmark = pytest.mark.usefixtures("on_device")
SIZES = [(1, 16), (5, 24), (37, 96), (13, 130)]


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Return random weights that require gradients."""
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def drawn(dropout: Dropout, tokens: int, width: int) -> Tensor:
    """Return the factors that dropout multiplies with."""
    return residual.add(torch.zeros(tokens, width), torch.ones(tokens, width), dropout)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(("tokens", "width"), SIZES)
def test_sum_and_norm(tokens: int, width: int, dropout: float):
    torch.manual_seed(1)
    x, change, weight, bias = leaves((tokens, width), (tokens, width), (width,), (width,))
    chosen = Dropout(dropout, draw_seed(DEVICE)) if dropout else None
    factors = drawn(chosen, tokens, width) if chosen else torch.ones(tokens, width)
    norm = Norm(weight.detach(), bias.detach(), 1e-5)
    expected = functional.layer_norm(x + change * factors, (width,), weight, bias)
    found, kept = residual.add_norm(x.detach(), change.detach(), norm, chosen, torch.float32)
    torch.testing.assert_close(found, expected)
    gradient = torch.randn(tokens, width)
    expected.backward(gradient)
    assert change.grad is not None
    gradients = residual.add_norm_backward(gradient, x.detach(), change.detach(), norm, kept, chosen)
    for one, other in zip(gradients, (x.grad, change.grad, weight.grad, bias.grad, change.grad.sum(0))):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("tokens", "width"), SIZES)
def test_a_norm_before_the_sublayer(tokens: int, width: int):
    torch.manual_seed(2)
    x, weight, bias = leaves((tokens, width), (width,), (width,))
    norm = Norm(weight.detach(), bias.detach(), 1e-5)
    expected = functional.layer_norm(x, (width,), weight, bias)
    found, kept = residual.add_norm(x.detach(), None, norm, None, torch.float32)
    torch.testing.assert_close(found, expected)
    gradient, also = torch.randn(2, tokens, width)
    expected.backward(gradient)
    assert x.grad is not None
    gradients = residual.add_norm_backward(gradient, x.detach(), None, norm, kept, None, also=also)
    torch.testing.assert_close(gradients.x, x.grad + also, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients.weight, weight.grad, rtol=1e-4, atol=1e-5)
    assert gradients.change is None


@pytest.mark.parametrize(("tokens", "width"), SIZES)
def test_a_sum_without_a_norm(tokens: int, width: int):
    torch.manual_seed(3)
    x, change, gradient = torch.randn(3, tokens, width)
    chosen = Dropout(0.4, draw_seed(DEVICE))
    factors = drawn(chosen, tokens, width)
    torch.testing.assert_close(residual.add(x, change, chosen), x + change * factors)
    torch.testing.assert_close(residual.add(x, change, None), x + change)
    found, total = residual.drop(gradient, chosen, torch.float32)
    torch.testing.assert_close(found, gradient * factors)
    torch.testing.assert_close(total, (gradient * factors).sum(0), rtol=1e-4, atol=1e-5)


def test_dropout_drops_its_share_anew_each_time():
    torch.manual_seed(4)
    factors = [drawn(Dropout(0.2, draw_seed(DEVICE)), 200, 64) for _ in range(2)]
    for some in factors:
        assert set(some.unique().tolist()) == {0.0, 1.25}
        # 12,800 draws: the standard deviation of the share is 0.0035.
        assert abs(float((some == 0).float().mean()) - 0.2) < 0.015
        # Neither rows nor columns stand out: 64 or 200 draws each.
        assert float((some == 0).float().mean(0).std()) < 0.06
        assert float((some == 0).float().mean(1).std()) < 0.08
    both = float(((factors[0] == 0) & (factors[1] == 0)).float().mean())
    assert abs(both - 0.04) < 0.01
    torch.manual_seed(4)
    assert torch.equal(drawn(Dropout(0.2, draw_seed(DEVICE)), 200, 64), factors[0])


@pytest.mark.parametrize(("tokens", "width"), [(1, 8), (70, 200), (600, 130)])
def test_rectified(tokens: int, width: int):
    torch.manual_seed(5)
    outer = torch.randn(tokens, width, requires_grad=True)
    gradient = torch.randn(tokens, width)
    inner = outer.relu()
    inner.backward(gradient)
    total = rectify_backward(gradient, inner.detach())
    torch.testing.assert_close(gradient, outer.grad)
    torch.testing.assert_close(total, gradient.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("share", [1 / 64, 70 * 4 * 4 / 2**32, 0.0])
@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 10), (9, 70), (5, 64)])
@pytest.mark.parametrize(("smoothing", "biased"), [(0.0, True), (0.1, False)])
def test_projected_loss(
    monkeypatch: pytest.MonkeyPatch, tokens: int, vocabulary: int, smoothing: float, share: float, biased: bool
):
    monkeypatch.setattr(loss_module, "BLOCK", 32)
    monkeypatch.setattr(loss_module, "SHARE", share)
    torch.manual_seed(6)
    inputs = leaves((tokens, 12), (vocabulary, 12), *[(vocabulary,)] * biased)
    states, weight = inputs[:2]
    bias = inputs[2] if biased else None
    targets = torch.randint(0, vocabulary, (tokens,))
    targets[-1] = 0  # padding
    expected = torch.stack(smoothed_loss(functional.linear(states, weight, bias), targets, smoothing))
    (expected[0] * 0.5).backward()
    gradients = [leaf.grad for leaf in inputs]
    for leaf in inputs:
        leaf.grad = None
    found = projected_loss(states, weight, bias, targets, smoothing, 0)
    torch.testing.assert_close(found, expected)
    (found[0] * 0.5).backward()
    for leaf, gradient in zip(inputs, gradients):
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(projected_loss(states, weight, bias, targets, smoothing, 0), expected)


@pytest.mark.parametrize("share", [1 / 64, 2 * 70 * 4 * 4 / 2**32, 0.0])
@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 10), (9, 70), (5, 64)])
@pytest.mark.parametrize(("smoothing", "strength", "biased"), [(0.0, 0.0, False), (0.1, 5.0, True)])
def test_agreeing_loss(
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    vocabulary: int,
    smoothing: float,
    strength: float,
    share: float,
    biased: bool,
):
    monkeypatch.setattr(agreement, "BLOCK", 32)
    monkeypatch.setattr(loss_module, "SHARE", share)
    torch.manual_seed(6)
    inputs = leaves((tokens, 12), (tokens, 12), (vocabulary, 12), *[(vocabulary,)] * biased)
    states, others, weight = inputs[:3]
    bias = inputs[3] if biased else None
    targets = torch.randint(0, vocabulary, (tokens,))
    targets[-1] = 0  # padding
    logits = [functional.linear(some, weight, bias) for some in (states, others)]
    expected = torch.stack(agreeing_loss(logits[0], logits[1], targets, smoothing, strength))
    (expected[0] * 0.5).backward()
    gradients = [leaf.grad for leaf in inputs]
    for leaf in inputs:
        leaf.grad = None
    found = agreement.agreeing_loss(states, others, weight, bias, targets, smoothing, strength, 0)
    torch.testing.assert_close(found, expected)
    (found[0] * 0.5).backward()
    for leaf, gradient in zip(inputs, gradients):
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        again = agreement.agreeing_loss(states, others, weight, bias, targets, smoothing, strength, 0)
    torch.testing.assert_close(again, expected)


def test_logits_far_from_zero_have_a_loss():
    states, weight = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1e4], [-1e4], [0.0]])
    found = projected_loss(states, weight, None, torch.tensor([1, 1]), 0.0, 0)
    torch.testing.assert_close(found, torch.tensor([2e4, 2e4]))


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_embeddings(dropout: float, table: bool):
    torch.manual_seed(7)
    (weight,) = leaves((30, 20))
    tokens, positions = torch.randint(0, 30, (2, 17), dtype=torch.int32)
    places = torch.randn(25, 20) if table else None
    torch.manual_seed(8)
    found = embed(tokens, weight, positions, places, dropout, torch.float32)
    torch.manual_seed(8)
    factors = drawn(Dropout(dropout, draw_seed(DEVICE)), 17, 20) if dropout else 1
    # The last row of the table stands for all that is further.
    moved = 0 if places is None else places[positions.clamp(max=24).long()]
    gradient = torch.randn(17, 20)
    found.backward(gradient)
    gradients, weight.grad = weight.grad, None
    expected = (functional.embedding(tokens, weight) * 20**0.5 + moved) * factors
    torch.testing.assert_close(found, expected)
    expected.backward(gradient)
    torch.testing.assert_close(gradients, weight.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_kept_in_float32(dtype: torch.dtype):
    torch.manual_seed(9)
    left, right = torch.randn(3, 200).to(dtype), torch.randn(200, 4).to(dtype)
    expected = left.double() @ right.double()
    once = in_float32(left, right)
    assert once.dtype == torch.float32
    torch.testing.assert_close(once.double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(in_float32(left, right, once.clone()).double(), 2 * expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("kinds", "programs", "width"), [(1, 1, 1), (3, 300, 13), (2, 7, 40)])
def test_sums_of_programs(kinds: int, programs: int, width: int):
    parts = torch.randn(kinds, programs, width)
    torch.testing.assert_close(add_up(parts), parts.sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("tokens", "heads", "d_k"), [(1, 1, 2), (40, 3, 6), (33, 2, 16)])
def test_heads_are_turned_and_turned_back(tokens: int, heads: int, d_k: int):
    torch.manual_seed(8)
    rows = torch.randn(tokens, heads * d_k + 5)  # and what is not to be turned
    turn = rotations(torch.arange(tokens), d_k)
    found = rows.clone()
    turn_heads(found, turn, heads)
    expected = rotate(rows[:, : heads * d_k].unflatten(1, (heads, d_k)), turn).flatten(1)
    torch.testing.assert_close(found[:, : heads * d_k], expected)
    assert torch.equal(found[:, heads * d_k :], rows[:, heads * d_k :])
    turn_heads(found, turn, heads, back=True)
    torch.testing.assert_close(found, rows)


def test_weights_are_rounded_at_once_and_anew_each_time():
    one, other = torch.randn(3, 4), torch.randn(5)
    rounding = Rounding([one, other], torch.bfloat16)
    with rounding:
        first = rounded(one, torch.bfloat16)
        assert torch.equal(first, one.bfloat16())
        assert rounded(one, torch.bfloat16) is first
        assert torch.equal(rounded(one, torch.float16), one.half())  # another precision was not prepared
    one += 1
    assert torch.equal(rounded(one, torch.bfloat16), one.bfloat16())
    with rounding:
        assert rounded(one, torch.bfloat16) is first
        assert torch.equal(first, one.bfloat16())


def test_where_products_are_exact_nothing_is_rounded():
    weight = torch.randn(3, 4)
    with Rounding([weight], torch.float32):
        assert rounded(weight, torch.float32) is weight
