"""Imported Marian models: the subwords, logits and translations are those of Hugging Face's own code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marians import Saved, save_marian, texts

from transduce import Translator
from transduce.cli import main
from transduce.decoding.options import Request
from transduce.errors import DataError
from transduce.interop.importing import ImportJob, import_model
from transduce.model.saved import load_model
from transduce.text.subwords import BEGIN, END, SPACE, UNKNOWN, Subwords

KINDS: dict[str, dict[str, Any]] = {
    "OPUS-MT": {},
    "BPE": {"kind": "bpe", "activation_function": "relu"},
    "separate vocabularies": {"separate": True, "activation_function": "gelu"},
    "separate BPE, untied": {"kind": "bpe", "separate": True, "tie_word_embeddings": False},
    "embeddings not scaled": {"scale_embedding": False, "decoder_layers": 2},
}
LINES = [
    *texts("dev", 16)["source"],
    *(f">>{tag}<< {line}" for tag, line in zip(("de", "fr"), texts("dev", 2)["source"])),
    "Ünknöwn ½ lettérs, ﬁne　ones 😀 and  two  spaces ",
]


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Saved, Path]:
    """One of their models, and the folder of ours."""
    folder = tmp_path_factory.mktemp("import")
    saved = save_marian(folder, **KINDS[request.param])
    assert main(["import", str(saved.folder), "--out", str(folder / "ours")]) == 0
    return saved, folder / "ours"


def is_tag(piece: str) -> bool:
    """Whether a token names a language."""
    return piece.endswith("<<")


def _plain(piece: str) -> str:
    return piece.removeprefix("▁") if is_tag(piece) else piece


def number_pieces(subwords: Subwords) -> dict[str, int]:
    """Return our token numbers by the texts of the pieces."""
    return {_plain(piece): number for number, piece in enumerate(subwords.pieces(range(len(subwords))))}


def target_names(saved: Saved) -> dict[int, str]:
    """Return the texts of their tokens in the target."""
    tokenizer = saved.tokenizer
    vocabulary = tokenizer.target_encoder if tokenizer.separate_vocabs else tokenizer.encoder
    return {number: token for token, number in vocabulary.items()}


def their_tokens(saved: Saved, subwords: Subwords, line: str, side: str = "source") -> list[int]:
    """Return their tokenizer's tokens in our numbers, matched by their texts."""
    ids = saved.tokenizer(line)["input_ids"] if side == "source" else saved.tokenizer(text_target=line)["input_ids"]
    names = {number: token for token, number in saved.tokenizer.encoder.items()}
    names = names if side == "source" else target_names(saved)
    ours = number_pieces(subwords)
    return [ours[names[number]] for number in ids]


def test_texts_are_split_as_theirs_are(pair: tuple[Saved, Path]):
    saved, folder = pair
    subwords = load_model(folder).subwords
    for side in ("source", "target"):
        unknown = 0
        for line in (*LINES, *texts("dev", 25)[side]):
            if side == "target" and ">>" in line:
                continue
            found = [*subwords[side].encode(line), END]
            assert found == their_tokens(saved, subwords[side], line, side), line
            assert np.array_equal(subwords[side].encode_lines([line])[0], found)
            unknown += found.count(UNKNOWN)
        assert unknown  # some are not in the vocabulary


