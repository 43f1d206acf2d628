"""What recipes are made of: prepare, train, translate, score. Each step is timed and written to results.json at once.

A stopped recipe resumes when you start it again: steps that are in results.json are not repeated.
"""

import argparse
import html
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from transduce import strict
from transduce.config import Config
from transduce.decoding.parse import ParseJob, run_parse
from transduce.decoding.run import TranslateJob, run_translation
from transduce.disk import describe_file, write_json
from transduce.errors import DataError, TransduceError, UsageError, suggest
from transduce.presets import PRESETS
from transduce.scoring.findings import ScoreJob
from transduce.scoring.score import score
from transduce.scoring.show import show_scores, to_dict
from transduce.scoring.texts import read_lines
from transduce.strict import FromFlag
from transduce.text.inputs import KINDS, ROLES, PrepareConfig
from transduce.text.packed import COMPRESSED
from transduce.text.prepare import prepare
from transduce.text.report import show_report
from transduce.training.averaging import average, choose_checkpoints
from transduce.training.metrics import read_metrics
from transduce.training.run import TrainJob, run_training
from transduce.training.warm import Start
from transduce.version import __version__

Found = dict[str, Any]
SETTINGS: dict[str, Found] = strict.to_dict(PRESETS["base"].config)
PLACE: Found = {"device": "auto", "precision": "auto", "threads": None, "engine": "auto"}
BEGIN = time.monotonic() - time.process_time()  # imports are part of the time a recipe takes


