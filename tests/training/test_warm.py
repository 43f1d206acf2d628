"""Warm starts: another model's weights as the first ones, its vectors for the subwords both know, and freezing."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from runs import SHORT, at_step, checkpoints, contents, metrics, prepare, train
from safetensors.torch import load_file
from treebank import make_trees

from transduce.cli import main
from transduce.model import saved
from transduce.text import numbers
from transduce.text.subwords import NO_DUMMY_PREFIX, SPACE
from transduce.training import loop

Weights = dict[str, torch.Tensor]


@pytest.fixture
def first_weights(monkeypatch: pytest.MonkeyPatch) -> list[Weights]:
    """A list that gets the first weights of each run in the test."""
    first: list[Weights] = []
    usual = loop.train

    def begin(run: Any) -> str:
        first.append({name: weight.detach().clone() for name, weight in run.state.model.named_parameters()})
        return usual(run)

    monkeypatch.setattr("transduce.training.run.train", begin)
    return first


def weights(folder: Path) -> Weights:
    return load_file(folder / "model.safetensors")


def test_with_the_same_subwords_all_weights_are_carried_over(
    tmp_path: Path, data: Path, short: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    """From a run, meaning its model, or from one of its checkpoints; the optimiser begins anew."""
    sources = {"run": (short, short / "model"), "checkpoint": (checkpoints(short)[4], checkpoints(short)[4])}
    for name, (given, folder) in sources.items():
        out = tmp_path / name
        assert train(data, out, *SHORT, "--training.steps", "1", "--from", str(given)) == 0
        wanted = (
            f"started with the weights of {given}: 340 subwords kept, 0 composed from their pieces, 0 unknown to it"
        )
        assert wanted in capsys.readouterr().err.splitlines()
        begun, expected = first_weights.pop(), weights(folder)
        assert begun.keys() == expected.keys()
        assert all(begun[name].equal(expected[name]) for name in begun)
        moments = load_file(checkpoints(out)[1] / "resume.safetensors")
        assert {tensor.item() for name, tensor in moments.items() if name.startswith("updates.")} == {1.0}
        # The dev set is scored before the first step too, and that is no best one.
        before, *others = metrics(out)
        assert [(one["kind"], one["step"]) for one in (before, *others)] == [("dev", 0), ("train", 1), ("dev", 1)]
        assert (before["best"], others[1]["best"]) == (False, True)
        assert before["loss"] == pytest.approx(saved.read_manifest(folder)["about"]["dev"]["loss"], abs=1e-6)


def test_a_warm_run_restarts_exactly(tmp_path: Path, data: Path, short: Path, monkeypatch: pytest.MonkeyPatch):
    flags = [*SHORT, "--from", str(checkpoints(short)[4]), "--training.seed", "5"]
    assert train(data, tmp_path / "whole", *flags) == 0
    with monkeypatch.context() as once:

        def stop() -> None:
            raise KeyboardInterrupt

        at_step(5, stop, once.setattr)
        assert train(data, tmp_path / "stopped", *flags, "--resume") == 130
    assert train(data, tmp_path / "stopped", *flags, "--resume") == 0
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def expected_rows(old: Path, new: Path, rows: torch.Tensor, name: str) -> tuple[torch.Tensor, set[str]]:
    """Return each new subword's row: its own in the old model, or the mean of those it splits into there."""
    known, fresh = (sentencepiece.SentencePieceProcessor(model_file=str(path / name)) for path in (old, new))
    inside = sentencepiece.SentencePieceProcessor(model_proto=(old / name).read_bytes() + NO_DUMMY_PREFIX)
    pieces = {known.id_to_piece(number): number for number in range(known.get_piece_size())}
    expected, composed = [], set()
    for piece in map(fresh.id_to_piece, range(fresh.get_piece_size())):
        if piece in pieces:
            expected.append(rows[pieces[piece]])
        else:
            composed.add(piece)
            split = known.encode(piece[1:]) if piece.startswith(SPACE) else inside.encode(piece)
            assert known.decode(split) == piece.removeprefix(SPACE)  # letters it does not know are spelled in bytes
            expected.append(rows[split].mean(0))
    return torch.stack(expected), composed


