"""Means of checkpoints, and of the weights during training, against NumPy in float64."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import SHORT, checkpoints, leftovers, prepare, save_later, train
from safetensors.numpy import load_file
from threads import one_thread

from transduce.cli import main
from transduce.errors import DataError
from transduce.model import saved
from transduce.text import numbers
from transduce.text.shards import DataSet
from transduce.text.subwords import BEGIN
from transduce.training import loop
from transduce.training.averaging import average


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {name: weight.astype(np.float64) for name, weight in load_file(folder / "model.safetensors").items()}


def mean(folders: list[Path]) -> dict[str, np.ndarray]:
    """Return the mean in float64, rounded once."""
    all_weights = list(map(weights, folders))
    names = all_weights[0].keys()
    return {name: np.mean([each[name] for each in all_weights], axis=0).astype(np.float32) for name in names}


def assert_is_mean(model: Path, folders: list[Path]) -> None:
    found, expected = load_file(model / "model.safetensors"), mean(folders)
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert weight.dtype == np.float32
        np.testing.assert_array_equal(weight, expected[name])


def dev_loss(loaded: saved.Loaded, data: Path) -> float:
    """Return a model's smoothed cross-entropy on the dev set, sentence by sentence."""
    smoothing = loaded.config.training.label_smoothing
    dev, total, tokens = DataSet.open(data).dev, 0.0, 0
    for pair in range(dev.pairs):
        source, target = (torch.from_numpy(dev.tokens(side, pair)) for side in ("source", "target"))
        shifted = torch.cat([torch.tensor([BEGIN]), target[:-1]])
        offsets = [torch.tensor([0, len(row)], dtype=torch.int32) for row in (source, target)]
        with torch.no_grad(), one_thread():
            logits = loaded.model(source, offsets[0], shifted, offsets[1])
        loss = torch.nn.functional.cross_entropy(logits, target.long(), reduction="sum", label_smoothing=smoothing)
        total += loss.item()
        tokens += len(target)
    return total / tokens


@pytest.fixture
def run(tmp_path: Path, short: Path) -> Path:
    """A run with checkpoints of steps 2, 4, 6 and 8, whose scores are not in that order."""
    run = shutil.copytree(short, tmp_path / "run")
    for step, (loss, bleu) in {2: (3.0, 1.0), 4: (1.0, 2.0), 6: (2.0, 9.0), 8: (4.0, 3.0)}.items():
        path = checkpoints(run)[step] / "manifest.json"
        manifest = saved.read_manifest(path.parent)
        manifest["about"]["dev"] |= {"loss": loss, "bleu": bleu}
        saved.write_json(path, manifest)
    return run


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ([], [2, 4, 6, 8]),
        (["--last", "3"], [4, 6, 8]),
        (["--last", "1"], [8]),
        (["--best", "2"], [4, 6]),
        (["--best", "3"], [4, 6, 2]),
        (["--best", "2", "--by", "bleu"], [6, 8]),
    ],
)
def test_the_mean_of_checkpoints(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str], flags: list[str], steps: list[int]
):
    out = tmp_path / "mean"
    assert main(["average", str(run), *flags, "--out", str(out)]) == 0
    folders = [checkpoints(run)[step] for step in steps]
    assert capsys.readouterr().out == f"{out}: the mean of {', '.join(folder.name for folder in folders)}\n"
    assert_is_mean(out, folders)
    loaded = saved.load_model(out)
    assert loaded.about["mean_of"] == ["/".join(folder.parts[-2:]) for folder in folders]
    assert loaded.config == saved.read_config(folders[0])
    assert not (out / "resume.safetensors").exists()


def test_the_mean_becomes_the_runs_model(run: Path):
    before = saved.load_model(run).about
    assert main(["average", str(run), "--last", "2"]) == 0
    assert_is_mean(run / "model", [checkpoints(run)[step] for step in (6, 8)])
    assert saved.load_model(run).about != before
    assert leftovers(run) == []


@pytest.mark.parametrize(
    "what", ["photos", "a file", "{data}", "{run}", "{run}/checkpoints", "{run}/checkpoints/step-00000008", "{other}"]
)
def test_a_mean_takes_nobodys_place(
    tmp_path: Path, run: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str], what: str
):
    """It replaces neither other files nor a data set, a run, a checkpoint or the model of another run."""
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "photos" / "summer" / "a.jpg").write_text("precious")
    (tmp_path / "a file").write_text("precious")
    out = tmp_path / what.format(run=run, data=data, other=short / "model")
    before = {path: path.read_bytes() for path in [out, *out.rglob("*")] if path.is_file() and path.name != ".lock"}
    assert before
    for names in ([run], [run, short]):
        assert main(["average", *map(str, names), "--out", str(out)]) == 1
        wanted = f"error: {out}: already exists; remove it, or name another --out"
        assert capsys.readouterr().err.splitlines() == [wanted]
    if not (out / "model.safetensors").exists():  # nor where the command line has not looked
        with pytest.raises(DataError, match="already exists and is not a model"):
            average([run], out)
    after = {path: path.read_bytes() for path in [out, *out.rglob("*")] if path.is_file() and path.name != ".lock"}
    assert after == before
    assert not list(tmp_path.glob(".*"))


