"""Out of memory: a batch is computed in smaller pieces, with the same result."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import FLAGS, SHORT, Forks, checkpoints, command, metrics, train

from transduce.config import BatchConfig
from transduce.text.batches import Batch, Batches
from transduce.text.shards import DataSet
from transduce.training import run
from transduce.training.loss import Objective
from transduce.training.validate import Validator

ERRORS = {
    "graph": lambda: RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' for more."),
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 GB."
    ),
    "bf16 on a cpu": lambda: RuntimeError("could not create a primitive"),
}


def refuse(monkeypatch: pytest.MonkeyPatch, too_much: Callable[[int, int], bool], error: str = "cuda") -> list[int]:
    """Fail by the number of a piece, counted from 1, and its tokens; return the tokens of pieces that succeeded."""
    usual = Objective.forward
    calls, went_well = 0, list[int]()

    def forward(self: Objective, source: Any, source_offsets: Any, target_input: Any, *rest: Any) -> Any:
        nonlocal calls
        tokens = len(source) + len(target_input)
        if torch.is_grad_enabled():
            calls += 1
            assert calls < 10_000, "it does not come to an end"
            if too_much(calls, tokens):
                raise ERRORS[error]()
            went_well.append(tokens)
        return usual(self, source, source_offsets, target_input, *rest)

    monkeypatch.setattr(Objective, "forward", forward)
    return went_well


def batches(data: Path, steps: int, *, similar_lengths: bool = True) -> list[Batch]:
    """Return the first batches of a run."""
    tokens, parts = int(FLAGS["--batch.source-tokens"]), int(FLAGS["--batch.parts"])
    config = BatchConfig(source_tokens=tokens, target_tokens=tokens, parts=parts, similar_lengths=similar_lengths)
    made = Batches(DataSet.open(data), config)
    return [made.batch(0, step) for step in range(steps)]


def largest(batch: Batch, pieces: int) -> int:
    return max(piece.source_tokens + piece.target_tokens for piece in batch.split(pieces))


def final(run: Path) -> dict[str, bytes]:
    names = ("model.safetensors", "resume.safetensors")
    return {name: (checkpoints(run)[8] / name).read_bytes() for name in names}


@pytest.mark.parametrize("error", ERRORS)
def test_pieces_are_halved_until_they_fit(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: str
):
    """The result has the bits of so many pieces from the start, dropout included; it is reported once."""
    room = max(largest(batch, 4) for batch in batches(data, 8))
    assert all(largest(batch, 2) > room for batch in batches(data, 8))
    with monkeypatch.context() as full:
        went_well = refuse(full, lambda _, tokens: tokens > room, error)
        assert train(data, tmp_path / "halved", *SHORT) == 0
    assert max(went_well) == room
    said = [line for line in capsys.readouterr().err.splitlines() if "out of memory" in line]
    assert said == [
        "out of memory at step 1: its batch was computed in 4 pieces instead; --training.accumulate 4 does so from the "
        "start (reported only once)"
    ]
    assert train(data, tmp_path / "pieces", *SHORT, "--training.accumulate", "4") == 0
    assert final(tmp_path / "halved") == final(tmp_path / "pieces")


def test_the_gradient_is_that_of_the_whole_batch(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    """Except for rounding, and without dropout, which is drawn differently."""
    flags = [*SHORT, "--model.dropout", "0"]
    assert train(data, tmp_path / "whole", *flags) == 0
    refuse(monkeypatch, lambda _, tokens: tokens > 300)
    assert train(data, tmp_path / "halved", *flags) == 0
    whole, halved = metrics(tmp_path / "whole"), metrics(tmp_path / "halved")
    assert [line["step"] for line in whole] == [line["step"] for line in halved]
    for one, other in zip(whole, halved, strict=True):
        for name in ("loss", "plain", *(["norm"] if one["kind"] == "train" else [])):
            assert one[name] == pytest.approx(other[name], rel=2e-5)


def test_a_captured_step_that_does_not_fit_is_taken_in_pieces(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing that it made is left when memory is given back."""
    made: list[weakref.ref[torch.Tensor]] = []

    def step(*_: object) -> None:
        rows = torch.zeros(8)
        made.append(weakref.ref(rows))
        raise ERRORS["cuda"]()

    def forget(self: Validator) -> None:
        assert made[0]() is None

    flags = [*SHORT, "--training.steps", "1"]
    assert train(data, tmp_path / "plain", *flags) == 0
    monkeypatch.setattr(run, "captures", lambda *_: True)
    monkeypatch.setattr(run, "CapturedStep", lambda *_: step)
    monkeypatch.setattr(Validator, "forget", forget)
    assert train(data, tmp_path / "captured", *flags) == 0
    assert len(made) == 1
    same = [(checkpoints(tmp_path / name)[1] / "model.safetensors").read_bytes() for name in ("plain", "captured")]
    assert same[0] == same[1]