def test_with_more_subwords_new_ones_begin_as_the_mean_of_their_pieces(
    tmp_path: Path, short: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    more = prepare(tmp_path / "data", "--subwords", "390", pairs=numbers.corpus("train", 400))
    assert train(more, tmp_path / "run", *SHORT, "--training.steps", "1", "--from", str(short)) == 0
    begun, old = first_weights[0], weights(short / "model")
    rows, composed = expected_rows(short / "model", more / "parts-1", old["embedding.weight"], "subwords.model")
    assert begun["embedding.weight"].shape == (390, 32)
    torch.testing.assert_close(begun["embedding.weight"], rows, rtol=0, atol=1e-7)
    assert any(piece.startswith(SPACE) for piece in composed)
    assert any(not piece.startswith(SPACE) for piece in composed)
    said = f": {390 - len(composed)} subwords kept, {len(composed)} composed from their pieces, 0 unknown to it"
    assert said in capsys.readouterr().err
    others = begun.keys() - {"embedding.weight"}
    assert all(begun[name].equal(old[name]) for name in others)


def test_with_subwords_of_their_own_each_side_has_its_rows(
    tmp_path: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    apart = ["--no-subwords.joint", "--subwords"]
    less = prepare(tmp_path / "less", *apart, "330")
    more = prepare(tmp_path / "more", *apart, "350")
    flags = [*SHORT, "--model.tie", "none", "--training.steps", "1"]
    assert train(less, tmp_path / "first", *flags) == 0
    assert train(more, tmp_path / "second", *flags, "--from", str(tmp_path / "first")) == 0
    model = tmp_path / "first" / "model"
    begun, old = first_weights[1], weights(model)
    for side, names in (("source", ["source_embedding.weight"]), ("target", ["embedding.weight", "output.weight"])):
        for name in names:
            rows, composed = expected_rows(model, more / "parts-1", old[name], f"{side}.model")
            torch.testing.assert_close(begun[name], rows, rtol=0, atol=1e-7)
            assert len(composed) >= 20
    assert not begun["embedding.weight"].equal(begun["source_embedding.weight"])
    counts = re.search(
        r"(\d+) subwords kept, (\d+) composed from their pieces, 0 unknown to it", capsys.readouterr().err
    )
    assert counts
    assert sum(map(int, counts.groups())) == 2 * 350


OTHER = {
    "width": (["--model.d-ff", "48"], ["model.d_ff is 64 there and 48 here; use --model.d-ff 64"]),
    "depth": (
        ["--model.layers", "2", "--model.decoder-layers", "1"],
        ["model.encoder_layers is 1 there and 2 here; use --model.encoder-layers 1"],
    ),
    "matrices": (["--model.tie", "none"], ["model.tie is all there and none here; use --model.tie all"]),
    "several": (
        ["--model.norm", "pre", "--model.positions", "learned"],
        [
            "model.positions is sinusoidal there and learned here; use --model.positions sinusoidal",
            "model.norm is post there and pre here; use --model.norm post",
        ],
    ),
    # The weights would fit, and mean something else.
    "heads": (
        ["--model.heads", "4"],
        [
            "model.heads is 2 there and 4 here; use --model.heads 2",
            "model.d_k is 16 there and 8 here; use --model.d-k 16",
            "model.d_v is 16 there and 8 here; use --model.d-v 16",
        ],
    ),
}


@pytest.mark.parametrize("what", OTHER)
def test_another_model_is_refused_and_the_difference_named(
    tmp_path: Path, data: Path, short: Path, capsys: pytest.CaptureFixture[str], what: str
):
    flags, wanted = OTHER[what]
    out = tmp_path / "run"
    assert train(data, out, *SHORT, *flags, "--from", str(short)) == 1
    assert capsys.readouterr().err.splitlines() == [f"error: {short / 'model'}: {line}" for line in wanted]
    assert not checkpoints(out)


def test_what_means_the_same_is_not_refused(tmp_path: Path, data: Path, short: Path, first_weights: list[Weights]):
    flags = ["--model.layers", "3", "--model.encoder-layers", "1", "--model.decoder-layers", "1", "--model.d-k", "16"]
    dropout = ["--model.dropout", "0", "--model.attention-dropout", "0.3", "--training.steps", "1"]
    assert train(data, tmp_path / "run", *SHORT, *flags, *dropout, "--from", str(short)) == 0
    assert all(first_weights[0][name].equal(weight) for name, weight in weights(short / "model").items())


@pytest.mark.parametrize("damaged", [False, True])
def test_what_holds_no_model_is_refused(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], damaged: bool, short: Path
):
    given = tmp_path / "nothing"
    remedy = "name a run, a checkpoint or a model made by transduce train, or one that transduce models lists"
    wanted = f"error: {given}: does not exist; {remedy}"
    if damaged:
        given = shutil.copytree(short / "model", tmp_path / "model")
        content = (given / "model.safetensors").read_bytes()
        (given / "model.safetensors").write_bytes(content[:-1] + b"!")
        wanted = f"error: {given}/model.safetensors: does not match its checksum; the model is damaged"
    assert train(data, tmp_path / "run", *SHORT, "--from", str(given)) == 1
    assert capsys.readouterr().err.splitlines() == [wanted]


# ---- an encoder alone ----


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory, short: Path) -> Path:
    """A treebank, with the subwords of a model that translates."""
    folder = tmp_path_factory.mktemp("trees")
    for name, count, seed in (("bank", 120, 1), ("dev", 6, 2)):
        (folder / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in make_trees(count, seed)))
    files = ["--trees", str(folder / "bank.mrg"), "--dev-trees", str(folder / "dev.mrg")]
    reuse = ["--task", "parsing", "--leaves", "tags", "--subwords.reuse", str(short), "--workers", "1"]
    assert main(["prepare", str(folder / "data"), *files, *reuse]) == 0
    return folder / "data"