@torch.inference_mode()
def test_logits_are_theirs(pair: tuple[Saved, Path]):
    saved, folder = pair
    loaded = load_model(folder)
    numbers = {side: len(loaded.subwords[side]) for side in ("source", "target")}
    assert numbers["target"] == loaded.config.model.vocabulary
    lines = {side: texts("dev", 12)[side] for side in ("source", "target")}
    source, target = (
        saved.tokenizer(**{name: some}, padding=True, return_tensors="pt")
        for name, some in (("text", lines["source"]), ("text_target", lines["target"]))
    )
    begin = saved.model.config.decoder_start_token_id
    shifted = torch.cat((torch.full((12, 1), begin), target["input_ids"][:, :-1]), 1)
    expected = saved.model(**source, decoder_input_ids=shifted).logits
    ours = {side: [[*loaded.subwords[side].encode(line), END] for line in lines[side]] for side in lines}
    rows = []
    for side, sentences in ours.items():
        given = [[BEGIN, *some[:-1]] if side == "target" else some for some in sentences]
        rows += [
            torch.tensor([token for some in given for token in some]),
            torch.tensor([0, *map(len, given)]).cumsum(0),
        ]
    found = loaded.model(*rows)
    places = number_pieces(loaded.subwords["target"])
    columns = torch.tensor([places[name] for _, name in sorted(target_names(saved).items())])
    expected = torch.cat([row[: len(sentence)] for row, sentence in zip(expected, ours["target"])])
    torch.testing.assert_close(found[:, columns], expected, rtol=1e-4, atol=1e-4)
    # No token that was added here takes a share of the probability.
    torch.testing.assert_close(found.logsumexp(-1), expected.logsumexp(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("engine", "beam", "no_repeat"), [("torch", 1, None), ("torch", 4, 2), ("native", 4, None), ("native", 1, 2)]
)
def test_translations_are_theirs(pair: tuple[Saved, Path], engine: Any, beam: int, no_repeat: int | None):
    saved, folder = pair
    translator = Translator.load(folder, engine=engine)
    found = translator.translate(LINES, beam=beam, alpha=0.0, max_tokens=24, split="never", no_repeat=no_repeat)
    theirs = saved.model.generate(
        **saved.tokenizer(LINES, return_tensors="pt", padding=True),
        **{"num_beams": beam, "max_new_tokens": 24, "do_sample": False, "early_stopping": "never"},
        **({"length_penalty": 0.0} if beam > 1 else {}),
        no_repeat_ngram_size=no_repeat or 0,
        bad_words_ids=[[saved.model.config.pad_token_id]],
    )
    names = target_names(saved)
    for line, translation, tokens in zip(LINES, found, theirs):
        expected = [names[token] for token in tokens.tolist()[1:] if names[token] not in ("</s>", "<pad>")]
        ((alternative,),) = (sentence.alternatives for sentence in translation.sentences)
        assert [_plain(piece) for piece in alternative.tokens] == expected, line
        if "<unk>" not in expected and not any(map(is_tag, expected)):  # which they write in their own way
            assert translation.text.strip() == saved.tokenizer.decode(tokens, skip_special_tokens=True)
    assert len({translation.text for translation in found}) > (len(LINES) / 2 if no_repeat else 2)


def test_what_has_no_subword_is_copied_from_the_source(pair: tuple[Saved, Path]):
    _, folder = pair
    translator = Translator.load(folder, engine="torch")
    source = translator.subwords["source"]
    lost = 0
    for line in LINES:
        tokens, unknown = source.encode(line), source.find_unknown(line)
        assert len(unknown) == tokens.count(UNKNOWN)
        lost += len(unknown)
        whole = "".join(source.processor.encode(line, out_type=str)).replace(SPACE, " ").strip()
        assert source.decode(tokens, unknown).strip() == whole  # nothing of it is lost
    assert lost
    # A prefix forces the unknown token here; most models produce it where the source has one.
    request = Request("two 😀 euros", prefix="zwei 😀")
    copied, plain = (
        translator.translate(request, copy_unknown=copy, beam=2, max_tokens=12, n_best=2).sentences[0].alternatives
        for copy in (True, False)
    )
    assert [one.tokens for one in copied] == [one.tokens for one in plain]
    for one, other in zip(copied, plain):
        assert one.text.startswith("zwei 😀")
        assert other.text == one.text.replace("😀", " ⁇ ")
    nothing = translator.translate(Request("two euros", prefix="zwei 😀"), beam=1, max_tokens=12)
    assert nothing.text.startswith("zwei  ⁇ ")


def test_what_is_known_of_the_model_is_kept(pair: tuple[Saved, Path]):
    saved, folder = pair
    loaded = load_model(folder)
    assert loaded.about["languages"] == ["en", "de"]
    assert loaded.about["imported_from"] == {"kind": "huggingface", "name": "theirs"}
    assert sum(weight.numel() for weight in loaded.model.parameters()) == loaded.config.model.parameters()
    assert loaded.config.model.dropout == saved.model.config.dropout


def test_old_weights_are_read_without_unpickling(tmp_path: Path):
    saved = save_marian(tmp_path)
    expected = import_model(ImportJob(saved.folder, tmp_path / "new")).weights
    (saved.folder / "model.safetensors").unlink()
    for zipped in (True, False):
        torch.save(saved.model.state_dict(), saved.folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        found = import_model(ImportJob(saved.folder, tmp_path / f"old-{zipped}")).weights
        assert found.keys() == expected.keys()
        for name, weight in expected.items():  # some are products, whose last bits depend on where they lie in memory
            torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-6)


def test_a_tag_is_given_to_every_sentence(tmp_path: Path):
    saved = save_marian(tmp_path)
    import_model(ImportJob(saved.folder, tmp_path / "ours"))
    translator = Translator.load(tmp_path / "ours", engine="torch")
    one, two = "Twenty-one euros.", "The twenty-first of June."
    found = translator.translate(f">>fr<< {one} {two}", split="always", beam=1, max_tokens=5)
    assert [sentence.source for sentence in found.sentences] == [f">>fr<< {one}", f">>fr<< {two}"]
    alone = translator.translate([f">>fr<< {one}", f">>fr<< {two}"], split="never", beam=1, max_tokens=5)
    assert found.text == " ".join(part.text for part in alone)
    plain = translator.translate(">>xx<< one", beam=1, max_tokens=5)  # no tag that it knows
    assert plain.sentences[0].source == ">>xx<< one"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"model_type": "bart"}, "model_type is 'bart'; only marian"),
        ("config.json", {"normalize_before": True}, "normalize_before is set"),
        ("config.json", {"activation_function": "gelu_new"}, "the activation 'gelu_new' is not supported"),
        ("config.json", {"decoder_attention_heads": 2}, "our model has one for both"),
        ("config.json", {"eos_token_id": 5}, "ends sentences with 5"),
        ("config.json", {"decoder_layers": 2}, "no place for: model.decoder.layers.2"),
        ("config.json", {"decoder_layers": 4}, "model.decoder.layers.3.self_attn.q_proj.weight is missing"),
        ("vocab.json", {"one more": 4}, "its token numbers are not 0 to"),
    ],
)
def test_what_cannot_be_imported_is_refused(tmp_path: Path, name: str, change: dict[str, Any], message: str):
    saved = save_marian(tmp_path)
    path = saved.folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError) as caught:
        import_model(ImportJob(saved.folder, tmp_path / "ours"))
    assert message in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_missing_and_damaged_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = save_marian(tmp_path)
    out = str(tmp_path / "ours")
    (saved.folder / "target.spm").write_bytes(b"nothing of the kind")
    assert main(["import", str(saved.folder), "--out", out]) == 1
    assert "target.spm: not a" in capsys.readouterr().err
    (saved.folder / "target.spm").unlink()
    assert main(["import", str(saved.folder), "--out", out]) == 1
    assert "target.spm: cannot be read (No such file or directory)" in capsys.readouterr().err
    (saved.folder / "model.safetensors").unlink()
    assert main(["import", str(saved.folder), "--out", out]) == 1
    assert "has neither model.safetensors nor pytorch_model.bin" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "nowhere"), "--out", out]) == 1
    assert "nowhere: does not exist" in capsys.readouterr().err
    assert main(["import", str(saved.folder.parent / "raw"), "--out", out]) == 1
    assert "not a model of a known kind" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()


