"""Models of CTranslate2 and packages of Argos Translate, by CTranslate2's own converters or by us: read as ours."""

import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from exports import KINDS, save_kind
from hypothesis import given, settings
from hypothesis import strategies as st
from marians import save_marian, texts

from transduce import Translator
from transduce.cli import main
from transduce.errors import DataError
from transduce.interop import to_ctranslate2
from transduce.interop.ctranslate2 import read_binary, read_ctranslate2
from transduce.interop.exporting import ExportJob, export_model
from transduce.interop.importing import ImportJob, import_model
from transduce.model.saved import load_model
from transduce.text.subwords import BEGIN, PAD

FIXTURES = Path(__file__).parent / "fixtures"
OLD = FIXTURES / "ctranslate2-old"
PAIRS = list(zip(*texts("dev", 10).values()))


def their_scores(folder: Path, translator: Translator, pairs: list[tuple[str, str]]) -> list[float]:
    """Return the log-probabilities of pairs by CTranslate2 in float32, for tokens as our subwords split them."""
    sides = [
        [translator.subwords[side].pieces(translator.subwords[side].encode(pair[place])) for pair in pairs]
        for place, side in enumerate(("source", "target"))
    ]
    if translator.subwords["source"].ends and not json.loads((folder / "config.json").read_bytes())["add_source_eos"]:
        sides[0] = [[*tokens, "</s>"] for tokens in sides[0]]  # as Hugging Face's tokenizer has it
    theirs = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    return [sum(found.log_probs) for found in theirs.score_batch(*sides)]


def assert_same(folder: Path, out: Path, pairs: list[tuple[str, str]] = PAIRS, **places: Any) -> Translator:
    """Import a folder of CTranslate2, and compare both models' scores of pairs."""
    import_model(ImportJob(folder, out, **places))
    translator = Translator.load(out, engine="torch")
    found = [float(part.sum()) for part in translator.score(pairs)]
    np.testing.assert_allclose(found, their_scores(folder, translator, pairs), rtol=1e-4, atol=1e-3)
    assert np.std(found) > 1  # they say something
    return translator


@pytest.mark.parametrize("quantization", [None, "float16", "bfloat16", "int8", "int16", "int8_float16"])
def test_what_it_makes_of_opennmt(tmp_path: Path, quantization: str | None):
    shared = FIXTURES / "opennmt-shared"
    whole = torch.load(shared / "model.pt", weights_only=False)
    # The fixture has only a few rows of the position table: we import it so, and give the converter the whole table.
    import_model(ImportJob(shared / "model.pt", tmp_path / "ours", pieces=(shared / "joint.model",)))
    positions = torch.arange(128)[:, None] / 10_000 ** (torch.arange(0, 16, 2) / 16)
    table = torch.stack((positions.sin(), positions.cos()), -1).flatten(1)[:, None]
    whole["model"] |= {name: table for name in whole["model"] if name.endswith(".pe.pe")}
    whole["opt"].self_attn_type = "scaled-dot"  # the same without a GPU, and the only one it knows
    torch.save(whole, tmp_path / "model.pt")
    converter = ctranslate2.converters.OpenNMTPyConverter(str(tmp_path / "model.pt"), unsafe_deserialization=True)
    converter.convert(str(tmp_path / "theirs"), quantization=quantization)
    translator = assert_same(tmp_path / "theirs", tmp_path / "back", pieces=(shared / "joint.model",))
    assert not translator.subwords["source"].ends
    back, ours = load_model(tmp_path / "back").config.model, load_model(tmp_path / "ours").config.model
    for setting in ("vocabulary", "layers", "decoder_layers", "d_model", "d_ff", "heads", "norm", "tie"):
        assert getattr(back, setting) == getattr(ours, setting), setting
    # Sinusoids rounded to bfloat16 are no longer recognised, so they are kept as learned positions.
    assert back.positions == ("learned" if quantization == "bfloat16" else "sinusoidal")
    assert back.norm_epsilon == 1e-5  # that is what CTranslate2 computes with