def test_a_parser_begins_with_the_encoder_of_a_translator(
    tmp_path: Path, trees: Path, short: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    """It takes its sizes too; the decoder and the brackets are new."""
    sizes = ["--preset", "parsing-small", "--model.decoder-layers", "2", "--batch.parts", "1"]
    few = ["--training.steps", "2", "--training.checkpoint-steps", "1", "--training.warmup-steps", "1"]
    flags = ["--training.bleu-sentences", "0", "--training.best-by", "loss", "--device", "cpu"]
    command = ["train", str(trees), "--out", str(tmp_path / "run"), *sizes, *few, *flags]
    assert main([*command, "--encoder-from", str(short)]) == 0
    notes = capsys.readouterr().err.splitlines()
    kept = "340 subwords kept, 0 composed from their pieces, 0 unknown to it"
    assert f"started with the encoder of {short}: {kept}" in notes
    assert not any("other subwords" in note for note in notes)
    config = saved.read_config(tmp_path / "run" / "model").model
    assert (config.stacks(), config.d_model, config.d_ff, config.heads) == ((1, 2), 32, 64, 2)
    begun, known = first_weights.pop(), weights(short / "model")
    assert begun["source_embedding.weight"].equal(known["embedding.weight"])
    layers = sorted(name for name in begun if name.startswith("encoder."))
    assert layers == sorted(name for name in known if name.startswith("encoder."))
    assert all(begun[name].equal(known[name]) for name in layers)
    for name, weight in begun.items():
        if name.startswith("decoder.0.") and weight.dim() > 1:
            assert not weight.equal(known[name])
    # Resuming does not take the other model's encoder again, and its origin is still recorded.
    assert main([*command, "--training.steps", "3", "--resume", "--encoder-from", str(short)]) == 0
    assert f"--encoder-from {short} applies only to the start of a run: ignored" in capsys.readouterr().err
    assert saved.read_manifest(tmp_path / "run" / "model")["about"]["encoder_of"] == short.name
    assert f"the encoder of {short.name}" in (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert not first_weights.pop()[layers[0]].equal(known[layers[0]])


def test_another_encoder_is_refused(
    tmp_path: Path, data: Path, short: Path, trees: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["train", str(trees), "--out", str(tmp_path / "run"), "--preset", "parsing-small", "--device", "cpu"]
    other = ["--model.heads", "4", "--model.norm", "pre", "--model.d-k", "8", "--model.d-v", "8"]
    assert main([*command, *other, "--encoder-from", str(short)]) == 1
    begin = f"error: {short / 'model'}: model."
    assert capsys.readouterr().err.splitlines() == [
        f"{begin}heads is 2 there and 4 here; use --model.heads 2",
        f"{begin}norm is post there and pre here; use --model.norm post",
        f"{begin}d_k is 16 there and 8 here; use --model.d-k 16",
        f"{begin}d_v is 16 there and 8 here; use --model.d-v 16",
    ]
    assert train(data, tmp_path / "run", "--from", str(short), "--encoder-from", str(short)) == 2
    assert "--from takes a whole model and --encoder-from only its encoder" in capsys.readouterr().err
    assert not checkpoints(tmp_path / "run")


def test_an_encoder_of_other_subwords_says_how_to_keep_them(
    tmp_path: Path, short: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    other = prepare(tmp_path / "other", "--subwords", "330")
    assert train(other, tmp_path / "run", *SHORT, "--training.steps", "1", "--encoder-from", str(short)) == 0
    notes = capsys.readouterr().err
    assert f"the data set has other subwords; prepare it with --subwords.reuse {short} to keep all" in notes
    old = weights(short / "model")["embedding.weight"]
    rows, _ = expected_rows(short / "model", other / "parts-1", old, "subwords.model")
    torch.testing.assert_close(first_weights.pop()["embedding.weight"], rows, rtol=0, atol=1e-7)


# ---- freezing ----


def test_frozen_weights_stay_bit_for_bit_and_the_others_do_not(
    tmp_path: Path, data: Path, short: Path, first_weights: list[Weights], capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "run"
    flags = [*SHORT, "--from", str(short), "--training.freeze", "encoder.*", "*.norm.weight", "--resume"]
    assert train(data, out, *flags, "--training.steps", "4") == 0
    assert train(data, out, *flags) == 0  # frozen after a restart too
    before, after = first_weights[0], weights(checkpoints(out)[8])
    frozen = {name for name in before if name.startswith("encoder.") or name.endswith(".norm.weight")}
    assert {"encoder.", "decoder."} == {name.split(".")[0] + "." for name in frozen}
    for name in before:
        assert before[name].equal(after[name]) == (name in frozen), name
    moments = load_file(checkpoints(out)[8] / "resume.safetensors")
    assert {name.removeprefix("first.") for name in moments if name.startswith("first.")} == before.keys() - frozen
    assert f"{len(frozen)} weights are frozen (training.freeze)" in capsys.readouterr().err.splitlines()


def test_what_was_frozen_can_be_thawed(tmp_path: Path, data: Path, first_weights: list[Weights]):
    """Its moments begin anew; those of the others go on."""
    out = tmp_path / "run"
    assert train(data, out, *SHORT, "--training.freeze", "encoder.*", "--training.steps", "4") == 0
    assert train(data, out, *SHORT, "--resume") == 0
    moments = load_file(checkpoints(out)[8] / "resume.safetensors")
    counts = {name.removeprefix("updates."): int(t) for name, t in moments.items() if name.startswith("updates.")}
    assert {count for name, count in counts.items() if name.startswith("encoder.")} == {4}
    assert {count for name, count in counts.items() if not name.startswith("encoder.")} == {8}
    after = weights(checkpoints(out)[8])
    assert not any(first_weights[0][name].equal(after[name]) for name in after)


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (
            ["encodr.*", "encoder.*"],
            "training.freeze: no weight matches encodr.*; there are embedding.*, encoder.*, dec",
        ),
        (["*"], "training.freeze leaves no weights to train; name fewer"),
    ],
)
def test_patterns_that_cannot_be_meant(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], patterns: list[str], wanted: str
):
    assert train(data, tmp_path / "run", *SHORT, "--training.freeze", *patterns) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {wanted}")
