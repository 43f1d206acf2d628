"""`transduce train --resume`: goes on as if nothing had happened, and refuses what would make it another run."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import FLAGS, SHORT, Forks, at_step, checkpoints, command, contents, metrics, prepare, train

from transduce.cli import main
from transduce.text import numbers

# ---- exactly as without a restart ----

EVERYTHING = {
    "--model.dropout": "0.2",
    "--model.attention-dropout": "0.1",
    "--model.feed-forward-dropout": "0.1",
    "--batch.subword-dropout": "0.1",
    "--training.average-decay": "0.9",
    "--training.accumulate": "2",
    "--training.clip": "0.5",
    "--training.bleu-sentences": "5",
    "--search.extra-tokens": "5",
    "--training.average-checkpoints": "2",
    "--training.precision": "bf16",
}
KINDS = {
    "dropout alone": [],
    "everything": [word for flag in EVERYTHING.items() for word in flag],
}


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory, data: Path, whole: Path) -> dict[str, Path]:
    """Runs of 20 steps without interruption."""
    runs = {"dropout alone": whole, "everything": tmp_path_factory.mktemp("runs") / "run"}
    assert train(data, runs["everything"], *KINDS["everything"]) == 0
    return runs


def test_what_is_compared_depends_on_chance_and_settings(wholes: dict[str, Path]):
    first, second = (contents(wholes[kind]) for kind in KINDS)
    for name in ("checkpoints/step-00000020/model.safetensors", "checkpoints/step-00000020/resume.safetensors"):
        assert first[name] != second[name]
    assert [line["step"] for line in first["metrics"] if line["kind"] == "train"] == list(range(1, 21))
    assert [line["step"] for line in first["metrics"] if line["kind"] == "dev"] == [5, 10, 15, 20]
    epochs = [line["epoch"] for line in first["metrics"] if line["kind"] == "train"]
    assert epochs[12] < 1 < epochs[-1]  # whether killed after step 10 or 13, an epoch ends later


@pytest.mark.parametrize(
    ("kind", "step"),
    [("dropout alone", 10), ("dropout alone", 13), ("everything", 10), ("everything", 13)],
)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    tmp_path: Path, data: Path, forks: Forks, wholes: dict[str, Path], kind: str, step: int
):
    out = tmp_path / "run"
    ended = forks.run(f"at_step({step}, die)", *command(data, out, *KINDS[kind]))
    assert ended.code == -signal.SIGKILL
    assert max(checkpoints(out), default=0) == step // 5 * 5  # after step 10 its checkpoint has just been made
    assert metrics(out)[-1]["step"] == step
    assert train(data, out, *KINDS[kind], "--resume") == 0
    assert contents(out) == contents(wholes[kind])


def test_a_run_can_be_killed_again_and_again(tmp_path: Path, data: Path, forks: Forks, whole: Path):
    out = tmp_path / "run"
    for step in (3, 6, 7, 11, 19):
        assert forks.run(f"at_step({step}, die)", *command(data, out, "--resume")).code == -signal.SIGKILL
    assert train(data, out, "--resume") == 0
    assert contents(out) == contents(whole)


def test_where_a_run_goes_on_is_said(killed: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    assert train(data, killed, "--resume", "--training.steps", "11") == 0
    assert "resumed step-00000010: epoch 0, batch 10" in capsys.readouterr().err.splitlines()


def test_with_a_limit_reached_already_nothing_is_trained(
    tmp_path: Path, data: Path, whole: Path, capsys: pytest.CaptureFixture[str]
):
    out = shutil.copytree(whole, tmp_path / "run")
    before = contents(out)
    assert train(data, out, "--resume") == 0
    assert capsys.readouterr().out.splitlines()[0] == "ended: training.steps = 20 is reached at step 20"
    assert contents(out) == before
    assert train(data, out, "--resume", "--training.steps", "22") == 0
    assert max(checkpoints(out)) == 22


def test_an_empty_folder_is_begun_in(tmp_path: Path, data: Path, whole: Path):
    out = tmp_path / "run"
    out.mkdir()
    assert train(data, out, "--resume") == 0
    assert contents(out) == contents(whole)


# ---- what may change ----


def test_changes_that_leave_it_the_same_run_are_announced(killed: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    changes = {
        "training.steps": ("20", "16"),
        "training.patience": ('"off"', "7"),
        "training.accumulate": ("1", "3"),
        "training.average_decay": ('"off"', "0.5"),
        "training.freeze": ("[]", '["decoder.*"]'),
        "model.dropout": ("0.1", "0.3"),
        "search.beam": ("4", "2"),
    }
    flags = [word for key, (_, value) in changes.items() for word in (f"--{key}", value.strip('[]"'))]
    assert train(data, killed, "--resume", *flags) == 0
    lines = capsys.readouterr().err.splitlines()
    for key, (before, now) in changes.items():
        assert f"changed since step-00000010: {key} was {before} and is {now} now" in lines
    assert sum(line.startswith("changed since") for line in lines) == len(changes)
    assert max(checkpoints(killed)) == 16


def test_a_change_back_and_forth_leaves_no_trace(killed: Path, data: Path, whole: Path):
    assert train(data, killed, "--resume", "--training.steps", "15", "--training.keep-best", "3") == 0
    assert train(data, killed, "--resume") == 0
    for step in (15, 20):
        for name in ("model.safetensors", "resume.safetensors"):
            same = [(checkpoints(run)[step] / name).read_bytes() for run in (killed, whole)]
            assert same[0] == same[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--training.best-by", "bleu"], ["--training.best-by", "loss"]),
        (["--training.label-smoothing", "0"], ["--training.label-smoothing", "0.9"]),
    ],
)
def test_what_was_best_by_another_score_does_not_count(tmp_path: Path, data: Path, before: list[str], after: list[str]):
    """A BLEU of 0.1, a loss of 4 nats and one of 5 with more smoothing cannot be compared: the next one is best."""
    out = tmp_path / "run"
    rate = ["--training.peak-rate", "1e-30"]  # nothing gets better by training
    flags = [*SHORT, *rate, "--training.bleu-sentences", "5", "--search.extra-tokens", "5"]
    assert train(data, out, *flags, *before, "--training.steps", "2") == 0
    assert train(data, out, *flags, *after, "--training.steps", "4", "--resume") == 0
    best = {line["step"]: line["best"] for line in metrics(out) if line["kind"] == "dev"}
    assert best == {2: True, 4: True}


def test_a_finished_run_is_judged_by_another_score(
    tmp_path: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str]
):
    """Its checkpoints have no BLEU yet; the last and the mean get one now."""
    out = shutil.copytree(short, tmp_path / "run")
    flags = ["--training.bleu-sentences", "5", "--search.extra-tokens", "5", "--training.best-by", "bleu"]
    assert train(data, out, *SHORT, *flags, "--resume") == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert ": dev BLEU " in lines["the last checkpoint"]
    assert ": dev BLEU " in lines["the mean of the last 4 checkpoints"]
    assert lines["model"].endswith(", whose dev BLEU is highest")
    assert "the best checkpoint" not in lines


def test_from_is_for_the_beginning_only(tmp_path: Path, data: Path, whole: Path, capsys: pytest.CaptureFixture[str]):
    """An interrupted run advises the same command with --resume, which must work with --from too."""
    out = tmp_path / "run"
    assert train(data, out, "--from", str(whole), "--training.steps", "5", "--resume") == 0
    assert f"started with the weights of {whole}" in capsys.readouterr().err
    assert train(data, out, "--from", str(whole), "--training.steps", "6", "--resume") == 0
    errors = capsys.readouterr().err
    assert f"--from {whole} applies only to the start of a run: ignored" in errors
    assert "started with the weights" not in errors


# ---- what is refused ----


def other_text(folder: Path) -> Path:
    return prepare(folder / "other", pairs=numbers.corpus("train", 301)[1:])


def other_size(folder: Path) -> Path:
    return prepare(folder / "other", "--subwords", "345", "--subwords.split-digits")


def other_model(folder: Path, data: Path) -> Path:
    """Return a data set with the same settings and text, but subwords learned from another."""
    copy = shutil.copytree(data, folder / "copy")
    shutil.copy(other_text(folder) / "parts-1" / "subwords.model", copy / "parts-1" / "subwords.model")
    return copy


NOT_THE_DATA = "{data}: is not the data set this run was trained on; it differs in "
# What is asked for with --resume, and what must be said then.
REFUSED: dict[str, tuple[Callable[[Path, Path], Path] | None, list[str], list[str]]] = {
    "other text": (
        lambda folder, _: other_text(folder),
        [],
        [NOT_THE_DATA + "the text of train; prepare it as before"],
    ),
    "other subwords": (
        lambda folder, _: other_size(folder),
        [],
        [NOT_THE_DATA + "subwords.size (340, now 345), subwords.split_digits (false, now true); prepare it as before"],
    ),
    "subwords learned otherwise": (other_model, [], [NOT_THE_DATA + "its subwords, though all settings are the same"]),
    "another model": (
        None,
        ["--model.layers", "2", "--model.d-ff", "65"],
        [
            "{checkpoint}: model.layers was 1 and would be 2; resume with the old value",
            "{checkpoint}: model.d_ff was 64 and would be 65; resume with the old value",
        ],
    ),
    "another kind of model": (
        None,
        ["--model.norm", "pre"],
        ['{checkpoint}: model.norm was "post" and would be "pre"'],
    ),
    "other batches": (
        None,
        ["--batch.source-tokens", "1024", "--no-batch.similar-lengths"],
        ["{checkpoint}: batch.source_tokens was 512 and would be 1024", "{checkpoint}: batch.similar_lengths was true"],
    ),
    "another seed": (None, ["--training.seed", "2"], ["{checkpoint}: training.seed was 1 and would be 2"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_another_run_is_refused_by_name(
    tmp_path: Path, killed_run: Path, data: Path, capsys: pytest.CaptureFixture[str], what: str
):
    make_data, flags, wanted = REFUSED[what]
    given = make_data(tmp_path, data) if make_data else data
    before = contents(killed_run)
    capsys.readouterr()
    assert train(given, killed_run, "--resume", *flags) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("changed since")]
    assert len(lines) == len(wanted)
    for line, start in zip(lines, wanted, strict=True):
        place = start.format(data=given, checkpoint=checkpoints(killed_run)[10])
        assert line.startswith(f"error: {place}")
        assert line.endswith("or start a new run with --from and another --out")
    assert contents(killed_run) == before


def test_a_preset_that_is_missing_is_named_first(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    """Some of the run's settings are its own; those that may change are not listed among those that may not."""
    out, own = tmp_path / "run", ["--batch.source-tokens", "512", "--training.steps", "2", "--device", "cpu"]
    usual = ["--training.warmup-steps", "1", "--training.bleu-sentences", "0"]
    assert main(["train", str(data), "--out", str(out), "--preset", "tiny", *own, *usual]) == 0
    capsys.readouterr()
    assert main(["train", str(data), "--out", str(out), "--resume", *own]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == (
        f"error: {out}: its settings look like those of --preset tiny; give all the flags that the run was started with"
    )
    assert any("model.layers was 2 and would be 6" in line for line in others)
    assert all(" and would be " in line for line in others)
    assert main(["train", str(data), "--out", str(out), "--resume", "--preset", "tiny", *own, *usual]) == 0


def test_a_model_to_begin_with_that_is_missing_is_named_first(
    tmp_path: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str]
):
    out, steps = tmp_path / "run", ["--training.steps", "2", "--device", "cpu", "--training.bleu-sentences", "0"]
    assert main(["train", str(data), "--out", str(out), "--from", str(short), *steps]) == 0
    capsys.readouterr()
    assert main(["train", str(data), "--out", str(out), "--resume", *steps]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(
        f"error: {out}: was started with --from and a model called {short.name}; give all the flags"
    )


def test_a_run_is_not_begun_where_there_is_one(whole: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    before = contents(whole)
    assert train(data, whole) == 1
    wanted = f"error: {whole}: holds a run (step-00000020); --resume continues it, or name another --out"
    assert capsys.readouterr().err.splitlines() == [wanted]
    assert contents(whole) == before


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_finished_model_is_not_overwritten_by_a_new_run(
    tmp_path: Path, whole: Path, data: Path, capsys: pytest.CaptureFixture[str], resume: list[str]
):
    out = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(out / "checkpoints")
    before = contents(out)
    assert train(data, out, *resume) == 1
    wanted = f"error: {out}: holds a model but no checkpoints to resume from; name another --out"
    assert capsys.readouterr().err.splitlines() == [wanted]
    assert contents(out) == before


@pytest.mark.parametrize("name", ["thesis.tex", "config.json"])
def test_other_files_are_left_alone(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], name: str):
    """Even those of another program that keeps its settings under the same name."""
    out = tmp_path / "run"
    out.mkdir()
    (out / name).write_text('{"architectures": ["MarianMTModel"]}')
    (out / "weights.bin").write_text("precious")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert train(data, out) == 1
    first = sorted({name, "weights.bin"} - {"config.json"})[0]
    wanted = f"error: {out}: holds other files ({first}) but no run; name a new or empty folder for --out"
    assert capsys.readouterr().err.splitlines() == [wanted]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_model_is_left_alone(tmp_path: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str]):
    """Although its settings have the name and form of a run's."""
    out = shutil.copytree(short / "model", tmp_path / "model")
    assert train(data, out) == 1
    assert "holds other files (README.md) but no run" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (short / "model").iterdir()
    }


