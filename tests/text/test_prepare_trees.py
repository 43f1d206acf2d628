"""`prepare --task parsing`: a treebank becomes a data set from which every tree can be restored."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from treebank import make_trees

from transduce.cli import main
from transduce.config import BatchConfig
from transduce.decoding.brackets import Brackets
from transduce.errors import ConfigError, DataError
from transduce.text.batches import Batches
from transduce.text.inputs import PARSING, PrepareConfig
from transduce.text.prepare import prepare
from transduce.text.shards import DataSet
from transduce.text.subwords import SubwordsConfig
from transduce.text.trees import escape_word, from_sequence, parse_tree, to_sequence

SUBWORDS = replace(PARSING.subwords, size=300, coverage=1.0)


def write(path: Path, count: int, seed: int, *, end: str = "\n") -> Path:
    path.write_text("".join(str(tree) + end for tree in make_trees(count, seed)), encoding="utf-8")
    return path


def prepare_bank(folder: Path, **changes: object) -> DataSet:
    bank, dev = write(folder / "bank.mrg", 300, 1), write(folder / "dev.mrg", 40, 2)
    given = {"trees": (bank,), "dev_trees": (dev,), "subwords": SUBWORDS, "workers": 1, **changes}
    return prepare(folder / "data", replace(PARSING, **given))[0]


@pytest.mark.parametrize("openings", ["plain", "labelled"])
def test_every_tree_comes_back(tmp_path: Path, openings: str):
    data = prepare_bank(tmp_path, openings=openings)
    for split, wanted in (("train", make_trees(300, 1)), ("dev", make_trees(40, 2))):
        assert data.splits[split].pairs == len(wanted)
        for pair, tree in enumerate(wanted):
            words = [escape_word(word) for word in data.text(split, "source", pair).split()]
            symbols = data.text(split, "target", pair).split()
            assert symbols == to_sequence(tree, labelled=openings == "labelled")
            assert from_sequence(symbols, words).spans() == tree.spans()
            assert words == tree.words()
            # Each symbol is one token.
            assert len(data.splits[split].tokens("target", pair)) == len(symbols) + 1


def test_tags_can_stand_for_words(tmp_path: Path):
    data = prepare_bank(tmp_path, leaves="tags")
    for pair, tree in enumerate(make_trees(300, 1)):
        assert from_sequence(data.text("train", "target", pair).split(), tree.words()) == tree


def test_words_can_be_said_behind_their_tags(tmp_path: Path):
    bank, dev = write(tmp_path / "bank.mrg", 100, 1), write(tmp_path / "dev.mrg", 10, 2)
    odd = ["(S (NP (NN rare)) (VP (VBZ a▁b)))", "(S (NP (-LRB- -LRB-) (= =) (NN a▁b)) (-RRB- -RRB-))"]
    bank.write_text(bank.read_text(encoding="utf-8") + "\n".join(odd), encoding="utf-8")
    flags = ["--trees", str(bank), "--dev-trees", str(dev), "--subwords", "320", "--workers", "1", "--leaves", "words"]
    assert main(["prepare", str(tmp_path / "data"), "--task", "parsing", *flags]) == 0
    data = DataSet.open(tmp_path / "data")
    pieces = data.subwords["target"].pieces(range(len(data.subwords["target"])))
    assert {"▁=(dog", "▁=(a_b", "▁="} < {*pieces}
    assert "▁=(rare" not in pieces
    brackets = Brackets.find(pieces)
    for pair, tree in enumerate([*make_trees(100, 1), *map(parse_tree, odd)]):
        tokens = data.splits["train"].tokens("target", pair)[:-1].tolist()
        assert from_sequence([brackets.symbols[token] for token in tokens], tree.words()) == tree
        assert [token for token in tokens if "=(" in brackets.symbols[token]] == brackets.find_words(tree.words())


def test_the_sides_have_vocabularies_of_their_own(tmp_path: Path):
    data = prepare_bank(tmp_path)
    assert (data.subwords["source"].kind, data.subwords["target"].kind) == ("bpe", "word")
    pieces = data.subwords["target"].pieces(range(4, len(data.subwords["target"])))
    assert sorted(pieces) == sorted("▁" + symbol for symbol in ["XX", "(", ")S", ")NP", ")VP", ")PP", ")ADVP"])


def test_words_may_have_the_subwords_of_a_translator_and_brackets_their_own(tmp_path: Path):
    """A parser's brackets, on the other hand, are kept with its words."""
    (tmp_path / "text").mkdir()
    pairs = tmp_path / "text" / "pairs.tsv"
    lines = [" ".join(tree.words()) for tree in make_trees(200, 5)]
    pairs.write_text("".join(f"{line}\t{line[::-1]} :)\n" for line in lines), encoding="utf-8")
    settings = {"subwords": SubwordsConfig(size=330), "workers": 1, "dev_split": 5}
    translation = prepare(tmp_path / "text" / "data", PrepareConfig(pairs=(pairs,), **settings))[0]
    data = prepare_bank(tmp_path, subwords=replace(SUBWORDS, reuse=translation.folder))
    assert data.subwords["source"].model == translation.subwords["source"].model
    tree = make_trees(300, 1)[7]
    assert data.text("train", "target", 7).split() == to_sequence(tree)
    Brackets.find(data.subwords["target"].pieces(range(len(data.subwords["target"]))))
    (tmp_path / "again").mkdir()
    again = prepare_bank(tmp_path / "again", subwords=replace(SUBWORDS, reuse=data.folder))
    assert {side: again.subwords[side].model for side in ("source", "target")} == {
        side: data.subwords[side].model for side in ("source", "target")
    }


