"""Whole models with our own kernels: the loss and all gradients are those of the plain path."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from random_batches import DEVICE, make_batch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter

from transduce.config import ModelConfig, TrainingConfig
from transduce.model import layers, transformer
from transduce.model.transformer import Transformer
from transduce.text.batches import Batch
from transduce.training import loss
from transduce.training.captured import CapturedStep
from transduce.training.loss import Objective
from transduce.training.optimiser import MovingAverage, Optimiser

pytestmark = pytest.mark.usefixtures("on_device")
interpreted = pytest.mark.skipif(DEVICE.type == "cuda", reason="looks into Triton's interpreter")
SMALL = ModelConfig(vocabulary=40, layers=1, d_model=32, d_ff=48, heads=2, dropout=0.0)
KINDS = {
    "paper": SMALL,
    "pre-norm": replace(SMALL, norm="pre"),
    "GELU": replace(SMALL, activation="gelu"),
    "SwiGLU": replace(SMALL, activation="swiglu"),
    "biases": replace(SMALL, biases=True, activation="silu"),
    "biases, pre-norm, rotary": replace(SMALL, biases=True, norm="pre", positions="rotary", tie="none"),
    "untied": replace(SMALL, tie="none"),
    "narrow heads": replace(SMALL, d_k=4, d_v=24),
    "unscaled": replace(SMALL, attention="unscaled"),
    "rotary": replace(SMALL, positions="rotary"),
    "learned": replace(SMALL, positions="learned", max_positions=32),
}


def make_model(config: ModelConfig) -> Transformer:
    """Return a model whose biases are not zero."""
    model = Transformer(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.3)
    return model


@contextmanager
def our_kernels(taken: bool = True) -> Iterator[None]:
    """Use our own kernels inside the block on any device, or on none."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (layers, transformer, loss):
            patch.setattr(module, "can_fuse", lambda _: taken)
        yield


def plain_path() -> AbstractContextManager[None]:
    """Use torch's own operations inside the block, even on a GPU."""
    return our_kernels(taken=False)


