"""Exported models: the libraries they are written for compute and translate as ours do."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import ctranslate2
import numpy as np
import pytest
import torch
from exports import KINDS, save_kind
from marians import save_marian, texts
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

from transduce import Translator
from transduce.cli import main
from transduce.doors.export import KINDS as KINDS_OF_THE_DOOR
from transduce.errors import ConfigError, UsageError
from transduce.interop import exporting, to_ctranslate2, to_huggingface, to_onnx, to_program
from transduce.interop.alone import Translator as Alone
from transduce.interop.check import Said, check_quality
from transduce.interop.exporting import ExportJob, Kind, export_model
from transduce.interop.importing import ImportJob, import_model
from transduce.interop.parts import Parts
from transduce.model.saved import Loaded, load_model, read_manifest
from transduce.scoring.bleu import corpus_bleu
from transduce.text.subwords import BEGIN, END, PAD

LINES = texts("dev", 12)
HUGGINGFACE = {
    "the paper's": "MarianMTModel",
    "pre-norm": "PegasusForConditionalGeneration",
    "pre-norm, learned positions": "BlenderbotForConditionalGeneration",
    "biases, SiLU": "MarianMTModel",
    "narrow heads, unscaled": "MarianMTModel",
    "separate vocabularies": "MarianMTModel",
    "separate vocabularies, untied": "MarianMTModel",
}


def encode(loaded: Loaded, side: str) -> list[list[int]]:
    return [[*loaded.subwords[side].encode(line), END] for line in LINES[side]]


@torch.no_grad()
def our_logits(loaded: Loaded) -> list[torch.Tensor]:
    """Return the logits of the target's tokens for each pair."""
    sources, targets = encode(loaded, "source"), encode(loaded, "target")
    rows: list[torch.Tensor] = []
    for some in (sources, [[BEGIN, *target[:-1]] for target in targets]):
        rows += [torch.tensor([token for line in some for token in line]), torch.tensor([0, *map(len, some)]).cumsum(0)]
    return list(loaded.model(*rows).split([len(target) for target in targets]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "additive"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_ctranslate2_gives_our_probabilities(tmp_path: Path, kind: str, precision: Any):
    loaded = save_kind(tmp_path / "ours", kind)
    (tmp_path / "theirs").mkdir()
    to_ctranslate2.write(loaded, tmp_path / "theirs", precision)
    names = {side: to_ctranslate2.token_names(loaded, side) for side in LINES}
    given = [[[names[side][token] for token in line[:-1]] for line in encode(loaded, side)] for side in LINES]
    translator = ctranslate2.Translator(str(tmp_path / "theirs"), device="cpu")
    errors, sizes = [], []
    for found, logits, target in zip(translator.score_batch(*given), our_logits(loaded), encode(loaded, "target")):
        logits[:, [PAD, BEGIN]] = -torch.inf  # which are never said there
        expected = logits.log_softmax(-1)[range(len(target)), target]
        assert found.tokens[-1] == "</s>"
        if precision == "float32":
            torch.testing.assert_close(torch.tensor(found.log_probs), expected, rtol=1e-4, atol=1e-3)
        errors += (torch.tensor(found.log_probs) - expected).abs().tolist()
        sizes += expected.abs().tolist()
    assert 0 < sum(errors) < 0.15 * sum(sizes)


@pytest.mark.parametrize("kind", list(HUGGINGFACE))
def test_huggingface_gives_our_logits(tmp_path: Path, kind: str):
    loaded = save_kind(tmp_path / "ours", kind, {"languages": ["en", "de"]})
    (tmp_path / "theirs").mkdir()
    to_huggingface.write(loaded, tmp_path / "theirs", "float32")
    tokenizer: Any = AutoTokenizer.from_pretrained(str(tmp_path / "theirs"))
    model: Any
    model, report = AutoModelForSeq2SeqLM.from_pretrained(str(tmp_path / "theirs"), output_loading_info=True)
    assert type(model).__name__ == HUGGINGFACE[kind]
    assert not any(report.values()), report  # of what it prints: nothing is missing, unexpected or of another shape
    source = tokenizer(LINES["source"], return_tensors="pt", padding=True)
    target = tokenizer(text_target=LINES["target"], return_tensors="pt", padding=True)["input_ids"]
    for tokens, side in ((source["input_ids"], "source"), (target, "target")):
        assert [[int(token) for token in line if token != PAD] for line in tokens] == encode(loaded, side)
    shifted = torch.cat((torch.full((len(target), 1), BEGIN), target[:, :-1]), 1)
    with torch.inference_mode():
        logits = model(**source, decoder_input_ids=shifted).logits
    for found, expected in zip(logits, our_logits(loaded)):
        torch.testing.assert_close(found[: len(expected)], expected, rtol=1e-3, atol=1e-3)
    assert model.generation_config.suppress_tokens == [PAD, BEGIN]


@pytest.mark.parametrize("kind", [kind for kind, theirs in HUGGINGFACE.items() if theirs == "MarianMTModel"])
def test_what_goes_to_huggingface_comes_back(tmp_path: Path, kind: str):
    loaded = save_kind(tmp_path / "ours", kind, {"languages": ["en", "de"]})
    export_model(ExportJob(model=tmp_path / "ours", out=tmp_path / "theirs", kind="huggingface", sentences=0))
    import_model(ImportJob(tmp_path / "theirs", tmp_path / "back"))
    back = load_model(tmp_path / "back")
    assert back.about["languages"] == ["en", "de"]
    assert (back.config.search.beam, back.config.search.alpha) == (3, 0.6)
    assert torch.equal(back.model.embedding.weight, loaded.model.embedding.weight)
    for side in LINES:
        assert encode(back, side) == encode(loaded, side)
    for found, expected in zip(our_logits(back), our_logits(loaded)):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["BPE", "unigram, separate vocabularies"])
def test_what_was_imported_goes_out_again(tmp_path: Path, kind: str):
    separate = kind != "BPE"
    saved = save_marian(tmp_path, kind="unigram" if separate else "bpe", separate=separate)
    import_model(ImportJob(saved.folder, tmp_path / "ours"))
    for target in ("huggingface", "ctranslate2"):
        (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES["source"]), encoding="utf-8")
        job = ExportJob(model=tmp_path / "ours", out=tmp_path / target, kind=target, text=tmp_path / "lines")
        found = export_model(job).check  # an error if they differ
        assert found
        assert not found.wrong
        assert any("greedily: 12 of 12 the same" in line for line in found.found)
    again: Any = AutoTokenizer.from_pretrained(str(tmp_path / "huggingface"))
    tagged = [*LINES["source"], f">>de<< {LINES['source'][0]}"]
    for line in tagged[: None if not separate else -1]:
        assert again.tokenize(line) == saved.tokenizer.tokenize(line)


