"""`transduce show` and `transduce heads`, as a person and as a program use them."""

import json
import re
import shutil
import tomllib
import webbrowser
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from transduce import places
from transduce.cli import main
from transduce.decoding.translator import Translator
from transduce.scoring.bleu import corpus_bleu
from transduce.seeing.page import as_data
from transduce.seeing.picture import COLOURS, LEAST, Picture, draw, readable
from transduce.seeing.switching import Head, switched_off

TEXT = "two euros and nine dollars"
NASTY = "two </script><script>alert(1)</script> & <b>euros</b> \"'"


class Page(HTMLParser):
    """What a browser's parser finds: tags, and the contents of scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inside.append(data)

    @property
    def data(self) -> Any:
        return json.loads(self.inside[1])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments)]) in (1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_the_page_is_whole_in_itself(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "page.html"
    assert main(["show", str(tiny), TEXT, "--out", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{out}: {TEXT} → ")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    page = Page(out.read_text(encoding="utf-8"))
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not any(key in ("src", "href") or key.startswith("on") for _, given in page.tags for key in given)
    assert [given.get("type") for tag, given in page.tags if tag == "script"] == ["application/json", None]
    (policy,) = (given["content"] for tag, given in page.tags if given.get("http-equiv"))
    assert policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for kind, text in (("style-src", page.inside[0]), ("script-src", page.inside[2])):
        assert f"{kind} 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy


def test_json_and_page_hold_the_same(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "page.html"
    assert main(["show", str(tiny), TEXT, "--out", str(out), "--json", "--device", "cpu"]) == 0
    printed = json.loads(capsys.readouterr().out)
    page = Page(out.read_text(encoding="utf-8")).data
    assert printed.keys() == page.keys()
    assert printed["source"] == page["source"]
    assert printed["tree"][0]["piece"] == page["tree"][0]["piece"]
    np.testing.assert_allclose(printed["attention"]["cross"], page["attention"]["cross"], atol=5.1e-5)


def test_a_model_is_found_by_its_languages(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(places, "BOX", tmp_path / "box")
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "own"))
    shutil.copytree(tiny, tmp_path / "own" / "tiny")
    manifest = tmp_path / "own" / "tiny" / "manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**values, "about": {**values["about"], "languages": ["en", "de"]}}))
    assert main(["show", "--to", "de", TEXT, "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["show", str(tiny), TEXT, "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == found["target"]
    assert "no model translates into fr; available: en-de" in refused(capsys, "show", "--to", "fr", TEXT)
    assert "give a RUN and a sentence, or --to LANGUAGE and a sentence" in refused(capsys, "show", TEXT)
    assert "give a RUN and a sentence, or --to" in refused(capsys, "show", tiny, TEXT, "--to", "de")


def test_nothing_in_a_sentence_becomes_markup(tiny: Path, tmp_path: Path):
    out, picture = tmp_path / "page.html", tmp_path / "p.svg"
    flags = ["--device", "cpu", "--target", NASTY, "--svg", str(picture), "--kind", "cross"]
    assert main(["show", str(tiny), NASTY, "--out", str(out), *flags]) == 0
    page = Page(out.read_text(encoding="utf-8"))
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in [tag for tag, _ in page.tags]
    assert page.data["source"]["text"] == page.data["target"]["text"] == NASTY
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} == {"svg", "rect", "text", "g", "line"}
    assert as_data(["</script>", "\u2028&"]) == '["\\u003c/script\\u003e","\\u2028\\u0026"]'


def test_without_flags_a_page_is_written(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["show", str(tiny), TEXT, "--open", "--beam", "1", "--device", "cpu"]) == 0
    assert opened == [(tmp_path / "attention.html").as_uri()]
    assert main(["show", str(tiny), TEXT, "--json", "--device", "cpu"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_picture_has_a_line_for_each_weight(
    kind: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for view, tag in (("lines", "line"), ("map", "rect")):
        picture = tmp_path / f"{view}.svg"
        chosen = ["--kind", kind, "--layer", "1", "--head", "2", "--view", view, "--device", "cpu"]
        assert main(["show", str(tiny), TEXT, "--svg", str(picture), "--json", *chosen]) == 0
        data = json.loads(capsys.readouterr().out)
        table = np.array(data["attention"][kind][0][1])
        drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
        least = LEAST if view == "lines" else LEAST / 4
        many = int((table >= least).sum()) + (0 if view == "lines" else 2)  # the paper, and the map's own ground
        assert len([one for one in drawn.iter() if one.tag.endswith("}" + tag)]) == many
        words = [one.text for one in drawn.iter() if one.tag.endswith("}text")]
        queries = {"encoder": data["source"]["pieces"], "decoder": data["target"]["taken"]}
        wanted = [*queries.get(kind, data["target"]["said"]), *queries.get(kind, data["source"]["pieces"])]
        assert words[-len(wanted) :] == [readable(piece) for piece in wanted]
        assert "layer 1, head 2" in str(words[0])


def test_a_picture_of_one_word(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "p.svg"
    assert main(["show", str(tiny), TEXT, "--svg", str(picture), "--word", "euros", "--json", "--device", "cpu"]) == 0
    data = json.loads(capsys.readouterr().out)
    own = [place for place, word in enumerate(data["source"]["words"]) if word == 1]
    table = np.array(data["attention"]["encoder"][1])[:, own]
    lines = [one for one in ElementTree.fromstring(picture.read_text()).iter() if one.tag.endswith("}line")]
    assert len(lines) == int((table >= LEAST).sum()) > 0
    shares = sorted(float(line.get("stroke-opacity", "")) for line in lines)
    np.testing.assert_allclose(shares, sorted(table[table >= LEAST]), atol=1e-3)


def test_heads_have_colours_of_their_own():
    weights = np.full((9, 1, 1), 1.0)
    drawn = draw(Picture(["▁a"], ["▁a"], weights, [0, 3, 8], "title"), "lines")
    strokes = re.findall(r'<g stroke="(#\w+)"', drawn)
    assert strokes == [COLOURS[0], COLOURS[3], COLOURS[0]]  # there are eight, and then they come again
    assert len(set(COLOURS)) == 8


def test_subwords_as_a_person_reads_them():
    pieces = ["▁the", "ing", "▁", "⟨end⟩", "<0xE2>", "▁a▁b"]
    assert [readable(piece) for piece in pieces] == ["the", "·ing", "␣", "⟨end⟩", "·<0xE2>", "a␣b"]


def test_wrong_wishes_are_answered(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    show = ("show", tiny, TEXT, "--device", "cpu", "--svg", tmp_path / "p.svg")
    assert "has layers 1 to 2" in refused(capsys, *show, "--layer", "3")
    assert "--layer applies to pictures; give --svg FILE" in refused(capsys, *show[:-2], "--layer", "1")
    assert "each layer has heads 1 to 2" in refused(capsys, *show, "--head", "1", "7")
    assert "head = 0 is out of range" in refused(capsys, *show, "--head", "0")
    assert "not one of the words that attend: two euros and nine dollars" in refused(capsys, *show, "--word", "dollar")
    assert "does not end in .svg; for a PNG, save one from the page" in refused(capsys, *show[:-1], tmp_path / "p.png")
    assert "unknown flag --heat" in refused(capsys, *show, "--heat")
    assert "contains no model" in refused(capsys, "show", tmp_path, TEXT)
    assert f"the folder {tmp_path / 'no'} does not exist" in refused(capsys, *show[:-1], tmp_path / "no" / "p.svg")
    assert f"{tmp_path}: is a folder" in refused(capsys, *show, "--out", tmp_path)
    assert "the sentence is empty" in refused(capsys, "show", tiny, "", "--out", tmp_path / "p.html")
    roles = tmp_path / "roles.json"
    roles.write_text('{"heads": [{"kind": "encoder"}]}')
    assert f"{roles}: is neither a page nor JSON from `transduce heads`" in refused(capsys, *show, "--roles", roles)
    assert "already exists and is not a page" in refused(capsys, "show", tiny, TEXT, "--out", roles)
    assert "already exists and is not a page" in refused(capsys, "show", tiny, TEXT, "--out", "/dev/null")
    assert [path.name for path in tmp_path.iterdir()] == ["roles.json"]


# ---- heads ----


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "test.en", tmp_path / "test.de"
    source.write_text("two euros\n\nnine dollars\nthe third of May\n")
    target.write_text("zwei Euro\nnichts\nneun Dollar\nder dritte Mai\n")
    return source, target


def run_heads(capsys: pytest.CaptureFixture[str], tiny: Path, files: tuple[Path, Path], *flags: str | Path) -> Any:
    command = ["heads", tiny, "--source", files[0], "--target", files[1], "--device", "cpu", "--json", *flags]
    assert main([*map(str, command)]) == 0
    return json.loads(capsys.readouterr().out)


def test_heads_are_measured_and_switched_off(
    tiny: Path,
    translator: Translator,
    files: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    out = tmp_path / "heads.html"
    found = run_heads(capsys, tiny, files, "--bleu", "--out", out)
    assert found["sentences"] == 3  # where one side is empty there is no pair
    assert len(found["heads"]) == 12
    pairs = [("two euros", "zwei Euro"), ("nine dollars", "neun Dollar"), ("the third of May", "der dritte Mai")]
    scores = np.concatenate(translator.score(pairs))
    assert found["tokens"] == len(scores)
    assert found["loss"] == pytest.approx(-scores.mean(), abs=1e-5)
    translations = [one.text for one in translator.translate([source for source, _ in pairs])]
    assert found["bleu"] == pytest.approx(corpus_bleu(translations, [target for _, target in pairs]).score)
    for head in found["heads"]:
        name = Head(head["kind"], head["layer"] - 1, head["head"] - 1)
        with switched_off(translator.loaded[0].model, [name]):
            without = np.concatenate(translator.score(pairs))
        assert head["loss_without"] == pytest.approx(-without.mean(), abs=1e-5)
        assert 0 <= head["bleu_without"] <= 100
        assert head["shares"].keys() == head["even"].keys()
    assert len({head["loss_without"] for head in found["heads"]}) == 12
    assert Page(out.read_text(encoding="utf-8")).data == found
    some = run_heads(capsys, tiny, files, "--only", "decoder.2.1", "cross.1.2")["heads"]
    names = {(head["kind"], head["layer"], head["head"]) for head in some if head["loss_without"] is not None}
    assert names == {("decoder", 2, 1), ("cross", 1, 2)}
    assert {head["loss_without"] for head in some} < {head["loss_without"] for head in found["heads"]} | {None}
    # Its roles can be chosen by on the page of a sentence.
    printed, page = tmp_path / "heads.json", tmp_path / "page.html"
    printed.write_text(json.dumps(found))
    for roles in (printed, out):
        assert main(["show", str(tiny), TEXT, "--out", str(page), "--roles", str(roles), "--device", "cpu"]) == 0
        given = Page(page.read_text(encoding="utf-8")).data["roles"]
        for head in found["heads"]:
            assert given[head["kind"]][head["layer"] - 1][head["head"] - 1] == head["role"]


def test_alignments_may_be_given(
    tiny: Path, files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    links = tmp_path / "gold.txt"
    links.write_text("0-0 1-0 0-1 1-1\n\n0-0 0-1 1-0 1-1\n" + " ".join(f"{s}-{t}" for s in range(4) for t in range(3)))
    found = run_heads(capsys, tiny, files, "--alignments", links, "--no-switch")
    assert found["alignment_reference"] == "gold.txt"
    for head in found["heads"]:
        assert head["loss_without"] is None
        if head["kind"] == "cross":  # every word is linked with every other: all heads agree, and so does chance
            assert head["shares"]["aligned"] == head["even"]["aligned"] == 1
    fewer = run_heads(capsys, tiny, files, "--sentences", "1", "--no-switch")
    assert fewer["sentences"] == 1
    assert fewer["alignment_reference"].startswith("the model's own")


def test_wrong_files_are_named(
    tiny: Path, files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ("heads", tiny, "--source", files[0], "--target", files[1], "--device", "cpu")
    links = tmp_path / "gold.txt"
    links.write_text("0-0\n\n0:0\n0-0\n")
    assert f"{links}, line 3: '0:0' is not a link" in refused(capsys, *command, "--alignments", links)
    links.write_text("0-0\n")
    assert f"{links} has 1" in refused(capsys, *command, "--alignments", links)
    assert "bleu needs heads to be switched off" in refused(capsys, *command, "--bleu", "--no-switch")
    assert "only needs heads to be switched off" in refused(capsys, *command, "--only", "cross.1.1", "--no-switch")
    expected = "cross.1.4 is not a head of this model; its heads are encoder.1.1 to cross.2.2"
    assert expected in refused(capsys, *command, "--only", "cross.1.1", "cross.1.4")
    empty = tmp_path / "empty"
    empty.write_text("\n\n\n\n")
    assert "have no sentence pairs; give a test set" in refused(capsys, *command[:4], "--target", empty)


def test_the_scripts_of_the_pages_are_installed():
    root = Path(__file__).parent.parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["transduce"]
    for path in (root / "src/transduce/seeing/pages").iterdir():
        assert any(path.relative_to(root / "src/transduce").match(pattern) for pattern in patterns), path