def test_a_run_may_hold_notes(killed: Path, data: Path):
    (killed / "notes.txt").write_text("looks good so far")
    assert train(data, killed, "--resume", "--training.steps", "11") == 0
    assert (killed / "notes.txt").exists()


def test_a_file_is_no_folder(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "run"
    out.write_text("precious")
    assert train(data, out) == 1
    assert capsys.readouterr().err.splitlines() == [f"error: {out}: is a file; name a folder for --out"]
    assert out.read_text() == "precious"


def test_a_mistake_makes_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert train(tmp_path / "nothing", tmp_path / "run") == 1
    assert "does not exist; make one with: transduce prepare" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_two_trainings_do_not_write_one_run(
    tmp_path: Path,
    data: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    resume: list[str],
):
    out = tmp_path / "run"
    codes: list[int] = []
    at_step(7, lambda: codes.append(main(command(data, out, *resume))), monkeypatch.setattr)
    assert train(data, out) == 0
    assert codes == [1]
    wanted = f"error: {out}: another transduce train is writing this run; wait for it to end"
    assert wanted in capsys.readouterr().err.splitlines()
    assert contents(out) == contents(whole)


def test_the_settings_in_force_are_written_down(whole: Path):
    for folder in (whole, whole / "model", *checkpoints(whole).values()):
        config = json.loads((folder / "config.json").read_text())
        assert config["training"]["steps"] == int(FLAGS["--training.steps"])
        assert config["model"]["vocabulary"] == 340
