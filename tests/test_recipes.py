"""Recipes go from raw files to scores on small text: their records are true, and nothing is done twice."""

import hashlib
import importlib
import json
import lzma
import math
import re
import runpy
import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from treebank import make_trees

from transduce import Translator
from transduce.config import Config, ModelConfig
from transduce.model.saved import find_model, read_manifest, save_model
from transduce.model.transformer import Transformer
from transduce.text.numbers import corpus
from transduce.text.shards import DataSet
from transduce.text.subwords import Subwords, SubwordsConfig, learn
from transduce.text.trees import Tree, parse_tree

RECIPES = Path(__file__).parents[1] / "recipes"
SMALL = [
    *("model.layers=1", "model.d-model=16", "model.d-ff=32", "model.heads=2", "batch.source-tokens=512"),
    *(
        "batch.target-tokens=512",
        "batch.parts=1",
        "training.steps=6",
        "training.warmup-steps=2",
        "training.checkpoint-steps=3",
    ),
    *("training.bleu-sentences=10", "training.precision=float32", "search.max-tokens=6", "search.beam=2"),
]
TRAIN, DEV, TEST = 240, 12, 12
DEV_SET = "newstest2013"


@pytest.fixture(autouse=True)
def recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    """Run a recipe as its command does."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")


def write(folder: Path, name: str, languages: tuple[str, str], split: str, first: int, many: int) -> None:
    """Write pairs of the built-in corpus as two files."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = corpus(split, first + many)[first:]  # pyright: ignore[reportArgumentType]
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side].capitalize()}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text)


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


def manifest(data: Path) -> dict[str, Any]:
    return json.loads((data / "manifest.json").read_text())


def check_score(found: dict[str, Any], name: str, said: Path, reference: Path, *, lowercase: bool = False) -> None:
    """Fail unless the recorded score is that of the files."""
    expected = sacrebleu.BLEU(lowercase=lowercase)
    lines = said.read_text().splitlines(), [reference.read_text().splitlines()]
    assert len(lines[0]) == TEST
    assert found["steps"][f"score {name}"]["bleu"]["value"] == expected.corpus_score(*lines).score
    assert found["steps"][f"score {name}"]["bleu"]["signature"] == str(expected.get_signature())


@pytest.mark.parametrize("quick", [False, True])
def test_multi30k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool):
    data, out = tmp_path / "text", tmp_path / "out"
    write(data, "train", ("en", "fr"), "train", 0, TRAIN)
    write(data, "val", ("en", "fr"), "dev", 0, DEV)
    write(data, "test_2016_flickr", ("en", "fr"), "test", 0, TEST)
    packed = lzma.compress((data / "train.fr").read_bytes())
    (data / "train.fr").unlink()
    (data / "train.fr.xz").write_bytes(packed)
    flags = ["--to", "fr", "--subwords", "320", *(["--quick"] if quick else [])]
    run(monkeypatch, "multi30k", str(data), "--out", str(out), *flags, "--set", *SMALL)
    found = results(out)
    assert found["recipe"] == "multi30k"
    assert found["files"]["train.fr.xz"]["sha256"] == hashlib.sha256(packed).hexdigest()
    assert set(found["files"]) == {path.name for path in data.iterdir()}
    assert found["steps"]["train run"]["config"]["model"]["d_model"] == 16
    assert found["steps"]["train run"]["steps"] == 6
    check_score(found, "val", out / "val.fr", data / "val.fr", lowercase=True)
    check_score(found, "test_2016_flickr", out / "test_2016_flickr.fr", data / "test_2016_flickr.fr", lowercase=True)
    assert found["steps"]["train run"]["config"]["training"]["agreement"] == (3 if quick else 5)
    # Again: nothing is done, nothing changes; with other settings it is refused.
    run(monkeypatch, "multi30k", str(data), "--out", str(out), *flags, "--set", *SMALL)
    assert results(out) == found
    with pytest.raises(SystemExit, match="give another --out"):
        run(monkeypatch, "multi30k", str(data), "--out", str(out), *flags, "--set", *SMALL, "training.steps=7")


