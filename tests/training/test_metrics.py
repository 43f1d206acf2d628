"""metrics.jsonl: what is written can be read; a kill or a full disk costs lines but never the file."""

import json
import math
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import DEV, TRAIN

from transduce.errors import DataError
from transduce.training.metrics import DevMetrics, Journal, MetricsFile, TrainMetrics, read_metrics


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a full disk: what fits is written, then an error is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def steps_in(path: Path) -> list[int]:
    """Return the steps of all lines, each of which must be complete."""
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line)["step"] for line in text.splitlines()]


def write_steps(path: Path, *steps: int) -> None:
    file = MetricsFile(path, after=0)
    for step in steps:
        file.write(replace(TRAIN, step=step))
    file.close()


def test_perplexity_is_of_the_plain_loss():
    assert TRAIN.perplexity == math.exp(3.0587)
    assert DEV.perplexity == math.exp(1.893)
    assert replace(TRAIN, plain=1e6).perplexity == math.inf
    assert math.isnan(replace(DEV, plain=math.nan).perplexity)


numbers = st.floats(width=64)
finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.builds(
        TrainMetrics,
        step=st.integers(1),
        loss=numbers,
        plain=numbers,
        norm=numbers,
        peak_share=st.none() | finite,
        skipped=st.integers(0),
    ),
    st.builds(DevMetrics, step=st.integers(1), loss=numbers, plain=numbers, bleu=st.none() | finite),
)
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, train: TrainMetrics, dev: DevMetrics):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    file = MetricsFile(path, after=0)
    file.write(train)
    file.write(dev)
    found = read_metrics(path)  # before the file is closed: a person may look while training goes on
    file.close()
    for written, read in zip((train, dev), (found[0][0], found[1][0]), strict=True):
        for name, value in asdict(written).items():
            back = getattr(read, name)
            if isinstance(value, float) and not math.isfinite(value):
                assert math.isnan(back)
            else:
                assert (back, type(back)) == (value, type(value))


def test_lines_are_strict_json_with_the_kind_first(tmp_path: Path):
    file = MetricsFile(tmp_path / "metrics.jsonl", after=0)
    file.write(replace(TRAIN, plain=math.inf, norm=math.nan))
    file.write(DEV)
    file.close()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    train, dev = (json.loads(line, parse_constant=refuse) for line in lines)
    assert [next(iter(train.items())), next(iter(dev.items()))] == [("kind", "train"), ("kind", "dev")]
    assert (train["plain"], train["norm"], train["perplexity"]) == (None, None, None)
    assert dev["perplexity"] == pytest.approx(6.6393, abs=1e-4)
    assert dev["signature"] == "nrefs:1|case:mixed"


def test_whole_numbers_are_numbers_too(tmp_path: Path):
    file = MetricsFile(tmp_path / "metrics.jsonl", after=0)
    file.write(replace(DEV, bleu=0, seconds=7))
    file.close()
    (dev,) = read_metrics(tmp_path / "metrics.jsonl")[1]
    assert isinstance(dev.bleu, float)
    assert dev.seconds == 7.0


def test_a_resumed_run_drops_what_it_will_log_again(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_steps(path, 10, 20, 30, 40)
    file = MetricsFile(path, after=20)
    assert steps_in(path) == [10, 20]
    file.write(replace(TRAIN, step=30))
    file.close()
    assert steps_in(path) == [10, 20, 30]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_new_run_begins_empty(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_steps(path, 0, 10)
    MetricsFile(path, after=0).close()
    assert path.read_bytes() == b""


def test_a_kill_at_any_byte_leaves_whole_lines(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_steps(path, 10, 20, 30)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        file = MetricsFile(path, after=20)
        file.write(replace(TRAIN, step=21))
        file.close()
        # A line whose end alone is missing has lost nothing.
        complete = (whole[:cut] + b"\n").count(b"}\n")
        assert steps_in(path) == [[], [10], [10, 20], [10, 20]][complete] + [21]


def test_a_block_of_zeros_is_dropped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_steps(path, 10)
    with path.open("ab") as file:
        file.write(bytes(100))  # what a file system leaves when the power fails
    MetricsFile(path, after=20).close()
    assert steps_in(path) == [10]


def test_a_full_disk_costs_lines_and_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, after=0)
    file.write(replace(TRAIN, step=1))
    with largest_file(path.stat().st_size + 40):
        file.write(replace(TRAIN, step=2))
        file.write(replace(TRAIN, step=3))
        assert steps_in(path) == [1]
    file.write(replace(TRAIN, step=4))
    file.close()
    assert steps_in(path) == [1, 4]
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning == f"warning: {path}: cannot be written: File too large; training continues"


def test_a_disk_that_is_full_when_a_run_goes_on_is_told_with_the_file(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    write_steps(path, 10)
    before = path.read_bytes()
    with largest_file(40), pytest.raises(OSError, match=r"File too large: '.*metrics\.jsonl'$"):
        MetricsFile(path, after=20)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_that_holds_the_log_as_well_ends_nothing(monkeypatch: pytest.MonkeyPatch):
    journal = Journal(Path("/dev/full"))
    with open("/dev/full", "wb", buffering=0) as full:

        class Log:
            def write(self, text: str) -> int:
                return full.write(text.encode())

            def flush(self) -> None:
                full.flush()

        monkeypatch.setattr(sys, "stderr", Log())
        journal.append(b"record")
        monkeypatch.undo()
    assert journal.warned
    assert journal.end == 0
    journal.close()


GOOD = json.dumps({"kind": "dev", **asdict(DEV)})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (GOOD[:-5], "it is not JSON"),
        (GOOD.replace("mixed", "\udcff"), "it is not JSON"),
        ("", "it is not JSON"),
        ("[1]", 'its "kind" is neither "train" nor "dev"'),
        ('{"step": 3}', 'its "kind" is neither "train" nor "dev"'),
        ('{"kind": "test", "step": 3}', 'its "kind" is neither "train" nor "dev"'),
        ('{"kind": "dev", "step": 3}', "loss is missing"),
        (GOOD.replace("3.201", '"3.201"'), 'loss is "3.201"'),
        (GOOD.replace("1200", "null"), "step is null"),
        (GOOD.replace("true", "1"), "best is 1"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, problem: str):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(f"{GOOD}\n{line}\n{GOOD}\n".encode(errors="surrogateescape"))
    with pytest.raises(DataError) as raised:
        read_metrics(path)
    assert str(raised.value) == f"{path}: line 2 is damaged: {problem}; remove it"


def test_fields_with_defaults_may_be_missing(tmp_path: Path):
    values = asdict(DEV)
    del values["weights"]
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "dev", **values}))
    assert read_metrics(tmp_path / "metrics.jsonl") == ([], [DEV])
