"""Parsers alone and in int8: their trees are those of the original model, or are judged by reference trees."""

import re
from pathlib import Path

import pytest
from treebank import make_trees

from transduce import Parser
from transduce.cli import main
from transduce.interop import check_trees

SIZES = ["--model.layers", "1", "--model.d-model", "32", "--model.d-ff", "64", "--model.heads", "2"]
BATCH = ["--batch.parts", "1", "--batch.source-tokens", "2048", "--batch.target-tokens", "2048"]
TRAINING = [
    "--training.steps",
    "60",
    "--training.warmup-steps",
    "20",
    "--training.peak-rate",
    "0.01",
    "--search.beam",
    "3",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A treebank of our own, and a parser trained a little on it."""
    folder = tmp_path_factory.mktemp("parser")
    for name, count, seed in (("bank", 200, 1), ("dev", 30, 2)):
        (folder / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in make_trees(count, seed)))
    files = ["--trees", str(folder / "bank.mrg"), "--dev-trees", str(folder / "dev.mrg"), "--leaves", "tags"]
    data = str(folder / "data")
    assert main(["prepare", data, "--task", "parsing", *files, "--subwords", "300", "--workers", "1"]) == 0
    few = ["--training.checkpoint-steps", "60", "--training.bleu-sentences", "5", "--training.agreement", "0"]
    train = ["train", data, "--out", str(folder / "run"), "--preset", "parsing-small", "--device", "cpu"]
    assert main([*train, *SIZES, *BATCH, *TRAINING, *few]) == 0
    return folder


def test_in_float32_it_finds_the_same_trees(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "alone"
    assert main(["export", str(folder / "run"), "--to", "transduce", "--out", str(out)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == [
        f"  30 sentences (the dev set of {folder / 'data'}), parsed by the new model and by the old one",
        "  greedily: 30 of 30 the same",
        "  with beam 3: 30 of 30 the same",
    ]
    text = "The dog sees a cat with the telescope."
    assert str(Parser.load(out).parse(text)) == str(Parser.load(folder / "run").parse(text))
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A parser, for transduce\n")
    assert "transduce parse alone < SENTENCES" in card


def test_in_int8_it_is_judged_by_right_trees(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Those of the dev set or of a file; without any, the two are compared and nothing is judged."""
    for number, flags in enumerate(([], ["--check", str(folder / "bank.mrg"), "--sentences", "40"])):
        out = tmp_path / str(number)
        command = ["export", str(folder / "run"), "--to", "transduce", "--precision", "int8", "--out", str(out)]
        assert main([*command, *flags]) == 0
        shown = capsys.readouterr().out
        scores = re.search(r"F1 ([\d.]+), ours in float32 ([\d.]+)(, by chance with p = [\d.]+)? \(rules:evalb", shown)
        assert scores
        assert 20 < float(scores[1]) <= 100
        assert ("40 sentences" in shown) == bool(flags)
        assert (out / "model.safetensors").stat().st_size < 0.5 * (
            folder / "run/model/model.safetensors"
        ).stat().st_size
    (folder / "data").rename(folder / "elsewhere")
    try:
        command = ["export", str(folder / "run"), "--to", "transduce", "--precision", "int8", "--sentences", "5"]
        assert main([*command, "--out", str(tmp_path / "blind")]) == 0
    finally:
        (folder / "elsewhere").rename(folder / "data")
    shown = capsys.readouterr().out
    assert "5 sentences (lines of random subwords)" in shown
    assert f"{folder / 'data'}, is missing, so they are made up; --check TREES uses your own trees" in shown
    assert re.search(
        r"F1 against ours: [\d.]+ \(for information only; to judge it by your own text: --check TREES\)", shown
    )


def test_one_that_finds_other_trees_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    usual = check_trees._parse
    seen: list[int] = []

    def parse(parser: Parser, lines: list[str], beam: int, name: str) -> list[str]:
        found = usual(parser, lines, beam, name)
        seen.append(beam)
        return [found[-1], *found[1:]] if len(seen) == 1 else found

    monkeypatch.setattr(check_trees, "_parse", parse)
    out = tmp_path / "alone"
    assert main(["export", str(folder / "run"), "--to", "transduce", "--out", str(out)]) == 1
    shown = capsys.readouterr().err
    why = "greedily, 1 of 30 trees differ, and at most 0 may"
    assert f"was not written, as its output differs from the model's: {why}; please report it" in shown
    assert "greedily: 29 of 30 the same" in shown
    assert not out.exists()


def test_other_runtimes_have_no_search_for_trees(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for kind in ("ctranslate2", "onnx", "huggingface"):
        assert main(["export", str(folder / "run"), "--to", kind, "--out", str(tmp_path / kind)]) == 2
        assert "is a parser, and no other runtime has the search that finds its trees; use --to transduce" in (
            capsys.readouterr().err
        )
    assert not list(tmp_path.iterdir())
