"""The loss is torch's cross-entropy with label smoothing, summed; the sums of pieces add up to that of the whole."""

import math
from pathlib import Path

import pytest
import torch
from threads import one_thread
from torch import Tensor
from torch.nn import functional

from transduce.config import BatchConfig, ModelConfig
from transduce.model.transformer import Transformer
from transduce.text.batches import Batch, Batches
from transduce.text.shards import DataSet
from transduce.text.subwords import PAD
from transduce.training import loss as loss_module
from transduce.training.loss import Objective, agreeing_loss, smoothed_loss

VOCABULARY = 29
SMOOTHINGS = [0.0, 0.01, 0.1, 0.2, 0.5, 0.9, 0.999]


def reference(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return functional.cross_entropy(
        logits.float(), targets.long(), label_smoothing=smoothing, reduction="sum", ignore_index=PAD
    )


def draw(scale: float = 3.0, dtype: torch.dtype = torch.float32, filler: int = 5) -> tuple[Tensor, Tensor]:
    """Return random logits and targets, with filler after the last sentence, as in batches."""
    torch.manual_seed(0)
    targets = torch.cat((torch.randint(1, VOCABULARY, (40,)), torch.full((filler,), PAD))).int()
    logits = (scale * torch.randn(len(targets), VOCABULARY)).to(dtype).requires_grad_()
    return logits, targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_both_sums_and_their_gradients_are_torchs(smoothing: float, dtype: torch.dtype):
    logits, targets = draw(dtype=dtype)
    sums = smoothed_loss(logits, targets, smoothing)
    for found, expected in zip(sums, (reference(logits, targets, smoothing), reference(logits, targets, 0.0))):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
        gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (found, expected)]
        # In half precision both are rounded once, at the end.
        torch.testing.assert_close(*gradients, rtol=1e-4 if dtype == torch.float32 else 0.01, atol=1e-6)
        assert torch.equal(gradients[0][40:], torch.zeros_like(gradients[0][40:]))


