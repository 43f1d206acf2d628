"""Models saved by Marian, fairseq, JoeyNMT and OpenNMT-py (fixtures/make.py): ours give the same answers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce import Translator
from transduce.cli import main
from transduce.errors import DataError
from transduce.interop.checkpoint import read_checkpoint
from transduce.interop.importing import ImportJob, import_model
from transduce.interop.marian import read_tokens
from transduce.model.saved import load_model

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = [
    *("marian-post", "marian-pre", "fairseq-post", "fairseq-pre", "fairseq-learned", "joeynmt-post", "joeynmt-pre"),
    *("opennmt-shared", "opennmt-rotary", "opennmt-concat", "opennmt-old"),
]


def make_job(name: str, out: Path) -> ImportJob:
    """Return what a user passes: Marian's settings name its vocabularies, the others name no SentencePiece model."""
    folder = FIXTURES / name
    if name.startswith("marian"):
        return ImportJob(folder / "model.npz", out)
    file = {"fairseq": "checkpoint.pt", "joeynmt": "best.ckpt", "opennmt": "model.pt"}[name.split("-")[0]]
    return ImportJob(folder / file, out, pieces=tuple(sorted(folder.glob("*.model"))))


def expected(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / name / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_are_theirs(tmp_path: Path, name: str):
    import_model(make_job(name, tmp_path / "ours"))
    translator = Translator.load(tmp_path / "ours", engine="torch")
    theirs = expected(name)
    found = [part.sum() for part in translator.score([tuple(pair) for pair in theirs["pairs"]])]
    np.testing.assert_allclose(found, theirs["scores"], rtol=1e-5, atol=1e-4)
    assert np.std(found) > 1  # they say something


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_translations_are_marians(tmp_path: Path, engine: Any, beam: int):
    import_model(make_job("marian-post", tmp_path / "ours"))
    translator = Translator.load(tmp_path / "ours", engine=engine)
    theirs = expected("marian-post")
    sources = [source for source, _ in theirs["pairs"]]
    said = theirs[f"beam {beam}"]
    found = translator.translate(sources, beam=beam, alpha=0.0, extra_tokens=180, split="never")
    other = [place for place, translation in enumerate(found) if translation.text != said[place]]
    # Marian's beam narrows with each hypothesis that ends: where the two differ, ours has found a better translation.
    scores = translator.score([(sources[place], said[place]) for place in other])
    assert all(found[place].score > score.sum() + 1e-3 for place, score in zip(other, scores))
    assert len(other) <= (0 if beam == 1 else 2)
    assert len(set(said)) > len(sources) / 2


def test_what_each_becomes(tmp_path: Path):
    kinds = {}
    for name in NAMES:
        import_model(make_job(name, tmp_path / name))
        loaded = load_model(tmp_path / name)
        model = loaded.config.model
        kinds[name] = (model.tie, model.norm, model.activation, model.norm_epsilon, model.max_positions)
        assert sum(weight.numel() for weight in loaded.model.parameters()) == model.parameters()
        told = name.startswith("fairseq") or name == "opennmt-shared"
        assert loaded.about.get("languages") == (["en", "de"] if told else None)
    assert kinds == {
        "marian-post": ("all", "post", "silu", 1e-6, 1024),
        "marian-pre": ("output", "pre", "relu", 1e-6, 1024),
        "fairseq-post": ("all", "post", "relu", 1e-5, 1024),
        "fairseq-pre": ("output", "pre", "gelu", 1e-5, 1024),
        "fairseq-learned": ("none", "post", "relu", 1e-5, 64),
        "joeynmt-post": ("all", "post", "relu", 1e-6, 1024),
        "joeynmt-pre": ("none", "pre", "silu", 1e-6, 1024),
        "opennmt-shared": ("all", "pre", "relu", 1e-6, 1024),
        "opennmt-rotary": ("none", "pre", "swiglu", 1e-6, 1024),
        "opennmt-concat": ("none", "pre", "gelu", 1e-6, 1024),
        "opennmt-old": ("output", "pre", "relu", 1e-6, 1024),
    }


def test_the_verb_takes_languages_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, out = FIXTURES / "fairseq-post", str(tmp_path / "ours")
    assert main(["import", str(folder / "checkpoint.pt"), "--out", out]) == 1
    assert "a checkpoint contains no SentencePiece models; name them: --pieces" in capsys.readouterr().err
    files = ["--pieces", str(folder / "joint.model"), "--vocabularies", str(folder / "dict.en.txt")]
    assert main(["import", str(folder / "checkpoint.pt"), "--out", out, *files, "--languages", "eng", "deu"]) == 0
    assert "eng → deu" in capsys.readouterr().out
    assert load_model(out).about["languages"] == ["eng", "deu"]
    assert main(["import", str(folder / "checkpoint.pt"), "--out", out, *files]) == 1
    assert "already exists; remove it" in capsys.readouterr().err
    assert main(["import", "x", "--out", out, "--pieces", "a", "b", "c"]) == 2
    assert "--pieces takes one file for both sides, or one for each" in capsys.readouterr().err


def change_marian(tmp_path: Path, settings: tuple[str, str] = ("", ""), **arrays: Any) -> Path:
    """Change settings or arrays of Marian's model; None leaves one out."""
    shutil.copytree(FIXTURES / "marian-post", tmp_path / "changed")
    path = tmp_path / "changed" / "model.npz"
    with np.load(path) as archive:
        found = {name: archive[name] for name in archive.files}
    text = found["special:model.yml"].tobytes().decode().replace(*settings)
    found["special:model.yml"] = np.frombuffer(text.encode(), np.int8)
    found = {name: array for name, array in {**found, **arrays}.items() if array is not None}
    np.savez(path, **found)
    return path


@pytest.mark.parametrize(
    ("settings", "arrays", "message"),
    [
        (("type: transformer", "type: s2s"), {}, "type is 's2s'; only 'transformer' can be imported"),
        (("activation: swish", "activation: gelu"), {}, "transformer-ffn-activation is 'gelu'"),
        (("postprocess: dan", "postprocess: dh"), {}, "norms are placed as ''/'dh'/''"),
        (("enc-depth: 2", "enc-depth: 1"), {}, "no place for: encoder_l2_ffn_W1"),
        (("enc-depth: 2", "enc-depth: 3"), {}, "encoder_l3_self_Wq is missing"),
        (("", ""), {"Wpos": np.ones((9, 24))}, "has weights that our model has no place for: Wpos"),
        (("", ""), {"Wemb": np.ones((9, 24))}, "has 9 source embeddings, but its vocabulary has 75 tokens"),
        (("", ""), {"special:model.yml": None}, "contains no special:model.yml"),
    ],
)
def test_other_models_of_marian_are_refused(tmp_path: Path, settings: Any, arrays: Any, message: str):
    path = change_marian(tmp_path, settings, **arrays)
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(path, tmp_path / "ours"))
    assert message in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_marians_vocabularies_may_be_lists(tmp_path: Path):
    pieces = load_pieces(FIXTURES / "marian-post" / "joint.spm")
    listed = tmp_path / "vocab.yml"
    listed.write_text("".join(f"{json.dumps(piece)}: {n}\n" for n, piece in enumerate(pieces)), encoding="utf-8")
    assert read_tokens(listed) == pieces
    listed.write_text("'a''b': 1\n\"\\x41\\\"\": 0\nc: d: 2\n", encoding="utf-8")
    assert read_tokens(listed) == ['A"', "a'b", "c: d"]
    listed.write_text("".join(f"{json.dumps(piece)}: {n}\n" for n, piece in enumerate(pieces)), encoding="utf-8")
    model = FIXTURES / "marian-post" / "model.npz"
    with pytest.raises(DataError, match="is not a SentencePiece model; name those of both sides: --pieces"):
        import_model(ImportJob(model, tmp_path / "one", vocabularies=(listed,)))
    spm = (FIXTURES / "marian-post" / "joint.spm",)
    found = import_model(ImportJob(model, tmp_path / "two", vocabularies=(listed,), pieces=spm))
    plain = import_model(make_job("marian-post", tmp_path / "three"))
    assert found.weights.keys() == plain.weights.keys()
    assert all(torch.equal(found.weights[name], weight) for name, weight in plain.weights.items())


