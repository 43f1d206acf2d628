"""`transduce models`, and `transduce translate --to`, which finds a model by its language."""

import json
from pathlib import Path

import pytest
from models import learn_tagged, save_tiny

from transduce import Translator, places
from transduce.cli import main
from transduce.decoding import cpu
from transduce.kernels import native

TEXTS = ["two euros", "nine dollars and a half"]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A box of two models, and no others."""
    folder = tmp_path / "box"
    monkeypatch.setattr(places, "BOX", folder)
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "own"))
    save_tiny(folder / "en-de", about={"languages": ["en", "de"]})
    save_tiny(folder / "fr-de", about={"languages": ["fr", "de"]}, seed=2)
    return folder


@pytest.mark.parametrize(("flags", "name"), [((), "en-de"), (("--from", "fr"), "fr-de")])
def test_texts_are_translated_into_a_language(
    box: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], name: str
):
    assert main(["translate", "--to", "de", *flags, *TEXTS]) == 0
    expected = [found.text for found in Translator.load(box / name).translate(TEXTS)]
    assert capsys.readouterr().out.splitlines() == expected
    # The same with the model's own name, and as JSON.
    assert main(["translate", str(box / name), "--json", "--text", *TEXTS]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["translation"] for each in shown] == expected


def test_a_file_is_not_taken_for_a_text(
    box: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("letter.txt").write_text("two euros\n")
    assert main(["translate", "--to", "de", "letter.txt"]) == 2
    said = "error: letter.txt is a file: --input letter.txt translates it, --text letter.txt its name\n"
    assert capsys.readouterr().err == said
    assert main(["translate", "--to", "de", "--text", "letter.txt"]) == 0
    assert main(["translate", "--to", "de", "two " * 500]) == 0  # too long for the name of a file


def test_a_text_may_begin_with_a_hyphen(box: Path, capsys: pytest.CaptureFixture[str]):
    texts = ["- two euros", "--no_way is nine", "-nine dollars"]
    assert main(["translate", "--to", "de", *texts]) == 0
    expected = [found.text for found in Translator.load(box / "en-de").translate(texts)]
    assert capsys.readouterr().out.splitlines() == expected


def test_another_language_is_noted(box: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    german, english = "Der Zug ist heute sehr spät.", "The train is very late today."
    note = "note: this looks like German, but the model translates from English\n"
    (tmp_path / "in.txt").write_text(f"{german}\n", encoding="utf-8")
    assert main(["translate", "--to", "de", english]) == 0
    assert capsys.readouterr().err == ""
    for source in ([german], ["--input", str(tmp_path / "in.txt")]):
        assert main(["translate", "--to", "de", *source]) == 0
        assert capsys.readouterr().err == note


def test_a_first_text_does_not_wait_for_a_compiler(
    box: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    begun: list[str] = []
    monkeypatch.setattr(native, "is_ready", lambda: bool(begun))
    monkeypatch.setattr(native, "compile_behind", lambda: begun.append("behind"))
    monkeypatch.setattr(cpu, "CpuEngine", None)  # whoever wants our own code now fails
    assert main(["translate", "--to", "de", "--device", "cpu", *TEXTS]) == 0
    assert begun == ["behind"]
    monkeypatch.undo()
    expected = [found.text for found in Translator.load(box / "en-de").translate(TEXTS)]
    assert capsys.readouterr().out.splitlines() == expected


def test_a_target_of_several_is_asked_for_with_its_tag(
    box: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    folder = save_tiny(box / "many", subwords=learn_tagged("ka", "it"), about={"languages": ["en", "mul"]})
    model = Translator.load(folder)
    for to in ("it", "ka"):
        expected = [found.text for found in model.translate([f">>{to}<< {text}" for text in TEXTS])]
        assert main(["translate", "--to", to, *TEXTS]) == 0
        out, err = capsys.readouterr()
        assert (out.splitlines(), err) == (expected, "")
    assert main(["show", "--to", "it", "--json", TEXTS[0]]) == 0
    assert json.loads(capsys.readouterr().out)["source"]["text"] == f">>it<< {TEXTS[0]}"
    assert main(["models"]) == 0
    assert "en-ka, en-it" in capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    targets = {each["name"]: each["targets"] for each in json.loads(capsys.readouterr().out)}
    assert targets == {"en-de": ["de"], "fr-de": ["de"], "many": ["ka", "it"]}
    # By its name it has to be told, unless a text tells.
    note = "note: this says no target language, and the model has several; give --tag: ka, it\n"
    for text, said in ((TEXTS[0], note), (f">>it<< {TEXTS[0]}", "")):
        assert main(["translate", "many", "--text", text]) == 0
        assert capsys.readouterr().err == said
    assert main(["translate", "many", "--tag", "it", "--text", TEXTS[0]]) == 0
    assert capsys.readouterr() == (model.translate(f">>it<< {TEXTS[0]}").text + "\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "it", "ciao"], "no model translates into it; available: en-de, fr-de, en-ka; put"),
        (["--to", "de", "--from", "it", "ciao"], "no model translates it-de"),
        (["--to", "ka", "--tag", "fr", "x"], "--to ka and --tag fr both name a target language; leave out --tag"),
        (["--from", "en", "RUN"], "--from picks among the models for --to; give --to as well"),
        ([], "name a RUN, or give --to LANGUAGE"),
        (["--to", "de", "x", "--out", "y"], "texts on the command line are translated to standard output"),
    ],
    ids=str,
)
def test_what_cannot_be_is_answered(box: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    save_tiny(box / "many", subwords=learn_tagged("ka"), about={"languages": ["en", "mul"]})
    assert main(["translate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_models_are_listed(box: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = save_tiny(tmp_path / "runs" / "mine" / "model").parent
    assert main(["models", str(tmp_path / "runs")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "en-de", "fr-de", str(run)]
    assert main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["languages"], each["where"]) for each in found] == [
        ("en-de", ["en", "de"], "box"),
        ("fr-de", ["fr", "de"], "box"),
    ]


def test_where_there_are_none_it_says_where_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(places, "BOX", tmp_path / "box")
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "own"))
    assert main(["models"]) == 0
    assert f"put some into {tmp_path / 'own'}" in capsys.readouterr().out