def test_no_rule_of_translation_drops_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # Twice the same, no letters, no more than a word, very long, in another script, as long as no translation would be.
    odd = ["(NN dog)", "(NN dog)", "(NP (CD 1) (: ...))", "(NP " + "(NN ab) " * 300 + ")", "(NP (NN дом))",
           "(S " * 90 + "(NN a)" + ")" * 90, "(NP (NN aaaaaaaaaaaaaaaaaaaaaaaaaa))", "(NP (NN Ã¼))"]  # fmt: skip
    bank = write(tmp_path / "bank.mrg", 50, 1)
    bank.write_text(bank.read_text(encoding="utf-8") + "\n".join(odd), encoding="utf-8")
    dev = write(tmp_path / "dev.mrg", 10, 1)
    flags = ["--trees", str(bank), "--dev-trees", str(dev), "--subwords", "320", "--workers", "1"]
    assert main(["prepare", str(tmp_path / "data"), "--task", "parsing", *flags]) == 0
    assert "read 58 pairs, kept 58 (100.0%)" in capsys.readouterr().err
    data = DataSet.open(tmp_path / "data")
    assert data.text("train", "target", 55) == " ".join(["("] * 90 + ["XX"] + [")S"] * 90)


def test_test_sentences_can_be_kept_out_of_training(tmp_path: Path):
    test = tmp_path / "test.mrg"
    test.write_text("\n".join(map(str, make_trees(300, 1)[:20])), encoding="utf-8")
    clean = replace(PARSING.clean, leak="source")
    data = prepare_bank(tmp_path, test_trees=(test,), clean=clean)
    held_out = {" ".join(tree.words()) for tree in [*make_trees(300, 1)[:20], *make_trees(40, 2)]}
    kept = [" ".join(tree.words()) for tree in make_trees(300, 1)]
    wanted = [sentence for sentence in kept if sentence not in held_out]
    assert [data.text("train", "source", pair) for pair in range(data.train.pairs)] == wanted
    assert len(wanted) <= 280
    dropped = data.report()["dropped"]["leak"]
    assert dropped["pairs"] == 300 - len(wanted)


def test_a_part_can_be_taken_away_as_dev_set(tmp_path: Path):
    clean = replace(PARSING.clean, leak="source")
    data = prepare_bank(tmp_path, dev_trees=(), dev_split=30, clean=clean)
    dev = {data.text("dev", "source", pair) for pair in range(data.dev.pairs)}
    assert data.dev.pairs == 30
    assert not dev & {data.text("train", "source", pair) for pair in range(data.train.pairs)}


