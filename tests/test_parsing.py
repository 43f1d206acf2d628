"""Parsing from a treebank to scores, on the command line and in Python."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from treebank import make_trees

import transduce
from transduce import Parser, Translator, Tree
from transduce.cli import main
from transduce.config import Config, ModelConfig
from transduce.decoding import files
from transduce.decoding import parse as parse_verb
from transduce.errors import ConfigError, DataError
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.presets import get
from transduce.scoring.parseval import Parseval, count_brackets
from transduce.text.pictures import make_svg
from transduce.text.shards import DataSet
from transduce.text.subwords import Subwords, SubwordsConfig, learn, learn_symbols
from transduce.text.trees import Leaves, choose_symbols, parse_tree, to_sequence
from transduce.training.metrics import read_metrics

TRAIN = [
    *("--model.layers", "2", "--model.d-model", "64", "--model.d-ff", "128", "--model.heads", "4", "--threads", "1"),
    *("--model.dropout", "0", "--model.attention-dropout", "0", "--model.positions", "rotary", "--training.clip", "1"),
    *("--batch.source-tokens", "512", "--batch.target-tokens", "1024", "--batch.parts", "1"),
    *("--no-batch.similar-lengths", "--batch.subword-dropout", "0.02", "--training.optimiser", "muon"),
    *("--training.peak-rate", "0.01", "--training.warmup-steps", "20", "--training.schedule", "linear"),
    *("--training.steps", "100", "--training.checkpoint-steps", "50", "--training.precision", "float32"),
    *("--training.best-by", "f1", "--training.agreement", "0"),
]
SENTENCE = "The dog of a girl sees the cat in a garden."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A treebank, its data set and a run."""
    folder = tmp_path_factory.mktemp("parsing")
    for name, count, seed in (("train", 1000, 1), ("dev", 40, 2)):
        trees = make_trees(count, seed)
        (folder / f"{name}.mrg").write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
        (folder / f"{name}.txt").write_text("".join(" ".join(t.words()) + "\n" for t in trees), encoding="utf-8")
    trees = ["--trees", str(folder / "train.mrg"), "--dev-trees", str(folder / "dev.mrg")]
    subwords = ["--subwords", "300", "--subwords.coverage", "1", "--workers", "1"]
    assert main(["prepare", str(folder / "data"), "--task", "parsing", *trees, *subwords]) == 0
    run = ["--preset", "parsing-small", "--out", str(folder / "run"), *TRAIN]
    assert main(["train", str(folder / "data"), *run]) == 0
    return folder


@pytest.fixture(scope="module")
def parser(folder: Path) -> Parser:
    return Parser.load(folder / "run", threads=1)


def run_parse(folder: Path, *flags: str, models: int = 1) -> int:
    runs = [str(folder / "run"), *(str(path) for path in sorted((folder / "run" / "checkpoints").iterdir()))]
    return main(["parse", *runs[:models], "--threads", "1", *flags])


