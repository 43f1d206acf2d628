"""Two processes train as one: the same losses and weights, replicated or sharded, and each can go on for the other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from runs import checkpoints, command, metrics, train

from transduce.model.saved import read_tensors
from transduce.training.distributed import Processes

SAME = ["--model.dropout", "0"]  # masks are drawn in each process for itself

# As `python -m transduce`, but every step is logged.
SCRIPT = """
import sys
from transduce.cli import main
from transduce.training import meter

if __name__ == "__main__":
    meter.SECONDS = 0
    sys.exit(main())
"""


def torchrun(*arguments: str) -> list[str]:
    """The command that starts two processes which meet over gloo."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]


def train_by_two(data: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    script = out.parent / "two.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        torchrun(str(script), *command(data, out, *more)), capture_output=True, text=True, env=environment
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert train(data, run, *SAME) == 0
    return run


def agree(run: Path, other: Path, step: int = 20) -> None:
    """Assert that two runs have the same losses at every step, and the same weights and moments in the end."""
    lines, others = metrics(run), metrics(other)
    assert [(line["kind"], line["step"]) for line in lines] == [(line["kind"], line["step"]) for line in others]
    for line, twin in zip(lines, others):
        for name in ("loss", "plain") + (("rate", "norm", "epoch", "tokens") if line["kind"] == "train" else ()):
            assert line[name] == pytest.approx(twin[name], rel=1e-5), (name, line["step"])
    for file in ("model.safetensors", "resume.safetensors"):
        ours, theirs = (read_tensors(checkpoints(which)[step] / file) for which in (run, other))
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("more", [[], ["--training.accumulate", "2"], ["--training.sharded"]], ids=str)
def test_two_processes_train_as_one(tmp_path: Path, data: Path, alone: Path, more: list[str]):
    done = train_by_two(data, tmp_path / "run", *SAME, *more)
    assert done.returncode == 0, done.stderr
    assert "on 2 × cpu" in done.stderr
    agree(alone, tmp_path / "run")
    assert done.stdout.count("ended: ") == 1  # one of them speaks


@pytest.mark.parametrize("more", [[], ["--training.sharded"]], ids=str)
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path, data: Path, alone: Path, more: list[str]):
    more = [*more, "--training.average-decay", "0.9"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert train(data, two, *SAME, *more[-2:], "--training.steps", "10") == 0
    done = train_by_two(data, two, *SAME, *more, "--resume")
    assert done.returncode == 0, done.stderr
    assert "resumed step-00000010" in done.stderr
    assert train(data, one, *SAME, *more[-2:]) == 0
    agree(one, two)
    assert train_by_two(data, two, *SAME, *more, "--resume", "--training.steps", "25").returncode == 0
    assert train(data, one, *SAME, *more[-2:], "--resume", "--training.steps", "25") == 0
    agree(one, two, 25)


def test_processes_that_are_too_many_for_a_batch_are_told(tmp_path: Path, data: Path):
    done = train_by_two(data, tmp_path / "run", "--batch.parts", "1")
    assert done.returncode != 0
    assert "batch.parts = 1" in done.stderr
    assert "raise batch.parts to 2" in done.stderr


def test_one_process_has_nothing_to_shard(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    assert train(data, tmp_path / "run", "--training.sharded") == 1
    assert "start them with: torchrun" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_signal_to_all_processes_saves_once(tmp_path: Path, data: Path, alone: Path):
    run = tmp_path / "run"
    words = command(data, run, *SAME, "--training.steps", "100000")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        torchrun("-m", "transduce", *words), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as group:
        while not checkpoints(run):
            assert group.poll() is None, group.communicate()[1]
            time.sleep(0.05)
        group.send_signal(signal.SIGTERM)
        out, err = group.communicate(timeout=60)
    assert "signal 15" in out, err
    last = max(checkpoints(run))
    assert train(data, run, *SAME, "--resume", "--training.steps", str(last + 1)) == 0


def test_alone_nothing_is_exchanged():
    processes = Processes(torch.device("cpu"))
    tensor = torch.ones(2)
    assert processes.first
    assert processes.highest(1, 2) == [1, 2]
    assert processes.add(tensor) is tensor
    assert processes.share("value") == "value"
    assert processes.share_tensors({"a": tensor})["a"] is tensor