@pytest.mark.parametrize("failing", [2, 4])
def test_what_was_added_up_before_it_failed_does_not_count(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, failing: int
):
    """The first step fails in a later piece, when gradients of earlier ones are there already."""
    flags = [*SHORT, "--training.steps", "1", "--training.accumulate"]
    with monkeypatch.context() as full:
        refuse(full, lambda number, _: number == failing)
        assert train(data, tmp_path / "halved", *flags, "4") == 0
    assert train(data, tmp_path / "pieces", *flags, "8") == 0
    same = [(checkpoints(tmp_path / name)[1] / "model.safetensors").read_bytes() for name in ("halved", "pieces")]
    assert same[0] == same[1]


def test_batches_that_fit_are_left_whole(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    went_well = refuse(monkeypatch, lambda number, _: number == 3)
    assert train(data, tmp_path / "run", *SHORT) == 0
    assert len(went_well) == 9  # eight steps, one of them in two pieces


def test_sentence_by_sentence_if_need_be(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    """If only one pair fits at a time, twice as many pieces may be no more than before: that must come to an end."""
    (batch,) = batches(data, 1, similar_lengths=False)
    most = largest(batch, 100_000)
    went_well = refuse(monkeypatch, lambda _, tokens: tokens > most)
    assert train(data, tmp_path / "run", "--training.steps", "1", "--no-batch.similar-lengths") == 0
    assert max(went_well) == most


def test_a_pair_that_is_too_large_is_an_error(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    refuse(monkeypatch, lambda number, tokens: number > 2 and tokens > 8)
    out = tmp_path / "run"
    assert train(data, out, *SHORT) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: out of memory on a single sentence pair of ")
    assert error.endswith("tokens at step 3; use a smaller model, or prepare the data with a smaller --clean.tokens")
    assert sorted(checkpoints(out)) == [2]


def test_bf16_that_fails_in_every_piece_is_another_error(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Once a kernel had no memory, it fails in this process whatever the size of the pieces."""
    with monkeypatch.context() as full:
        refuse(full, lambda number, _: number > 2, "bf16 on a cpu")
        assert train(data, tmp_path / "run", *SHORT) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: out of memory at step 3, and products in bf16 fail from then on (could not create a primitive); "
        "repeat the command with --resume and --training.accumulate 2"
    )
    assert train(data, tmp_path / "run", *SHORT, "--resume", "--training.accumulate", "2") == 0


@pytest.mark.parametrize(
    "text",
    ["mat1 and mat2 shapes cannot be multiplied", "could not create a primitive descriptor for a matmul primitive"],
)
def test_other_errors_are_not_taken_for_it(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    def forward(*_: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(Objective, "forward", forward)
    with pytest.raises(RuntimeError, match=text):
        train(data, tmp_path / "run", *SHORT)


LIMIT = """
def limit():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 60 * 2**20, resource.RLIM_INFINITY))

at_step(1, limit)
at_step(2, lambda: resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
"""


def test_a_process_that_is_given_no_more_memory_goes_on(tmp_path: Path, data: Path, forks: Forks):
    """All pairs are one batch, whose inner layers want 60 MB several times over."""
    tokens = ["--batch.source-tokens", "8192", "--batch.target-tokens", "8192", "--model.d-ff", "1024"]
    steps = ["--training.steps", "3", "--training.checkpoint-steps", "3"]
    ended = forks.run(LIMIT, *command(data, tmp_path / "run", *tokens, *steps))
    assert ended.code == 0, ended.text
    said = [line for line in ended.text.splitlines() if "out of memory" in line]
    assert len(said) == 1
    assert said[0].startswith("out of memory at step 2: its batch was computed in ")
    assert sorted(checkpoints(tmp_path / "run")) == [3]