@pytest.mark.parametrize("changes", [{}, {"kind": "bpe", "tie_word_embeddings": False}], ids=str)
def test_what_it_makes_of_huggingface(tmp_path: Path, changes: dict[str, Any]):
    saved = save_marian(tmp_path, **changes)
    # The tokenizer's files are read where they were saved.
    converter = ctranslate2.converters.TransformersConverter(str(saved.folder), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "converted"))
    translator = assert_same(tmp_path / "converted", tmp_path / "ours")
    assert translator.subwords["source"].ends
    assert translator.loaded[0].config.model.positions == "sinusoidal"


def test_a_vocabulary_of_the_wrong_side_is_refused(tmp_path: Path):
    """For models with two vocabularies, CTranslate2's converter writes the source's for both."""
    saved = save_marian(tmp_path, separate=True)
    converter = ctranslate2.converters.TransformersConverter(str(saved.folder), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "converted"))
    assert (tmp_path / "converted" / "shared_vocabulary.json").exists()
    with pytest.raises(DataError, match=r"target\.spm: \d+ of its \d+ pieces are among the \d+ target tokens"):
        import_model(ImportJob(tmp_path / "converted", tmp_path / "ours"))


def test_an_old_version_in_integers(tmp_path: Path):
    expected = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))
    assert read_binary((OLD / "model.bin").read_bytes(), "")[0] < 6
    import_model(ImportJob(OLD, tmp_path / "ours"))
    translator = Translator.load(tmp_path / "ours", engine="torch")
    found = [part.sum() for part in translator.score([tuple(pair) for pair in expected["pairs"]])]
    np.testing.assert_allclose(found, expected["scores"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "additive"])
def test_what_we_make_comes_back(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KINDS, "rotary, SwiGLU", {**KINDS["rotary, SwiGLU"], "d_v": None})
    loaded = save_kind(tmp_path / "ours", kind, {"languages": ["en", "de"]})
    (tmp_path / "theirs").mkdir()
    to_ctranslate2.write(loaded, tmp_path / "theirs", "float32")
    import_model(ImportJob(tmp_path / "theirs", tmp_path / "back"))
    ours, back = (Translator.load(tmp_path / name, engine="torch") for name in ("ours", "back"))
    assert back.loaded[0].config.model.activation == loaded.config.model.activation
    for one, other in zip(ours.score(PAIRS), back.score(PAIRS)):
        # Padding and begin are never said there, and have no share of the probability.
        assert np.all(other >= one - 1e-3)
    tokens = [ours.tokens(line, "source").tolist() for line, _ in PAIRS]
    assert tokens == [back.tokens(line, "source").tolist() for line, _ in PAIRS]
    assert_same(tmp_path / "theirs", tmp_path / "again")
    bias = load_model(tmp_path / "back").model.output_bias
    assert bias is not None
    assert bias[[PAD, BEGIN]].max() <= -1000


