"""Event files: TensorBoard's own reader finds in them what was written, and nothing that a restart has undone."""

import math
import os
import re
import resource
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from records import DEV, TRAIN
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from transduce.training import events
from transduce.training.events import EventFile


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return all that TensorBoard would draw: the steps and values of each tag."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def raw_events(folder: Path) -> list[Any]:
    """Return the events of a folder's only file; TensorBoard checks their checksums and leaves out damaged ones."""
    (path,) = folder.iterdir()
    return list(LegacyEventFileLoader(str(path)).Load())


def single(value: float) -> float:
    """Return a number in single precision."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_tensorboard_reads_every_scalar(tmp_path: Path):
    file = EventFile(tmp_path / "events", after=0)
    file.write(TRAIN)
    file.write(DEV)
    file.write(replace(TRAIN, step=1300, loss=3.3))
    found = scalars(tmp_path / "events")  # before the file is closed: TensorBoard looks while training goes on
    file.close()
    assert found == {
        "train/loss": [(1200, single(3.412)), (1300, single(3.3))],
        "train/plain": [(step, single(3.0587)) for step in (1200, 1300)],
        "train/perplexity": [(step, single(math.exp(3.0587))) for step in (1200, 1300)],
        "train/rate": [(step, single(0.0007)) for step in (1200, 1300)],
        "train/norm": [(step, single(0.84)) for step in (1200, 1300)],
        "train/tokens_per_second": [(step, single(412_345.6)) for step in (1200, 1300)],
        "train/peak_share": [(step, single(0.27)) for step in (1200, 1300)],
        "dev/loss": [(1200, single(3.201))],
        "dev/plain": [(1200, single(1.893))],
        "dev/perplexity": [(1200, single(math.exp(1.893)))],
        "dev/bleu": [(1200, single(21.43))],
    }


def test_what_is_unknown_has_no_tag(tmp_path: Path):
    file = EventFile(tmp_path, after=0)
    file.write(replace(TRAIN, peak_share=None))
    file.write(replace(DEV, bleu=None))
    file.close()
    assert not {"train/peak_share", "dev/bleu"} & scalars(tmp_path).keys()
    assert {"train/loss", "dev/loss"} <= scalars(tmp_path).keys()


def test_the_name_and_the_beginning_are_tensorboards(tmp_path: Path):
    before = time.time()
    EventFile(tmp_path, after=0).close()
    (path,) = tmp_path.iterdir()
    matched = re.fullmatch(r"events\.out\.tfevents\.(\d+)\.(.+)\.(\d+)", path.name)
    assert matched
    assert int(before) <= int(matched[1]) <= time.time()
    assert int(matched[3]) == os.getpid()
    (first,) = raw_events(tmp_path)
    assert first.file_version == "brain.Event:2"
    assert before <= first.wall_time <= time.time()


def test_a_restart_makes_tensorboard_forget_what_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(begin: float, after: int, steps: range, loss: float) -> None:
        monkeypatch.setattr(events.time, "time", lambda: begin)
        file = EventFile(tmp_path, after=after)
        for step in steps:
            file.write(replace(TRAIN, step=step, loss=loss))
        file.close()

    run(1_700_000_000.0, 0, range(100, 600, 100), 4.0)
    assert [step for step, _ in scalars(tmp_path)["train/loss"]] == [100, 200, 300, 400, 500]
    run(1_700_000_100.0, 300, range(350, 370, 10), 3.0)  # the last checkpoint was at step 300
    assert len(list(tmp_path.iterdir())) == 2
    assert scalars(tmp_path)["train/loss"] == [(100, 4.0), (200, 4.0), (300, 4.0), (350, 3.0), (360, 3.0)]


@settings(deadline=None)
@example(step=128, loss=1.0, after=127)
@given(step=st.integers(0, 2**63 - 1), loss=st.floats(width=64), after=st.integers(0, 2**62))
def test_any_number_is_read_back(tmp_path_factory: pytest.TempPathFactory, step: int, loss: float, after: int):
    folder = tmp_path_factory.mktemp("events")
    file = EventFile(folder, after=after)
    file.write(replace(TRAIN, step=step, loss=loss, peak_share=None))
    file.close()
    *beginning, event = raw_events(folder)
    assert beginning[0].file_version == "brain.Event:2"
    assert [first.session_log.status for first in beginning] == ([0, 1] if after else [0])
    assert beginning[-1].step == (after + 1 if after else 0)
    assert event.step == step
    read = {value.tag: value.simple_value for value in event.summary.value}["train/loss"]
    try:
        assert read == single(loss) or math.isnan(loss)
    except OverflowError:  # too large for single precision
        assert abs(read) == math.inf
    assert math.isnan(read) == math.isnan(loss)


def test_a_model_that_has_diverged_is_written(tmp_path: Path):
    file = EventFile(tmp_path, after=0)
    file.write(replace(TRAIN, plain=200.0, loss=math.nan))
    file.close()
    assert scalars(tmp_path)["train/perplexity"] == [(1200, math.inf)]
    assert math.isnan(scalars(tmp_path)["train/loss"][0][1])


def test_a_full_disk_costs_events_and_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = EventFile(tmp_path, after=0)
    file.write(replace(TRAIN, step=1))
    (path,) = tmp_path.iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
    try:
        file.write(replace(TRAIN, step=2))
        file.write(replace(TRAIN, step=3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.write(replace(TRAIN, step=4))
    file.close()
    assert [step for step, _ in scalars(tmp_path)["train/loss"]] == [1, 4]
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_the_reader_of_these_tests_sees_damage(tmp_path: Path):
    file = EventFile(tmp_path, after=0)
    file.write(DEV)
    file.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    assert len(raw_events(tmp_path)) == 1
