"""Tiny trainings: started, killed, resumed and compared."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from forks import ForkServer
from threads import one_thread

from transduce.cli import main
from transduce.model import saved
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.training import loop, meter
from transduce.training.checkpoint import Checkpoints, State, restore
from transduce.training.distributed import Processes
from transduce.training.optimiser import MovingAverage, Optimiser

# One epoch is 17 batches, so that 20 steps go over its end; a checkpoint every 5 steps.
FLAGS = {
    "--preset": "base",  # whose settings are the paper's and stay
    "--device": "cpu",
    "--model.layers": "1",
    "--model.d-model": "32",
    "--model.d-ff": "64",
    "--model.heads": "2",
    "--batch.source-tokens": "512",
    "--batch.target-tokens": "512",
    "--batch.parts": "2",
    "--training.steps": "20",
    "--training.checkpoint-steps": "5",
    "--training.warmup-steps": "10",
    "--training.peak-rate": "0.005",
    "--training.precision": "float32",  # on every machine, whatever its processor has
    "--training.bleu-sentences": "0",
}
SHORT = ["--training.steps", "8", "--training.checkpoint-steps", "2"]
Pairs = list[tuple[str, str]]
Put = Callable[[object, str, Any], None]  # setattr, or pytest's


def write_pairs(path: Path, pairs: Pairs) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


def prepare(out: Path, *flags: str, pairs: Pairs | None = None) -> Path:
    """Prepare a data set of 300 pairs, with 12 more to validate on."""
    out.parent.mkdir(parents=True, exist_ok=True)
    train = write_pairs(out.with_suffix(".train.tsv"), pairs or numbers.corpus("train", 300))
    dev = write_pairs(out.with_suffix(".dev.tsv"), numbers.corpus("dev", 12))
    files = ["--pairs", train, "--dev-pairs", dev]
    assert main(["prepare", str(out), *files, "--subwords", "340", "--workers", "1", *flags]) == 0
    return out


def command(data: Path, out: Path, *more: str) -> list[str]:
    """Return the command line of a training; flags given here override the usual ones."""
    usual = [word for flag in FLAGS.items() for word in flag]
    return ["train", str(data), "--out", str(out), *usual, *more]


def train(data: Path, out: Path, *more: str) -> int:
    """Train in this process and log every step; return the exit code."""
    with one_thread(), patch.object(meter, "SECONDS", 0):
        return main(command(data, out, *more))


def checkpoints(run: Path) -> dict[int, Path]:
    """Return a run's checkpoints by their steps."""
    return {int(path.name.split("-")[1]): path for path in sorted((run / "checkpoints").glob("step-*"))}


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, but for what depends on a clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def contents(run: Path) -> dict[str, Any]:
    """Return all results of a run: the files of its checkpoints and its model, its log; without what a clock tells."""
    found: dict[str, Any] = {"metrics": metrics(run)}
    for path in sorted([*run.glob("checkpoints/**/*"), *run.glob("model/**/*")]):
        name = str(path.relative_to(run))
        if path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            manifest["about"].get("state", {}).pop("seconds", None)
            found[name] = manifest
        elif path.suffix == ".md":
            found[name] = path.read_text(encoding="utf-8").replace(run.name, "RUN")  # the card names its folder
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def leftovers(run: Path) -> list[str]:
    """Return the hidden files and folders in a run, but for its lock."""
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.name != ".lock")


# ---- checkpoints without training ----


def load_state(folder: Path) -> State:
    """Return the state in a checkpoint."""
    config = saved.read_config(folder)
    model = Transformer(config.model)
    decay = config.training.average_decay
    average = MovingAverage(model, decay) if decay else None
    state = State(model=model, optimiser=Optimiser(model, config.training), average=average)
    restore(state, folder, Processes(torch.device("cpu")), config.training)
    return state


def save_later(run: Path, step: int, plain: float | None = None, *, last: int = 5, best: int = 1) -> None:
    """Save the newest checkpoint again as if it were of a later step, and remove those not to be kept.

    Without a dev loss, it is as if the run had been asked to stop.
    """
    all_of_them = Checkpoints(run)
    found = all_of_them.newest_good()
    assert found
    newest = found[0]
    all_of_them.go_back(newest)
    state = load_state(newest)
    state.step = step
    manifest = saved.read_manifest(newest)
    dev = plain and {"loss": plain, "plain": plain, "bleu": None, "signature": None}
    about = {**manifest["about"], "dev": dev, "interrupted": plain is None}
    all_of_them.save(state, saved.read_config(newest), saved.read_subwords(newest, manifest), about, rank=0)
    all_of_them.prune(last, best, "loss")


# ---- things that happen to a run ----


def at_step(step: int, act: Callable[[], object], put: Put = setattr) -> None:
    """Do something once so many steps are done, saved and logged."""
    usual = loop.take_step

    def take_step(run: Any, batch: Any) -> Any:
        if run.state.step == step:
            act()
        return usual(run, batch)

    put(loop, "take_step", take_step)


def at_save(step: int, act: Callable[[], object], put: Put = setattr) -> None:
    """Do something when the checkpoint of a step is about to be made."""
    usual = loop.checkpoint

    def checkpoint(run: Any, **more: Any) -> None:
        if run.state.step == step:
            act()
        usual(run, **more)

    put(loop, "checkpoint", checkpoint)


# ---- processes to be killed ----

PREAMBLE = """
import os, pathlib, resource, shutil, signal
from forks import before_change, die, on_call
from runs import at_save, at_step, save_later
from transduce import disk
from transduce.model import saved
from transduce.training import checkpoint, loop, meter, metrics, run
meter.SECONDS = 0  # a line of the log for every step
"""


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    code: int
    text: str


class Forks(ForkServer):
    """Runs transduce in processes of its own."""

    def __init__(self, folder: Path):
        # Several processes import these two, which takes long.
        slow = ("torch._dynamo", "torch.distributed.fsdp")
        super().__init__(*slow, "transduce.training.run", folder=Path(__file__).parent)
        self.log = folder / "log"

    def run(self, code: str, *arguments: str) -> Ended:
        """Run code and then a command line; wait for the end."""
        return self.run_all([code], *arguments)

    def run_all(self, codes: Sequence[str], *arguments: str) -> Ended:
        """Run a command line in several processes at once, each after some code of its own."""
        self.log.write_bytes(b"")
        files = [os.devnull, str(self.log), str(self.log)]
        processes = [self.start(PREAMBLE + code, arguments, files) for code in codes]
        codes_left = [self.wait(process) for process in processes]
        return Ended(next(filter(None, codes_left), 0), self.log.read_text())
