"""Two processes train as one: the same losses and weights, replicated or sharded, and each resumes the other's run."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from runs import Ended, Forks, checkpoints, command, metrics, train

from transduce.model.saved import read_tensors
from transduce.training.distributed import Processes

SAME = ["--model.dropout", "0"]  # masks are drawn in each process for itself


def train_by_two(forks: Forks, data: Path, out: Path, *more: str, places: Sequence[Path] = ()) -> Ended:
    """Train in two processes that meet over gloo, started as by torchrun but without its own imports."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    codes = [f"os.environ |= {place | {'RANK': rank, 'LOCAL_RANK': rank}}" for rank in ("0", "1")]
    codes = [f"{code}\nos.chdir({str(folder)!r})" for code, folder in zip(codes, places or [Path.cwd()] * 2)]
    return forks.run_all(codes, *command(data, out, *more))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert train(data, run, *SAME) == 0
    return run


def agree(run: Path, other: Path, step: int = 20) -> None:
    """Fail unless two runs have the same losses at every step, and the same weights and moments in the end."""
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
def test_two_processes_train_as_one(tmp_path: Path, data: Path, alone: Path, forks: Forks, more: list[str]):
    done = train_by_two(forks, data, tmp_path / "run", *SAME, *more)
    assert done.code == 0, done.text
    assert "on 2 × cpu" in done.text
    agree(alone, tmp_path / "run")
    assert done.text.count("ended: ") == 1  # one of them speaks


@pytest.mark.parametrize("more", [[], ["--training.sharded"]], ids=str)
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path, data: Path, forks: Forks, more: list[str]):
    more = [*more, "--training.average-decay", "0.9"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert train(data, two, *SAME, *more[-2:], "--training.steps", "10") == 0
    done = train_by_two(forks, data, two, *SAME, *more, "--resume")
    assert done.code == 0, done.text
    assert "resumed step-00000010" in done.text
    assert train(data, one, *SAME, *more[-2:]) == 0
    agree(one, two)
    assert train_by_two(forks, data, two, *SAME, *more, "--resume", "--training.steps", "25").code == 0
    assert train(data, one, *SAME, *more[-2:], "--resume", "--training.steps", "25") == 0
    agree(one, two, 25)


def test_processes_that_are_too_many_for_a_batch_are_told(tmp_path: Path, data: Path, forks: Forks):
    done = train_by_two(forks, data, tmp_path / "run", "--batch.parts", "1")
    assert done.code != 0
    (line,) = done.text.splitlines()
    assert "batch.parts = 1" in line
    assert "raise it to 2" in line


MISTAKES = {
    "a run that is there": ([], "error: {run}: holds a run (step-00000020); --resume continues it, or name another"),
    "another seed": (
        ["--resume", "--training.seed", "7"],
        "error: {run}/checkpoints/step-00000020: training.seed was 1 and would be 7; resume with the old value",
    ),
    "no such flag": (["--resum"], "error: unknown flag --resum; did you mean --resume?"),
    "no such model": (["--out", "{run}-2", "--from", "{run}-1"], "error: {run}-1: does not exist; name a run"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_ends_all_processes_and_is_said_once(
    tmp_path: Path, data: Path, alone: Path, forks: Forks, what: str
):
    """Whether one process finds it, such as a run that exists already, or all do."""
    more, wanted = MISTAKES[what]
    run = shutil.copytree(alone, tmp_path / "run")
    done = train_by_two(forks, data, run, *SAME, *(word.format(run=run) for word in more))
    assert done.code != 0
    (line,) = done.text.splitlines()
    assert line.startswith(wanted.format(run=run))


def test_what_one_process_alone_finds_is_said(tmp_path: Path, data: Path, forks: Forks):
    """Such as a data set that its machine does not have."""
    done = train_by_two(forks, Path(data.name), tmp_path / "run", *SAME, places=(data.parent, tmp_path))
    assert done.code != 0
    (line,) = done.text.splitlines()
    assert line.startswith(f"error: {data.name}")
    assert not (tmp_path / "run").exists()


def test_one_process_has_nothing_to_shard(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    assert train(data, tmp_path / "run", "--training.sharded") == 1
    assert "start several with: torchrun" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_signal_to_all_processes_of_torchrun_saves_once(tmp_path: Path, data: Path):
    run = tmp_path / "run"
    words = command(data, run, *SAME, "--training.steps", "100000")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [*torchrun, "-m", "transduce", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
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