def test_a_model_learns_to_parse(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "dev.trees"
    assert run_parse(folder, "--tokenised", "--input", str(folder / "dev.txt"), "--out", str(out)) == 0
    flags = ["--reference", str(folder / "dev.mrg"), "--metrics", "parseval", "--samples", "0", "--json"]
    capsys.readouterr()
    assert main(["score", str(out), *flags]) == 0
    found = json.loads(capsys.readouterr().out)["systems"][0]["scores"]
    flat = tmp_path / "flat.trees"  # what anyone can say: a sentence is a sentence
    sentences = [Tree("TOP", (Tree("S", tuple(tree.leaves())),)) for tree in make_trees(40, 2)]
    flat.write_text("".join(f"{tree}\n" for tree in sentences), encoding="utf-8")
    assert main(["score", str(flat), *flags]) == 0
    nothing = json.loads(capsys.readouterr().out)["systems"][0]["scores"]
    assert found["f1"]["value"] > 75 > 2.5 * nothing["f1"]["value"]


def test_the_dev_f1_is_that_of_greedy_trees(folder: Path) -> None:
    _, dev = read_metrics(folder / "run" / "metrics.jsonl")
    assert [metrics.bleu for metrics in dev] == [None, None]
    for metrics in dev:
        parser = Parser.load(folder / "run" / "checkpoints" / f"step-{metrics.step:08}", threads=1)
        gold = make_trees(40, 2)
        found = parser.parse([" ".join(tree.words()) for tree in gold], tokenised=True, beam=1)
        counts = np.sum([count_brackets(parse.tree, tree) for parse, tree in zip(found, gold)], axis=0)
        assert metrics.f1 == pytest.approx(Parseval().compute("f1", counts), abs=0.5)  # a tie may fall otherwise
    assert "F1" in (folder / "run" / "curve.html").read_text(encoding="utf-8")


def test_what_is_not_measured_makes_no_checkpoint_the_best(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--preset", "parsing-small", "--out", str(tmp_path / "run"), "--training.best-by", "bleu"]
    assert main(["train", str(folder / "data"), *flags]) == 1
    assert 'training.best_by = "bleu" is not measured on' in capsys.readouterr().err


def test_a_search_without_room_for_the_dev_trees_is_known_before_the_first_step(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["train", str(folder / "data"), "--preset", "parsing-small", *TRAIN, "--training.steps", "21"]
    longest = max(len(tree.words()) for tree in make_trees(40, 2))
    assert main([*run, "--out", str(tmp_path / "none"), "--search.max-tokens", str(longest)]) == 1
    message = capsys.readouterr().err
    assert (
        f"the words of a tree of dev alone are {longest} tokens, but the search may produce only {longest}" in message
    )
    assert "use --search.extra-tokens 300 and --search.max-tokens off" in message
    assert main([*run, "--out", str(tmp_path / "some"), "--search.max-tokens", str(longest + 1)]) == 0
    said = capsys.readouterr().err
    data = DataSet.open(folder / "data")
    many = int((data.dev.lengths("target") > longest + 1).sum())
    assert f"dev: {many} of 40 trees are longer than the search may produce" in said


def test_every_line_gets_a_tree_over_its_words(folder: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.trees"
    lines = ["the dog sees a cat .", "", "xyzzy ( ) \\ qux", "a " * 60, "日本 語 <&>", "."]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run_parse(folder, "--tokenised", "--input", str(source), "--out", str(out)) == 0
    trees = out.read_text(encoding="utf-8").split("\n")
    assert trees.pop() == ""
    assert len(trees) == len(lines)
    for line, tree in zip(lines, trees):
        words = [{"(": "-LRB-", ")": "-RRB-"}.get(word, word) for word in line.split()]
        assert (parse_tree(tree).words() if tree else []) == words


def test_the_words_of_trees_are_parsed(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs: list[str] = []
    for flags in (["--trees", str(folder / "dev.mrg")], ["--tokenised", "--input", str(folder / "dev.txt")]):
        capsys.readouterr()
        assert run_parse(folder, "--beam", "2", *flags) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 40
    bad = tmp_path / "bad.mrg"
    bad.write_text("(S (NN a))\n(S (NN b)\n", encoding="utf-8")
    assert run_parse(folder, "--trees", str(bad)) == 1
    assert f"{bad}:2: the tree is not closed" in capsys.readouterr().err


def test_a_killed_job_goes_on(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its counts and its picture cover all lines, including those from before."""
    out, whole = tmp_path / "out.trees", tmp_path / "whole.trees"
    source = tmp_path / "in.txt"
    source.write_text("xyzzy " * 40 + "\n" + (folder / "dev.txt").read_text(encoding="utf-8"), encoding="utf-8")
    flags = ["--tokenised", "--input", str(source), "--beam", "1", "--no-constrained"]
    picture = tmp_path / "whole.svg"
    assert run_parse(folder, *flags, "--out", str(whole), "--svg", str(picture)) == 0
    expected = capsys.readouterr().err.splitlines()[-1]
    assert expected.startswith("no tree found: ")
    assert not expected.startswith("no tree found:  0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FIRST_TEXTS", 8)
        saves: list[int] = []

        def save(self: files.Output, lines: int, digest: str, known: Any = None) -> None:
            saved(self, lines, digest, known)
            saves.append(lines)
            if lines == 8:
                raise KeyboardInterrupt

        saved = files.Output.save
        patch.setattr(files.Output, "save", save)
        assert run_parse(folder, *flags, "--out", str(out)) == 130
    assert saves[-1] == 8
    assert not out.exists()
    assert run_parse(folder, *flags, "--out", str(out), "--svg", str(tmp_path / "out.svg")) == 0
    said = capsys.readouterr().err.splitlines()
    assert f"{out}: resuming after 8 lines" in said
    assert said[-1] == expected
    assert out.read_bytes() == whole.read_bytes()
    assert (tmp_path / "out.svg").read_bytes() == picture.read_bytes()


def test_raw_text_is_parted_into_words(parser: Parser) -> None:
    found = parser.parse(SENTENCE)
    assert found.words == ("The", "dog", "of", "a", "girl", "sees", "the", "cat", "in", "a", "garden", ".")
    assert found.tree.words() == list(found.words)
    assert str(found) == str(found.tree)
    assert parser.parse("(It) sees", tokenised=False).words == ("-LRB-", "It", "-RRB-", "sees")
    assert parser.parse("don't", tokenised=True).words == ("don't",)
    # The treebank has no curly quotation marks, and does not know a word for them.
    assert parser.parse("“It” doesn’t").words == ('"', "It", '"', "does", "n't")


def test_a_byte_order_mark_is_no_word(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.txt"
    source.write_text(f"\ufeff{SENTENCE}\n", encoding="utf-8")
    assert run_parse(folder, "--json", "--input", str(source)) == 0
    assert json.loads(capsys.readouterr().out)["words"][0] == "The"


def test_a_notebook_draws_the_tree(parser: Parser) -> None:
    found = parser.parse(SENTENCE)
    shown = found._repr_svg_()
    assert shown == make_svg([found.tree])
    assert all(f">{word}<" in shown for word in found.words)


def test_several_are_parsed_in_their_order_and_the_same_as_alone(parser: Parser) -> None:
    texts = [SENTENCE, "a dog sees the cat .", SENTENCE, "today , the girl likes a tree ."]
    together = parser.parse(texts, beam=3)
    assert [parse.words for parse in together] == [parser.parse(text).words for text in texts]
    assert [str(parse) for parse in together] == [str(parser.parse(text, beam=3)) for text in texts]


def test_more_trees_can_be_asked_for(parser: Parser) -> None:
    found = parser.parse(SENTENCE, n_best=5)
    scores = [one.score for one in found.candidates]
    assert len({str(one.tree) for one in found.candidates}) == 5
    assert scores == sorted(scores, reverse=True)
    assert all(one.whole and one.tree.words() == list(found.words) for one in found.candidates)
    assert found.candidates[0].log_probability < 0


def test_without_the_constraint_what_is_no_tree_is_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("xyzzy " * 40 + "\nthe dog sees a cat .\n", encoding="utf-8")
    assert run_parse(folder, "--tokenised", "--no-constrained", "--beam", "2", "--input", str(source)) == 0
    printed = capsys.readouterr()
    trees = [parse_tree(line) for line in printed.out.splitlines()]
    assert [len(tree.words()) for tree in trees] == [40, 6]
    flat = sum(len(tree.spans()) == 1 for tree in trees)
    assert flat >= 1
    assert f"no tree found: {flat} of 2 sentences" in printed.err


def test_several_runs_are_an_ensemble(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text(SENTENCE + "\n", encoding="utf-8")
    printed: list[float] = []
    for models in (1, 2):
        assert run_parse(folder, "--json", "--input", str(source), "--beam", "4", models=models) == 0
        found = json.loads(capsys.readouterr().out)
        assert parse_tree(found["tree"]).words() == found["words"]
        printed.append(found["log_probability"])
    assert printed[0] != printed[1]


def test_json_has_all_there_is(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text(SENTENCE + "\n", encoding="utf-8")
    assert run_parse(folder, "--json", "--n-best", "3", "--input", str(source)) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"words", "tree", "score", "log_probability", "whole", "alternatives"}
    assert [found[key] for key in ("tree", "score")] == [found["alternatives"][0][key] for key in ("tree", "score")]
    assert len(found["alternatives"]) == 3


def test_trees_are_drawn(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, svg = tmp_path / "in.txt", tmp_path / "trees.svg"
    source.write_text(f"{SENTENCE}\nthe dog sees a cat .\n", encoding="utf-8")
    assert run_parse(folder, "--draw", "--svg", str(svg), "--input", str(source)) == 0
    drawn = capsys.readouterr().out
    assert all(word in drawn for word in ("TOP", "│", "garden"))
    groups = ElementTree.fromstring(svg.read_text(encoding="utf-8")).findall("{http://www.w3.org/2000/svg}g")
    assert len(groups) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse_verb, "PICTURES", 1)
        first = tmp_path / "first.svg"
        assert run_parse(folder, "--svg", str(first), "--input", str(source)) == 0
    assert f"{first}: the first 1 of 2 trees" in capsys.readouterr().err
    assert run_parse(folder, "--svg", str(svg), "--input", str(source)) == 1
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n-best", "2"], "--n-best 2 needs --json"),
        (["--trees", "dev.mrg"], "--input and --trees both say what to parse"),
        (["--svg", "-"], "--svg - is not a file; name one"),
        (["--draw", "--json"], "--draw and --json are two kinds of output"),
        (["--threads", "0"], "--threads 0 is not positive"),
        (["--bean", "2"], "unknown flag --bean; did you mean --beam?"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    folder: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_parse(folder, "--input", str(folder / "dev.txt"), *flags) == 2
    assert message in capsys.readouterr().err


def test_a_tree_needs_words_and_room(parser: Parser) -> None:
    with pytest.raises(DataError, match=r"^text 2: has no words, and a tree needs at least one$"):
        parser.parse(["a dog", " "])
    with pytest.raises(DataError, match="the text: has 6 words, but its tree may have only 6 tokens"):
        parser.parse("the dog sees a cat .", max_tokens=6)
    with pytest.raises(DataError, match="half of a surrogate pair"):
        parser.parse("\ud800")
    for wrong in (None, 3, b"a dog"):
        with pytest.raises(ConfigError, match="wanted a string or a list of strings"):
            parser.parse(wrong)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ConfigError, match=r"^text 2 = 5, wanted a string$"):
        parser.parse(["a dog", 5])  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ConfigError, match="unknown key tokenized; did you mean tokenised"):
        parser.parse("a dog", tokenized=True)
    with pytest.raises(ConfigError, match=r"Parser\.load needs the folder"):
        Parser.load()


def test_the_least_room_gives_the_flat_tree(parser: Parser) -> None:
    found = parser.parse("the dog sees a cat .", max_tokens=7)
    assert [label for label, _, _ in found.tree.spans()] == ["TOP"]


def load_random(folder: Path, out: Path, leaves: Leaves, **options: Any) -> Parser:
    """Return an untrained model."""
    trees = [*make_trees(20, 1), parse_tree("(S (NP (NNP Zoë)) (VP (VBZ xyzzy)))")] * 2
    symbols = Counter(symbol for tree in trees for symbol in to_sequence(tree, leaves=leaves))
    subwords = {
        "source": DataSet.open(folder / "data").subwords["source"],
        "target": Subwords(learn_symbols(choose_symbols(symbols, 99))),
    }
    sizes = {"layers": 1, "d_model": 16, "d_ff": 16, "heads": 2, "tie": "none"}
    vocabularies = {"vocabulary": len(subwords["target"]), "source_vocabulary": len(subwords["source"])}
    config = replace(get("parsing").config, model=ModelConfig(**vocabularies, **sizes))
    torch.manual_seed(3)
    weights = Transformer(config.model).state_dict()
    weights["output.weight"] = torch.randn_like(weights["output.weight"])
    save_model(out, config, weights, subwords, {})
    return Parser.load(out, threads=1, **options)


@pytest.mark.parametrize("leaves", ["plain", "tags", "words"])
def test_a_model_that_has_learned_nothing_says_trees_with_the_papers_search(
    folder: Path, tmp_path: Path, leaves: Leaves
) -> None:
    parser = load_random(folder, tmp_path / "model", leaves)
    assert (parser.search.beam, parser.search.alpha, parser.search.extra_tokens) == (21, 0.3, 300)
    texts = ["the dog sees a cat .", "xyzzy", "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2]
    for text, found in zip(texts, parser.parse(texts, tokenised=True, n_best=21)):
        assert len(found.candidates) == 21
        for one in found.candidates:
            assert one.whole
            assert one.tree.words() == text.split()
    free = parser.parse(texts, tokenised=True, constrained=False)
    assert [one.whole for one in free] != [True] * 3


def test_a_model_that_translates_is_no_parser(tmp_path: Path) -> None:
    subwords = Subwords(learn(["the dog sees a cat"] * 9, SubwordsConfig(size=275, coverage=1.0)))
    config = Config(model=ModelConfig(vocabulary=len(subwords), layers=1, d_model=8, d_ff=8, heads=1))
    weights = Transformer(config.model).state_dict()
    save_model(tmp_path / "model", config, weights, {"source": subwords, "target": subwords}, {})
    said = f"{tmp_path / 'model'}: was not trained on trees, and does not parse; use transduce translate, or in Python "
    with pytest.raises(DataError, match=f"^{re.escape(said)}Translator\\.load$"):
        Parser.load(tmp_path / "model", threads=1)


def test_the_engines_agree(folder: Path) -> None:
    sentences = [" ".join(tree.words()) for tree in make_trees(12, 9)]
    native = Parser.load(folder / "run", threads=1, engine="native")
    plain = Parser.load(folder / "run", threads=1, engine="torch")
    for one, other in zip(native.parse(sentences, tokenised=True), plain.parse(sentences, tokenised=True)):
        assert str(one) == str(other)
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_share_of_the_words_ranks_trees_and_the_log_probability_is_whole(
    folder: Path, tmp_path: Path, engine: Any
) -> None:
    parser = load_random(folder, tmp_path / "model", "words", engine=engine)
    sentences = ["the dog", "a", "cats sleep"]
    known: dict[tuple[tuple[str, ...], str], float] = {}
    ranked = 0
    for share in (1.0, 0.8, 0.4):
        settings = {"word_share": share, "alpha": 0.0, "beam": 60, "n_best": 50, "max_tokens": 9}
        for parse in parser.parse(sentences, tokenised=True, **settings):
            scores = [one.score for one in parse.candidates]
            assert scores == sorted(scores, reverse=True)
            for one in parse.candidates:
                expected = known.setdefault((parse.words, str(one.tree)), one.log_probability)
                assert one.log_probability == pytest.approx(expected, abs=2e-3)
                assert (one.score > one.log_probability + 0.1) == (share < 1)
                ranked += 1
    assert len(known) < ranked  # trees that were found with several shares


def test_a_parser_is_no_translator(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, text, other = str(folder / "run"), str(folder / "dev.txt"), tmp_path / "other.txt"
    other.write_bytes((folder / "dev.txt").read_bytes().upper())
    said = f"{Path(run) / 'model'}: was trained on trees, and does not translate; use transduce parse, or in Python "
    with pytest.raises(DataError, match=f"^{re.escape(said)}Parser\\.load$"):
        Translator.load(run, threads=1)
    for command in (
        ["translate", run, "--text", "the dog"],
        ["show", run, "the dog", "--json"],
        ["serve", f"en-de={run}", "--port", "0"],
        ["score", str(other), "--reference", text, "--source", text, "--model", run, "--metrics", "exact"],
    ):
        assert main(command) == 1
        out, err = capsys.readouterr()
        assert (out, err.splitlines()[-1]) == ("", f"error: {said}Parser.load")


def test_the_names_are_exported() -> None:
    assert transduce.Parser is Parser
    assert str(transduce.Tree("NN", word="dog")) == "(NN dog)"