def learn(objective: Objective, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the losses of a batch and the gradients of all weights."""
    objective.zero_grad()
    sums = objective.measure(batch.to(DEVICE))
    (sums[0] / batch.target_tokens).backward()
    found = {name: weight.grad for name, weight in objective.named_parameters()}
    return sums.detach(), {name: gradient for name, gradient in found.items() if gradient is not None}


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients(kind: str, tiled: bool):
    torch.manual_seed(1)
    objective = Objective(make_model(KINDS[kind]), 0.1, (20, 20))
    batch = make_batch([(3, 5), (17, 12), (9, 1)])
    with plain_path():
        expected, gradients = learn(objective, batch)
    with our_kernels():
        found, ours = learn(objective, batch.tile() if tiled else batch)
    torch.testing.assert_close(found, expected)
    assert ours.keys() == gradients.keys() == {name for name, _ in objective.named_parameters()}
    for name, gradient in gradients.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("biases", [False, True])
def test_two_passes_that_are_to_agree(biases: bool):
    torch.manual_seed(1)
    config = replace(SMALL, dropout=0.3, biases=biases)
    batch = make_batch([(3, 5), (9, 1)])
    exact = Objective(make_model(replace(config, dropout=0.0)), 0.1, (20, 20), agreement=4.0)
    with plain_path():
        expected, gradients = learn(exact, batch)  # passes without dropout agree
        alone = Objective(exact.model, 0.1, (20, 20))
        torch.testing.assert_close(expected, learn(alone, batch)[0])
    with our_kernels():
        found, ours = learn(exact, batch)
        torch.testing.assert_close(found, expected)
        for name, gradient in gradients.items():
            torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=2e-5)
        dropping = Objective(Transformer(config), 0.1, (20, 20), agreement=4.0)
        torch.manual_seed(3)
        both, _ = learn(dropping, batch)
        dropping.agreement = 1e-9
        torch.manual_seed(3)
        either = dropping.measure(batch.to(DEVICE))
        assert both[1] == either[1]
        assert both[0] > either[0]
        dropping.eval()
        alone = Objective(dropping.model, 0.1, (20, 20))
        torch.testing.assert_close(*(one.measure(batch.to(DEVICE)) for one in (dropping, alone)))


def test_in_half_precision_gradients_are_near_and_in_float32():
    torch.manual_seed(2)
    objective = Objective(Transformer(SMALL), 0.1, (20, 20))
    batch = make_batch([(3, 5), (17, 12), (9, 1)])
    with plain_path():
        _, exact = learn(objective, batch)
    with torch.autocast(DEVICE.type, torch.float16):
        with plain_path():
            _, plain = learn(objective, batch)
        with our_kernels():
            _, ours = learn(objective, batch)
    for name, gradient in exact.items():
        assert ours[name].dtype == torch.float32
        size = float(gradient.norm())
        error, usual = float((ours[name] - gradient).norm()), float((plain[name] - gradient).norm())
        assert error < 2 * usual + 0.02 * size, name


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_half_precision_give_states_near_the_exact_ones(kind: str):
    torch.manual_seed(5)
    model = make_model(KINDS[kind]).eval()
    batch = make_batch([(3, 5), (17, 12), (9, 1)])
    batch = batch.tile().to(DEVICE)
    rows = batch.source, batch.source_offsets, batch.target_input, batch.target_offsets
    with torch.inference_mode():
        with plain_path():
            expected = model.states(*rows)[: batch.target_tokens]
        model.half()
        with our_kernels():
            found = model.states(*rows, longest=(20, 20), tiles=batch.tiles)[: batch.target_tokens]
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_drawn_from_the_seed(norm: str):
    config = replace(SMALL, dropout=0.3, attention_dropout=0.3, norm=norm)
    torch.manual_seed(3)
    objective = Objective(Transformer(config), 0.1, (20, 20))
    batch = make_batch([(3, 5), (7, 2)]).to(DEVICE)
    found = []
    with our_kernels(), torch.no_grad():
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(objective.measure(batch))
        still = objective.eval().measure(batch)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    with plain_path():
        torch.testing.assert_close(still, objective.measure(batch).detach())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_with_dropout_are_those_of_the_loss(norm: str):
    # The same seed draws the same masks, so the loss is a function of the weights whose slope can be measured.
    config = replace(SMALL, dropout=0.2, attention_dropout=0.2, norm=norm)
    torch.manual_seed(4)
    objective = Objective(Transformer(config), 0.1, (20, 20))
    batch = make_batch([(6, 4), (5, 7)]).to(DEVICE)
    with our_kernels():
        torch.manual_seed(7)
        _, gradients = learn(objective, batch)
        size = sum(float(gradient.square().sum()) for gradient in gradients.values()) ** 0.5
        losses = []
        for step in (1e-3, -2e-3):  # along the gradient, first to one side and then to the other
            with torch.no_grad():
                for name, weight in objective.named_parameters():
                    weight += step / size * gradients[name]
                torch.manual_seed(7)
                losses.append(float(objective.measure(batch)[0]) / batch.target_tokens)
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(size, rel=0.01)


@interpreted
def test_kernels_are_launched_on_the_gpu_that_their_tensors_are_on(monkeypatch: pytest.MonkeyPatch):
    """Triton launches on the current one; in a backward pass torch sets that."""
    chosen: list[Tensor] = []
    launched: set[str] = set()
    launch = interpreter.GridExecutor.__call__

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        chosen.append(tensor)
        yield
        chosen.pop()

    def check(self: interpreter.GridExecutor, *args: object, **kwargs: object) -> None:
        assert chosen
        launched.add(self.fn.__module__ + self.fn.__name__)
        launch(self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", check)
    model = Transformer(replace(SMALL, positions="sinusoidal"))
    with our_kernels():
        for agreement in (0.0, 1.0):
            Objective(model, 0.1, (20, 20), agreement).measure(make_batch([(3, 5), (9, 1)]))
    assert len(launched) == 5  # of embeddings, attention, sums with norms, and both losses


class Outside(TorchDispatchMode):
    """Finds the memory that operations inside the block use but did not allocate."""

    def __init__(self):
        super().__init__()
        self.taken: set[int] = set()
        self.found: dict[int, StorageWeakRef] = {}

    def look(self, *values: object) -> None:
        """Look at the arguments of an operation."""
        for storage in storages(values):
            if storage.data_ptr() not in self.taken:
                self.found.setdefault(storage.data_ptr(), StorageWeakRef(storage))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.look(args, kwargs)
        known = {storage.data_ptr() for storage in storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        self.taken |= {storage.data_ptr() for storage in storages(result)} - known
        return result


def storages(values: object) -> list[torch.UntypedStorage]:
    found = (value.untyped_storage() for value in tree_leaves(values) if isinstance(value, Tensor))
    return [storage for storage in found if storage.nbytes()]


@interpreted
@pytest.mark.parametrize(
    ("model", "training"),
    [
        (replace(SMALL, dropout=0.1, attention_dropout=0.1), TrainingConfig()),
        (replace(SMALL, norm="pre", positions="rotary"), TrainingConfig(optimiser="muon", encoder_rate=0.5, clip=1.0)),
        (replace(SMALL, positions="learned", max_positions=32, tie="none", activation="gelu"), TrainingConfig()),
    ],
    ids=["paper", "Muon", "learned"],
)
def test_what_a_captured_step_uses_stays_where_it_is(
    model: ModelConfig, training: TrainingConfig, monkeypatch: pytest.MonkeyPatch
):
    """A graph knows addresses: whatever else is done with the model, nothing there may be freed or moved."""
    trained = Transformer(model)
    objective = Objective(trained, 0.1, (20, 20))
    step = CapturedStep(objective, Optimiser(trained, training), nullcontext())
    outside = Outside()
    launch = interpreter.GridExecutor.__call__

    def watch(self: interpreter.GridExecutor, *args: object, **kwargs: object) -> None:
        outside.look(args, kwargs)
        launch(self, *args, **kwargs)

    with our_kernels():
        step._place(make_batch([(3, 5), (9, 1)]).tile())
        step._compute()  # the first one takes what is kept
        with monkeypatch.context() as patch, outside:
            patch.setattr(interpreter.GridExecutor, "__call__", watch)
            step._compute()
        trained._table(300)  # as longer sentences need it
        MovingAverage(trained, 0.9).update(trained, 1)
        with torch.inference_mode():
            Objective(trained.eval(), 0.1).measure(make_batch([(4, 2)]))
        trained.train()
        kept = {storage.data_ptr() for weight in trained.parameters() for storage in storages(weight)}
        assert outside.found.keys() >= kept
        assert not [place for place, storage in outside.found.items() if storage.expired()]
