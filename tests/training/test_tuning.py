"""Fine-tuning: settings from the model, vocabulary kept or extended, general text mixed in, forgetting measured."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import checkpoints, write_pairs
from safetensors.torch import load_file
from threads import one_thread

from transduce import strict
from transduce.cli import main
from transduce.config import BatchConfig, Config
from transduce.model import saved
from transduce.presets import PRESETS, tune
from transduce.text import numbers
from transduce.text.batches import Batches
from transduce.text.shards import DataSet
from transduce.training import hardware
from transduce.training.metrics import read_metrics
from transduce.training.schedule import learning_rate

# Another domain: prices and dates in capitals, with signs that general text does not have.
GENERAL = numbers.corpus("train", 800)
SPECIAL = [(f"→ {source.upper()}", f"→ {target.upper()} ¶") for source, target in numbers.corpus("train", 1100)[800:]]
SIZES = ["--model.layers", "1", "--model.d-model", "32", "--model.d-ff", "64", "--model.heads", "2", "--device", "cpu"]
FAST = [
    "--batch.source-tokens",
    "768",
    "--batch.target-tokens",
    "768",
    "--batch.parts",
    "2",
    "--training.bleu-sentences",
    "0",
    "--training.precision",
    "float32",
]
FEW = ["--training.steps", "2", "--training.checkpoint-steps", "1", "--training.precision", "float32"]


def run(*words: str | Path) -> int:
    with one_thread():
        return main([str(word) for word in words])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of texts, and a model trained a little on the general ones."""
    home = tmp_path_factory.mktemp("tuning")
    for name, pairs in (("general", GENERAL[:-40]), ("news", GENERAL[-40:]), ("docs", SPECIAL[:-40])):
        write_pairs(home / f"{name}.tsv", pairs)
    write_pairs(home / "docs-dev.tsv", SPECIAL[-40:])
    files = ["--pairs", home / "general.tsv", "--dev-pairs", home / "news.tsv"]
    assert run("prepare", home / "data", *files, "--subwords", "360", "--workers", "1") == 0
    settings = ["--training.steps", "100", "--training.warmup-steps", "30", "--training.peak-rate", "0.01"]
    more = ["--training.checkpoint-steps", "100", "--training.label-smoothing", "0.05"]
    assert run("train", home / "data", "--out", home / "base", *SIZES, *FAST, *settings, *more) == 0
    return home


def prepare(home: Path, out: Path, *flags: str | Path, more: Sequence[str] = ()) -> DataSet:
    """Prepare the special text, and perhaps more, with the model's subwords; the general dev set is watched."""
    sets = ["--dev-pairs", home / "docs-dev.tsv", "--watch-pairs", home / "news.tsv"]
    files = ["--pairs", *(home / name for name in ("docs.tsv", *more)), *sets, "--subwords.reuse", home / "base"]
    assert run("prepare", out, *files, "--workers", "1", *flags) == 0
    return DataSet.open(out)


def config_of(folder: Path) -> Config:
    return strict.from_dict(Config, json.loads((folder / "config.json").read_text()), str(folder))


