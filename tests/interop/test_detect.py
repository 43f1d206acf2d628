"""What SOURCE of an import is: a model of another toolkit, one of ours, or a path near the one that is meant."""

import io
import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from exports import save_kind
from marians import SIZES, save_marian, texts

from transduce.cli import main
from transduce.errors import DataError
from transduce.interop.detect import detect_kind
from transduce.interop.exporting import ExportJob, export_model
from transduce.interop.importing import ImportJob, import_model
from transduce.model.saved import load_model

FIXTURES = Path(__file__).parent / "fixtures"


def refusal(source: Path, kind: str | None = None) -> str:
    """Return the message for a source that the command refuses."""
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(source, source.parent / "never", kind))  # pyright: ignore[reportArgumentType]
    assert not (source.parent / "never").exists()
    return str(caught.value)


def test_a_model_of_ours_needs_no_import(tmp_path: Path):
    save_kind(tmp_path / "run" / "model")
    for source, named in (
        ("run", "run"),
        ("run/model", "run/model"),
        ("run/model/model.safetensors", "run/model"),
        ("run/model/config.json", "run/model"),
        ("run/model/README.md", "run/model"),
    ):
        assert f"{tmp_path / named}: is already a transduce model and needs no import" in refusal(tmp_path / source)
    assert f"{tmp_path / 'run'}: is already a transduce model and needs no import" in refusal(tmp_path)
    # Another toolkit's model may lie beside a run of ours.
    shutil.copytree(FIXTURES / "marian-post", tmp_path / "run", dirs_exist_ok=True)
    assert detect_kind(tmp_path / "run" / "model.npz") == "marian"


def test_an_export_that_does_not_come_back_is_named(tmp_path: Path):
    save_kind(tmp_path / "ours", layers=1)
    export_model(ExportJob(model=tmp_path / "ours", out=tmp_path / "there", kind="program", sentences=0))
    for source in ("there", "there/encoder.pt2"):
        said = refusal(tmp_path / source)
        assert f"{tmp_path / 'there'}: is an export of transduce (--to program), which cannot be imported" in said
        assert (
            "use the model it was made from, or import an export of that model to ctranslate2, argos or huggingface"
            in said
        )


def test_a_file_of_a_model_names_its_folder(tmp_path: Path):
    folder = save_marian(tmp_path).folder
    for name in ("model.safetensors", "config.json", "source.spm"):
        assert refusal(folder / name).endswith(f"{name}: is only one file of a model; name {folder}")
    assert f"is a file, but a huggingface model is a folder; name {folder}" in refusal(
        folder / "config.json", "huggingface"
    )
    package = tmp_path / "translate-en_de"
    (package / "model").mkdir(parents=True)
    for name in ("metadata.json", "model/model.bin", "model/config.json"):
        (package / name).write_text("{}")
    for name in ("metadata.json", "model/model.bin"):
        assert refusal(package / name).endswith(f"; name {package}")


def test_a_folder_names_the_models_in_it(tmp_path: Path):
    saved = save_marian(tmp_path / "parent")
    shutil.rmtree(saved.folder.parent / "raw")
    assert refusal(tmp_path / "parent") == f"{tmp_path / 'parent'}: is not itself a model; name {saved.folder}"
    for name, file in (("fairseq-post", "checkpoint.pt"), ("joeynmt-post", "best.ckpt"), ("marian-pre", "model.npz")):
        folder = Path(shutil.copytree(FIXTURES / name, tmp_path / name))
        assert refusal(folder).endswith(f"is not itself a model; name {folder / file}")
        kind = name.partition("-")[0]
        said = refusal(folder, kind)
        assert f"{folder}: is a folder, but a {kind} model is a file such as " in said
        assert said.endswith(f"; name {folder / file}")
    (tmp_path / "fairseq-post" / "checkpoint_best.pt").touch()
    first, second = (tmp_path / "fairseq-post" / name for name in ("checkpoint_best.pt", "checkpoint.pt"))
    assert refusal(tmp_path / "fairseq-post").endswith(f"; name {first} or {second}")
    assert refusal(tmp_path / "fairseq-post", "marian").endswith("no file in it ends in .npz")
    for number in range(9):
        (tmp_path / "fairseq-post" / f"checkpoint{number}.pt").touch()
    assert refusal(tmp_path / "fairseq-post").endswith(" or one of 6 more")
    (tmp_path / "nothing").mkdir()
    assert "not a model of a known kind; if it is one, name its kind with --kind" in refusal(tmp_path / "nothing")


def test_the_source_is_looked_at_before_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for kind in ([], ["--kind", "marian"]):
        assert main(["import", str(tmp_path / "nowhere"), "--out", str(FIXTURES), *kind]) == 1
        assert "nowhere: does not exist" in capsys.readouterr().err


def test_other_languages_than_the_models_are_taken_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(save_marian(tmp_path).folder)
    for out, languages, notes in (("one", ("en", "fr"), 1), ("two", ("en", "de"), 0)):
        assert main(["import", folder, "--out", str(tmp_path / out), "--languages", *languages]) == 0
        said = capsys.readouterr()
        note = f"note: {folder} says --languages en de; using yours instead\n"
        assert said.err.count(note) == notes == said.err.count("note: ")
        assert f", {languages[0]} → {languages[1]}" in said.out
        assert load_model(tmp_path / out).about["languages"] == list(languages)


def test_the_card_calls_a_model_as_commands_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = save_marian(tmp_path).folder
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "shelf"))
    monkeypatch.chdir(tmp_path)
    for out, name in ((Path("models/opus"), "models/opus"), (tmp_path / "shelf" / "opus", "opus")):
        import_model(ImportJob(source, out))
        card = (out / "README.md").read_text(encoding="utf-8")
        assert f'transduce translate {name} --text "…"' in card
        assert f'Translator.load("{name}")' in card


def learn_stranger(side: str) -> bytes:
    """Learn a SentencePiece model of other text in the same letters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line[::-1] for line in texts("train", 600)[side]),
        model_writer=model,
        vocab_size=SIZES[side],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def test_pieces_of_another_model_are_refused_by_side(tmp_path: Path):
    """In a vocabulary of both sides, the right model of one must not hide that the other's is foreign."""
    saved = save_marian(tmp_path)
    for side in ("source", "target"):
        folder = Path(shutil.copytree(saved.folder, tmp_path / side))
        (folder / f"{side}.spm").write_bytes(learn_stranger(side))
        known = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
        said = refusal(folder)
        assert said.startswith(f"{folder / side}.spm: ")
        assert f"are among the {known:,} {side} tokens, and 60% should be; it belongs to another model" in said
