"""Pairs in other forms: the same ones in any process, changed as the settings say, written after their pairs."""

import re
import sys
import unicodedata
from pathlib import Path
from random import Random

import pytest
from corpora import DEV, TRAIN, aligned, prepare_at, small_corpus, texts
from hypothesis import given
from hypothesis import strategies as st

from transduce.cli import main
from transduce.text.report import show_report
from transduce.text.vary import Varied, Varier, VaryConfig, add_symbols, change_names, make_up_name, slip

PAIRS = [(f"Mr Nakasone's number is {number}.", f"Herr Nakasone hat Nummer {number}.") for number in range(4000)]
WORDS = "The animal didn't cross the street because it was too tired."


def forms(config: VaryConfig, seed: int = 1) -> list[tuple[tuple[str, str], Varied]]:
    varier = Varier(config, seed)
    return [(pair, other) for pair in PAIRS for other in varier(*pair)]


@pytest.mark.parametrize("kind", ["capitals", "small", "symbols", "typos", "names"])
def test_the_share_asked_for_is_varied(kind: str):
    found = forms(VaryConfig(**{kind: 0.1}))
    assert {other.kind for _, other in found} == {kind}
    assert 320 < len(found) < 480  # 400 ± 4 standard deviations
    assert found == forms(VaryConfig(**{kind: 0.1}))
    assert [pair for pair, _ in found] != [pair for pair, _ in forms(VaryConfig(**{kind: 0.1}), seed=2)]


def test_kinds_choose_apart_and_shares_only_add():
    few, many = (forms(VaryConfig(capitals=share, small=share)) for share in (0.1, 0.2))
    assert {pair for pair, other in few if other.kind == "small"} != {
        pair for pair, other in few if other.kind == "capitals"
    }
    assert set(few) < set(many)
    assert forms(VaryConfig()) == []


def test_forms_are_what_they_say():
    found = {other.kind: (pair, other.pair) for pair, other in forms(VaryConfig(capitals=0.1, small=0.1))}
    (source, target), capitals = found["capitals"]
    assert capitals == (source.upper(), target.upper())
    (source, target), small = found["small"]
    assert small == (source.lower(), target)
    # What has no other form is not there twice.
    assert list(Varier(VaryConfig(capitals=1, small=1, typos=1), 1)("1 2", "3 4")) == []


@given(st.integers(0, 2**32))
def test_symbols_are_the_same_on_both_sides(seed: int):
    source, target = add_symbols("How are you?", "Wie geht's?", Random(seed))
    assert source != "How are you?"
    assert source.replace("How are you?", "|") == target.replace("Wie geht's?", "|")
    assert unicodedata.normalize("NFC", source) == source  # as all text that is trained on
    assert "\t" not in source
    assert source == " ".join(source.split())
    assert source.isprintable()


@given(st.integers(0, 2**32))
def test_a_slip_changes_a_few_letters_of_the_source(seed: int):
    source, target = slip(WORDS, "Das Tier", Random(seed))
    assert target == "Das Tier"
    assert abs(len(source) - len(WORDS)) <= 2
    assert [word[0] for word in source.split()] == [word[0] for word in WORDS.split()]
    assert sum(one != other for one, other in zip(source.split(), WORDS.split())) <= 2
    assert slip("Is it in? 12345", "x", Random(seed)) == ("Is it in? 12345", "x")  # no word is long enough


def test_names_change_alike_on_both_sides():
    source = "Mr Nakasone, Union minister, met Anna and Nakasone's aunt. Anna smiled. Rot is red, NATO too."
    target = "Herr Nakasone, Minister der Union, traf Anna und Nakasones Tante. NATO und Rot. Nakasone"

    def is_rare(word: str) -> bool:
        return word != "Union"

    other_source, other_target = change_names(source, target, Random(1), is_rare)
    found = dict(zip(re.findall(r"\w+", source), re.findall(r"\w+", other_source), strict=True))
    changed = {word: other for word, other in found.items() if word != other}
    assert changed.keys() == {"Nakasone", "Rot"}  # Anna stands in one side more often, Union is not rare
    assert other_source == re.sub(r"\b(Nakasone|Rot)\b", lambda word: changed[word[0]], source)
    assert other_target == re.sub(r"\b(Nakasone|Rot)\b", lambda word: changed[word[0]], target)
    assert change_names("Bonn is small.", "Köln ist klein.", Random(1), is_rare) == (
        "Bonn is small.",
        "Köln ist klein.",
    )


@pytest.mark.parametrize("name", ["Nakasone", "Çelik", "Ангела", "Νικόλαος", "Łódź"])
def test_made_up_names_keep_their_shape_and_script(name: str):
    made = {make_up_name(name, Random(seed)) for seed in range(200)}
    assert len(made) > 20
    assert {len(other) for other in made} == {len(name)}
    scripts = {unicodedata.name(letter).split()[0] for other in made for letter in other}
    assert scripts == {unicodedata.name(name[0]).split()[0]}
    assert {other.istitle() for other in made} == {True}
    if name == "Nakasone":
        assert {"".join("v" if letter in "aeiou" else "c" for letter in other.lower()) for other in made} == {
            "cvcvcvcv"
        }


def test_names_that_are_one_subword_stay(tmp_path: Path):
    common = [(f"Anna has {n} cats.", f"Anna hat {n} Katzen.") for n in range(300)]
    rare = [("Anna met Mwangi.", "Anna traf Mwangi."), ("Where is Xochitl?", "Wo ist Xochitl?")]
    flags = [*aligned(tmp_path, "train", [*common, *rare]), *aligned(tmp_path, "dev", DEV, "dev-")]
    prepare_at(tmp_path / "data", *flags, "--subwords", "340", "--vary.names", "1")
    added = texts(tmp_path / "data")[len(common) + len(rare) :]
    assert len(added) == 2
    assert all(source.startswith(("Anna met ", "Where is ")) for source, _ in added)
    assert not {"Mwangi", "Xochitl"} & {word for source, _ in added for word in re.findall(r"\w+", source)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_data_set_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int):
    shares = ["--vary.capitals", "0.2", "--vary.symbols", "0.1", "--vary.small", "0.05", "--workers", str(workers)]
    data = prepare_at(tmp_path / "data", *small_corpus(tmp_path), *shares)
    vary = Varier(VaryConfig(capitals=0.2, symbols=0.1, small=0.05), 1)
    expected = [other.pair for pair in TRAIN for other in vary(*pair)]
    found = texts(tmp_path / "data")
    assert found[: len(TRAIN)] == TRAIN
    assert found[len(TRAIN) :] == expected
    assert texts(tmp_path / "data", "dev") == DEV
    report = data.report()
    assert report["inputs"][0]["kept"] == len(TRAIN)
    assert sum(report["varied"].values()) == len(expected) > 100
    show_report(report, sys.stderr)
    assert f"added in another form: {report['varied']['capitals']:,} capitals" in capsys.readouterr().err


def test_shares_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["prepare", str(tmp_path / "data"), *small_corpus(tmp_path), "--vary.typos", "2"]) == 1
    assert "vary.typos = 2.0 is not a share; use a number from 0 to 1" in capsys.readouterr().err
    trees = ["--task", "parsing", "--trees", "some.mrg", "--dev-split", "1", "--vary.typos", "0.1"]
    assert main(["prepare", str(tmp_path / "data"), *trees]) == 1
    assert "vary is for translation" in capsys.readouterr().err
