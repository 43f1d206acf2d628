"""Checkpoints: complete or absent, whatever happens to the process, the disk or the bytes."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forks import on_call
from runs import (
    SHORT,
    Forks,
    at_save,
    at_step,
    checkpoints,
    command,
    contents,
    leftovers,
    load_state,
    metrics,
    save_later,
    train,
)
from safetensors import SafetensorError

import transduce
from transduce import disk
from transduce.errors import DataError
from transduce.model import saved
from transduce.training import run as run_module
from transduce.training.checkpoint import RESUME, Checkpoints, find_damage


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- killed while saving ----


@pytest.mark.parametrize("replacing", [False, True])
def test_a_process_killed_at_any_call_to_the_system_leaves_whole_checkpoints(
    tmp_path: Path, short_killed_run: Path, forks: Forks, replacing: bool
):
    """Step 6 is saved, which removes step 2; once with a damaged checkpoint of step 6 in the way."""
    run = tmp_path / "run"
    shutil.copytree(short_killed_run / "checkpoints", tmp_path / "before" / "checkpoints")
    before = checkpoints(tmp_path / "before")
    if replacing:
        damaged = shutil.copytree(before[4], before[4].with_name("step-00000006"))
        flip(damaged / RESUME)
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    save_later(tmp_path / "after", 6, 1.0, last=1)
    after = checkpoints(tmp_path / "after")
    assert sorted(after) == [4, 6]
    newest: list[int] = []
    for number in range(1, 200, 3 if replacing else 1):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tmp_path / "before", run)
        path = repr(str(run))
        code = f"before_change({number}, {path}, die); save_later(pathlib.Path({path}), 6, 1.0, last=1); os._exit(0)"
        ended = forks.run(code)
        found = Checkpoints(run).newest_good()
        assert found
        newest.append(int(found[0].name.removeprefix("step-")))
        assert files(found[0]) == files((after if newest[-1] == 6 else before)[newest[-1]])
        if number % 4 == 1 or ended.code == 0:
            # What was not removed in time goes with the next checkpoint.
            save_later(run, 8, 0.9, last=1)
            assert leftovers(run) == []
            assert sorted(checkpoints(run)) == [newest[-1], 8]
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.text
    assert newest == sorted(newest)  # once there, it remains
    assert newest.count(4) > (4 if replacing else 10)
    assert newest.count(6) > (2 if replacing else 5)


def test_all_is_on_the_disk_before_it_gets_its_name(short_killed: Path, monkeypatch: pytest.MonkeyPatch):
    """A power cut is worse than a kill: what was not synced may be gone, and names may precede their contents."""
    happened: list[tuple[str, str]] = []
    sync, rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        happened.append(("synced", os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        happened.append(("named", str(target)))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    save_later(short_killed, 6, 1.0)
    folder = checkpoints(short_killed)[6]
    named = happened.index(("named", str(folder)))
    partial = f"{folder.parent}/.partial-{folder.name}-{os.getpid()}"
    synced = [Path(path).relative_to(partial).name for what, path in happened[:named] if what == "synced"]
    assert sorted(synced) == sorted(["", *files(folder)])
    assert synced[-2:] == ["manifest.json", ""]  # what names the files comes after them, and the folder last
    assert ("synced", str(folder.parent)) in happened[named:]


MOMENTS = {
    "before anything is written": "at_save(4, lambda: on_call(saved, 'write_tensors', 1, die))",
    "without the weights": "at_save(4, lambda: on_call(saved, 'write_tensors', 2, die))",
    "without the manifest": "at_save(4, lambda: on_call(saved, 'write_json', 2, die))",
    "before it is renamed": "at_save(4, lambda: on_call(pathlib.Path, 'rename', 1, die))",
    "before older ones are removed": "at_save(4, lambda: on_call(checkpoint.Checkpoints, 'prune', 1, die))",
    "while the final model is written": "on_call(saved, 'write_model', 5, die)",
    "before the curve is written": "on_call(run, 'write_curve', 1, die)",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_while_saving_ends_as_if_it_had_not_been(
    tmp_path: Path, data: Path, forks: Forks, short: Path, moment: str
):
    out = tmp_path / "run"
    assert forks.run(MOMENTS[moment], *command(data, out, *SHORT)).code == -signal.SIGKILL
    found = Checkpoints(out).newest_good()
    assert found
    late = "model" in moment or "curve" in moment
    assert found[0].name == ("step-00000008" if late else "step-00000004" if "older" in moment else "step-00000002")
    assert bool(leftovers(out)) == (moment not in ("before older ones are removed", "before the curve is written"))
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == contents(short)
    assert leftovers(out) == []


def test_a_run_that_went_back_is_killed(short_killed: Path, data: Path, forks: Forks, short: Path):
    flip(checkpoints(short_killed)[4] / "model.safetensors")
    before = "at_save(4, lambda: on_call(pathlib.Path, 'rename', 1, die))"
    assert forks.run(before, *command(data, short_killed, *SHORT, "--resume")).code == -signal.SIGKILL
    assert sorted(checkpoints(short_killed)) == [2]
    assert "checkpoints/.old-step-00000004-damaged" in leftovers(short_killed)
    assert train(data, short_killed, *SHORT, "--resume") == 0
    assert contents(short_killed) == contents(short)
    assert leftovers(short_killed) == []


def test_a_run_is_killed_while_its_model_is_replaced(tmp_path: Path, data: Path, forks: Forks, short: Path):
    run = shutil.copytree(short, tmp_path / "run")
    more = command(data, run, *SHORT, "--resume", "--training.steps", "9")
    between = "on_call(saved, 'save_model', 1, lambda *given: (on_call(pathlib.Path, 'rename', 2, die), usual(*given)))"
    assert forks.run(f"usual = saved.save_model; {between}", *more).code == -signal.SIGKILL
    assert not (run / "model").exists()
    assert saved.find_model(run) == checkpoints(run)[9]  # the best one so far
    assert train(data, run, *SHORT, "--resume", "--training.steps", "9") == 0
    assert saved.load_model(run).folder == run / "model"
    assert leftovers(run) == []


# ---- damage ----


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


# What happens to the last checkpoint, and how it is named.
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the weights": (
        lambda folder: flip(folder / "model.safetensors"),
        "model.safetensors: does not match its checksum",
    ),
    "a bit of the optimiser": (
        lambda folder: flip(folder / "resume.safetensors"),
        "resume.safetensors: does not match its checksum",
    ),
    "the end of the weights": (
        lambda folder: cut(folder / "model.safetensors"),
        "model.safetensors: does not match its checksum",
    ),
    "the optimiser": (lambda folder: (folder / "resume.safetensors").unlink(), "resume.safetensors: is missing"),
    "the subwords": (
        lambda folder: (folder / "subwords.model").unlink(),
        "subwords.model: cannot be read (No such file or directory)",
    ),
    "the manifest": (lambda folder: (folder / "manifest.json").unlink(), ": contains no model"),
    "the manifest's end": (lambda folder: cut(folder / "manifest.json"), "manifest.json: not readable"),
    "what the manifest says": (
        lambda folder: (folder / "manifest.json").write_text("{}"),
        "manifest.json: not the manifest of a model",
    ),
    "the settings": (
        lambda folder: (folder / "config.json").write_text("{}"),
        "config.json: does not match its checksum",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_with_a_damaged_checkpoint_the_one_before_is_taken(
    short_killed: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str], what: str
):
    last = checkpoints(short_killed)[4]
    DAMAGE[what][0](last)
    assert train(data, short_killed, *SHORT, "--resume") == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "falling back" in line]
    assert len(said) == 1
    named = DAMAGE[what][1]
    assert said[0].startswith(f"{last}{named}" if named.startswith(":") else f"{last}/{named}")
    assert said[0].endswith("; falling back to step-00000002")
    assert contents(short_killed) == contents(short)


def test_with_all_checkpoints_damaged_nothing_is_done(
    short_killed: Path, data: Path, capsys: pytest.CaptureFixture[str]
):
    """The oldest has complete weights, but its optimiser is gone."""
    save_later(short_killed, 6, 1.0)
    for step, name in ((4, "model.safetensors"), (6, "resume.safetensors")):
        flip(checkpoints(short_killed)[step] / name)
    before = {
        str(path): path.read_bytes() for path in short_killed.rglob("*") if path.is_file() and path.name != ".lock"
    }
    capsys.readouterr()
    assert train(data, short_killed, *SHORT, "--resume") == 1
    folder = short_killed / "checkpoints"
    assert capsys.readouterr().err.splitlines() == [
        f"error: {folder}/step-00000006/resume.safetensors: does not match its checksum",
        f"error: {folder}/step-00000004/model.safetensors: does not match its checksum",
        f"error: {folder}/step-00000002/resume.safetensors: is missing (only the last 2 checkpoints keep it)",
        f"error: {folder}: no checkpoint can be resumed; start a new run in another --out, with --from and a "
        "checkpoint whose weights are intact",
    ]
    after = {
        str(path): path.read_bytes() for path in short_killed.rglob("*") if path.is_file() and path.name != ".lock"
    }
    assert after == before


def test_checkpoints_that_a_run_went_back_behind_do_not_count(short_killed: Path, data: Path):
    """The next ones have other steps, as by the clock; the damaged one would count as the last for ever."""
    flip(checkpoints(short_killed)[4] / "resume.safetensors")
    assert (
        train(data, short_killed, *SHORT, "--resume", "--training.checkpoint-steps", "3", "--training.steps", "3") == 0
    )
    assert sorted(checkpoints(short_killed)) == [2, 3]
    assert all(find_damage(folder) is None for folder in checkpoints(short_killed).values())
    made_from = saved.load_model(short_killed).about["made_from"]
    assert "step-00000004" not in made_from


def test_damaged_weights_are_left_out_of_the_final_model(
    short_killed: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str]
):
    flip(checkpoints(short_killed)[2] / "model.safetensors")
    assert train(data, short_killed, *SHORT, "--resume", "--training.steps", "5") == 0
    damaged = checkpoints(short_killed)[2]
    wanted = f"{damaged}/model.safetensors: does not match its checksum; step-00000002 is left out"
    output = capsys.readouterr()
    assert any(line.startswith(wanted) for line in output.err.splitlines())
    assert "the mean of the last 2 checkpoints: step-00000004 to step-00000005" in output.out


@pytest.mark.parametrize("what", [what for what in DAMAGE if "optimiser" not in what])
def test_a_damaged_model_is_not_loaded(tmp_path: Path, short: Path, what: str):
    folder = shutil.copytree(checkpoints(short)[8], tmp_path / "model")
    saved.load_model(folder)
    DAMAGE[what][0](folder)
    with pytest.raises(DataError, match=str(tmp_path)):
        saved.load_model(folder)


# ---- full disks ----


def refuse_tensors(*_: object, **__: object) -> None:
    """Raise safetensors' own error for a full disk."""
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("owner", "name", "fail"),
    [
        (saved, "save_file", refuse_tensors),
        (os, "fsync", refuse),
        (Path, "write_bytes", refuse),
        (Path, "mkdir", refuse),
    ],
)
def test_a_full_disk_costs_a_checkpoint_and_not_the_run(
    tmp_path: Path,
    data: Path,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    fail: Callable[..., None],
):
    out = tmp_path / "run"
    usual = getattr(owner, name)

    def look() -> None:
        """Free the disk again, and check that only what a kill would leave is there."""
        monkeypatch.setattr(owner, name, usual)
        assert leftovers(out) == []
        found = Checkpoints(out).newest_good()
        assert found
        assert found[0].name == "step-00000002"

    at_save(4, lambda: monkeypatch.setattr(owner, name, fail), monkeypatch.setattr)
    at_step(4, look, monkeypatch.setattr)
    assert train(data, out, *SHORT) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "could not be saved" in line]
    assert len(said) == 1
    assert said[0].startswith("the checkpoint of step 4 could not be saved: ")
    assert "No space left on device" in said[0]
    assert said[0].endswith("; training continues")
    assert sorted(checkpoints(out)) == [2, 6, 8]
    assert files(checkpoints(out)[8]).keys() == files(checkpoints(short)[8]).keys()
    for file in ("model.safetensors", "resume.safetensors"):
        assert (checkpoints(out)[8] / file).read_bytes() == (checkpoints(short)[8] / file).read_bytes()
    assert metrics(out) == metrics(short)


LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))"


def test_the_system_itself_refuses_to_write(tmp_path: Path, data: Path, forks: Forks, short: Path):
    out = tmp_path / "run"
    small, free = (f"lambda: {LIMIT.format(size)}" for size in ("50_000", "resource.RLIM_INFINITY"))
    ended = forks.run(f"at_save(4, {small}); at_step(4, {free}); at_save(8, {small})", *command(data, out, *SHORT))
    lines = ended.text.splitlines()
    middle = [line for line in lines if line.startswith("the checkpoint of step 4 could not be saved: ")]
    assert len(middle) == 1
    assert "File too large" in middle[0]
    assert ended.code == 1
    last = lines[-1]
    assert last.startswith("error: the last checkpoint, of step 8, could not be saved: ")
    assert last.endswith("earlier ones are intact: free disk space, and repeat the command with --resume")
    assert "Traceback" not in ended.text
    assert sorted(checkpoints(out)) == [2, 6]
    assert leftovers(out) == []
    assert train(data, out, *SHORT, "--resume") == 0
    for name in ("model.safetensors", "resume.safetensors"):
        assert (checkpoints(out)[8] / name).read_bytes() == (checkpoints(short)[8] / name).read_bytes()


@pytest.mark.parametrize("what", ["model", "summary", "curve"])
def test_a_disk_that_is_full_at_the_end(
    tmp_path: Path,
    data: Path,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
):
    out = tmp_path / "run"
    with monkeypatch.context() as full:
        match what:
            case "model":
                on_call(saved, "save_file", 9, refuse_tensors, full.setattr)  # after two for each checkpoint
            case "summary":
                on_call(run_module, "write_json", 2, refuse, full.setattr)  # after the settings
            case _:
                full.setattr(run_module, "write_curve", refuse)
        assert train(data, out, *SHORT) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert lines[-1].startswith(f"error: {out}: training.steps = 8 is reached, but model, summary and curve could not")
    assert "No space left on device" in lines[-1]
    assert lines[-1].endswith("the checkpoints are intact: free disk space, and repeat the command with --resume")
    assert leftovers(out) == []
    assert train(data, out, *SHORT, "--resume") == 0
    assert contents(out) == contents(short)
    assert (out / "summary.json").exists()
    assert (out / "curve.html").exists()