class Arguments(argparse.ArgumentParser):
    """The arguments of a recipe; its docstring is the help."""

    def __init__(self, text: str | None, subwords: int | None):
        super().__init__(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("data", type=Path, metavar="DATA", help="folder with the text")
        self.add_argument("--out", type=Path, required=True, help="folder for all output")
        by_default = f"{subwords:,}" if subwords else "the preset's"
        self.add_argument(
            "--subwords", type=count, default=subwords, help=f"size of the vocabulary (default {by_default})"
        )
        self.add_argument(
            "--set",
            nargs="+",
            action="extend",
            default=[],
            metavar="KEY=VALUE",
            help="train with these settings instead of the recipe's",
        )


def count(text: str) -> int:
    """Read a number of things, of which there must be at least one."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


class Recipe:
    """A recipe at work: `out` gets everything it makes, and results.json its files, times and results."""

    def __init__(self, given: argparse.Namespace):
        self.out: Path = given.out
        self.file = self.out / "results.json"
        self.changes: dict[str, dict[str, FromFlag]] = {}
        for change in given.set:
            key, _, value = change.partition("=")
            section, _, name = key.partition(".")
            name = name.replace("-", "_")
            if name not in SETTINGS.get(section, {}):
                keys = [f"{section}.{each}" for section, own in SETTINGS.items() for each in own]
                raise UsageError(f"--set {change}: there is no {key}{suggest(key, keys) or '; use SECTION.NAME=VALUE'}")
            self.changes.setdefault(section, {})[name] = FromFlag(value)
        settings = {
            name: value for name, value in vars(given).items() if name not in ("data", "out") and value is not None
        }
        self.here = {"commit": find_commit(), "transduce": __version__, "machine": describe_machine()}
        self.found: Found = {
            "recipe": Path(sys.argv[0]).stem,
            "settings": settings,
            **self.here,
            "files": {},
            "steps": {},
            "stopped": {},
            "seconds": 0.0,
        }
        if self.file.exists():
            known = json.loads(self.file.read_text(encoding="utf-8"))
            if {name: value for name, value in known["settings"].items() if value is not None} != settings:
                raise UsageError(f"{self.file}: was made with {known['settings']}; give another --out")
            self.found |= {name: known[name] for name in self.found if name in known}
        self.earlier = self.found["seconds"]
        self.out.mkdir(parents=True, exist_ok=True)

    def step(self, name: str, work: Callable[[], Found]) -> Found:
        """Do a step unless it is done already; record what it found and how long it took."""
        if name not in self.found["steps"]:
            print(f"── {name}", file=sys.stderr)
            begin = time.monotonic() - self.found["stopped"].pop(name, {"seconds": 0.0})["seconds"]

            def write(place: str, found: Found) -> None:
                now = time.monotonic()
                self.found["seconds"] = round(self.earlier + now - BEGIN, 2)
                times = {"seconds": round(now - begin, 2), "seconds_until_here": self.found["seconds"]}
                elsewhere = {what: value for what, value in self.here.items() if value != self.found[what]}
                self.found[place][name] = found | times | elsewhere
                write_json(self.file, self.found)

            try:
                found = work()
            except (SystemExit, KeyboardInterrupt):  # a training resumes when the recipe is started again
                write("stopped", {})
                raise
            write("steps", found)
        return self.found["steps"][name]

    def read(self, *paths: Path) -> None:
        """Record the files used, with their checksums; another file of the same name is listed with its folder."""
        for path in paths:
            found = describe_file(path)
            name = path.name
            if self.found["files"].setdefault(name, found) != found:
                self.found["files"][f"{path.parent.name}/{name}"] = found

    def prepare(self, name: str, **settings: Any) -> Path:
        """Prepare a data set."""
        folder = self.out / name
        config = PrepareConfig(**settings)

        def work() -> Found:
            paths = [path for role in ROLES for kind in KINDS for path in getattr(config, f"{role}{kind}")]
            self.read(*(path for path in paths if not path.is_relative_to(self.out)))
            data, made = prepare(folder, config)
            if made:
                show_report(data.report(), sys.stderr)
            split = data.manifest["splits"]["train"]
            return {key: split[key] for key in ("pairs", "source_tokens", "target_tokens")}

        self.step(f"prepare {name}", work)
        return folder

    def train(self, name: str, data: Path, config: Config, start: Start | None = None) -> Path:
        """Train a model, perhaps from another's weights or encoder; resume it if it was begun."""
        run = self.out / name
        config = strict.apply(config, self.changes, "--set")

        def work() -> Found:
            outcome = run_training(TrainJob(data=data, out=run, config=config, resume=True, start=start))
            for title, text in outcome.summary:
                print(f"{title}: {text}", file=sys.stderr)
            if outcome.exit_code:
                sys.exit(outcome.exit_code)
            return {"config": strict.to_dict(config), **describe_training(run)}

        self.step(f"train {name}", work)
        return run

    def average(self, name: str, run: Path) -> Path:
        """Average a run's last checkpoints, five if there are as many."""
        out = self.out / name

        def work() -> Found:
            checkpoints = choose_checkpoints(run)
            average(checkpoints, out)
            return {"checkpoints": [checkpoint.name for checkpoint in checkpoints]}

        self.step(f"average {name}", work)
        return out

    def blend(self, name: str, models: Sequence[Path], shares: Sequence[float]) -> Path:
        """Average models, weighted by `shares`."""
        out = self.out / name

        def work() -> Found:
            average(models, out, shares)
            return {"models": [model.name for model in models], "shares": list(shares)}

        self.step(name, work)
        return out

    def translate(self, name: str, runs: Path | Sequence[Path], source: Path, **search: Any) -> Path:
        """Translate a file."""
        out = self.out / name

        def work() -> Found:
            out.unlink(missing_ok=True)
            rest = {"json": False, "json_input": False, "prefix": "", "require": (), "forbid": ()}
            models = [runs] if isinstance(runs, Path) else list(runs)
            run_translation(TranslateJob(models=models, input=source, out=out, settings=search, **rest, **PLACE))
            return {"lines": len(read_lines(out)), "search": search}

        self.step(f"translate {name}", work)
        return out

    def score(self, name: str, translations: Path, reference: Path, *, language: str, lowercase: bool = False) -> float:
        """Score translations; return their sacreBLEU."""

        def work() -> Found:
            job = ScoreJob(systems=(translations,), references=(reference,), language=language, lowercase=lowercase)
            report = score(job)
            show_scores(report, sys.stderr)
            return to_dict(report)["systems"][0]["scores"]

        found = self.step(f"score {name}", work)
        return found["bleu"]["value"]

    def parse(self, name: str, runs: Sequence[Path], trees: Path, **settings: Any) -> Path:
        """Parse the words of a file of trees."""
        out = self.out / name

        def work() -> Found:
            out.unlink(missing_ok=True)
            shown = {"input": None, "json": False, "draw": False, "svg": None}
            job = ParseJob(models=runs, trees=trees, out=out, settings=settings, **shown, **PLACE)
            sentences, malformed = run_parse(job)
            return {"sentences": sentences, "malformed": malformed, "settings": settings}

        self.step(f"parse {name}", work)
        return out

    def score_trees(self, name: str, found: Path, gold: Path, leave_out: Sequence[Path] = ()) -> float:
        """Score trees; return their F1."""

        def work() -> Found:
            trees = {"systems": (found,), "references": (gold,), "leave_out": tuple(leave_out)}
            report = score(ScoreJob(metrics=("parseval",), **trees))
            show_scores(report, sys.stderr)
            return {"sentences": report.texts.sentences, **to_dict(report)["systems"][0]["scores"]}

        return self.step(f"score {name}", work)["f1"]["value"]

    def finish(self) -> None:
        """Print where the results are, and how long the recipe took."""
        print(f"{self.file}: {self.found['seconds']:,.0f} s in all", file=sys.stderr)


def run(main: Callable[[], None]) -> None:
    """Run a recipe; print a user's mistakes as errors, without a traceback."""
    try:
        main()
    except TransduceError as error:
        sys.exit("\n".join(f"error: {line}" for line in str(error).splitlines()))


def find_text(folder: Path, name: str) -> Path:
    """Find a file of a folder by its name, compressed or not."""
    for end in ("", *COMPRESSED):
        if (path := folder / f"{name}{end}").exists():
            return path
    raise DataError(f"{folder}: has no {name}, nor one packed as {', '.join(COMPRESSED)}")


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write lines to a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_sgm(path: Path) -> list[str]:
    """Read the sentences of a WMT test set as it is distributed."""
    found = re.findall(r"<seg[^>]*>(.*?)</seg>", path.read_text(encoding="utf-8"), re.DOTALL | re.IGNORECASE)
    if not found:
        raise DataError(f"{path}: has no <seg>; it should be a test set as SGML")
    return [" ".join(html.unescape(segment).split()) for segment in found]


def find_commit() -> str:
    """Return the commit of this checkout, and whether files have changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD") or "unknown"
    return f"{commit} with changes" if git("status", "--porcelain", "--untracked-files=no") else commit


def describe_training(run: Path) -> Found:
    """Return how far a training got, and its scores on dev sets along the way."""
    metrics, validations = read_metrics(run / "metrics.jsonl", name=None)
    shown = ("step", "seconds", "perplexity", "bleu", "f1", "weights")
    curves: dict[str, list[Found]] = {"dev": []}
    for one in validations:
        point = {name: getattr(one, name) for name in shown if getattr(one, name) is not None}
        curves.setdefault(one.name, []).append(point)
    # The training's own clock also counts what came before a kill.
    trained = {"steps": metrics[-1].step, "tokens": metrics[-1].tokens, "trained_seconds": metrics[-1].seconds}
    return trained | curves


def describe_machine() -> Found:
    """Return the GPU, the CPU and the version of torch."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "cpu": platform.processor() or platform.machine(), "torch": torch.__version__}