def test_compressed_and_spread_over_lines_is_the_same(tmp_path: Path):
    data = prepare_bank(tmp_path)
    spread = tmp_path / "bank.gz"
    text = "".join(str(tree).replace("(TOP ", "( ").replace(" (", "\n    (") + "\n\n" for tree in make_trees(300, 1))
    spread.write_bytes(gzip.compress(text.encode()))
    (tmp_path / "other").mkdir()
    other = prepare_bank(tmp_path / "other", trees=(spread,))
    for side in ("source", "target"):
        assert [data.text("train", side, pair) for pair in range(300)] == [
            other.text("train", side, pair) for pair in range(300)
        ]


def test_a_second_run_has_nothing_to_do_and_other_openings_make_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    prepare_bank(tmp_path)
    prepare_bank(tmp_path)
    assert "up to date" in capsys.readouterr().err
    prepare_bank(tmp_path, openings="labelled")
    assert 'openings was "plain" and is "labelled"' in capsys.readouterr().err


def test_words_are_split_at_random_and_brackets_are_not(tmp_path: Path):
    data = prepare_bank(tmp_path)
    batches = Batches(data, BatchConfig(source_tokens=4096, target_tokens=4096, parts=1, subword_dropout=0.5), seed=1)
    batch = batches.batch(0, 0)
    source, target = data.subwords["source"], data.subwords["target"]
    changed = 0
    for place, pair in enumerate(batch.pairs):
        ours, theirs = (
            tokens[offsets[place] : offsets[place + 1]].tolist()
            for tokens, offsets in ((batch.source, batch.source_offsets), (batch.target, batch.target_offsets))
        )
        assert source.decode(ours) == data.text("train", "source", int(pair))
        assert target.decode(theirs) == data.text("train", "target", int(pair))
        assert theirs == data.train.tokens("target", int(pair)).tolist()
        changed += ours != data.train.tokens("source", int(pair)).tolist()
    assert changed > len(batch.pairs) / 2


def test_bad_trees_are_one_error_that_names_them_all(tmp_path: Path):
    bank = tmp_path / "bank.mrg"
    bank.write_text("(S (NN a))\n(S (NN b)\n(S (NN c))\n(S (NP d (NN e)))\n", encoding="utf-8")
    with pytest.raises(DataError) as error:
        prepare(tmp_path / "data", replace(PARSING, trees=(bank,), dev_split=1, workers=1))
    *bad, remedy = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in bad] == [f"{bank}:2", f"{bank}:4"]
    assert "--clean.format drop" in remedy
    assert not (tmp_path / "data").exists()


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path):
    bank = write(tmp_path / "bank.mrg", 3, 1)
    with pytest.raises(ConfigError, match="trees are for parsing; give --task parsing"):
        PrepareConfig(trees=(bank,))
    with pytest.raises(ConfigError, match="reads trees, which contain their sentences"):
        replace(PARSING, source=(bank,), target=(bank,))
    with pytest.raises(ConfigError, match=r"use --no-subwords\.joint"):
        replace(PARSING, subwords=SubwordsConfig())
    with pytest.raises(ConfigError, match=r"use --clean\.leak source"):
        replace(PARSING, clean=replace(PARSING.clean, leak="side"))
    with pytest.raises(ConfigError, match=r"add --clean\.leak source, or leave it out"):
        replace(PARSING, trees=(bank,), test_trees=(bank,))
    with pytest.raises(DataError, match="use --trees FILE"):
        prepare(tmp_path / "data", replace(PARSING, dev_trees=(bank,)))
    with pytest.raises(DataError, match="use --dev-trees FILE, or --dev-split"):
        prepare(tmp_path / "data", replace(PARSING, trees=(bank,)))


def test_translation_data_sets_are_not_made_again_for_parsings_sake(tmp_path: Path):
    for name, language in (("a.en", "the dog"), ("a.de", "der Hund"), ("b.en", "a cat"), ("b.de", "eine Katze")):
        (tmp_path / name).write_text(f"{language}\n" * 3, encoding="utf-8")
    flags = ["--source", "a.en", "--target", "a.de", "--dev-source", "b.en", "--dev-target", "b.de"]
    given = [flag if flag.startswith("--") else str(tmp_path / flag) for flag in flags]
    assert main(["prepare", str(tmp_path / "data"), *given, "--subwords", "280", "--workers", "1"]) == 0
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text(encoding="utf-8"))
    assert not {"task", "openings", "leaves", "constituents", "joined"} & manifest["made_from"]["settings"].keys()
