"""Models of OpenNMT-py, whose sources have no end token, throughout: searched, shown, exported, fine-tuned."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marians import learn_pieces, texts

from transduce import Translator
from transduce.cli import main
from transduce.errors import ConfigError, DataError
from transduce.interop.checkpoint import read_checkpoint
from transduce.interop.exporting import ExportJob, Kind, export_model
from transduce.interop.importing import ImportJob, import_model
from transduce.interop.opennmt import read_opennmt
from transduce.interop.vocabulary import Foreign, number_sides, read_models
from transduce.model.saved import load_model
from transduce.seeing.sentence import see
from transduce.text.shards import DataSet
from transduce.text.subwords import END, UNKNOWN, Subwords, find_subwords

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = FIXTURES / "opennmt-shared"
EXPECTED = json.loads((SHARED / "expected.json").read_text(encoding="utf-8"))
SOURCES = [source for source, _ in EXPECTED["pairs"]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model of the fixtures, as ours."""
    out = tmp_path_factory.mktemp("opennmt") / "ours"
    import_model(ImportJob(SHARED / "model.pt", out, pieces=(SHARED / "joint.model",)))
    return out


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_translations_are_theirs(ours: Path, engine: Any, beam: int):
    translator = Translator.load(ours, engine=engine)
    # Their search stops at the fourth ended hypothesis, ours when nothing better can follow.
    settings: dict[str, Any] = {"split": "never", "copy_unknown": False}
    found = translator.translate(SOURCES, beam=beam, alpha=0.0, max_tokens=60, extra_tokens=60, **settings)
    said = EXPECTED[f"beam {beam}"]
    other = [place for place, translation in enumerate(found) if translation.text != said[place]]
    scores = translator.score([(SOURCES[place], said[place]) for place in other])
    assert all(found[place].score > score.sum() + 1e-3 for place, score in zip(other, scores))
    assert len(other) <= (0 if beam == 1 else 2)
    assert len(set(said)) > len(SOURCES) / 2


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_source_has_no_end_and_a_target_has(tmp_path: Path, kind: str):
    (tmp_path / "x.model").write_bytes(learn_pieces("source", kind))
    models = read_models([tmp_path / "x.model"])
    tokens = ["<unk>", "<blank>", "<s>", "</s>", *(piece.text for piece in models["source"].pieces[3:])]
    foreign = Foreign(tokens, 0, 3, 1, 2)
    _, sides = number_sides({"source": foreign, "target": foreign}, models, source_ends=False)
    source, target = sides["source"], sides["target"]
    assert (source.ends, target.ends) == (False, True)
    assert source.numbers_like(target)
    for line in [*texts("dev", 20)["source"], "</s>", "a</s>b", "\ufdd0</s>", ""]:
        assert source.encode(line) == target.encode(line)
        assert END not in source.encode(line)
        (own, _), (closed, _) = source.encode_lines([line]), target.encode_lines([line])
        assert own.tolist() == (source.encode(line) or [UNKNOWN])
        assert closed.tolist() == [*target.encode(line), END]
    # As a file it is the same.
    (tmp_path / "source.model").write_bytes(source.model)
    assert not Subwords.load(tmp_path / "source.model").ends
    lines = texts("dev", 40)["source"]
    row, lengths = source.encode_lines(lines)
    assert [part.tolist() for part in np.split(row, np.cumsum(lengths)[:-1])] == list(map(source.encode, lines))


@given(st.lists(st.integers(4, 50), max_size=5), st.booleans())
def test_what_is_closed_is_opened_again(ours_subwords: dict[str, Subwords], tokens: list[int], source: bool):
    side = ours_subwords["source" if source else "target"]
    closed = side.close(tokens)
    assert closed == ([*tokens, END] if not source else tokens or [UNKNOWN])
    assert side.open(closed) == (tokens or [UNKNOWN] * source)
    assert side.open(np.array(closed)).tolist() == side.open(closed)


@pytest.fixture(scope="module")
def ours_subwords(ours: Path) -> dict[str, Subwords]:
    return load_model(ours).subwords