def test_time_before_a_stop_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = importlib.import_module("recipe")
    clock = iter([1000.0, 1060.0, 2000.0, 2005.0])
    monkeypatch.setattr(recipe, "BEGIN", 990.0)
    monkeypatch.setattr(recipe, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    arguments = recipe.Arguments("", 320).parse_args(["text", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        recipe.Recipe(arguments).step("train run", lambda: sys.exit(143))
    found = results(tmp_path)
    assert found["steps"] == {}
    assert found["stopped"]["train run"]["seconds"] == 60
    # What is done on another machine says so.
    before, other = found["machine"], {"gpu": "another", "cpu": "x", "torch": "3"}
    monkeypatch.setattr(recipe, "BEGIN", 1997.0)
    monkeypatch.setattr(recipe, "describe_machine", lambda: other)
    recipe.Recipe(arguments).step("train run", lambda: {"steps": 6})
    found = results(tmp_path)
    expected = {"steps": 6, "seconds": 65, "seconds_until_here": 78, "machine": other}
    assert found["steps"]["train run"] == expected
    assert found["machine"] == before
    assert found["stopped"] == {}


def write_pool(folder: Path, languages: tuple[str, str], names: tuple[str, str] = ("europarl", "pud")) -> None:
    for number, name in enumerate(names):
        write(folder, name, languages, "train", number * TRAIN // 2, TRAIN // 2)
    write(folder, "newstest2013", languages, "dev", 0, DEV)
    write(folder, "newstest2014", languages, "test", 0, TEST)


@pytest.mark.parametrize(("recipe", "training", "reverse"), [("en-de", "paper", True), ("en-fr", "modern", False)])
def test_a_pool_of_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, training: str, reverse: bool):
    data, out, other = tmp_path / "text", tmp_path / "out", recipe[-2:]
    write_pool(data, ("en", other))
    flags = ["--training", training, "--subwords", "320", *["--reverse"] * reverse]
    run(monkeypatch, recipe, str(data), "--out", str(out), *flags, "--set", *SMALL)
    found = results(out)
    target = "en" if reverse else other
    assert set(found["files"]) == {path.name for path in data.iterdir()}
    assert found["steps"]["prepare data"]["pairs"] > 0.9 * TRAIN
    schedule = found["steps"]["train run"]["config"]["training"]["schedule"]
    assert schedule == ("inverse-sqrt" if training == "paper" else "linear")
    assert ("train run-last" in found["steps"]) == (training == "modern")
    if training == "modern":
        # The last steps use other text with the same subwords, and start from the trained weights.
        inputs = {
            Path(file).name: each["weight"] for each in manifest(out / "data-last")["inputs"] for file in each["files"]
        }
        assert inputs == {"europarl.en": 0.5, "europarl.fr": 0.5, "pud.en": 4.0, "pud.fr": 4.0}
        assert (
            DataSet.open(out / "data").subwords["source"].model
            == DataSet.open(out / "data-last").subwords["source"].model
        )
        first, last = (found["steps"][f"train {name}"]["dev"] for name in ("run", "run-last"))
        assert last[0]["step"] == 0
        assert last[0]["perplexity"] == pytest.approx(min(point["perplexity"] for point in first))
    check_score(found, "newstest2014", out / f"newstest2014.{target}", data / f"newstest2014.{target}")
    about = json.loads((out / "run" / "model" / "manifest.json").read_text())["about"]
    assert about["languages"] == ([other, "en"] if reverse else ["en", other])
    assert found["seconds"] >= sum(step["seconds"] for step in found["steps"].values())


def test_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only text with a fitting licence is used, none of the test sets is trained on, and the result is small."""
    data, out = tmp_path / "text", tmp_path / "out"
    write_pool(data, ("en", "de"), ("tatoeba", "europarl.1"))
    write(data, "wesnoth", ("en", "de"), "train", TRAIN, 30)
    write(tmp_path / "captions", "test_2016_flickr", ("en", "de"), "test", TEST, TEST)
    layers = ["model.encoder-layers=1", "model.decoder-layers=1"]
    flags = ["--captions", str(tmp_path / "captions"), "--reverse", "--subwords", "320", "--set", *SMALL, *layers]
    run(monkeypatch, "box", str(data), "--out", str(out), *flags)
    found = results(out)
    inputs = manifest(out / "data")["inputs"]
    assert {Path(file).name for each in inputs for file in each["files"]} == {
        f"{name}.{language}" for name in ("tatoeba", "europarl.1") for language in ("en", "de")
    }
    everyday = (out / "text" / "everyday.de").read_text().splitlines()
    assert len(everyday) == found["steps"]["everyday"]["pairs"] == 2
    trained_on = DataSet.open(out / "data")
    lines = {trained_on.text("train", "source", number) for number in range(trained_on.train.pairs)}
    assert len(lines) > TRAIN - 20
    assert not lines & {*everyday, *(data / "newstest2014.de").read_text().splitlines()}
    check_score(found, "newstest2014", out / "newstest2014.en", data / "newstest2014.en")
    check_score(found, "test_2016_flickr", out / "test_2016_flickr.en", tmp_path / "captions" / "test_2016_flickr.en")
    big, small = (path / "model.safetensors" for path in (out / "run" / "model", out / "model"))
    assert 2.5 * small.stat().st_size < big.stat().st_size
    assert found["steps"]["shrink"]["bytes"] == sum(path.stat().st_size for path in (out / "model").iterdir())

    # And once more from there, through the last steps alone.
    flags[flags.index("--set") : flags.index("--set")] = ["--from", str(out / "model")]
    again = tmp_path / "again"
    run(monkeypatch, "box", str(data), "--out", str(again), *flags, "training.schedule=constant")
    found = results(again)
    assert not (again / "run").exists()
    assert manifest(again / "data-last")["subwords"] == manifest(out / "data")["subwords"]
    weights = [load_file(find_model(path) / "model.safetensors") for path in (again / "run-last", out / "model")]
    assert weights[0].keys() != weights[1].keys()  # trained as floats, from integers
    assert found["steps"]["train run-last"]["steps"] == 6
    asked = found["steps"]["numbers in words"]
    assert [one["of"] for one in asked.values() if isinstance(one, dict)] == [72, 72, 72, 144]
    for one in asked.values():
        assert not isinstance(one, dict) or one["right"] + len(one["wrong"]) == one["of"]


def test_sentences_with_numbers():
    """Both sides have the same numbers, and the questions of the quiz are in no training pair."""
    numerals = importlib.import_module("numerals")
    pairs = numerals.make_pairs(4000)
    assert pairs == numerals.make_pairs(4000)
    assert len({source for source, _ in pairs}) == 4000
    figures = [[sorted(re.findall(r"\d+", re.sub(r"(?<=\d)[.,](?=\d)", "", side))) for side in pair] for pair in pairs]
    times = [bool(re.search(r"\d (am|pm)\b", source)) for source, _ in pairs]  # of the clock of twelve hours
    assert all(source == target for (source, target), time in zip(figures, times, strict=True) if not time)
    assert 0.1 < sum(map(bool, (source for source, _ in figures))) / 4000 < 0.4
    frames = [frame for some in numerals.FRAMES.values() for frame in some]
    for english, german in frames:
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", german))
    assert not {side for frame in frames for side in frame} & {side for frame in numerals.QUIZ for side in frame}
    asked = {
        question for frame in numerals.QUIZ for side in (0, 1) for question, _ in numerals.make_quiz(frame, side, 1)
    }
    assert not asked & {side for pair in numerals.make_pairs(20_000, seed=2) for side in pair}


@pytest.mark.parametrize(
    ("frame", "place", "target", "said", "right"),
    [
        (0, 20, 1, "Es kostet vierundvierzig Euro.", False),
        (0, 20, 1, "Das kostet dreiundvierzig Euro.", True),
        (0, 20, 1, "Das kostet 43 Euro.", True),
        (0, 20, 1, "Das kostet 143 Euro.", False),
        (0, 20, 1, "Das kostet 43,50 Euro.", False),
        (0, 20, 0, "It is forty three euros.", True),
        (0, 20, 0, "It is a hundred and forty-three euros.", False),
        (0, 20, 0, "It is €43.", True),
        (3, 6, 1, "Der Zug fährt um halb zwei ab.", True),
        (3, 6, 1, "Der Zug fährt um 13.30 Uhr ab.", True),
        (3, 6, 1, "Der Zug fährt um 1:30 Uhr ab.", True),
        (3, 6, 1, "Der Zug fährt um fünf vor halb zwei ab.", False),
        (3, 6, 1, "Der Zug fährt um halb eins ab.", False),
        (3, 1, 0, "The train leaves at five after one.", True),
        (3, 1, 0, "The train leaves at twenty-five past one.", False),
        (3, 0, 0, "The train leaves at one.", True),
        (3, 0, 0, "The train leaves at five to one.", False),
        (3, 0, 0, "The train leaves at 1 p.m.", True),
        (3, 0, 1, "Der Zug fährt um eins ab.", True),
        (3, 0, 1, "Der Zug fährt um 13 Uhr ab.", True),
    ],
)
def test_what_is_a_right_answer(frame: int, place: int, target: int, said: str, right: bool):
    numerals = importlib.import_module("numerals")
    _, answer = numerals.make_quiz(numerals.QUIZ[frame], 1 - target, target)[place]
    assert bool(answer.search(said)) == right


@pytest.mark.parametrize(("other", "size"), [("de", "base"), ("fr", "big")])
def test_wmt14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, size: str):
    """The files as WMT distributes them: corpora in folders, test sets as SGML."""
    data, out = tmp_path / "text", tmp_path / "out"
    corpora = [f"europarl-v7.{other}-en", f"commoncrawl.{other}-en", f"news-commentary-v9.{other}-en"]
    corpora += ["undoc.2000.fr-en", "giga-fren.release2.fixed"] if other == "fr" else []
    for number, name in enumerate(corpora):
        write(data / "training", name, ("en", other), "train", 60 * number, 60)
    write(data / "dev", "newstest2013", ("en", other), "dev", 0, DEV)
    write(data / "plain", "newstest2014", ("en", other), "test", 0, TEST)
    (data / "test-full").mkdir()
    for role, language in (("src", "en"), ("ref", other)):
        lines = (data / "plain" / f"newstest2014.{language}").read_text().splitlines()
        lines[0] += " & co <x>"
        segments = "\n".join(f'<seg id="{i}">{escape(line)}</seg>' for i, line in enumerate(lines, 1))
        name = f"newstest2014-{other}en-{role}.{language}.sgm"
        (data / "test-full" / name).write_text(f'<srcset setid="newstest2014">\n<doc>\n{segments}\n</doc>\n</srcset>\n')
        (data / "plain" / f"newstest2014.{language}").unlink()
    flags = ["--size", size, "--subwords", "320", "--set", *SMALL]
    run(monkeypatch, f"wmt14-en-{other}", str(data), "--out", str(out), *flags)
    found = results(out)
    reference = out / "text" / f"newstest2014.{other}"
    assert reference.read_text().splitlines()[0].endswith(" & co <x>")
    check_score(found, "newstest2014", out / f"newstest2014.{other}", reference)
    assert {f"newstest2014-{other}en-src.en.sgm", f"{corpora[0]}.en", "newstest2013.en"} <= set(found["files"])
    paper = found["steps"]["train run"]["config"]["training"]
    assert paper["average_checkpoints"] == {"base": 5, "big": 20}[size]
    (data / "training" / f"{corpora[1]}.{other}").unlink()
    with pytest.raises(SystemExit, match=rf"has {corpora[1]}\.{other}"):
        run(monkeypatch, f"wmt14-en-{other}", str(data), "--out", str(tmp_path / "new"), *flags)


def test_table3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    data, out = tmp_path / "text", tmp_path / "out"
    write_pool(data, ("en", "de"))
    flags = [str(data), "--out", str(out), "--every", "2", "--subwords", "320"]
    small = [change for change in SMALL if not change.startswith("model.heads")]
    for rows in ([], ["base", "A-heads-4"], ["B-d_k-16"]):
        changes = [word for change in small for word in ("--set", change)]
        run(monkeypatch, "table3", *flags, *changes, "--rows", *rows)
    found = json.loads((out / "table3.json").read_text())
    assert [row["row"] for row in found["rows"]] == ["base", "A-heads-4", "B-d_k-16"]
    assert found["steps"]["prepare data"]["pairs"] <= TRAIN // 2
    assert {"europarl.en", "newstest2013.de"} <= set(found["files"])
    assert [row["training"]["config"]["model"]["heads"] for row in found["rows"]] == [8, 4, 8]
    shown = capsys.readouterr().out
    for row in found["rows"]:
        assert row["perplexity"] == row["training"]["dev"][-1]["perplexity"]
        assert f"{row['perplexity']:.2f}" in shown
        weights = load_file(find_model(out / row["row"] / "run") / "model.safetensors")
        assert row["parameters"] == sum(weight.numel() for weight in weights.values())
        check_score(results(out / row["row"]), DEV_SET, out / row["row"] / f"{DEV_SET}.de", data / f"{DEV_SET}.de")
    assert "B-d_k-16" in shown
    assert -1 <= found["rank_correlation"]["perplexity"] <= 1


def make_translator(folder: Path, lines: list[str], subwords: int, **sizes: Any) -> Subwords:
    """Save an untrained model with subwords of these lines; return the subwords."""
    known = Subwords(learn(lines, SubwordsConfig(size=subwords, coverage=1.0)))
    config = Config(model=ModelConfig(vocabulary=len(known), **sizes))
    torch.manual_seed(1)
    both = {"source": known, "target": known}
    save_model(folder, config, Transformer(config.model).state_dict(), both, {"languages": ["en", "de"]})
    return known


@pytest.mark.parametrize("kind", ["two models", "wsj", "encoder"])
def test_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str):
    data, out, wsj = tmp_path / "trees", tmp_path / "out", kind == "wsj"
    data.mkdir()
    trees = list({tuple(tree.words()): tree for tree in make_trees(80, seed=1)}.values())[:60]
    if wsj:
        for section in range(2, 24):
            (data / f"{section:02}").mkdir()
            own = {22: trees[:4], 23: trees[1:6]}.get(section, trees[2 * section : 2 * section + 2])
            (data / f"{section:02}" / f"wsj_{section:02}00.mrg").write_text("".join(f"{tree}\n" for tree in own))
    else:
        for name, own in (("train", trees[4:]), ("dev", trees[:4]), ("test", trees[1:6])):
            (data / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in own))
    small = [
        "training.bleu-sentences=2",
        "search.beam=2",
        *(s for s in SMALL if not s.startswith(("search", "training.bleu"))),
    ]
    flags = ["--subwords", "300", "--models", "2" if kind == "two models" else "1"]
    if wsj:
        flags += ["--wsj", "--preset", "parsing"]
    if kind == "encoder":
        sizes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 16, "d_ff": 32, "heads": 2}
        lines = [" ".join(tree.words()) for tree in trees]
        make_translator(tmp_path / "translator", lines, 300, **sizes)
        flags += ["--encoder", str(tmp_path / "translator")]
        small = [s for s in small if not s.startswith("model.")]
    flags += ["--set", *small]
    run(monkeypatch, "parsing", str(data), "--out", str(out), *flags)
    steps, shown = results(out)["steps"], capsys.readouterr().out
    assert steps["seen"]["seen"] == 2
    assert steps["prepare data"]["pairs"] == 40 if wsj else steps["prepare data"]["pairs"] > 2 * 56
    config = steps["train run-1"]["config"]["model"]
    assert config["encoder_layers"] == (2 if kind == "encoder" else None)
    assert config["decoder_layers"] == (4 if kind == "encoder" else None)
    for name in ("last", "mean", *(["2 models"] if kind == "two models" else [])):
        words = [parse_tree(line).words() for line in (out / f"test {name}.trees").read_text().splitlines()]
        assert words == [tree.words() for tree in trees[1:6]]
        assert steps[f"parse test {name}.trees"]["malformed"] == 0
        assert steps[f"score test {name}"]["sentences"] == 5
        assert steps[f"score test {name} without sentences of train"]["sentences"] == 3
        assert f"{steps[f'score test {name}']['f1']['value']:9.2f}" in shown
        assert 0 <= steps[f"score test {name}"]["f1"]["value"] <= 100
    assert steps["parse dev not constrained.trees"]["malformed"] > 0
    tried = {
        found["settings"]["word_share"]: steps[name.replace("parse", "score").removesuffix(".trees")]["f1"]["value"]
        for name, found in steps.items()
        if name.startswith("parse dev mean") and "beam" not in found["settings"]
    }
    assert list(tried) == ([1.0] if wsj else [1.0, 0.75, 0.5, 0.35])
    best = steps["parse test mean.trees"]["settings"]["word_share"]
    assert tried[best] == max(tried.values())
    for beam in (1, 4, 8):
        assert steps[f"parse dev mean, beam {beam}.trees"]["settings"] == {"beam": beam, "word_share": best}
    assert len(steps["average mean-1"]["checkpoints"]) > 1
    assert ("parse test 2 models.trees" in steps) == (kind == "two models")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--models", "0"], "argument --models: invalid count value: '0'"),
        (["--wsj", "--beside", "other"], "--wsj and --beside do not go together"),
        (["--set", "model.layer=3"], "there is no model.layer; did you mean model.layers"),
    ],
)
def test_mistakes_are_answered_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "parsing", str(tmp_path / "trees"), "--out", str(tmp_path / "out"), *flags)
    assert message in capsys.readouterr().err + str(stopped.value)
    assert not (tmp_path / "out").exists()


def nest(tree: Tree) -> Tree:
    """Return the tree with a bracket around what follows an article, as some of GENIA's annotators had it."""
    children = tuple(nest(child) for child in tree.children)
    if tree.label == "NP" and len(children) > 1 and children[0].label == "DT":
        children = (children[0], Tree("NP", children[1:]))
    return Tree(tree.label, children, tree.word)


def test_trees_that_are_written_as_the_dev_set_is():
    alike = runpy.run_path(str(RECIPES / "alike.py"))
    find_alike, BLOCK = alike["find_alike"], alike["BLOCK"]  # noqa: N806
    trees = make_trees(30 * BLOCK, seed=1)
    nested = range(4 * BLOCK, 11 * BLOCK)
    mixed = [nest(tree) if number in nested else tree for number, tree in enumerate(trees)]
    dev = make_trees(300, seed=2)
    assert find_alike(mixed, [nest(tree) for tree in dev]) == mixed[nested.start : nested.stop]
    assert find_alike(mixed, dev) == [*mixed[: nested.start], *mixed[nested.stop :]]
    # All alike, or too few to tell.
    assert find_alike(trees, [nest(tree) for tree in dev]) == trees
    assert find_alike(mixed[: 15 * BLOCK], dev) == mixed[: 15 * BLOCK]


def test_parsing_several_treebanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Models learn both; then each treebank has its own models, which start from these."""
    out = tmp_path / "out"
    trees = make_trees(60, seed=3)
    parts = {"one": trees, "other": [nest(tree) for tree in make_trees(60, seed=4)]}
    for name, own in parts.items():
        (tmp_path / name).mkdir()
        for part, some in (("train", own[8:]), ("dev", own[:4]), ("test", own[4:8])):
            (tmp_path / name / f"{part}.mrg").write_text("".join(f"{tree}\n" for tree in some))
    small = [each for each in SMALL if not each.startswith("search")]
    flags = ["--beside", str(tmp_path / "other"), "--models", "2", "--subwords", "300"]
    run(monkeypatch, "parsing", str(tmp_path / "one"), "--out", str(out), *flags, "--set", *small, "search.beam=2")
    found = results(out)
    steps = found["steps"]
    assert {"train.mrg", "dev.mrg", "test.mrg", "other/train.mrg", "other/dev.mrg", "other/test.mrg"} == set(
        found["files"]
    )
    assert [name for name in steps if name.startswith("train")] == [
        *("train run-1", "train run-2"),
        *("train one-last-1", "train one-last-2", "train other-last-1", "train other-last-2"),
    ]
    together = steps["prepare data"]["pairs"]
    apart = [steps[f"prepare {name}-data-last"]["pairs"] for name in parts]
    assert together == sum(apart)
    for name, own in parts.items():
        about = read_manifest(find_model(out / f"{name}-last-2"))["about"]
        assert about["began_with"] == "run-2"
        assert set(about["trained_before"][0]["inputs"]) == {"one/train.mrg", "other/train.mrg"}
        for found_trees in ("test mean", "test 2 models", "test last"):
            lines = (out / f"{name}-{found_trees}.trees").read_text().splitlines()
            assert [parse_tree(line).words() for line in lines] == [tree.words() for tree in own[4:8]]
    assert steps["score one-dev before the last steps"] != steps["score one-dev mean"]


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=20, unique=True), st.randoms())
def test_rank_correlation(values: list[int], random: Any):
    rank_correlation = runpy.run_path(str(RECIPES / "table3.py"))["rank_correlation"]
    shuffled = random.sample(values, len(values))
    ranks = [sorted(values).index(value) for value in values], [sorted(values).index(value) for value in shuffled]
    squares = sum((a - b) ** 2 for a, b in zip(*ranks))
    many = len(values)
    assert rank_correlation(values, shuffled) == pytest.approx(1 - 6 * squares / (many * (many**2 - 1)))
    assert rank_correlation([1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 2.0, 3.0]) == pytest.approx(1)
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) is None


def test_pronouns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The right pronoun is as probable as in whole translations, and each head of the model is switched off."""
    pronouns = importlib.import_module("pronouns")
    probes = list(pronouns.make_probes())
    assert len({probe.source for probe in probes}) == 108
    lines = [line for probe in probes for line in (probe.source, *map(probe.target, pronouns.PRONOUNS))]
    subwords = make_translator(tmp_path / "model", lines, 500, layers=1, d_model=8, d_ff=8, heads=2)
    run(monkeypatch, "pronouns", str(tmp_path / "model"), "--out", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    translator = Translator.load(tmp_path / "model", precision="float32", engine="torch")
    right, shares = [], []
    for probe in probes:
        place = pronouns.find_spots(translator, probe)
        source, target = (
            subwords.pieces(translator.tokens(text, side)[:-1])
            for text, side in ((probe.source, "source"), (probe.target(probe.right), "target"))
        )
        assert source[place.it] == "▁it"
        assert "".join(source[token] for token in place.source_noun).strip("▁.,") == probe.noun
        assert target[place.step] == f"▁{probe.right}"
        article, german = "".join(target[step - 1] for step in place.target_noun).strip("▁").split("▁")
        assert german == probe.german
        assert article.lower() in {"er": ("der", "den"), "sie": ("die",), "es": ("das",)}[probe.right]
        scores = translator.score([(probe.source, probe.target(pronoun)) for pronoun in pronouns.PRONOUNS])
        said = [math.exp(score[place.step]) for score in scores]
        wanted = pronouns.PRONOUNS.index(probe.right)
        shares.append(said[wanted] / sum(said))
        right.append(said[wanted] == max(said))
    assert found["whole"]["probability"] == pytest.approx(sum(shares) / 108, rel=1e-4)
    assert found["whole"]["right"] == pytest.approx(sum(right) / 108)
    names = [(head["kind"], head["layer"], head["head"]) for head in found["heads"]]
    assert names == [(kind, 1, head) for kind in ("encoder", "decoder", "cross") for head in (1, 2)]
    assert len({found["whole"]["probability"], *(head["probability"] for head in found["heads"])}) == 7
    assert all(0 < head["looks"] < 1 for head in found["heads"])
    assert capsys.readouterr().out.startswith(f"the right pronoun: {found['whole']['right']:.1%}")


def test_finetune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A domain's dev and test lines are in no training set; four ways to tune and two mixtures, all scored twice."""
    data, out = tmp_path / "text", tmp_path / "out"
    write_pool(data, ("en", "de"))
    write(data, "docs", ("en", "de"), "train", 0, 10)  # other text on software: no part of what is general
    write(data, "libreoffice", ("en", "de"), "train", TRAIN, 1600)
    flags = ["--size", "tiny", "--subwords", "320", "--extend", "20"]
    run(monkeypatch, "finetune", str(data), "--out", str(out), *flags, "--set", *SMALL, "training.checkpoint-steps=6")
    found = results(out)
    assert set(found["files"]) == {path.name for path in data.iterdir() if not path.name.startswith("docs.")}
    lines = {name: (out / "text" / f"{name}.en").read_text().splitlines() for name in ("docs-dev", "docs-test")}
    whole = (data / "libreoffice.en").read_text().splitlines()
    assert lines["docs-test"] == list({line.casefold(): line for line in whole[:100]}.values())
    assert lines["docs-dev"] == list({line.casefold(): line for line in whole[800:900]}.values())
    names = ["before", *(f"{kind}-{way}" for kind in ("kept", "extended") for way in ("alone", "mixed", "half"))]
    rows = {row["model"]: row for row in found["steps"]["table"]["rows"]}
    assert rows.keys() == {*names}
    for name in ("before", "extended-half"):
        said = (out / f"{name}.newstest2014.de").read_text().splitlines()
        reference = (data / "newstest2014.de").read_text().splitlines()
        assert rows[name]["newstest2014"] == sacrebleu.BLEU().corpus_score(said, [reference]).score
    for name in ("kept-alone", "extended-mixed"):
        split = DataSet.open(out / f"data-{name}")
        texts = {split.text("train", "source", pair) for pair in range(split.train.pairs)}
        assert texts.isdisjoint({*lines["docs-dev"], *lines["docs-test"]})
        assert (len(split.subwords["target"]) > 320) == (name == "extended-mixed")
        assert len(split.weights()) == (2 if name == "extended-mixed" else 1)
        assert found["steps"][f"train {name}"]["watch-newstest2013"][0]["step"] == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[-len(names) - 1 :]] == ["model", *names]
