"""A non-finite loss or gradient changes no weight: the run stops and names the batch, or skips it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from runs import SHORT, checkpoints, command, contents, metrics, train
from safetensors.torch import load_file
from threads import one_thread

from transduce.cli import main
from transduce.model import saved
from transduce.text.batches import Batches
from transduce.text.shards import DataSet
from transduce.training import loop, loss, meter
from transduce.training.optimiser import Optimiser

Copy = dict[str, torch.Tensor]


def copy(run: Any) -> Copy:
    """Return copies of weights and moments."""
    weights = {name: weight.detach().clone() for name, weight in run.state.model.named_parameters()}
    return weights | {name: tensor.clone() for name, tensor in run.state.optimiser.moments()}


def same(a: Copy, b: Copy) -> bool:
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


class Spoilt:
    """Spoils some steps of a test's runs, and keeps their state before and after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, how: str, steps: set[int]):
        self.before: dict[int, Copy] = {}
        self.after: dict[int, Copy] = {}
        self.run: Any = None
        usual = loop.take_step

        def take_step(run: Any, batch: Any) -> Any:
            step = run.state.step + 1
            self.run, self.before[step] = run, copy(run)
            with self.spoil(run, how) if step in steps else torch.enable_grad():
                taken = usual(run, batch)
            self.after[step] = copy(run)
            return taken

        monkeypatch.setattr(loop, "take_step", take_step)

    def spoil(self, run: Any, how: str) -> Any:
        pieces = 0

        def worse(loss_of: Callable[..., tuple[torch.Tensor, ...]], change: Callable[[torch.Tensor], torch.Tensor]):
            def spoilt(*given: Any) -> tuple[torch.Tensor, ...]:
                nonlocal pieces
                pieces += 1
                return tuple(change(part) if pieces == last else part for part in loss_of(*given))

            return patch.object(loss, "smoothed_loss", spoilt)

        last = run.config.training.accumulate
        match how:
            case "infinite loss":  # whose gradient is what it was
                return worse(loss.smoothed_loss, lambda part: part + math.inf)
            case "nan":
                return worse(loss.smoothed_loss, lambda part: part * math.nan)
            case _:  # the loss is what it was
                return _Hook(run.state.model.encoder[0].feed_forward, math.inf if "inf" in how else math.nan)


class _Hook:
    """Spoils one number in the gradient of some weight."""

    def __init__(self, module: torch.nn.Module, value: float):
        self.weight, self.value = next(module.parameters()), value

    def __enter__(self) -> None:
        def spoil(gradient: torch.Tensor) -> torch.Tensor:
            gradient = gradient.clone()
            gradient.view(-1)[3] = self.value
            return gradient

        self.handle = self.weight.register_hook(spoil)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


HOW = ["infinite loss", "nan", "infinite gradient", "nan gradient"]


@pytest.mark.parametrize(("how", "step"), [*((how, 6) for how in HOW), ("nan", 7)])
def test_a_run_stops_before_the_update_and_names_the_batch(
    tmp_path: Path,
    data: Path,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
    step: int,
):
    """Even at step 6, after which a checkpoint is due."""
    out = tmp_path / "run"
    with monkeypatch.context() as once:
        spoilt = Spoilt(once, how, {step})
        assert train(data, out, *SHORT) == 1
    assert same(spoilt.before[step], spoilt.after[step])
    assert not same(spoilt.before[step - 1], spoilt.after[step - 1])
    error = capsys.readouterr().err.splitlines()[-1]
    batch = Batches(DataSet.open(data), spoilt.run.config.batch).batch(0, step - 1)
    pairs = ", ".join(map(str, batch.pairs[:5]))
    assert error.startswith(f"error: step {step} (epoch 0, batch {step - 1}, pairs {pairs}, …): the loss is ")
    assert ("the loss is inf" in error) == (how == "infinite loss")
    assert ("the loss is nan" in error) == (how == "nan")
    assert ("the gradient's norm inf" in error) == (how == "infinite gradient")
    assert ("the gradient's norm nan" in error) == ("nan" in how)
    assert "the update was not applied, and the checkpoints are from before it" in error
    assert "--training.not-finite skip" in error
    # What was there is there, and is where the run goes on.
    before = [number for number in (2, 4, 6) if number < step]
    assert sorted(checkpoints(out)) == before
    whole = contents(short)
    found = {name: value for name, value in contents(out).items() if name.endswith("model.safetensors")}
    assert found == {name: whole[name] for name in found}
    assert [line["step"] for line in metrics(out)][-1] == (4 if step == 6 else 6) + (step == 6)
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == whole