def test_a_model_stays_when_it_cannot_be_replaced(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch):
    folder = shutil.copytree(short / "model", tmp_path / "model")
    before = files(folder)
    on_call(Path, "rename", 2, refuse, monkeypatch.setattr)
    with pytest.raises(OSError, match="No space left"):
        saved.write_folder(folder, lambda partial: disk.write_json(partial / "new", {}))
    assert files(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- what is kept, and what a checkpoint holds ----


@pytest.mark.parametrize(("last", "best"), [(1, 1), (2, 1), (3, 2), (5, 1)])
def test_the_last_and_the_best_are_kept(tmp_path: Path, short_killed_run: Path, last: int, best: int):
    out = tmp_path / "run"
    shutil.copytree(short_killed_run / "checkpoints", out / "checkpoints")
    # Dev losses by step; those without one were made because somebody asked the run to stop.
    losses = {20: 3.0, 30: 2.0, 33: None, 40: 2.5, 50: 2.2, 51: None, 52: None, 60: 4.0, 70: 3.9, 80: 3.8}
    made: dict[int, float | None] = {2: 9.0, 4: 8.0}
    for step, loss in losses.items():
        save_later(out, step, loss, last=last, best=best)
        made[step] = loss
        scored = [step for step, loss in made.items() if loss is not None]
        kept = {*sorted(made)[-2:], *scored[-last:], *sorted(scored, key=lambda step: made[step] or 0)[:best]}
        assert set(checkpoints(out)) == kept
        assert [step for step, folder in checkpoints(out).items() if (folder / RESUME).exists()] == sorted(made)[-2:]
        made = {step: loss for step, loss in made.items() if step in kept}
    assert 30 in made


def test_what_comes_back_is_what_was_saved(short: Path):
    state = load_state(checkpoints(short)[8])
    counters = saved.read_manifest(checkpoints(short)[8])["about"]["state"]
    assert (state.step, state.position, counters["position"]) == (8, (0, 8), [0, 8])
    assert state.counters() == {**counters, "position": (0, 8)}
    weights = saved.read_tensors(checkpoints(short)[8] / "model.safetensors")
    tensors = saved.read_tensors(checkpoints(short)[8] / RESUME)
    for name, weight in state.model.named_parameters():
        assert weight.equal(weights[name])
        assert state.optimiser.adam.first[name].equal(tensors[f"first.{name}"])
        assert state.optimiser.adam.second[name].equal(tensors[f"second.{name}"])
        assert state.optimiser.adam.updates[name].item() == 8
    assert len(tensors) == 3 * len(weights)


def test_a_run_finds_its_model(tmp_path: Path, short: Path):
    """The finished one, else the best checkpoint, else the last one."""
    run = shutil.copytree(short, tmp_path / "run")
    assert saved.find_model(run) == run / "model"
    assert saved.find_model(run / "model") == run / "model"
    shutil.rmtree(run / "model")
    for step, folder in checkpoints(run).items():
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["about"]["best"] = step in (2, 4)
        (folder / "manifest.json").write_text(json.dumps(manifest))
    assert saved.find_model(run) == checkpoints(run)[4]
    for step in (2, 4):
        shutil.rmtree(checkpoints(run)[step])
    assert saved.find_model(run) == checkpoints(run)[8]
    assert saved.load_model(run).folder == checkpoints(run)[8]
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(DataError, match="contains no model; name a run"):
        saved.find_model(run)
    with pytest.raises(DataError, match="does not exist; name a run"):
        saved.find_model(tmp_path / "nothing")


def test_nothing_is_pickled(short: Path):
    kinds = {path.suffix for path in short.rglob("*") if path.is_file() and "tensorboard" not in path.parts}
    assert kinds == {"", ".json", ".jsonl", ".html", ".md", ".safetensors", ".model"}  # .lock has no suffix
    for path in short.rglob("*"):
        if path.is_file():
            start = path.read_bytes()[:2]
            assert start != b"PK"  # as torch.save begins
            assert start[:1] != b"\x80"  # as pickle does
    # Checkpoints of others are read by an unpickler that calls nothing of theirs; tests/interop hold it to that.
    home = Path(transduce.__file__).parent
    for path in set(home.rglob("*.py")) - {home / "interop" / "checkpoint.py"}:
        source = path.read_text(encoding="utf-8")
        for word in ("torch.load", "torch.save", "import pickle", "pickle.load", "allow_pickle=True"):
            assert word not in source, path