def load_pieces(path: Path) -> list[str]:
    import sentencepiece

    inner = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [inner.id_to_piece(number) for number in range(inner.get_piece_size())]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layernorm_embedding": True}, "layernorm_embedding is set, which our model does not support"),
        ({"decoder_attention_heads": 4}, "encoder_attention_heads is 2 and decoder_attention_heads 4"),
        ({"activation_fn": "tanh"}, "the activation 'tanh' is not supported"),
    ],
)
def test_other_models_of_fairseq_are_refused(tmp_path: Path, changes: dict[str, Any], message: str):
    found = read_checkpoint(FIXTURES / "fairseq-post" / "checkpoint.pt")
    settings = {**found["args"].state, **changes}
    torch.save({"cfg": {"model": settings}, "model": dict(found["model"])}, tmp_path / "x.pt")
    pieces = (FIXTURES / "fairseq-post" / "joint.model",)
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(tmp_path / "x.pt", tmp_path / "ours", pieces=pieces))
    assert message in str(caught.value)


def test_damaged_dictionaries_are_named_by_line(tmp_path: Path):
    (tmp_path / "dict.txt").write_text("a 1\nb\n", encoding="utf-8")
    base = make_job("fairseq-post", tmp_path / "ours")
    with pytest.raises(DataError, match=r"dict\.txt:2: wanted a token and its count, found 'b'"):
        import_model(ImportJob(base.source, base.out, pieces=base.pieces, vocabularies=(tmp_path / "dict.txt",)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("layer_norm: post", "other: post"), "has no layer_norm: pre or post"),
        (("num_heads: 2", "num_heads: 4"), "num_heads is 2 and 4; our model has one for both stacks"),
        (("num_layers: 2", "alpha: 0.5"), "alpha is 0.5; our residual connections have no such factor"),
        (("activation: relu", "activation: tanh"), "activation is relu and tanh"),
    ],
)
def test_other_models_of_joeynmt_are_refused(tmp_path: Path, change: tuple[str, str], message: str):
    shutil.copytree(FIXTURES / "joeynmt-post", tmp_path / "changed")
    config = tmp_path / "changed" / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace(*change) if "layer_norm" in change[0] else text.replace(*change, 1), encoding="utf-8"
    )
    pieces = (tmp_path / "changed" / "joint.model",)
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(tmp_path / "changed" / "best.ckpt", tmp_path / "ours", pieces=pieces))
    assert message in str(caught.value)
