"""The report accounts for every pair that was read, and its examples are where it says they are."""

import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transduce.text import numbers
from transduce.text.clean import CHANGES, RULES, CleanConfig, Cleaned, Example, normalise
from transduce.text.corpus import Input
from transduce.text.inputs import PrepareConfig
from transduce.text.prepare import prepare
from transduce.text.report import EXAMPLES, SHOWN_CHARACTERS, Report, show_report
from transduce.text.select import Selection
from transduce.text.subwords import SubwordsConfig

CLEAN = CleanConfig(utf8="drop", format="drop", tokens=90)
UNREAD = ("utf8", "format")
GOOD = [pair for pair in numbers.corpus("train", 3000) if 10 < len(pair[0]) < 60][:1500]
TEST = ("The secret sentence of the test set", "Der geheime Satz der Prüfungsmenge")
Pairs = list[tuple[bytes | str, bytes | str]]


def make_faults(word: str) -> dict[str, tuple[bytes | str, bytes | str]]:
    """Return a pair for each rule to drop; another word makes another set. Aligned files cannot break the format."""
    long = " ".join([f"the good old {word} times never come back to us"] * 9)
    return {
        "utf8": (f"caf\xe9 {word}".encode("latin-1"), "das Café"),
        **({} if word == "one" else {"format": (f"a lone column {word}", "")}),
        "empty": (f"an empty side {word}", "&nbsp;"),
        "damaged": (f"over there {word}", "da drÃ¼ben"),
        "long": (" ".join([word] * 201), " ".join(["Wort"] * 201)),
        "letters": (f"1 + 1 = 2! (3 + 4 = 7) {word}", "eins und eins macht zwei"),
        "repeated": (f"Noooooooooooooooo {word}", "Neeeeeeeeeeeeeeein"),
        "copied": (f"left as it was {word}", f"Left as it was, {word}."),
        "leak": (TEST[0].upper(), f"Das ist ein geheimer Satz {word}"),
        "language": (f"please open the book at page {word}", "proszę otworzyć książkę na stronie dwudziestej"),
        "script": (f"Russian {word}", "слово"),
        "ratio": (f"short {word}", "und dies ist viel zu lang für das, was da steht, und hört nicht auf" + ", ja" * 9),
        "duplicate": GOOD[0],
        "near_duplicate": (f"{GOOD[1][0].upper()} {'!' * len(word)}", GOOD[1][1]),
        "tokens": (long, " ".join(["die guten alten Zeiten kommen nie mehr zu uns zurück"] * 9)),
    }


def make_changed(word: str) -> dict[str, tuple[bytes | str, bytes | str]]:
    """Return one pair for each change."""
    return {
        "entities": (f"two &lt; three hundred {word}", "zwei ist weniger als dreihundert"),
        "unicode": (f"a u\u0308mlaut here {word}", "hier ein Umlaut"),
        "control": (f"soft\u00adhyphens are here {word}", "hier sind weiche Trennstriche"),
        "spaces": (f"several  spaces here {word}", "hier sind mehrere Leerzeichen"),
    }


@dataclass
class Prepared:
    """A prepared corpus: its files, and its report as read back from disk."""

    files: dict[str, list[tuple[bytes, bytes]]]
    report: dict[str, Any]