@pytest.mark.parametrize("form", ["packed", "packed without a folder", "installed"])
def test_packages_of_argos(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]):
    save_kind(tmp_path / "ours", about={"languages": ["en", "de"]})
    package = tmp_path / "translate-en_de.argosmodel"
    export_model(ExportJob(model=tmp_path / "ours", out=package, kind="argos", precision="int8", sentences=0))
    if form != "packed":
        with zipfile.ZipFile(package) as archive:
            archive.extractall(tmp_path / "installed")
        (package,) = (tmp_path / "installed").iterdir()
        (package / "stanza").mkdir()
        (package / "stanza" / "metadata.json").write_text("{}", encoding="utf-8")  # of what splits texts
    if form == "packed without a folder":
        package = Path(shutil.make_archive(str(tmp_path / "flat"), "zip", package)).rename(tmp_path / "flat.argosmodel")
    assert main(["import", str(package), "--out", str(tmp_path / "back")]) == 0
    assert "en → de" in capsys.readouterr().out
    ours, back = (Translator.load(tmp_path / name, engine="torch") for name in ("ours", "back"))
    found = np.array([[part.sum() for part in one.score(PAIRS)] for one in (ours, back)])
    assert 0 < np.abs(found[0] - found[1]).mean() < 0.05 * np.abs(found).mean()  # rounded to 8 bits


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_models_are_refused(data: st.DataObject):
    whole = (OLD / "model.bin").read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError, match=r"x: (not a readable CTranslate2 model|has version)"):
        read_binary(whole[:cut], "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: struct.pack("<I", 9) + data[4:], "has version 9 of the format; 4 to 6 are supported"),
        (lambda data: data.replace(b"TransformerSpec", b"WhisperSpecSpec"), "is a WhisperSpecSpec, not a Transformer"),
        (lambda data: data.replace(b"\x09\x00pre_norm", b"\x09\x00pre_form"), "no place for: pre_form"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path: Path, change: Any, message: str):
    shutil.copytree(OLD, tmp_path / "x")
    path = tmp_path / "x" / "model.bin"
    changed = change(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    with pytest.raises(DataError, match=message):
        import_model(ImportJob(tmp_path / "x", tmp_path / "ours"))
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"add_source_bos": True}, "adds a begin token to sources, which our model does not support"),
        ({"decoder_start_token": None}, "takes each translation's first token from the user"),
        ({"decoder_start_token": "<go>"}, "its vocabulary has no <go>, with which translations begin"),
        ({"unk_token": "<?>"}, "its source vocabulary lacks <\\?> or </s>"),
        ({"quantization_type": "AWQ_GEMM"}, "quantization_type is AWQ_GEMM, which is not supported"),
    ],
    ids=str,
)
def test_other_settings_are_refused(tmp_path: Path, config: dict[str, Any], message: str):
    loaded = save_kind(tmp_path / "ours")
    (tmp_path / "x").mkdir()
    to_ctranslate2.write(loaded, tmp_path / "x", "float32")
    path = tmp_path / "x" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | config), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_ctranslate2(tmp_path / "x")


def test_heads_that_are_turned_in_part_are_refused(tmp_path: Path):
    loaded = save_kind(tmp_path / "ours", "rotary, SwiGLU")  # whose values are wider than its keys
    (tmp_path / "x").mkdir()
    to_ctranslate2.write(loaded, tmp_path / "x", "float32")
    with pytest.raises(DataError, match="rotary_dim is 8, but only 10 is supported"):
        read_ctranslate2(tmp_path / "x")


def test_files_that_are_missing_are_named(tmp_path: Path):
    shutil.copytree(OLD, tmp_path / "x")
    (tmp_path / "x" / "source.spm").unlink()
    with pytest.raises(DataError, match="has no SentencePiece models; name them: --pieces SOURCE TARGET"):
        read_ctranslate2(tmp_path / "x")
    (tmp_path / "x" / "source_vocabulary.txt").unlink()
    with pytest.raises(DataError, match=r"has no source_vocabulary\.json and no shared one"):
        read_ctranslate2(tmp_path / "x", (OLD / "source.spm", OLD / "target.spm"))
    (tmp_path / "x" / "model.bin").unlink()
    with pytest.raises(DataError, match=r"has no model\.bin; it is not a CTranslate2 model"):
        read_ctranslate2(tmp_path / "x")
    (tmp_path / "x.argosmodel").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"x\.argosmodel: not a readable package"):
        import_model(ImportJob(tmp_path / "x.argosmodel", tmp_path / "ours"))
    with zipfile.ZipFile(tmp_path / "y.argosmodel", "w") as archive:
        archive.writestr("y/metadata.json", "{")
    with pytest.raises(DataError, match=r"y\.argosmodel/metadata\.json: not readable"):
        import_model(ImportJob(tmp_path / "y.argosmodel", tmp_path / "ours"))
    shutil.copytree(OLD, tmp_path / "z")
    (tmp_path / "z" / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match=r"config\.json: contains a list, where a dict is wanted"):
        read_ctranslate2(tmp_path / "z")
