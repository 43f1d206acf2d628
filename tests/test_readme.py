"""The README tells the truth: its commands run and print what it shows, its Python runs, its links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from treebank import make_trees

from transduce.cli import main
from transduce.text import numbers

ROOT = Path(__file__).parent.parent
SHORTER = [
    *("--training.steps", "4", "--training.checkpoint-steps", "2", "--training.warmup-steps", "2"),
    *("--training.bleu-sentences", "2", "--model.layers", "1", "--model.d-model", "32", "--model.d-ff", "32"),
    *("--model.heads", "2"),
    *("--batch.source-tokens", "2048", "--batch.target-tokens", "2048"),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Each command of the console blocks, with the lines shown under it."""
    for block in blocks("console"):
        command, shown = "", []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line.removeprefix("$ "), []
            else:
                shown.append(line)
        yield command, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the README's reader has it: with train.en, train.de, dev.en, dev.de and a treebank."""
    folder = tmp_path_factory.mktemp("readme")
    for name, pairs in (("train", numbers.corpus("train", 6000)), ("dev", numbers.corpus("dev", 50))):
        for place, language in enumerate(("en", "de")):
            text = "".join(pair[place] + "\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    for name, trees in (("train", make_trees(200, 1)), ("dev", make_trees(5, 2))):
        (folder / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    return folder


def test_commands_print_what_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    ran = 0
    for command, shown in shown_commands():
        verb, *arguments = shlex.split(command.split("|")[0])
        assert verb == "transduce"
        code = main(arguments)
        printed = capsys.readouterr()
        lines = [line.rstrip() for line in (printed.out + printed.err).splitlines()]
        assert code == (2 if shown[0].startswith("error:") else 0), printed.err
        for line in shown:
            assert line.rstrip() in lines or line.strip() == "…", f"{command} does not print: {line}"
        ran += 1
    assert ran >= 4


def test_the_other_commands_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["prepare", "demo/numbers", "--builtin", "numbers"]) == 0
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("transduce ")]
    assert len(commands) >= 8
    for command in commands:
        # The test's corpus is small, and so must its vocabulary be; and nobody waits here for a model to be good.
        shorter = SHORTER if command.startswith("transduce train") else []
        assert main([*shlex.split(command.replace("16000", "500").replace(" 8000", " 300"))[1:], *shorter]) == 0, (
            capsys.readouterr().err
        )
    assert {path.name for path in (folder / "runs" / "en-de").iterdir()} >= {"checkpoints", "model", "curve.html"}


def test_the_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    assert main(["prepare", "demo/numbers", "--builtin", "numbers"]) == 0
    if not (folder / "demo/run/model").exists():  # which the commands above make, when they are run
        assert main(["train", "demo/numbers", "--preset", "tiny", "--out", "demo/run", *SHORTER]) == 0
    if not (folder / "runs/trees/model").exists():
        trees = ["--trees", "train.mrg", "--dev-trees", "dev.mrg", "--subwords", "300"]
        assert main(["prepare", "data/trees", "--task", "parsing", *trees]) == 0
        assert main(["train", "data/trees", "--preset", "parsing-small", "--out", "runs/trees", *SHORTER]) == 0
    capsys.readouterr()
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "torch.Size([1024])" in printed
    assert "torch.Size([1024, 8000])" in printed


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
    for name in re.findall(
        r"`((?:text|kernels|model|decoding|scoring|seeing|serving|training|docs|benchmarks|recipes|tests)/[\w./-]+\.\w+)",
        text,
    ):
        assert (ROOT / name).exists() or (ROOT / "src/transduce" / name).exists(), f"{page}: {name}"