@pytest.mark.parametrize("strength", [0.0, 5.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_two_passes_that_are_to_agree(smoothing: float, strength: float):
    """R-Drop: half of both cross-entropies and α times the mean of both divergences, by torch's own functions."""
    logits, targets = draw()
    others = (logits.detach() + 0.5 * torch.randn_like(logits)).requires_grad_()
    found = agreeing_loss(logits, others, targets, smoothing, strength)
    logs = [some.log_softmax(-1)[:40] for some in (logits, others)]
    divergences = [functional.kl_div(logs[1 - i], logs[i], log_target=True, reduction="sum") for i in range(2)]
    entropies = reference(logits, targets, smoothing) + reference(others, targets, smoothing)
    expected = entropies + strength * (divergences[0] + divergences[1]) / 2
    torch.testing.assert_close(found[0], expected / 2)
    torch.testing.assert_close(found[1], (reference(logits, targets, 0.0) + reference(others, targets, 0.0)) / 2)
    for some in (logits, others):
        gradients = [torch.autograd.grad(loss, some, retain_graph=True)[0] for loss in (found[0], expected / 2)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    same = agreeing_loss(logits, logits, targets, smoothing, strength)
    torch.testing.assert_close(same, smoothed_loss(logits, targets, smoothing))


def test_without_smoothing_both_are_the_same():
    smoothed, plain = smoothed_loss(*draw(), 0.0)
    assert smoothed == plain


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_large_logits_do_not_overflow(smoothing: float):
    logits, targets = draw(scale=1e4)
    sums = smoothed_loss(logits, targets, smoothing)
    for found, expected in zip(sums, (reference(logits, targets, smoothing), reference(logits, targets, 0.0))):
        assert found.isfinite()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(sums[0], logits)
    assert gradient.isfinite().all()


def test_filler_is_nothing_whatever_stands_there():
    logits, targets = draw()
    expected = [loss.item() for loss in smoothed_loss(logits[:40], targets[:40], 0.1)]
    with torch.no_grad():
        logits[40:] = 500 * torch.randn(5, VOCABULARY)
    assert [loss.item() for loss in smoothed_loss(logits, targets, 0.1)] == pytest.approx(expected, rel=1e-6)
    assert [loss.item() for loss in smoothed_loss(logits[40:], targets[40:], 0.1)] == [0, 0]


@pytest.mark.parametrize("smoothing", [0.05, 0.1, 0.4])
def test_the_least_loss_is_the_entropy_of_the_smoothed_targets(smoothing: float):
    """So a smoothed loss never reaches 0; it is least if the probabilities are those of the smoothed targets."""
    _, targets = draw(filler=0)
    wanted = torch.full((40, VOCABULARY), smoothing / VOCABULARY)
    wanted[torch.arange(40), targets.long()] += 1 - smoothing
    logits = wanted.log().requires_grad_()
    smoothed, _ = smoothed_loss(logits, targets, smoothing)
    right, wrong = 1 - smoothing + smoothing / VOCABULARY, smoothing / VOCABULARY
    entropy = -right * math.log(right) - (VOCABULARY - 1) * wrong * math.log(wrong)
    assert smoothed.item() == pytest.approx(40 * entropy, rel=1e-5)
    (gradient,) = torch.autograd.grad(smoothed, logits)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)
    surer, _ = smoothed_loss(1.5 * logits, targets, smoothing)
    less_sure, _ = smoothed_loss(0.7 * logits, targets, smoothing)
    assert smoothed < min(surer.item(), less_sure.item())


# ---- the model with its loss ----


def make_objective(data: DataSet) -> Objective:
    torch.manual_seed(1)
    config = ModelConfig(
        vocabulary=len(data.subwords["target"]), layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0, tie="all"
    )
    return Objective(Transformer(config), 0.1)


@pytest.fixture
def batch(data: Path) -> Batch:
    config = BatchConfig(source_tokens=240, target_tokens=240, parts=2, similar_lengths=False)
    batch = Batches(DataSet.open(data), config).batch(0, 0)
    assert batch.sentences > 5
    assert (batch.target == PAD).any()
    return batch


def test_the_objective_is_the_model_and_its_loss(data: Path, batch: Batch):
    objective = make_objective(DataSet.open(data))
    with one_thread():
        found = objective.measure(batch)
        logits = objective.model(batch.source, batch.source_offsets, batch.target_input, batch.target_offsets)
    for loss, smoothing in zip(found, (0.1, 0.0)):
        torch.testing.assert_close(loss, reference(logits, batch.target, smoothing), rtol=1e-5, atol=0)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
def test_the_sum_over_pieces_is_the_sum_of_the_whole(data: Path, batch: Batch, pieces: int):
    objective = make_objective(DataSet.open(data)).double()
    with one_thread():
        expected = objective.measure(batch)
        expected[0].backward()
        gradients = [torch.as_tensor(weight.grad) for weight in objective.parameters()]
        objective.zero_grad()
        parts = batch.split(pieces)
        found = torch.zeros(2)
        for part in parts:
            losses = objective.measure(part)
            losses[0].backward()
            found += losses.detach()
    assert (len(parts) > 1) == (pieces > 1)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=0)
    for weight, gradient in zip(objective.parameters(), gradients):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("most", [1, 30 * VOCABULARY, 1 << 24])
def test_logits_held_in_parts_give_the_same_loss_and_gradients(
    data: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch, most: int, biases: bool
):
    """However few are held at a time; without gradients, nothing is computed for them."""
    config = ModelConfig(vocabulary=400, layers=1, d_model=16, d_ff=24, heads=2, dropout=0.0, biases=biases)
    torch.manual_seed(1)
    objective = Objective(Transformer(config), 0.1)
    rows = batch.source, batch.source_offsets, batch.target_input, batch.target_offsets
    monkeypatch.setattr(loss_module, "MOST_LOGITS", most)
    with one_thread():
        whole = 3 * reference(objective.model(*rows), batch.target, 0.1)
        expected = torch.autograd.grad(whole, list(objective.parameters()))
        found = objective.measure(batch)
        torch.testing.assert_close(3 * found[0], whole, rtol=1e-5, atol=0)
        gradients = torch.autograd.grad(3 * found[0], list(objective.parameters()))
        with torch.no_grad():
            assert torch.equal(objective.measure(batch), found)
    for gradient, other in zip(gradients, expected):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-5)
