"""The translators in the box: complete, small, found by their languages, and described truthfully by their cards."""

import re
import shutil
from pathlib import Path

import pytest

from transduce import Translator
from transduce.cli import main
from transduce.decoding.shelf import list_models
from transduce.model.saved import find_damage, read_manifest
from transduce.places import BOX

PAIRS = ("de-en", "en-de")
LARGEST = 30_000_000
ALIKE = 27  # of 30: another processor may decide a tie otherwise


@pytest.fixture(autouse=True)
def no_models_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "models"))


def read_rows(card: str) -> list[tuple[str, str, str]]:
    """Read the sentences in a card, their translations, and the remarks."""
    return re.findall(r"^\| \d+ \| (.+?) \| (.+?) \| (.*?) ?\|$", card, re.MULTILINE)


def test_both_are_there_and_whole():
    found = list_models()
    assert [(model.name, "-".join(model.languages or ()), model.where) for model in found] == [
        (pair, pair, "box") for pair in PAIRS
    ]
    for model in found:
        assert model.bytes < LARGEST
        assert find_damage(model.folder, read_manifest(model.folder)) is None


@pytest.mark.parametrize("pair", PAIRS)
def test_a_card_tells_what_the_model_says(pair: str):
    rows = read_rows((BOX / pair / "README.md").read_text(encoding="utf-8"))
    assert len(rows) == 30
    said = Translator.load(pair).translate([source for source, _, _ in rows])
    assert sum(found.text == told for found, (_, told, _) in zip(said, rows)) >= ALIKE


@pytest.mark.parametrize("pair", PAIRS)
def test_a_card_names_what_the_model_was_trained_on(pair: str):
    card = (BOX / pair / "README.md").read_text(encoding="utf-8")
    names = {name.split(".")[0] for name in read_manifest(BOX / pair)["about"]["trained_on"]["inputs"]}
    told = {
        "docs": "Microsoft technical documentation",
        "europarl": "Europarl",
        "learnosm": "LearnOSM",
        "libreoffice": "LibreOffice",
        "mozilla-web": "mozilla.org",
        "numerals": "made-up sentences with numbers",
        "opensource-guide": "Open Source Guides",
        "tatoeba": "Tatoeba",
    }
    assert names == set(told)
    assert all(f"| {title}" in card for title in told.values())


def test_translates_right_after_the_installation(capsys: pytest.CaptureFixture[str]):
    assert main(["translate", "--to", "de", "The animal didn't cross the street because it was too tired."]) == 0
    assert capsys.readouterr().out == "Das Tier überquerte die Straße nicht, weil es zu müde war.\n"
    assert main(["translate", "--to", "en", "Das Tier überquerte die Straße nicht, weil es zu müde war."]) == 0
    assert capsys.readouterr().out == "The animal didn't cross the street because it was too tired.\n"


def test_a_card_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["models", "--card", "en-de"]) == 0
    card = capsys.readouterr().out
    assert card.startswith("# English → German")
    assert card.strip() in (BOX / "en-de" / "README.md").read_text(encoding="utf-8")
    shutil.copytree(BOX / "en-de", tmp_path / "own", ignore=shutil.ignore_patterns("README.md"))
    assert main(["models", "--card", str(tmp_path / "own")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/own/README.md: does not exist; this model has no card\n"