@pytest.mark.parametrize("how", ["infinite loss", "nan gradient"])
def test_until_somebody_looks_no_other_update_is_applied(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
):
    """A GPU works ahead: when step 5 is checked, steps 6 to 8 are done. Step 5 is still the one named."""
    spoilt = Spoilt(monkeypatch, how, {5})
    arguments = command(data, tmp_path / "run", *SHORT, "--training.checkpoint-steps", "8")
    with one_thread(), patch.object(meter, "SECONDS", 1e9):
        assert main(arguments) == 1
    assert sorted(spoilt.after) == list(range(1, 9))
    assert all(same(spoilt.before[5], spoilt.after[step]) for step in range(5, 9))
    assert not same(spoilt.before[4], spoilt.after[4])
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: step 5 (epoch 0, batch 4, pairs ")
    assert not checkpoints(tmp_path / "run")


@pytest.mark.parametrize("how", HOW)
def test_such_updates_are_passed_over_by_choice(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
):
    """Counts survive a restart; Adam does not see these updates; clipping does not spread non-finite numbers."""
    out = tmp_path / "run"
    flags = [*SHORT, "--training.not-finite", "skip", "--training.clip", "0.1", "--training.accumulate", "2"]
    spoilt = Spoilt(monkeypatch, how, {1, 3, 6})
    assert train(data, out, *flags, "--training.steps", "4") == 0
    assert train(data, out, *flags, "--resume") == 0
    for step in range(1, 9):
        before, after = spoilt.before[step], spoilt.after[step]
        names = [name for name, _ in spoilt.run.state.model.named_parameters()]
        assert all(before[name].equal(after[name]) for name in names) == (step in (1, 3, 6))
        if step in (3, 6):
            assert same(before, after)
    lines = metrics(out)
    counts = [(line["step"], line["skipped"]) for line in lines if line["kind"] == "train"]
    assert counts == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (7, 3), (8, 3)]
    lost = [line["step"] for line in lines if line["kind"] == "train" and line["loss"] is None]
    assert lost == [1, 3, 6]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped ")]
    assert said[-1] == "skipped 1 of 1 updates up to step 6: not finite (the last at step 6; 3 since the run began)"
    assert len(said) == 3
    tensors = load_file(checkpoints(out)[8] / "resume.safetensors")
    assert {tensor.item() for name, tensor in tensors.items() if name.startswith("updates.")} == {5.0}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert saved.read_manifest(checkpoints(out)[8])["about"]["state"]["skipped"] == 3


def test_means_of_the_log_leave_out_what_was_passed_over(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    Spoilt(monkeypatch, "nan", {2, 3})
    out = tmp_path / "run"
    arguments = command(data, out, *SHORT, "--training.not-finite", "skip", "--training.checkpoint-steps", "8")
    with one_thread(), patch.object(meter, "SECONDS", 1e9):
        assert main(arguments) == 0
    (line,) = (line for line in metrics(out) if line["kind"] == "train")
    assert (line["step"], line["skipped"]) == (8, 2)
    assert 1 < line["loss"] < 10
    said = "skipped 2 of 8 updates up to step 8: not finite (the last at step 3; 2 since the run began)"
    assert said in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("not_finite", ["stop", "skip"])
def test_without_torchs_own_guard_it_is_the_same(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, not_finite: str
):
    """On devices and split weights for which fused Adam does not check by itself."""
    begin = Optimiser.__init__

    def plain(self: Optimiser, *given: Any) -> None:
        begin(self, *given)
        self.adam.fused = False

    monkeypatch.setattr(Optimiser, "__init__", plain)
    spoilt = Spoilt(monkeypatch, "nan gradient", {3})
    flags = [*SHORT, "--training.not-finite", not_finite]
    assert train(data, tmp_path / "run", *flags) == (1 if not_finite == "stop" else 0)
    assert same(spoilt.before[3], spoilt.after[3])
    if not_finite == "skip":
        assert not same(spoilt.before[4], spoilt.after[4])