def _encode(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    sides = ([side.encode() if isinstance(side, str) else side for side in pair] for pair in pairs)
    return [(source, target) for source, target in sides]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Two inputs, each with every fault and every change, a dev split, and a test set to leak from."""
    folder = tmp_path_factory.mktemp("report")
    odd, more = ([*make_faults(word).values(), *make_changed(word).values()] for word in ("one", "another"))
    first, second = _encode([*GOOD[:250], *odd]), _encode([*GOOD[250:300], *more, *GOOD[300:]])
    for name, data in {
        "a.en": b"".join(source + b"\n" for source, _ in first),
        "a.de": b"".join(target + b"\r\n" for _, target in first),
        "b.tsv": b"".join(b"\t".join(filter(None, pair)) + b"\n" for pair in second),
        "test.tsv": "\t".join(TEST).encode(),
    }.items():
        (folder / name).write_bytes(data)
    config = PrepareConfig(
        source=(folder / "a.en",),
        target=(folder / "a.de",),
        pairs=(folder / "b.tsv",),
        weight=(1.0, 0.5),
        test_pairs=(folder / "test.tsv",),
        dev_split=30,
        workers=1,
        subwords=SubwordsConfig(size=420),
        clean=CLEAN,
    )
    data, made = prepare(folder / "out", config)
    assert made
    return Prepared({str(folder / "a.en"): first, str(folder / "b.tsv"): second}, data.report())


def test_every_pair_of_every_input_is_accounted_for(prepared: Prepared):
    assert [entry["name"] for entry in prepared.report["inputs"]] == ["a.en + a.de", "b.tsv"]
    for entry, pairs in zip(prepared.report["inputs"], prepared.files.values(), strict=True):
        assert entry["read"] == len(pairs)
        assert entry["read"] == entry["kept"] + entry["dev"] + sum(entry["dropped"].values())
        assert all(entry["dropped"].values())
    assert sum(entry["dev"] for entry in prepared.report["inputs"]) == 30


def test_totals_are_the_sums_over_inputs(prepared: Prepared):
    for title, names in (("dropped", RULES), ("changed", CHANGES)):
        total = sum((Counter(entry[title]) for entry in prepared.report["inputs"]), Counter[str]())
        assert {name: entry["pairs"] for name, entry in prepared.report[title].items()} == {
            name: total[name] for name in names
        }
    splits = prepared.report["splits"]
    assert splits["train"]["pairs"] == sum(entry["kept"] for entry in prepared.report["inputs"])
    assert splits["dev"]["pairs"] == 30


def test_every_rule_dropped_what_was_made_for_it(prepared: Prepared):
    assert make_faults("").keys() == RULES.keys()
    assert make_changed("").keys() == CHANGES.keys()
    for entry in prepared.report["inputs"]:
        assert entry["dropped"]["leak"] >= 1  # the dev split may share a side with training
        possible = RULES.keys() - ({"format"} if "a.en" in entry["name"] else set())
        assert entry["dropped"] | {"leak": 1} == dict.fromkeys(possible, 1)
        assert entry["changed"] == {"entities": 2, "unicode": 1, "control": 1, "spaces": 2}  # two by the empty side


def test_examples_stand_where_they_are_said_to_stand(prepared: Prepared):
    shown: Counter[str] = Counter()
    for title in ("dropped", "changed"):
        for name, entry in prepared.report[title].items():
            for example in entry["examples"]:
                file, line = example["where"].rsplit(":", 1)
                if name in UNREAD:  # the line as it can be shown, and what is wrong with it
                    raw = Path(file).read_bytes().split(b"\n")[int(line) - 1].decode(errors="replace")
                    assert example["source"] == " ".join(raw.split())
                    assert example["target"].startswith(("not UTF-8 (byte 0xE9 at position 4)", "has 1 columns"))
                    shown[name] += 1
                    continue
                there = tuple(side.decode() for side in prepared.files[file][int(line) - 1])
                if title == "dropped":
                    there = tuple(normalise(side, CLEAN)[0] for side in there)
                assert (example["source"], example["target"].rstrip("\r")) == there
                shown[name] += 1
    assert shown == dict.fromkeys((*RULES, *CHANGES), 2) | {"format": 1}  # one from each block


def test_what_is_usual_is_said(prepared: Prepared):
    usual = prepared.report["usual"]
    assert (usual["source_scripts"], usual["target_scripts"]) == (["Latin"], ["Latin"])
    assert 0.8 < usual["ratio"] < 1.3


def test_the_report_for_a_person_names_what_was_dropped(prepared: Prepared):
    file = io.StringIO()
    show_report(prepared.report, file)
    lines = file.getvalue().splitlines()
    read, kept = (sum(entry[name] for entry in prepared.report["inputs"]) for name in ("read", "kept"))
    assert lines[0] == f"read {read:,} pairs, kept {kept:,} ({kept / read:.1%}), held 30 out as the dev set"
    for title in ("dropped", "changed"):
        for name, entry in prepared.report[title].items():
            assert [line for line in lines if line.split()[:1] == [title] and f" {name}: {entry['means']}" in line]
            for example in entry["examples"][:1]:
                assert f"      {example['where']}" in lines
    assert "      | 'soft\\xadhyphens are here one'" in lines  # what cannot be seen is shown
    assert "  usual: target length" in file.getvalue()
    assert [line for line in lines if line.endswith("b.tsv × 0.5") or "b.tsv × 0.5  (" in line]
    assert all(len(line) <= SHOWN_CHARACTERS + len("      | ") for line in lines if line.startswith("      | "))


# ---- without a corpus ----


def begin(*names: str, seed: int = 1) -> Report:
    return Report.begin([Input(files=(Path(name),), format="tsv") for name in names], seed)


def finish(report: Report) -> dict[str, Any]:
    splits = {"train": {"pairs": 5, "source_tokens": 1234, "target_tokens": 17, "shards": []}}
    report.finish(Selection(np.zeros(5, np.uint8), 1.23456, ("Latin",), ()), splits)
    return report.to_dict()


def block(input: int, read: int, number: int = 0, **dropped: int) -> Cleaned:
    """Return a block with one example per rule."""
    examples = {rule: [Example(f"file:{number}", f"source {number}", f"target {number}")] for rule in dropped}
    return Cleaned(input, read, Counter(dropped), examples)


def test_a_report_is_json():
    report = begin("a.tsv", "b.tsv")
    report.add_cleaned(block(0, 10, empty=2, copied=3))
    report.add_cleaned(block(1, 20, empty=5))
    report.add_encoded(block(0, 5, duplicate=1), kept=3, dev=1, varied=Counter(capitals=2))
    found = finish(report)
    read_back = json.loads(json.dumps(found))
    assert read_back["inputs"][0] == {
        "name": "a.tsv", "weight": 1.0, "read": 10, "kept": 3, "dev": 1, "changed": {},
        "dropped": {"empty": 2, "copied": 3, "duplicate": 1},
    }  # fmt: skip
    assert read_back["dropped"]["empty"]["pairs"] == 7
    assert read_back["varied"] == {"capitals": 2}
    assert read_back["usual"]["ratio"] == 1.235
    assert read_back["splits"] == {"train": {"pairs": 5, "source_tokens": 1234, "target_tokens": 17}}
    shown = [io.StringIO(), io.StringIO()]
    show_report(found, shown[0])
    show_report(read_back, shown[1])
    assert shown[0].getvalue() == shown[1].getvalue()


def test_rules_that_dropped_nothing_are_not_shown():
    report = begin("a.tsv")
    report.add_cleaned(block(0, 10, empty=2))
    file = io.StringIO()
    show_report(finish(report), file)
    assert "dropped           2   20.00%  empty: a side is empty" in file.getvalue()
    assert file.getvalue().count("dropped") == 1
    assert "by input" not in file.getvalue()
    assert "target in ?" in file.getvalue()


def test_a_report_on_nothing_can_be_shown():
    file = io.StringIO()
    show_report(finish(begin("a.tsv", "b.tsv")), file)
    assert file.getvalue().startswith("read 0 pairs, kept 0 (0.0%)\n")


def test_long_lines_are_shortened():
    report = begin("a.tsv")
    examples = {"copied": [Example("a.tsv:1", "x" * 5000, "y" * SHOWN_CHARACTERS)]}
    report.add_cleaned(Cleaned(0, 1, Counter(copied=1), examples))
    file = io.StringIO()
    show_report(finish(report), file)
    assert f"      | {'x' * (SHOWN_CHARACTERS - 1)}…\n      | {'y' * SHOWN_CHARACTERS}\n" in file.getvalue()


def test_examples_are_few_and_from_all_over_the_corpus():
    chosen: Counter[str] = Counter()
    for seed in range(100):
        report = begin("a.tsv", seed=seed)
        for number in range(30):
            report.add_cleaned(block(0, 1, number, empty=1))
        examples = report.examples["empty"]
        assert len(examples) == len(set(examples)) == EXAMPLES
        chosen.update(example.where for example in examples)
    # Each of 30 is expected ten times in 300; always choosing the first or the last would leave most at zero.
    assert len(chosen) == 30
    assert max(chosen.values()) < 30
