"""What `prepare` read, changed, dropped and kept, with examples; for a terminal and as JSON."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from transduce.disk import short_names
from transduce.text.clean import CHANGES, RULES, Cleaned, Example, Judged
from transduce.text.corpus import Input

if TYPE_CHECKING:
    from transduce.text.select import Selection

EXAMPLES = 3
SHOWN_CHARACTERS = 110


@dataclass
class InputReport:
    """What happened to the pairs of one input."""

    name: str
    weight: float
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    dev: int = 0


@dataclass
class Report:
    """What happened to the training pairs, with a few examples of each rule chosen at random."""

    inputs: list[InputReport]
    chance: random.Random
    examples: dict[str, list[Example]] = field(default_factory=dict)
    usual: dict[str, Any] = field(default_factory=dict)
    splits: dict[str, dict[str, int]] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    first: dict[tuple[int, str], str] = field(default_factory=dict)
    """file and line of the first pair dropped or changed, by input and rule"""
    varied: Counter[str] = field(default_factory=Counter)

    @classmethod
    def begin(cls, inputs: Sequence[Input], seed: int) -> "Report":
        """Return an empty report on some inputs."""
        names = short_names(file for given in inputs for file in given.files)
        reports = [InputReport(" + ".join(names[file] for file in given.files), given.weight) for given in inputs]
        return cls(reports, random.Random(seed))

    def add_cleaned(self, cleaned: Cleaned) -> None:
        """Count a block of pass one."""
        entry = self.inputs[cleaned.input]
        entry.read += cleaned.read
        entry.changed.update(cleaned.changed)
        self._add(cleaned)

    def add_encoded(self, encoded: Judged, kept: int, dev: int, varied: Counter[str]) -> None:
        """Count a block of pass two."""
        self.varied += varied
        entry = self.inputs[encoded.input]
        entry.kept += kept
        entry.dev += dev
        self._add(encoded)

    def _add(self, block: Judged) -> None:
        self.inputs[block.input].dropped.update(block.dropped)
        for name, examples in block.examples.items():
            self.first.setdefault((block.input, name), examples[0].where)
            for example in examples:
                self.met[name] += 1
                chosen = self.examples.setdefault(name, [])
                if len(chosen) < EXAMPLES:
                    chosen.append(example)
                elif (place := self.chance.randrange(self.met[name])) < EXAMPLES:
                    chosen[place] = example

    def finish(self, selection: "Selection", splits: dict[str, dict[str, Any]]) -> None:
        """Add what is known only at the end."""
        self.usual = {
            "ratio": round(selection.ratio, 3),
            "source_scripts": selection.source_scripts,
            "target_scripts": selection.target_scripts,
        }
        names = ("pairs", "source_tokens", "target_tokens")
        self.splits = {split: {name: entry[name] for name in names} for split, entry in splits.items()}

    def total_dropped(self) -> Counter[str]:
        """Count dropped pairs by rule, over all inputs."""
        return sum((entry.dropped for entry in self.inputs), Counter[str]())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {
            "inputs": [vars(entry) for entry in self.inputs],
            "dropped": {
                rule: {
                    "pairs": self.total_dropped()[rule],
                    "means": meaning,
                    "examples": [example._asdict() for example in self.examples.get(rule, [])],
                }
                for rule, meaning in RULES.items()
            },
            "changed": {
                name: {
                    "pairs": sum(entry.changed[name] for entry in self.inputs),
                    "means": meaning,
                    "examples": [example._asdict() for example in self.examples.get(name, [])],
                }
                for name, meaning in CHANGES.items()
            },
            "varied": dict(self.varied),
            "usual": self.usual,
            "splits": self.splits,
        }


def show_report(report: dict[str, Any], file: TextIO) -> None:
    """Print a report, as `Report.to_dict` gives it, for a person."""
    read = sum(entry["read"] for entry in report["inputs"])
    kept = sum(entry["kept"] for entry in report["inputs"])

    def say(line: str = "") -> None:
        print(line, file=file)

    dev = sum(entry["dev"] for entry in report["inputs"])
    split_off = f", held {dev:,} out as the dev set" if dev else ""
    say(f"read {read:,} pairs, kept {kept:,} ({kept / max(1, read):.1%}){split_off}")
    for title, section in (("changed", report["changed"]), ("dropped", report["dropped"])):
        for name, entry in section.items():
            if not entry["pairs"]:
                continue
            say(f"  {title} {entry['pairs']:>11,}  {entry['pairs'] / read:7.2%}  {name}: {entry['means']}")
            for example in entry["examples"][:1]:
                show = repr if title == "changed" else str
                say(f"      {example['where']}")
                say(f"      | {_shorten(show(example['source']))}")
                say(f"      | {_shorten(show(example['target']))}")
    if len(report["inputs"]) > 1:
        say("  by input")
        for entry in report["inputs"]:
            worst = ", ".join(f"{rule} {count:,}" for rule, count in Counter(entry["dropped"]).most_common(3))
            weight = f" × {entry['weight']:g}" if entry["weight"] != 1 else ""
            share = entry["kept"] / max(1, entry["read"])
            say(
                f"    {entry['read']:>11,} read, {share:6.1%} kept  {entry['name']}{weight}"
                + (f"  ({worst})" if worst else "")
            )
    if varied := report.get("varied"):
        say(f"  added in another form: {', '.join(f'{count:,} {kind}' for kind, count in varied.items())}")
    usual = report["usual"]
    scripts = "; ".join(f"{side} in {', '.join(usual[f'{side}_scripts']) or '?'}" for side in ("source", "target"))
    say(f"  usual: target length {usual['ratio']:.2f} × source; {scripts}")
    for split, entry in report["splits"].items():
        tokens = f"{entry['source_tokens']:,} source and {entry['target_tokens']:,} target tokens"
        say(f"  {split}: {entry['pairs']:,} pairs, {tokens}")


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