def test_a_mean_may_be_written_into_an_empty_folder_or_by_the_name_of_the_runs_model(tmp_path: Path, run: Path):
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", run / "model"):
        assert main(["average", str(run), "--last", "2", "--out", str(out)]) == 0
        assert_is_mean(out, [checkpoints(run)[step] for step in (6, 8)])


def test_a_writer_removes_what_it_left_itself_and_nothing_of_others(tmp_path: Path, run: Path):
    """A model `en` is written beside `en-de`, which another process may be writing now."""
    for name in (".partial-en-77", ".partial-en-de-77", ".old-en-passant"):
        (tmp_path / name).mkdir()
    average([run], tmp_path / "en")
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".old-en-passant", ".partial-en-de-77"]


def test_checkpoints_of_interruptions_are_not_averaged(tmp_path: Path, run: Path):
    save_later(run, 9)
    assert main(["average", str(run), "--last", "2", "--out", str(tmp_path / "mean")]) == 0
    assert_is_mean(tmp_path / "mean", [checkpoints(run)[step] for step in (6, 8)])


def test_the_mean_of_several_models(tmp_path: Path, run: Path, data: Path):
    """Of runs, even with other dropout, and of a checkpoint, named by their folders."""
    other = tmp_path / "other"
    assert train(data, other, *SHORT, "--model.dropout", "0.3", "--training.seed", "7") == 0
    out = tmp_path / "mean"
    assert main(["average", str(run), str(other), str(checkpoints(run)[2]), "--out", str(out)]) == 0
    assert_is_mean(out, [run / "model", other / "model", checkpoints(run)[2]])


@pytest.mark.parametrize(
    ("peak", "later", "steps"),
    [("0.02", "0.02", [8]), ("0.03", "0.1", [6, 8]), ("0.02", "3", [4])],
    ids=["the last checkpoint", "the mean of the last 2 checkpoints", "the best checkpoint"],
)
def test_the_final_model_is_the_best_candidate(
    tmp_path: Path,
    data: Path,
    peak: str,
    later: str,
    steps: list[int],
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
):
    """One loss falls, one jumps about, and one is spoilt by far too high a rate; the numbers say why."""
    out = tmp_path / "run"
    flags = ["--training.warmup-steps", "1", "--training.average-checkpoints", "2"]
    assert train(data, out, *SHORT, *flags, "--training.peak-rate", peak, "--training.steps", "4") == 0
    assert train(data, out, *SHORT, *flags, "--training.peak-rate", later, "--resume") == 0
    loaded = saved.load_model(out)
    assert loaded.about["what"] in request.node.name
    said = capsys.readouterr().out.split("ended:")[-1]
    losses = {name: float(loss) for name, loss in re.findall(r"(the .+): step.*: smoothed dev loss ([\d.]+),", said)}
    assert losses[loaded.about["what"]] == min(losses.values())
    assert f"model: {out}/model is {loaded.about['what']}, whose smoothed dev loss is lowest\n" in said
    assert loaded.about["made_from"] == [checkpoints(out)[step].name for step in steps]
    assert_is_mean(out / "model", [checkpoints(out)[step] for step in steps])
    assert main(["average", str(out), "--last", "2", "--out", str(tmp_path / "mean")]) == 0
    candidates = [*checkpoints(out).values(), tmp_path / "mean"]
    best = min(dev_loss(saved.load_model(folder), data) for folder in candidates)
    assert dev_loss(loaded, data) == pytest.approx(best, abs=1e-6)
    # The model and its card know what it was trained on, and how good it is there.
    assert (
        loaded.about["trained_on"]["fingerprint"]
        == DataSet.open(loaded.about["trained_on"]["folder"]).manifest["fingerprint"]
    )
    assert loaded.about["dev"]["loss"] == pytest.approx(best, abs=1e-5)
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert f"perplexity {math.exp(loaded.about['dev']['plain']):.3f}" in card
    assert f"{DataSet.open(data).train.pairs:,} pairs" in card


