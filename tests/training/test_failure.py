"""A GPU that fails: the run says where it was, and resumes from its last checkpoint."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import checkpoints, command, contents
from threads import one_thread

from transduce.cli import main
from transduce.training import loop

SAID = "CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' in a long page.\n"


class Left(BaseException):
    """Raised instead of leaving the process."""


def leave(code: int) -> None:
    raise Left(code)


def train(data: Path, out: Path, *more: str) -> int:
    """Train without logging every step."""
    with one_thread():
        return main(command(data, out, *more))


@pytest.mark.parametrize(("step", "kept"), [(3, 0), (8, 5)])
def test_a_gpu_that_fails_costs_the_steps_since_the_last_checkpoint(
    step: int,
    kept: int,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Torch notices at its next synchronisation; freeing what is on the GPU then would abort the process."""
    usual = loop.take_step

    def take_step(run: Any, batch: Any) -> Any:
        if run.state.step + 1 == step:
            raise torch.AcceleratorError(SAID)
        return usual(run, batch)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "take_step", take_step)
        patch.setattr(os, "_exit", leave)
        with pytest.raises(Left, match=r"^1$"):
            train(data, tmp_path / "run")
    where, remedy, _ = capsys.readouterr().err.splitlines()[-3:]
    said = SAID.splitlines()[0]
    assert where == f"error: the GPU failed between steps {kept + 1} and {step}: {said}"
    goes_on = "repeat the command with --resume to continue from step-00000005"
    assert remedy == f"error: {goes_on if kept else 'start the run again'}"
    assert list(checkpoints(tmp_path / "run")) == ([kept] if kept else [])
    assert train(data, tmp_path / "run", "--resume") == 0
    assert train(data, tmp_path / "whole") == 0
    found, whole = contents(tmp_path / "run"), contents(tmp_path / "whole")
    assert found.pop("metrics")[-1] == whole.pop("metrics")[-1]  # other lines are written when a run begins
    assert found == whole


def test_a_capture_that_fails_is_no_failure_of_the_gpu(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever repairs it needs the traceback."""

    def take_step(run: Any, batch: Any) -> Any:
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr(loop, "take_step", take_step)
    with pytest.raises(torch.AcceleratorError, match="capturing"):
        train(data, tmp_path / "run")