def test_language_tags_learned_here_are_taken_off_by_their_tokenizer(tmp_path: Path):
    save_kind(tmp_path / "ours", symbols=(">>de<<", ">>fr<<"))
    lines = tmp_path / "lines"
    lines.write_text("".join(f">>{tag}<< {line}\n" for line in LINES["source"] for tag in ("de", "fr")))
    found = export_model(
        ExportJob(model=tmp_path / "ours", out=tmp_path / "theirs", kind="huggingface", text=lines)
    ).check
    assert found  # an error if they differ
    assert any("greedily: 24 of 24 the same" in line for line in found.found)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Loaded, Path]]:
    """Exports that run alone: their models and folders."""
    folder = tmp_path_factory.mktemp("alone")
    made: dict[str, tuple[Loaded, Path]] = {}
    for name, kind, module in (
        ("program", "additive", to_program),
        ("onnx", "separate vocabularies, untied", to_onnx),
    ):
        loaded = save_kind(folder / f"{name} ours", kind, layers=1)
        (folder / name).mkdir()
        module.write(loaded, folder / name, "float32")
        made[name] = loaded, folder / name
    return made


@pytest.mark.parametrize("name", ["program", "onnx"])
def test_programs_and_onnx_say_what_we_say(alone: dict[str, tuple[Loaded, Path]], name: str):
    loaded, folder = alone[name]
    lines = [*LINES["source"][:6], "one"]
    translator, theirs = Translator.load(loaded.folder, engine="torch"), Alone(folder)
    several: list[dict[str, Any]] = [
        {"beam": beam, **settings}
        for beam in (1, 3)
        for settings in ({"stop": "full"}, {"alpha": 1.5, "extra_tokens": 1})
    ]
    for settings in several:
        expected = translator.translate(lines, split="never", **settings)
        assert theirs.translate(lines, **settings) == [translation.text for translation in expected], settings
        assert theirs.translate(lines[-1:], **settings) == [expected[-1].text], settings  # alone as in a batch
        assert len({translation.text for translation in expected}) > 2
    pairs = list(zip(encode(loaded, "source"), encode(loaded, "target")))[:3]
    scores = [scores.sum() for scores in translator.score(list(zip(LINES["source"], LINES["target"])))[:3]]
    assert to_program.score(loaded, folder, pairs) == pytest.approx(scores, rel=1e-4)