REFUSED: dict[str, tuple[list[str], str]] = {
    "too few": (
        ["{run}", "--last", "5"],
        "{run}: has only 4 such checkpoints, not 5; give --last 4, or train with --training.average-checkpoints 5",
    ),
    "too few with scores": (
        ["{run}", "--best", "5"],
        "{run}: has only 4 such checkpoints, not 5; give --best 4, or train with --training.keep-best 5",
    ),
    "another score": (
        ["{run}", "--best", "2", "--by", "f1"],
        "{run}: has no checkpoint with a dev F1; choose --by loss or bleu",
    ),
    "no run with scores": (
        ["{data}", "--best", "2"],
        "{data}: has no checkpoint with a dev loss; name a run made by",
    ),
    "none": (["{run}", "--last", "0"], "cannot average 0 checkpoints; give 1 or more"),
    "two choices": (["{run}", "--last", "2", "--best", "2"], "--last and --best exclude each other; give one"),
    "no run": (["{data}"], "{data}: has no checkpoints; name a run made by transduce train"),
    "no place": (["{run}", "{run}"], "the mean of several models needs a folder; give --out MODEL"),
    "a choice among models": (
        ["{run}", "{run}", "--last", "2", "--out", "{out}"],
        "--last and --best choose among the checkpoints of one run; name one run, or leave them out",
    ),
    "no model": (["{run}", "{data}", "--out", "{out}"], "{data}: is a data set, not a model; train one on it"),
    "no such thing": (
        ["{run}", "{out}", "--out", "{out}"],
        "{out}: does not exist; name a run, a checkpoint or a model",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_mean(tmp_path: Path, run: Path, data: Path, capsys: pytest.CaptureFixture[str], what: str):
    arguments, wanted = REFUSED[what]
    out = tmp_path / "mean"
    code = main(["average", *(word.format(run=run, data=data, out=out) for word in arguments)])
    assert code == (2 if what in ("none", "two choices", "no place", "a choice among models") else 1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {wanted.format(run=run, data=data, out=out)}")
    assert not out.exists()


def test_models_of_other_shapes_and_subwords_have_no_mean(
    tmp_path: Path, run: Path, data: Path, capsys: pytest.CaptureFixture[str]
):
    other_data = prepare(tmp_path / "data", pairs=numbers.corpus("train", 301)[1:])
    for name, given, flags in (
        ("subwords", other_data, []),
        ("shape", data, ["--model.d-ff", "48", "--model.activation", "gelu"]),
    ):
        assert train(given, tmp_path / name, *SHORT, "--training.steps", "1", *flags) == 0
    capsys.readouterr()
    out = tmp_path / "mean"
    for name, wanted in (
        ("subwords", f"has different subwords from {run}/model; they cannot be averaged"),
        (
            "shape",
            f"differs from {run}/model in model.d_ff (48, not 64), model.activation (gelu, not relu); they cannot",
        ),
    ):
        assert main(["average", str(run), str(tmp_path / name), "--out", str(out)]) == 1
        assert capsys.readouterr().err.startswith(f"error: {tmp_path / name}/model: {wanted}")
        assert not out.exists()


def test_damaged_checkpoints_have_no_mean(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]):
    path = checkpoints(run)[6] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert main(["average", str(run), "--last", "2", "--out", str(tmp_path / "mean")]) == 1
    wanted = f"error: {path}: does not match its checksum; leave it out"
    assert capsys.readouterr().err.splitlines() == [wanted]


# ---- the moving average ----


def test_the_moving_average_is_the_formula(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch):
    """a ← d·a + (1 - d)·w with d = min(decay, step / (step + 10)) after every step; this is saved and scored."""
    seen: list[dict[str, np.ndarray]] = []
    usual = loop.take_step

    def take_step(run: Any, batch: Any) -> Any:
        if not seen:
            seen.append(copy(run))
        taken = usual(run, batch)
        seen.append(copy(run))
        return taken

    def copy(run: Any) -> dict[str, np.ndarray]:
        return {name: weight.detach().double().numpy() for name, weight in run.state.model.named_parameters()}

    monkeypatch.setattr(loop, "take_step", take_step)
    out = tmp_path / "run"
    assert train(data, out, *SHORT, "--training.average-decay", "0.3") == 0
    average = seen[0]
    for step, current in enumerate(seen[1:], start=1):
        decay = min(0.3, step / (step + 10))
        average = {name: decay * old + (1 - decay) * current[name] for name, old in average.items()}
        if folder := checkpoints(out).get(step):
            for name, found in weights(folder).items():
                np.testing.assert_allclose(found, average[name], rtol=0, atol=3e-7)
    folder = checkpoints(out)[8]
    resumable = load_file(folder / "resume.safetensors")
    for name, expected in average.items():
        np.testing.assert_array_equal(resumable[f"weight.{name}"], seen[-1][name].astype(np.float32))
        assert np.abs(expected - seen[-1][name]).max() > 1e-5
    dev = saved.read_manifest(folder)["about"]["dev"]
    loaded = saved.load_model(folder)
    assert dev["loss"] == pytest.approx(dev_loss(loaded, data), abs=1e-5)
