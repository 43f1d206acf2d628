"""Models are found by their languages, the user's own before those in the box."""

from pathlib import Path

import pytest
from models import learn_tagged, save_tiny

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
    assert shelf.find_direction("en").folder == box / "de-en"
    assert shelf.find_direction("de").folder == own / "mine"
    assert shelf.find_direction("de", "en").folder == box / "en-de"
    with pytest.raises(UsageError, match=r"no model translates en-fr; available: fr-de, de-en, en-de; put models into"):
        shelf.find_direction("fr", "en")


def test_a_language_stands_in_for_its_regions(folders: tuple[Path, Path]):
    """Unless there is a model for the region itself, wherever in the order."""
    box, own = folders
    assert shelf.find_direction("de-DE").folder == own / "mine"
    assert shelf.find_direction("de_AT", "en-Latn-US").folder == box / "en-de"
    with pytest.raises(UsageError, match="no model translates into dex-DE"):
        shelf.find_direction("dex-DE")
    save_tiny(own / "other", about={"languages": ["en", "de-AT"]})
    assert shelf.find_direction("de-at").folder == own / "other"
    assert shelf.find_direction("de-CH", "en").folder == box / "en-de"
    assert shelf.find_direction("de-AT", "fr").folder == own / "mine"


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
        shelf.find_direction(*given)
    assert shelf.find_direction("DE", "En").folder == folders[0] / "en-de"


def test_a_language_tag_is_found_and_used(folders: tuple[Path, Path]):
    """In one folder, a model with one target language comes before those with several."""
    box, own = folders
    many = save_tiny(own / "a-many", subwords=learn_tagged("de", "fr", "pt_br"), about={"languages": ["en", "mul"]})
    for target, tag in (("fr", ">>fr<<"), ("FR", ">>fr<<"), ("fr-CA", ">>fr<<"), ("pt-BR", ">>pt_br<<")):
        for source in (None, "en", "en-GB"):
            found = shelf.find_direction(target, source)
            assert (found.folder, found.source, found.tag) == (many, "en", tag)
    assert shelf.find_direction("de") == shelf.Direction(own / "mine", "fr", "de")
    assert shelf.find_direction("de", "en") == shelf.Direction(many, "en", "de", ">>de<<")
    assert shelf.find_direction("en").folder == box / "de-en"
    with pytest.raises(UsageError, match=r"translates into pt; did you mean --to pt_br\?$"):
        shelf.find_direction("pt")
    known = "available: fr-de, en-de, en-fr, en-pt_br, de-en; put"
    with pytest.raises(UsageError, match=rf"no model translates into mul; {known}"):
        shelf.find_direction("mul")  # the name of all of them is no language
    save_tiny(own / "zz", subwords=learn_tagged("pt_pt"), about={"languages": ["en", "pt_pt"]})
    with pytest.raises(UsageError, match=r"did you mean --to pt_pt or pt_br\?$"):
        shelf.find_direction("Portuguese")


def test_a_target_without_a_tag_is_what_texts_without_one_become(folders: tuple[Path, Path]):
    folder = save_tiny(folders[1] / "more", subwords=learn_tagged("it", "formal"), about={"languages": ["en", "sv"]})
    assert shelf.read_directions(folder) == [
        shelf.Direction(folder, "en", "it", ">>it<<"),
        shelf.Direction(folder, "en", "sv"),
    ]
    assert shelf.find_direction("sv").tag == ""
    with pytest.raises(UsageError, match="no model translates into formal"):
        shelf.find_direction("formal")


def test_a_model_that_does_not_say_its_source_is_found_by_its_target(folders: tuple[Path, Path]):
    folder = save_tiny(folders[1] / "silent", subwords=learn_tagged("it", "fr"))
    assert shelf.find_direction("it") == shelf.Direction(folder, "", "it", ">>it<<")
    said = "silent translates into it, but does not say from which language: leave out --from en"
    with pytest.raises(UsageError, match=f"^no model translates en-it; {said}$"):
        shelf.find_direction("it", "en")


def test_many_targets_are_not_all_named(folders: tuple[Path, Path]):
    codes = [first + second for first in "xyz" for second in "abcdefgh"]
    save_tiny(folders[1] / "all", subwords=learn_tagged(*codes), about={"languages": ["en", "mul"]})
    with pytest.raises(UsageError, match=r"en-xa, en-xb, .*en-xh, … \(24 in all\)"):
        shelf.find_direction("sw")


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
        shelf.find_direction("de")


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