def test_an_imported_model_is_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = save_marian(tmp_path, dropout=0.0)
    ours, data, run = (str(tmp_path / name) for name in ("ours", "data", "run"))
    assert main(["import", str(saved.folder), "--out", ours]) == 0
    for side, lines in texts("train", 200).items():
        (tmp_path / f"{side}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = ["--source", str(tmp_path / "source.txt"), "--target", str(tmp_path / "target.txt"), "--dev-split", "20"]
    assert main(["prepare", data, *corpus, "--subwords.reuse", ours]) == 0
    model = load_model(ours).config.model
    same = ["layers", "decoder-layers", "d-model", "d-ff", "heads", "activation", "dropout"]
    flags = [part for name in same for part in (f"--model.{name}", str(getattr(model, name.replace("-", "_"))))]
    batches = ["--batch.source-tokens", "512", "--batch.target-tokens", "512", "--training.bleu-sentences", "5"]
    steps = ["--training.steps", "6", "--training.warmup-steps", "1", "--training.peak-rate", "0.001"]
    steps += ["--training.checkpoint-steps", "3"]
    assert main(["train", data, "--out", run, "--from", ours, "--preset", "base", *flags, *batches, *steps]) == 1
    assert "model.biases is true there and false here; use --model.biases" in capsys.readouterr().err
    assert main(["train", data, "--out", run, "--from", ours, *batches, *steps]) == 0
    before, after = (Translator.load(folder, engine="torch") for folder in (ours, f"{run}/checkpoints/step-00000006"))
    assert before.subwords["source"].model == after.subwords["source"].model != after.subwords["target"].model
    lines = list(zip(*texts("train", 50).values()))
    losses = [-sum(part.sum() for part in translator.score(lines)) for translator in (before, after)]
    assert losses[1] < losses[0]
