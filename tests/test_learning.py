"""Models learn to copy and to reverse, by the real command line, well enough on sequences never seen."""

import random
from pathlib import Path

import pytest

from transduce import Translator
from transduce.cli import main

LETTERS = "abcdefgh"
# The corpus is made of single letters, in which the usual rules see no language.
PREPARE = ["--subwords", "281", "--no-clean.near-duplicate"]
PREPARE += [
    word for rule in ("copied", "letters", "repeated", "language", "leak") for word in (f"--clean.{rule}", "off")
]
MODEL = ["--model.d-model", "64", "--model.d-ff", "128", "--model.heads", "4"]
BATCH = ["--batch.source-tokens", "512", "--batch.target-tokens", "512", "--batch.parts", "1"]
TRAINING = ["--training.steps", "200", "--training.warmup-steps", "30", "--training.peak-rate", "0.008"]
TRAINING += ["--training.schedule", "linear", "--training.bleu-sentences", "100", "--training.checkpoint-steps", "100"]


def sequences(count: int) -> list[str]:
    """Return different sequences of two to six letters."""
    chance = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(chance.choices(LETTERS, k=chance.randint(2, 6)))] = None
    return list(found)


def test_held_out_sequences_come_out_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # One model learns both tasks; a letter in front says which of them is meant.
    pairs = [
        (f"x {text}", text) if place % 2 else (f"y {text}", text[::-1]) for place, text in enumerate(sequences(6_500))
    ]
    train, dev, test = pairs[:6_000], pairs[6_000:6_200], pairs[6_200:]
    for name, some in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in some))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    files = ["--pairs", str(tmp_path / "train.tsv"), "--dev-pairs", str(tmp_path / "dev.tsv")]
    assert main(["prepare", data, *files, *PREPARE]) == 0, capsys.readouterr().err
    assert main(["train", data, "--preset", "tiny", "--out", run, *MODEL, *BATCH, *TRAINING]) == 0, (
        capsys.readouterr().err
    )
    (tmp_path / "test.txt").write_text("".join(f"{source}\n" for source, _ in test))
    assert main(["translate", run, "--input", str(tmp_path / "test.txt"), "--out", str(tmp_path / "out.txt")]) == 0
    outputs = (tmp_path / "out.txt").read_text().splitlines()
    right = sum(output == target for output, (_, target) in zip(outputs, test, strict=True))
    assert right / len(test) >= 0.98, right
    # The heads that show where a letter comes from were found, wherever they are.
    translator = Translator.load(run, device="cpu")
    assert translator.loaded[0].about["alignment"]
    linked = [
        (source.split()[here], found.text.split()[there])
        for found in translator.translate([source for source, _ in test[:100]], alignments=True)
        for source, sentence in [(found.sentences[0].source, found.sentences[0])]
        for here, there in sentence.alternatives[0].alignment or []
    ]
    assert len(linked) > 300
    assert sum(source == target for source, target in linked) / len(linked) > 0.9