def test_settings_are_the_model_s_and_made_for_tuning(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`train DATA --from MODEL` is enough; flags and a file still override it, and a preset stands for itself."""
    prepare(home, tmp_path / "data")
    assert run("train", tmp_path / "data", "--out", tmp_path / "run", "--from", home / "base", *FEW) == 0
    assert "other subwords" not in capsys.readouterr().err
    known, found = config_of(home / "base"), config_of(tmp_path / "run")
    assert (found.model, found.batch, found.search) == (known.model, known.batch, known.search)
    assert found.training.label_smoothing == 0.05
    assert (found.training.schedule, found.training.peak_rate, found.training.patience) == ("constant", 0.002, 5)
    assert found.training.steps == 2
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "| started from | the weights of base |" in card
    more = ["--resume", "--from", home / "base", *FEW, "--training.steps", "3"]
    assert run("train", tmp_path / "data", "--out", tmp_path / "run", *more) == 0
    about = saved.read_manifest(tmp_path / "run" / "model")["about"]
    before = saved.read_manifest(home / "base" / "model")["about"]
    assert about["began_with"] == "base"
    assert not {"began_with", "trained_before"} & before.keys()
    assert about["trained_before"] == [before["trained_on"]] != [about["trained_on"]]
    pairs, inputs = before["trained_on"]["pairs"], ", ".join(before["trained_on"]["inputs"])
    assert f"| which was trained on | {pairs:,} pairs of {inputs} |" in card
    again = ["--out", tmp_path / "again", "--from", tmp_path / "run", *FEW]
    assert run("train", tmp_path / "data", *again) == 0
    chain = saved.read_manifest(tmp_path / "again" / "model")["about"]["trained_before"]
    assert chain == [before["trained_on"], about["trained_on"]]
    assert run("average", tmp_path / "run" / "model", tmp_path / "again" / "model", "--out", tmp_path / "mean") == 0
    mean = saved.read_manifest(tmp_path / "mean")["about"]
    assert (mean["began_with"], mean["trained_before"]) == ("run", chain)  # all that either has seen
    capsys.readouterr()
    other = ["--preset", "tiny", "--from", home / "base", "--out", tmp_path / "other"]
    assert run("train", tmp_path / "data", *other) == 1
    assert "model.d_model is 32 there and 96 here; use --model.d-model 32" in capsys.readouterr().err


def test_languages_are_kept_and_what_does_not_fit_is_noted(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    start, loaded = tmp_path / "start", saved.load_model(home / "base")
    saved.save_model(start, loaded.config, loaded.model.state_dict(), loaded.subwords, {"languages": ["en", "de"]})
    prepare(home, tmp_path / "data")  # a .tsv says nothing about its languages
    for flags in ((), ("--resume", "--training.steps", "3")):
        assert run("train", tmp_path / "data", "--out", tmp_path / "run", "--from", start, *FEW, *flags) == 0
        assert saved.read_manifest(tmp_path / "run" / "model")["about"]["languages"] == ["en", "de"]
    assert " translates " not in capsys.readouterr().err
    # Its own text is German to English, with subwords that were learned anew.
    files = ["--pairs", home / "docs.tsv", "--dev-pairs", home / "docs-dev.tsv", "--languages", "de", "en"]
    assert run("prepare", tmp_path / "other", *files, "--subwords", "300", "--workers", "1") == 0
    assert run("train", tmp_path / "other", "--out", tmp_path / "back", "--from", start, *FEW) == 0
    said = capsys.readouterr().err
    assert f"note: {start} translates en-de, but this data set is de-en" in said
    assert f"the data set has other subwords; prepare it with --subwords.reuse {start} to keep all" in said
    assert saved.read_manifest(tmp_path / "back" / "model")["about"]["languages"] == ["de", "en"]


def test_the_rate_is_a_fifth_of_that_in_training_and_stays():
    for name, rate in (("base", 1e-4), ("big", 1e-4), ("tiny", 1e-3)):
        tuned = tune(PRESETS[name].config)
        assert tuned.training.optimiser == ("muon" if name == "tiny" else "adam")
        assert tuned.training.peak_rate == rate
        peak = max(learning_rate(n, PRESETS[name].config.training, tuned.model.d_model) for n in range(1, 5000))
        assert rate == pytest.approx(peak / 5, rel=0.35)  # to one digit
        rates = [learning_rate(step, tuned.training, tuned.model.d_model) for step in (1, 50, 100, 101, 5000)]
        assert rates == pytest.approx([rate / 100, rate / 2, rate, rate, rate])


def test_on_a_cpu_steps_and_validations_are_small():
    known = PRESETS["modern"].config
    tuned, light = tune(known), tune(known, light=True)
    assert (light.model, light.search) == (known.model, known.search)
    assert (light.batch.source_tokens, light.batch.target_tokens, light.batch.parts) == (512, 512, 1)
    assert (light.training.optimiser, light.training.peak_rate) == ("adam", 0.0002)
    assert light.training.bleu_sentences < tuned.training.bleu_sentences
    assert light.training.warmup_steps < tuned.training.warmup_steps
    for name in ("base", "small"):  # never a higher rate than elsewhere
        assert (
            tune(PRESETS[name].config, light=True).training.peak_rate == tune(PRESETS[name].config).training.peak_rate
        )
    little = replace(known, training=replace(known.training, bleu_sentences=0))
    assert tune(little, light=True).training.bleu_sentences == 0


def test_a_model_whose_steps_take_long_is_tuned_in_small_ones(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """On a CPU, unless flags or a file give the sizes of batches."""
    prepare(home, tmp_path / "data")
    known = config_of(home / "base")
    (tmp_path / "sizes.toml").write_text("[batch]\nsource_tokens = 768\n")
    wanted = {"plain": [], "flags": ["--batch.target-tokens", "768"], "file": ["--config", tmp_path / "sizes.toml"]}
    for name, flags in {"quick": [], **wanted}.items():
        if name != "quick":
            monkeypatch.setattr(hardware, "MOST_ON_CPU", 1200 * known.model.parameters())
        capsys.readouterr()
        begin = ["--from", home / "base", "--device", "cpu", "--training.peak-rate", "0.0001"]
        assert run("train", tmp_path / "data", "--out", tmp_path / name, *begin, *FEW, *flags) == 0
        said = capsys.readouterr().err
        found = config_of(tmp_path / name)
        assert found.training.checkpoint_steps == 1
        if name == "plain":
            assert "small batches of 512 + 512 tokens, and Adam at a rate of 0.0001; if you give batch sizes" in said
            assert (found.batch.source_tokens, found.batch.parts, found.training.warmup_steps) == (512, 1, 20)
            assert "takes long" not in said
        else:
            assert "small batches" not in said
            assert (found.batch, found.training.warmup_steps) == (known.batch, 100)


def test_watched_sets_are_scored_before_and_on_the_way(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """On the terminal, in metrics.jsonl, TensorBoard, the curve, checkpoints, and for the final model."""
    data = prepare(home, tmp_path / "data")
    assert data.watched == ["watch-news"]
    assert [data.text("watch-news", "source", n) for n in range(40)] == [source for source, _ in GENERAL[-40:]]
    out = tmp_path / "run"
    capsys.readouterr()
    assert run("train", data.folder, "--out", out, "--from", home / "base", *FEW) == 0
    printed = capsys.readouterr()
    said = [line.split(":")[0] for line in printed.err.splitlines() if " at step " in line]
    assert said == [f"{name} at step {step}" for step in range(3) for name in ("dev", "watch-news")]
    _, watched = read_metrics(out / "metrics.jsonl", "watch-news")
    before = saved.read_manifest(home / "base" / "model")["about"]["dev"]  # this was its dev set
    assert watched[0].step == 0
    assert watched[0].loss == pytest.approx(before["loss"], abs=1e-5)
    assert not any(one.best for one in watched)
    _, dev = read_metrics(out / "metrics.jsonl")
    assert [one.step for one in dev] == [0, 1, 2]
    assert {one.name for one in dev} == {"dev"}
    events = b"".join(path.read_bytes() for path in (out / "tensorboard").iterdir())
    assert events.count(b"watch-news/plain") == 3
    assert ">watch-news<" in (out / "curve.html").read_text(encoding="utf-8")
    for folder, step in ((checkpoints(out)[1], 1), (checkpoints(out)[2], 2)):
        assert saved.read_manifest(folder)["about"]["watched"]["watch-news"]["loss"] == watched[step].loss
    about = saved.read_manifest(out / "model")["about"]
    perplexity = math.exp(about["watched"]["watch-news"]["plain"])
    assert f"watch-news: perplexity {perplexity:.3f} of {about['what']}" in printed.out.splitlines()


def test_watched_sets_are_kept_out_of_training(home: Path, tmp_path: Path):
    write_pairs(home / "leaking.tsv", [*GENERAL[:5], *GENERAL[-40:-20]])
    data = prepare(home, tmp_path / "data", more=["leaking.tsv"])
    texts = {data.text("train", "source", pair) for pair in range(data.train.pairs)}
    assert texts >= {source for source, _ in GENERAL[:5]}
    assert texts.isdisjoint(source for source, _ in GENERAL[-40:])


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(["a/news.tsv", "b/news.tsv"], "'news' is taken"), (["dev.tsv"], "'dev' is taken")],
)
def test_watched_sets_need_names(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str], wanted: str
):
    for place, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_pairs(tmp_path / name, GENERAL[place : place + 5])
    files = ["--pairs", home / "docs.tsv", "--dev-pairs", home / "docs-dev.tsv"]
    assert run("prepare", tmp_path / "data", *files, "--watch-pairs", *(tmp_path / name for name in names)) == 1
    assert capsys.readouterr().err.endswith(f"a watched set is named after its file, and {wanted}; rename the file\n")


def test_extended_subwords_begin_as_those_they_were_written_with(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = prepare(home, tmp_path / "data", "--subwords.extend", "50")
    old, new = saved.load_model(home / "base"), data.subwords["target"]
    known = old.subwords["target"]
    assert new.extends(known)
    assert len(new) == len(known) + 50
    assert f"50 new subwords added to the 360 of {home / 'base'}: " in capsys.readouterr().err
    assert "→" in {piece.removeprefix("▁") for piece in new.pieces(range(360, 410))}
    # Less to read and to say.
    kept = prepare(home, tmp_path / "kept")
    tokens = [sum(len(array) for array in one.train.token_arrays("target")) for one in (data, kept)]
    assert tokens[0] < 0.7 * tokens[1]
    assert run("train", data.folder, "--out", tmp_path / "run", "--from", home / "base", "--training.steps", "1") == 0
    said = capsys.readouterr().err
    assert "360 subwords kept, 50 composed from their pieces, 0 unknown to it" in said
    rate = config_of(tmp_path / "run").training.peak_rate
    assert rate
    begun = load_file(checkpoints(tmp_path / "run")[1] / "model.safetensors")["embedding.weight"]
    rows = old.model.embedding.weight.detach()
    wanted = torch.stack([rows[known.encode_piece(piece)].mean(0) for piece in new.pieces(range(360, 410))])
    # One step of Adam in the warm-up has moved them by no more than a hundredth of the rate.
    torch.testing.assert_close(begun, torch.cat([rows, wanted]), rtol=0, atol=1.01 * rate / 100)
    assert run("translate", tmp_path / "run", "--text", "→ TWENTY ¶", "--engine", "torch") == 0


def test_mixing_against_forgetting(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A model gets better on its own text and forgets what it knew; with general text mixed in it forgets less."""
    losses: dict[str, dict[str, list[float]]] = {}
    flags = [*FAST, "--training.steps", "40", "--training.checkpoint-steps", "40", "--training.warmup-steps", "10"]
    for name, more in (("alone", []), ("mixed", ["general.tsv"])):
        weights = ["--weight", "2", "0.5"] if more else []
        data = prepare(home, tmp_path / f"data-{name}", "--subwords.extend", "50", *weights, more=more)
        assert run("train", data.folder, "--out", tmp_path / name, "--from", home / "base", *flags) == 0
        losses[name] = {
            split: [one.plain for one in read_metrics(tmp_path / name / "metrics.jsonl", split)[1]]
            for split in ("dev", "watch-news")
        }
        if more:
            drawn = Counter(int(pair) for batch in Batches(data, BatchConfig()) for pair in batch.pairs)
            (first, end, _), (_, last, _) = data.weights()
            assert {drawn[pair] for pair in range(first, end)} == {2}
            assert sum(drawn[pair] for pair in range(end, last)) == round((last - end) / 2)
    capsys.readouterr()
    for found in losses.values():
        assert found["dev"][-1] < 0.8 * found["dev"][0]
    forgot = {name: found["watch-news"][-1] - found["watch-news"][0] for name, found in losses.items()}
    assert forgot["alone"] > 0.1
    assert forgot["mixed"] < 0.5 * forgot["alone"]
    # Between the old and the new weights lies a model that knows something of both.
    shares = ["--shares", "1", "3", "--out", tmp_path / "mean"]
    assert run("average", home / "base", tmp_path / "alone", *shares) == 0
    check_mean(home / "base" / "model", tmp_path / "alone" / "model", tmp_path / "mean", 0.75)


def check_mean(old: Path, new: Path, mean: Path, share: float) -> None:
    before, after = saved.load_model(old), saved.load_model(new)
    found: dict[str, Any] = load_file(mean / "model.safetensors")
    known, more = before.subwords["target"], after.subwords["target"]
    assert (mean / "subwords.model").read_bytes() == more.model
    about = saved.read_manifest(mean)["about"]
    assert (about["mean_of"], about["shares"]) == (["base/model", "alone/model"], [1 - share, share])
    assert about["trained_on"] == saved.read_manifest(new)["about"]["trained_on"]
    olds, news = dict(before.model.named_parameters()), dict(after.model.named_parameters())
    rows = olds["embedding.weight"].detach()
    wide = [rows[known.encode_piece(piece)].mean(0) for piece in more.pieces(range(len(known), len(more)))]
    olds |= {"embedding.weight": torch.nn.Parameter(torch.cat([rows, torch.stack(wide)]))}
    for name, weight in found.items():
        wanted = (1 - share) * olds[name].detach().numpy() + share * news[name].detach().numpy()
        np.testing.assert_allclose(weight.numpy(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["{base}", "{base}", "--shares", "1", "--out", "x"], "--shares 1: give one number for each of the 2 models"),
        (["{base}", "{base}", "--shares", "0", "0", "--out", "x"], "--shares 0 0: give one number for each"),
        (["{base}", "--shares", "1"], "--shares needs several models; name them, or leave --shares out"),
    ],
)
def test_shares_that_cannot_be_meant(home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: str):
    assert run("average", *(word.format(base=home / "base") for word in arguments)) == 2
    assert capsys.readouterr().err.startswith(f"error: {wanted}")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--subwords.extend", "9"], "subwords.extend = 9 has nothing to extend; name a run or a model with"),
        (["--subwords.extend", "-9", "--subwords.reuse", "x"], "subwords.extend = -9 is negative"),
    ],
)
def test_extensions_that_cannot_be_meant(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], wanted: str
):
    files = ["--pairs", home / "docs.tsv", "--dev-pairs", home / "docs-dev.tsv"]
    assert run("prepare", tmp_path / "data", *files, *flags) == 1
    assert wanted in capsys.readouterr().err


def test_without_an_extension_a_data_set_is_what_it_was(home: Path, tmp_path: Path):
    """Those made before there were extensions and watched sets are still up to date."""
    manifest = DataSet.open(home / "data").manifest
    assert "extend" not in manifest["made_from"]["settings"]["subwords"]
    assert manifest["made_from"]["contents"].keys() == {"train", "dev", "test"}
    extended = prepare(home, tmp_path / "data", "--subwords.extend", "5").manifest["made_from"]
    assert extended["settings"]["subwords"]["extend"] == 5
    assert len(extended["contents"]["watch"]) == 1