def test_onnx_in_int8_is_smaller_and_nearly_the_same(alone: dict[str, tuple[Loaded, Path]], tmp_path: Path):
    loaded, folder = alone["onnx"]
    small = tmp_path / "small"
    shutil.copytree(folder, small)
    for name in ("encoder", "step"):
        to_onnx.round_weights(small / f"{name}.onnx")
        assert (small / f"{name}.onnx").stat().st_size < 0.7 * (folder / f"{name}.onnx").stat().st_size
    source = np.array(encode(loaded, "source")[:1])
    before, after = (Alone(one).encode(source, np.array([source.shape[1]])) for one in (folder, small))
    for exact, rounded in zip(before, after):
        assert 0 < np.abs(rounded - exact).mean() < 0.1 * np.abs(exact).mean()


def test_the_example_runs_without_transduce(alone: dict[str, tuple[Loaded, Path]]):
    for name in ("program", "onnx"):
        loaded, folder = alone[name]
        start = "import runpy, sys; sys.modules['transduce'] = None"
        code = f"{start}; runpy.run_path({str(folder / 'translate.py')!r}, run_name='__main__')"
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
        text = "\n".join(LINES["source"])
        run = subprocess.run(
            [sys.executable, "-c", code], input=text, capture_output=True, encoding="utf-8", env=environment
        )
        expected = Translator.load(loaded.folder, engine="torch").translate(LINES["source"], split="never")
        assert run.stdout.splitlines() == [translation.text for translation in expected], run.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set with a dev set."""
    for side, lines in texts("train", 400).items():
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = ["--source", str(tmp_path / "train.source"), "--target", str(tmp_path / "train.target")]
    assert main(["prepare", str(tmp_path / "data"), *files, "--dev-split", "30", "--subwords", "340"]) == 0
    return tmp_path / "data"


def test_an_export_is_checked_with_the_dev_set(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]):
    manifest = json.loads((data / "manifest.json").read_text())
    known = {"folder": str(data), "fingerprint": manifest["fingerprint"], "pairs": 370, "inputs": ["train.source"]}
    save_kind(tmp_path / "ours", about={"trained_on": known})
    capsys.readouterr()
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", "--sentences", "20"]) == 0
    out = capsys.readouterr().out
    assert f"20 sentences (the dev set of {data}), translated by ctranslate2 {ctranslate2.__version__}" in out
    assert "greedily: 20 of 20 the same" in out
    card = (tmp_path / "ours-ctranslate2" / "README.md").read_text(encoding="utf-8")
    assert all(line.strip() in card for line in out.splitlines()[1:])
    assert "370 pairs of train.source" in card
    assert "beam_size=3, length_penalty=0.6, patience=2)" in card
    # int8 is judged by BLEU.
    int8 = ["--precision", "int8", "--out", str(tmp_path / "small")]
    code = main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", *int8])
    said = capsys.readouterr()
    assert "ours in float32" in said.out + said.err
    assert code == 0 if (tmp_path / "small").exists() else "use --precision float32" in said.err


def test_an_export_says_why_it_was_not_checked_with_the_dev_set(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
):
    fingerprint = json.loads((data / "manifest.json").read_text())["fingerprint"]
    for number, (about, why) in enumerate(
        [
            (
                {"folder": str(data), "fingerprint": "older"},
                f"{data} has been prepared again since the model was trained on it",
            ),
            ({"folder": str(data / "no"), "fingerprint": fingerprint}, f"{data / 'no'}, is missing"),
            ({}, "the model does not record what it was trained on"),
        ]
    ):
        model, out = tmp_path / f"ours-{number}", tmp_path / f"small-{number}"
        save_kind(model, about={"trained_on": {**about, "pairs": 370, "inputs": ["a"]}})
        capsys.readouterr()
        command = ["export", str(model), "--to", "transduce", "--precision", "int8", "--sentences", "5"]
        assert main([*command, "--out", str(out)]) == 0
        said = capsys.readouterr().out
        assert "5 sentences (lines of random subwords)" in said
        (line,) = [line for line in said.splitlines() if why in line]
        assert line.endswith("so they are made up; --check FILE --reference FILE uses your own sentences")


def test_an_export_that_says_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    save_kind(tmp_path / "ours")
    right = to_ctranslate2.translate

    def wrong(*given: Any) -> list[Said]:
        return [Said("zwei drei vier"), Said("eins"), *right(*given)[2:]]

    monkeypatch.setattr(to_ctranslate2, "translate", wrong)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{line}\n" for line in LINES["source"]), encoding="utf-8")
    command = ["export", str(tmp_path / "ours"), "--to", "ctranslate2", "--check", str(lines)]
    assert main(command) == 1
    said = capsys.readouterr().err
    many = "greedily, 2 of 12 translations differ, and at most 0 may"
    assert f"ours-ctranslate2: was not written, as its output differs from the model's: {many}; " in said
    assert "; please report it, or keep it unchecked with --sentences 0\n" in said
    assert f"source: {LINES['source'][0]}" in said
    assert "theirs: zwei drei vier" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "ours"]


@pytest.mark.parametrize(("wrong", "good"), [(0, True), (2, True), (12, False)])
def test_int8_may_lose_what_may_be_chance(wrong: int, good: bool):
    references = [f"{one} {another} {one}" for one in LINES["target"] for another in LINES["target"]][:30]
    theirs = ["nein"] * wrong + references[wrong:]
    said, passes = check_quality(references, theirs, references, "bleu")
    assert passes == good
    assert f"BLEU {corpus_bleu(theirs, references).score:.2f}, ours in float32 100.00" in said
    chances = re.findall(r", by chance with p = ([\d.]+) ", said)
    assert bool(chances) == bool(wrong)
    assert all((float(chance) >= 0.05) == good for chance in chances)


def test_a_wrong_weight_shows_in_the_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    save_kind(tmp_path / "ours")
    right = to_ctranslate2.take_apart

    def wrong(*given: Any) -> Parts:
        parts = right(*given)
        parts.decoder[1].norm.weight[5] *= 1.02
        return parts

    monkeypatch.setattr(to_ctranslate2, "take_apart", wrong)
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", "--sentences", "10"]) == 1
    said = capsys.readouterr().err
    assert re.search(r"probabilities differ by up to 0\.\d+ nats a token, and 0\.003 is allowed", said)
    assert ("though all greedy translations are the same" in said) == ("greedily: 10 of 10 the same" in said)
    monkeypatch.setattr(to_ctranslate2, "take_apart", right)
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", "--sentences", "10"]) == 0
    found = re.search(r"at most (\S+) nats a token apart", capsys.readouterr().out)
    assert found
    assert 0 < float(found[1]) < 0.001


def test_transformers_is_quiet_and_keeps_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    save_kind(tmp_path / "ours")
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity(20)
        logging.enable_progress_bar()
        assert main(["export", str(tmp_path / "ours"), "--to", "huggingface", "--sentences", "5"]) == 0
        assert capsys.readouterr().err == ""
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (20, True)
    finally:
        logging.set_verbosity(before[0])
        if not before[1]:
            logging.disable_progress_bar()


def test_what_cannot_be_checked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    save_kind(tmp_path / "ours")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2"]) == 3
    assert "NOT checked: ctranslate2 is not installed; pip install ctranslate2" in capsys.readouterr().err
    assert "was not checked" in (tmp_path / "ours-ctranslate2" / "README.md").read_text()
    assert main(["export", str(tmp_path / "ours"), "--to", "onnx"]) == 2
    assert "pip install onnx onnxscript" in capsys.readouterr().err
    # Whoever asks for no check is told nothing.
    again = ["--sentences", "0", "--out", str(tmp_path / "again")]
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", *again]) == 0


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_model_of_our_own_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], precision: str
):
    save_kind(tmp_path / "ours", "additive")
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "shelf"))
    out = tmp_path / "shelf" / "small"
    command = [
        "export",
        str(tmp_path / "ours"),
        "--to",
        "transduce",
        "--precision",
        precision,
        "--languages",
        "en",
        "de",
    ]
    assert main([*command, "--out", str(out), "--sentences", "20"]) == 0
    said = capsys.readouterr().out
    assert "translated by the new model and by transduce" in said
    assert ("greedily: 20 of 20 the same" in said) or precision == "int8"
    assert f'transduce translate {out.name} --text "' in (out / "README.md").read_text(encoding="utf-8")
    sizes = [path.stat().st_size for path in (tmp_path / "ours" / "model.safetensors", out / "model.safetensors")]
    assert sizes[0] / sizes[1] == pytest.approx(1 if precision == "float32" else 3.5, rel=0.15)
    assert read_manifest(out)["about"]["languages"] == ["en", "de"]
    old, new = (load_model(path).model.state_dict() for path in (tmp_path / "ours", out))
    for name, weight in old.items():
        apart = 0 if precision == "float32" else weight.abs().max().item() / 127
        torch.testing.assert_close(new[name], weight, rtol=0, atol=apart)
    # It is found by its languages.
    assert main(["translate", "--to", "de", "--text", "one two"]) == 0
    assert main(["translate", str(out), "--text", "one two"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_a_package_for_argos_translate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    save_kind(tmp_path / "ours", "separate vocabularies")
    assert main(["export", str(tmp_path / "ours"), "--to", "argos"]) == 2
    assert "does not record its languages" in capsys.readouterr().err
    assert (
        main(["export", str(tmp_path / "ours"), "--to", "argos", "--languages", "en", "de", "--sentences", "20"]) == 0
    )
    assert "of 20 the same" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "ours.argosmodel") as archive:
        assert {Path(name).parts[0] for name in archive.namelist()} == {"translate-en_de-1_0"}
        archive.extractall(tmp_path)
    folder = tmp_path / "translate-en_de-1_0"
    about = json.loads((folder / "metadata.json").read_text())
    assert (about["from_code"], about["to_name"]) == ("en", "German")
    assert ctranslate2.contains_model(str(folder / "model"))
    assert (folder / "sentencepiece.model").exists()
    assert "install_from_path('ours.argosmodel')" in (folder / "README.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "ours.argosmodel", folder.name]


@pytest.mark.parametrize(
    ("kind", "target", "reason"),
    [
        ("additive", "ctranslate2", 'model.attention = "additive".*use --to onnx or program'),
        ("additive", "huggingface", 'model.attention = "additive"'),
        (
            "learned positions",
            "huggingface",
            'norm = "post" with model.positions = "learned".*use --to ctranslate2 or',
        ),
        ("rotary, SwiGLU", "huggingface", 'model.activation = "swiglu"'),
        ("another epsilon", "huggingface", "model.norm_epsilon = 0.01, but the norms of transformers have 1e-05"),
        ("wide heads", "huggingface", "heads of 20 numbers"),
    ],
)
def test_what_a_runtime_cannot_compute_is_refused(tmp_path: Path, kind: str, target: Any, reason: str):
    save_kind(tmp_path / "ours", kind)
    with pytest.raises(ConfigError, match=reason):
        export_model(ExportJob(model=tmp_path / "ours", out=tmp_path / "out", kind=target))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "name"), [("ctranslate2", "m"), ("argos", "m.argosmodel"), ("transduce", "m")])
def test_a_full_disk_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, name: str):
    """The system does not name it; nothing is left there."""
    model, out = tmp_path / "model", tmp_path / "new" / name
    save_kind(model, about={"languages": ["en", "de"]})
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch("os.fsync", side_effect=full):
        assert main(["export", str(model), "--to", kind, "--out", str(out), "--sentences", "0"]) == 1
    wanted = f"error: {out}: cannot be written (No space left on device); free disk space there\n"
    assert capsys.readouterr().err.endswith(wanted)
    assert list(out.parent.iterdir()) == []


def test_wrong_orders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    save_kind(tmp_path / "ours")
    ours = str(tmp_path / "ours")
    for out in ("out", "ours"):  # whatever lies there
        with pytest.raises(UsageError, match="--to huggingface has no --precision int8; use float32"):
            export_model(ExportJob(model=tmp_path / "ours", out=tmp_path / out, kind="huggingface", precision="int8"))
    assert main(["export", str(tmp_path / "nowhere"), "--to", "ctranslate2", "--out", ours]) == 1
    assert "nowhere: does not exist" in capsys.readouterr().err
    assert main(["export", ours, "--to", "ctranslate2", "--out", ours]) == 1
    assert "already exists" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["export", ours, "--to", "argos", "--languages", "en", "de", "--out", str(tmp_path / "empty")]) == 1
    assert "empty: is a folder, but a package is one file" in capsys.readouterr().err
    (tmp_path / "one").write_text("one\n")
    (tmp_path / "two").write_text("one\ntwo\n")
    files = ["--check", str(tmp_path / "one"), "--reference", str(tmp_path / "two")]
    assert main(["export", ours, "--to", "ctranslate2", *files]) == 1
    assert "two: has 2 lines, but" in capsys.readouterr().err
    assert main(["export", ours, "--to", "ctranslate2", "--reference", str(tmp_path / "two")]) == 2
    (tmp_path / "one").write_text("…\n")
    assert main(["export", ours, "--to", "ctranslate2", *files[:2]]) == 1
    assert "has no line of 1 to 100 tokens" in capsys.readouterr().err


def test_the_door_knows_every_kind():
    assert set(KINDS_OF_THE_DOOR) == set(get_args(Kind))