def test_a_target_without_an_end_is_refused(ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "x.tsv").write_text("one\teins\ntwo\tzwei\n" * 20, encoding="utf-8")
    files = ["--pairs", str(tmp_path / "x.tsv"), "--dev-split", "1", "--workers", "1"]
    reused = str(ours / "source.model")
    assert main(["prepare", str(tmp_path / "data"), *files, "--subwords.reuse", reused]) == 1
    assert "source.model: has no end token, which the target side needs" in capsys.readouterr().err


def test_it_is_seen_without_an_end(ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    translator = Translator.load(ours, engine="torch")
    found = see(translator, "four to six")
    shown = found.to_dict()
    pieces = translator.subwords["source"].pieces(translator.subwords["source"].encode("four to six"))
    assert shown["source"]["pieces"] == tuple(pieces)
    assert shown["source"]["words"][-1] == 2
    assert len(shown["source"]["words"]) == len(pieces)
    assert np.shape(shown["attention"]["cross"][0])[-1] == len(pieces)
    assert found.source == "four to six"
    assert {source for source, _ in found.links} <= {0, 1, 2}
    with pytest.raises(DataError, match="there is nothing to show"):
        see(translator, " ")
    for name, side in (("x.en", 0), ("x.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in EXPECTED["pairs"]), encoding="utf-8")
    files = ["--source", str(tmp_path / "x.en"), "--target", str(tmp_path / "x.de"), "--json", "--device", "cpu"]
    assert main(["heads", str(ours), *files]) == 0
    heads = json.loads(capsys.readouterr().out)["heads"]
    assert all("end" not in head["shares"] for head in heads)
    assert any(head["shares"]["previous"] > 0 for head in heads if head["kind"] == "encoder")


@pytest.mark.parametrize("kind", ["ctranslate2", "argos", "onnx", "program", "transduce"])
def test_every_runtime_says_what_it_says(ours: Path, tmp_path: Path, kind: Kind):
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    out = tmp_path / ("out.argosmodel" if kind == "argos" else "out")
    job = ExportJob(model=ours, out=out, kind=kind, text=tmp_path / "lines", languages=("en", "de"))
    found = export_model(job).check  # an error if they differ
    assert found
    assert not found.wrong
    assert any("greedily: 12 of 12 the same" in line for line in found.found)


def test_huggingface_gives_sources_an_end(ours: Path, tmp_path: Path):
    with pytest.raises(
        ConfigError, match=r"sources without an end token, but the tokenizer of transformers adds one; use --to c"
    ):
        export_model(ExportJob(model=ours, out=tmp_path / "out", kind="huggingface"))


def test_it_is_tuned_without_ends(ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Data that reuse its subwords have sources without ends, and so does the fine-tuned model."""
    lines = texts("train", 120)
    rows = (f"the kubernetes {source}\tder {target}\n" for source, target in zip(lines["source"], lines["target"]))
    (tmp_path / "docs.tsv").write_text("".join(rows), encoding="utf-8")
    data, run = tmp_path / "data", tmp_path / "run"
    files = ["--pairs", str(tmp_path / "docs.tsv"), "--dev-split", "10", "--workers", "1"]
    assert main(["prepare", str(data), *files, "--subwords.reuse", str(ours), "--subwords.extend", "10"]) == 0
    held = DataSet.open(data)
    for pair in range(held.dev.pairs):
        assert held.dev.tokens("source", pair)[-1] != END
        assert held.dev.tokens("target", pair)[-1] == END
        assert held.text("dev", "source", pair).startswith("the kubernetes ")
    flags = ["--training.steps", "4", "--training.checkpoint-steps", "2", "--batch.subword-dropout", "0.1"]
    assert main(["train", str(data), "--from", str(ours), "--out", str(run), "--device", "cpu", *flags]) == 0
    assert not load_model(run).subwords["source"].ends
    capsys.readouterr()
    assert main(["translate", str(run), "--text", "the kubernetes two", "--alignments", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["inspect", str(data), "--json"]) == 0
    examples = json.loads(capsys.readouterr().out)["examples"]
    assert all(not example["source"].endswith("</s>") for example in examples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_type": "rnn"}, "decoder_type is 'rnn'; only 'transformer' can be imported"),
        ({"layer_norm": "rms"}, "layer_norm is 'rms'; only 'standard' can be imported"),
        ({"max_relative_positions": 20}, "max_relative_positions is 20, but our model has no relative positions"),
        ({"max_relative_positions": -1}, "has two kinds of positions, but our model needs one kind"),
        ({"position_encoding": False}, "has no positions, but our model needs one kind"),
        ({"position_encoding_type": "Learned"}, "position_encoding_type is 'Learned', which is not supported"),
        ({"pos_ffn_activation_fn": "gated-gelu"}, "the activation 'gated-gelu' is not supported"),
        ({"copy_attn": True}, "copy_attn is True; only False can be imported"),
        ({"max_relative_positions": -1, "position_encoding": False, "rotary_dim": 4}, "rotary_dim is 4; only whole"),
    ],
    ids=str,
)
def test_other_models_are_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str):
    found = read_checkpoint(SHARED / "model.pt")
    torch.save({**found, "opt": {**found["opt"].state, **changes}}, tmp_path / "x.pt")
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(tmp_path / "x.pt", tmp_path / "ours", pieces=(SHARED / "joint.model",)))
    assert message in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_keys_with_biases_cannot_be_turned(tmp_path: Path):
    found = read_checkpoint(FIXTURES / "opennmt-concat" / "model.pt")
    options = {**found["opt"].state, "max_relative_positions": -1, "position_encoding": False}
    torch.save({**found, "opt": options}, tmp_path / "x.pt")
    pieces = tuple(sorted((FIXTURES / "opennmt-concat").glob("*.model")))
    with pytest.raises(DataError, match="rotary positions and key biases"):
        read_opennmt(tmp_path / "x.pt", pieces)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"src": [1], "tgt": []}, "its source vocabulary is not a list of tokens"),
        ({"src": ["a"], "tgt": ["a"]}, "its source vocabulary lacks <unk> or </s>"),
        ({"src": ["<unk>"], "tgt": ["<unk>"]}, "its target vocabulary lacks <unk> or </s>"),
        ({"src": ["<unk>"], "tgt": ["<unk>", "</s>"], "src_feats": [["a"]]}, "not a list of tokens without features"),
        (None, "its source vocabulary is not a list of tokens"),
    ],
    ids=str,
)
def test_vocabularies_that_are_none_are_named(tmp_path: Path, vocabulary: Any, message: str):
    found = read_checkpoint(SHARED / "model.pt")
    torch.save({**found, "opt": found["opt"].state, "vocab": vocabulary}, tmp_path / "x.pt")
    with pytest.raises(DataError, match=message):
        read_opennmt(tmp_path / "x.pt", (SHARED / "joint.model",))


def test_files_that_are_missing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["import", str(SHARED / "model.pt"), "--out", str(tmp_path / "ours")]) == 1
    assert "a checkpoint contains no SentencePiece models; name them: --pieces" in capsys.readouterr().err
    shutil.copy(FIXTURES / "opennmt-rotary" / "model.pt", tmp_path / "other.pt")
    pieces = tuple(sorted((FIXTURES / "opennmt-rotary").glob("*.model")))
    with pytest.raises(DataError, match=r"other\.pt: contains no weights, and other\.safetensors is not beside it"):
        read_opennmt(tmp_path / "other.pt", pieces)
    (tmp_path / "other.00.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match=r"other\.00\.safetensors: cannot be read"):
        read_opennmt(tmp_path / "other.pt", pieces)
    torch.save({"model": {}}, tmp_path / "none.pt")
    with pytest.raises(DataError, match=r"none\.pt: contains no opt and vocab; it is not an OpenNMT-py checkpoint"):
        read_opennmt(tmp_path / "none.pt", pieces)


def test_text_of_other_subwords_is_refused(tmp_path: Path):
    """A SentencePiece model that shares little with the vocabulary was not the one used in training."""
    (tmp_path / "x.model").write_bytes(learn_pieces("target", "bpe"))
    other = FIXTURES / "opennmt-old"
    with pytest.raises(DataError, match=r"x\.model: only 30 of the 73 source tokens are among its pieces"):
        read_opennmt(other / "model.pt", (tmp_path / "x.model", other / "target.model"))
    # A large one has most tokens of a small vocabulary, and would make nearly all of a text unknown.
    large = find_subwords(Path("en-de"))["source"]
    with pytest.raises(DataError, match=r"subwords\.model: .* are among the 80 source tokens"):
        read_opennmt(SHARED / "model.pt", (large,))
