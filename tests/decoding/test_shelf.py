"""Models are found by their languages, the user's own before those in the box."""

from pathlib import Path

import pytest
from models import save_tiny

from transduce import places
from transduce.decoding import shelf
from transduce.errors import DataError, UsageError
from transduce.model import saved
from transduce.text.subwords import find_subwords


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A box with two models, and a user's folder with one model and some other folders."""
    box, own = tmp_path / "box", tmp_path / "own"
    monkeypatch.setattr(places, "BOX", box)
    monkeypatch.setenv("TRANSDUCE_MODELS", str(own))
    save_tiny(box / "en-de", about={"languages": ["en", "de"]})
    save_tiny(box / "de-en", about={"languages": ["de", "en"]})
    save_tiny(own / "mine", about={"languages": ["fr", "de"]}, seed=2)
    (own / "empty").mkdir()
    (own / "broken").mkdir()
    (own / "broken" / "manifest.json").write_text("{")
    return box, own


def test_pairs_are_found(folders: tuple[Path, Path]):
    box, own = folders
    assert shelf.find_pair("en") == box / "de-en"
    assert shelf.find_pair("de") == own / "mine"
    assert shelf.find_pair("de", "en") == box / "en-de"
    with pytest.raises(UsageError, match=r"no model translates en-fr; available: fr-de, de-en, en-de; put models into"):
        shelf.find_pair("fr", "en")


def test_a_language_stands_in_for_its_regions(folders: tuple[Path, Path]):
    """Unless there is a model for the region itself, wherever in the order."""
    box, own = folders
    assert shelf.find_pair("de-DE") == own / "mine"
    assert shelf.find_pair("de_AT", "en-Latn-US") == box / "en-de"
    with pytest.raises(UsageError, match="no model translates into dex-DE"):
        shelf.find_pair("dex-DE")
    save_tiny(own / "other", about={"languages": ["en", "de-AT"]})
    assert shelf.find_pair("de-at") == own / "other"
    assert shelf.find_pair("de-CH", "en") == box / "en-de"
    assert shelf.find_pair("de-AT", "fr") == own / "mine"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (("german", None), "--to de"),
        (("de_AT", "eng"), "--to de"),
        (("fr-de", None), "--to de"),
        (("de", "English"), "--from en"),
        (("de", "en-de"), "--from en"),
        (("English", "German"), "--from de --to en"),
    ],
)
def test_other_ways_to_name_a_language_are_understood(
    folders: tuple[Path, Path], given: tuple[str, str | None], meant: str
):
    with pytest.raises(UsageError, match=rf"did you mean {meant}\?$"):
        shelf.find_pair(*given)
    assert shelf.find_pair("DE", "En") == folders[0] / "en-de"


def test_all_are_listed(folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    box, own = folders
    run = tmp_path / "runs" / "first"
    save_tiny(run / "model")
    save_tiny(run / "checkpoints" / "step-00000001")
    found = shelf.list_models(tmp_path / "runs")
    expected = [
        ("mine", ("fr", "de"), own / "mine", str(own)),
        ("de-en", ("de", "en"), box / "de-en", "box"),
        ("en-de", ("en", "de"), box / "en-de", "box"),
        (str(run), None, run / "model", str(tmp_path / "runs")),
    ]
    assert [(model.name, model.languages, model.folder, model.where) for model in found] == expected
    beside = {"manifest.json", "README.md"}
    files = [path.stat().st_size for path in (box / "en-de").iterdir() if path.name not in beside]
    assert f"{own / 'broken' / 'manifest.json'}: not readable" in capsys.readouterr().err
    assert found[2].bytes == sum(files)
    with pytest.raises(DataError, match="is not a folder with runs or models in it; name one"):
        shelf.list_models(tmp_path / "none")
    with pytest.raises(DataError, match="--card en-de prints its card"):
        shelf.list_models(Path("en-de"))


def test_without_any_model_it_says_where_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "BOX", tmp_path / "box")
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "own"))
    assert shelf.list_models() == []
    with pytest.raises(UsageError, match=f"put models into {tmp_path / 'own'}, or name a run"):
        shelf.find_pair("de")


def test_a_name_is_enough(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    box, own = folders
    monkeypatch.chdir(tmp_path)
    assert saved.find_model(Path("en-de")) == box / "en-de"
    save_tiny(own / "en-de" / "model")
    assert saved.find_model(Path("en-de")) == own / "en-de" / "model"  # the user's before the box's
    Path("en-de").mkdir()
    with pytest.raises(
        DataError, match=r"^en-de: contains no model; it hides the model of this name"
    ):  # a folder here is meant, whatever is in it
        saved.find_model(Path("en-de"))
    save_tiny(Path("en-de"))
    assert saved.find_model(Path("en-de")) == Path("en-de")
    for wrong in ("de-fr", "../box/en-fr", "runs/de-en"):
        with pytest.raises(DataError, match=rf"^{wrong}: does not exist; .* transduce models lists"):
            saved.find_model(Path(wrong))
    with pytest.raises(DataError, match=r"^de_en: does not exist; did you mean de-en\?$"):
        saved.find_model(Path("de_en"))


def test_a_name_is_enough_for_subwords(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^en_de: does not exist; did you mean en-de\?$"):
        find_subwords(Path("en_de"))
    assert find_subwords(Path("en-de")) == dict.fromkeys(("source", "target"), folders[0] / "en-de" / "subwords.model")
