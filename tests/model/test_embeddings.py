"""Which matrices are one matrix (section 3.4), and how large their numbers are before training."""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from rows import SMALL, assert_near, gradients, make_model, random_row, run
from threads import always_one_thread as always_one_thread
from torch import Tensor

from transduce.config import ModelConfig
from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer

Tie = Literal["all", "output", "none"]


def words(gradient: Tensor) -> set[int]:
    """Return the words whose vectors have a gradient."""
    return set(gradient.abs().sum(-1).nonzero().flatten().tolist())


@pytest.mark.parametrize(
    ("tie", "matrices"),
    [
        ("all", ["embedding.weight"]),
        ("output", ["embedding.weight", "source_embedding.weight"]),
        ("none", ["embedding.weight", "source_embedding.weight", "output.weight"]),
    ],
)
def test_each_use_gives_its_matrix_a_gradient(tie: Tie, matrices: list[str]):
    model = make_model(replace(SMALL, tie=tie))
    assert [
        name for name in dict(model.named_parameters()) if "embedding" in name or name == "output.weight"
    ] == matrices
    source, target = torch.tensor([3, 4]), torch.tensor([5, 6, 7])
    memory = model.encode(source, torch.tensor([0, 2]))
    logits = model.project(model.decode(target, torch.tensor([0, 3]), memory, torch.tensor([0, 2])))
    logits[:, [8, 9]].square().sum().backward()
    found = {name: words(gradient) for name, gradient in gradients(model).items() if name in matrices}
    uses: dict[str, set[int]] = {name: set() for name in matrices}
    uses["source_embedding.weight" if tie != "all" else "embedding.weight"] |= {3, 4}
    uses["embedding.weight"] |= {5, 6, 7}
    uses["output.weight" if tie == "none" else "embedding.weight"] |= {8, 9}
    assert found == uses


@pytest.mark.parametrize("tie", ["all", "output", "none"])
def test_shared_and_separate_matrices_compute_the_same(tie: Tie):
    """Three equal matrices act as one, and the gradient of one is the sum of the three."""
    separate, other = make_model(replace(SMALL, tie="none")), make_model(replace(SMALL, tie=tie))
    with torch.no_grad():
        for matrix in (separate.source_embedding, separate.output):
            matrix.weight.copy_(separate.embedding.weight)
    copies = separate.state_dict()
    other.load_state_dict({name: copies[name] for name in other.state_dict()})
    source, target = random_row([3, 5]), random_row([4, 2])
    logits, other_logits = (run(model, source, target) for model in (separate, other))
    assert_near(other_logits, logits)
    logits.square().sum().backward()
    other_logits.square().sum().backward()
    expected, found = gradients(separate), gradients(other)
    if tie != "none":
        expected["embedding.weight"] += expected.pop("output.weight")
    if tie == "all":
        expected["embedding.weight"] += expected.pop("source_embedding.weight")
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_near(gradient, expected[name], what=name)


@pytest.mark.parametrize("tie", ["output", "none"])
def test_a_source_may_have_its_own_words(tie: Tie):
    model = make_model(replace(SMALL, tie=tie, source_vocabulary=40))
    source, target = random_row([6, 3], vocabulary=40), random_row([4, 2])
    source.tokens[0] = 39
    assert run(model, source, target).shape == (6, 23)
    with pytest.raises(IndexError):
        run(model, source, source)


def test_embeddings_are_scaled_where_they_are_read_and_not_where_they_are_predicted():
    model = make_model(SMALL)
    tokens, positions = torch.tensor([5, 6, 5]), torch.tensor([0, 1, 7])
    vectors = model.embedding.weight
    expected = vectors[tokens] * 12**0.5 + sinusoids(positions, 12)
    for side in ("source", "target"):
        assert_near(model.embed(tokens, positions, side), expected)
    states = torch.randn(4, 12, dtype=torch.float64)
    assert_near(model.project(states), states @ vectors.T)


@pytest.mark.parametrize("tie", ["all", "output", "none"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_numbers_are_moderate_before_training(
    tie: Tie, norm: Literal["post", "pre"], activation: Literal["relu", "swiglu"]
):
    torch.manual_seed(0)
    config = ModelConfig(vocabulary=500, d_model=128, d_ff=512, heads=4, tie=tie, norm=norm, activation=activation)
    model = Transformer(config).eval()
    source, target = random_row([20] * 10, vocabulary=500), random_row([20] * 10, vocabulary=500)
    with torch.no_grad():
        for matrix in (module for module in model.modules() if isinstance(module, torch.nn.Embedding)):
            read = matrix.weight * 128**0.5
            assert read.mean().item() == pytest.approx(0, abs=0.02)
            assert read.var().item() == pytest.approx(1, rel=0.05)
        logits = run(model, source, target)
        loss = torch.nn.functional.cross_entropy(logits, torch.randint(1, 500, (len(logits),)))
    assert logits.std().item() < 1.5
    # Little more than log 500, the loss of equal chances: the model is untrained. It is above that if embeddings are
    # the output too: a state still resembles its own token, most where feed-forward changes it least.
    assert 6.2 < loss.item() < (9 if activation == "swiglu" else 7.5)
