"""The page needs nothing else, says what was measured, and shows the sentences it claims to show."""

import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from systems import damage, make_sentences, make_texts

from transduce.scoring import charts
from transduce.scoring.findings import ScoreJob, ScoreReport
from transduce.scoring.metrics import Measured, MetricSettings, mean_of, measure
from transduce.scoring.perplexity import Likelihood
from transduce.scoring.report import make_page, write_report
from transduce.scoring.score import compare_systems

NASTY = "<script>alert('x')</script> & \"quotes\" </dd> &amp;"
REFERENCES = make_sentences(60, seed=1)
SOURCE = make_sentences(60, seed=9)
GOOD, BAD = damage(REFERENCES, 0.2, seed=2), damage(REFERENCES, 0.4, seed=3)
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Parses a page: whether its tags are closed, and the sentences of each list."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "article":
            self.lists[list(self.lists)[-1]].append(dict(attrs) | {"rows": []})
        if tag == "dd":
            list(self.lists.values())[-1][-1]["rows"].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.text += data
        if self.open and self.open[-1] == "h2":
            self.lists[data] = []
        if "dd" in self.open and "small" not in self.open:
            list(self.lists.values())[-1][-1]["rows"][-1] += data

    def lines(self, title: str) -> list[int]:
        """Return the lines of one list."""
        return [int(article["data-line"]) for article in self.lists[title]]


def make_report(
    systems: list[list[str]],
    references: list[list[str]] | None = None,
    names: tuple[str, ...] = ("bleu", "chrf", "ter", "exact"),
    source: list[str] | None = None,
    **options: Any,
) -> ScoreReport:
    """Measure and compare, as `score` does."""
    texts = make_texts(systems, references or [REFERENCES], source)
    settings = MetricSettings(language="de")
    options = {"samples": 30, "examples": 5} | options
    job = ScoreJob(systems=(), references=(Path("ref.de"),), **options)
    scores = compare_systems(measure(texts, names, settings), job.samples, job.seed)
    return ScoreReport(job, settings, texts, scores)


def test_the_scores_and_their_signatures_are_there():
    report = make_report([GOOD, BAD])
    page = Page(make_page(report))
    for of_system in report.scores:
        for some in of_system:
            assert f"{some.value:.2f}" in page.text
            assert some.signature in page.text
            assert some.measured.title in page.text
            assert some.confidence is not None
            assert f"± {some.confidence.half:.2f}" in page.text
    comparison = report.scores[1][0].comparison
    assert comparison is not None
    assert f"−{-comparison.difference:.2f}" in page.text
    assert f"p = {comparison.p_value:.3f}" in page.text
    assert "60 sentences, 1 reference (ref.de)" in page.text


def test_worse_and_better_are_told_by_the_metric_and_by_chance():
    def classes(systems: list[list[str]], name: str) -> list[str]:
        return re.findall('<span class="(better|worse)">', make_page(make_report(systems, names=(name,))))

    assert classes([GOOD, BAD], "chrf") == ["worse"]
    assert classes([BAD, GOOD], "chrf") == ["better"]
    assert classes([GOOD, BAD], "ter") == ["worse"]
    assert classes([BAD, GOOD], "ter") == ["better"]
    assert classes([GOOD, list(GOOD)], "chrf") == []


def test_nothing_comes_from_elsewhere_and_everything_is_escaped():
    systems = [[NASTY, "<i>wrong</i>", *GOOD[2:]], [f"{NASTY} x", "<i>wrong</i>", *BAD[2:]]]
    report = make_report(systems, [[f"y {NASTY}", *REFERENCES[1:]]], source=[NASTY, *SOURCE[1:]], examples=60)
    named = [replace(system, name=f"{NASTY}{n}") for n, system in enumerate(report.texts.systems)]
    page = make_page(replace(report, texts=replace(report.texts, systems=named)))
    read = Page(page)
    assert page.count("<script>") == 1  # our own
    assert "<i" not in page.replace("<input", "")
    assert "<mark>&lt;i&gt;wrong" in page
    for _, name, value in read.attributes:
        assert name != "src"
        assert name == "xmlns" or "//" not in value
        assert not name.startswith("on")
    assert "url(" not in page
    assert "@import" not in page
    article = next(article for article in read.lists[f"All of {NASTY}0"] if article["data-line"] == "1")
    assert [row.strip() for row in article["rows"]] == [NASTY, f"y {NASTY}", NASTY, f"{NASTY} x"]
    assert "prefers-color-scheme: dark" in page


def test_the_worst_and_best_sentences_are_those_with_the_lowest_and_highest_scores():
    report = make_report([GOOD])
    page = Page(make_page(report))
    chrf = report.scores[0][1].measured.sentences
    assert chrf is not None
    assert sorted(chrf[[line - 1 for line in page.lines("Worst")]]) == sorted(chrf)[:5]
    assert sorted(chrf[[line - 1 for line in page.lines("Best")]]) == sorted(chrf)[-5:]
    assert list(page.lists) == ["Worst", "Best"]
    for article in page.lists["Worst"]:
        line = int(article["data-line"]) - 1
        assert article["rows"] == [REFERENCES[line], GOOD[line] or "nothing"]


def test_for_ter_the_worst_are_the_highest():
    report = make_report([GOOD], names=("ter",))
    page, ter = Page(make_page(report)), report.scores[0][0].measured.sentences
    assert ter is not None
    assert ter[page.lines("Worst")[0] - 1] == max(ter)
    assert ter[page.lines("Best")[0] - 1] == min(ter)


def test_of_equal_sentences_the_longest_come_first():
    lines = ["a", "a b c", "a b", "x"]
    page = Page(make_page(make_report([["a", "a b c", "a b", "y"]], [lines], names=("exact",), examples=3)))
    assert page.lines("Best") == [2, 3, 1]
    assert page.lines("Worst") == [4, 2, 3]


def test_two_systems_are_compared_where_they_differ_most():
    report = make_report([GOOD, BAD])
    page = Page(make_page(report))
    one, other = (scores[1].measured.sentences for scores in report.scores)
    assert one is not None
    assert other is not None
    gain = other - one
    better, worse = page.lines("Where system 2 is better"), page.lines("Where system 2 is worse")
    assert gain[better[0] - 1] == max(gain)
    assert gain[worse[0] - 1] == min(gain)
    assert all(gain[line - 1] > 0 for line in better)
    assert f"{(gain > 0).sum()} of 60 sentences" in page.text
    for article in page.lists["Where system 2 is worse"]:
        line = int(article["data-line"]) - 1
        rows = [row.strip() for row in article["rows"]]
        assert rows == [REFERENCES[line], GOOD[line] or "nothing", BAD[line] or "nothing"]


def test_systems_that_are_equal_have_no_sentences_where_they_differ():
    page = Page(make_page(make_report([GOOD, list(GOOD)])))
    assert page.lists["Where system 2 is better"] == []
    assert page.lists["Where system 2 is worse"] == []


def test_words_that_differ_are_marked():
    page = make_page(make_report([["das rote Haus hier", ""]], [["das alte Haus", "x"]], names=("chrf",), examples=2))
    assert '<dd dir="auto">das <mark class="missing">alte</mark> Haus</dd>' in page
    assert '<dd dir="auto">das <mark>rote</mark> Haus <mark>hier</mark></dd>' in page
    assert '<dd dir="auto"><span class="nothing">nothing</span></dd>' in page


def test_of_several_references_the_closest_is_compared():
    references = [["ein <b>großer</b> Hund"], ["das alte Haus"], ["das alte Haus"]]
    page = make_page(make_report([["das rote Haus"]], references, names=("chrf",)))
    assert '<dd dir="auto">ein &lt;b&gt;großer&lt;/b&gt; Hund</dd>' in page
    assert page.count('<dd dir="auto">das <mark class="missing">alte</mark> Haus</dd>') == 1


def test_the_source_is_shown_if_there_is_one():
    page = Page(make_page(make_report([GOOD], source=SOURCE)))
    line = page.lines("Worst")[0] - 1
    assert page.lists["Worst"][0]["rows"] == [SOURCE[line], REFERENCES[line], GOOD[line] or "nothing"]
    assert "words of the source" in page.text
    assert "words of the reference" in Page(make_page(make_report([GOOD], names=("chrf",)))).text


def test_as_many_sentences_as_asked_for():
    assert Page(make_page(make_report([GOOD], examples=0))).lists == {}
    assert {name: len(some) for name, some in Page(make_page(make_report([GOOD], examples=59))).lists.items()} == {
        "Worst": 59,
        "Best": 59,
    }
    for examples in (60, 200):  # one list of all, in the place of two with the same sentences
        report = make_report([GOOD], examples=examples)
        page, chrf = Page(make_page(report)), report.scores[0][1].measured.sentences
        assert list(page.lists) == ["All"]
        assert chrf is not None
        assert chrf[[line - 1 for line in page.lines("All")]].tolist() == sorted(chrf)
    only_corpus = Page(make_page(make_report([GOOD], names=("paper",))))
    assert only_corpus.lists == {}
    assert "paper's BLEU" in only_corpus.text


def test_the_perplexity_of_the_references_is_shown():
    report = replace(make_report([GOOD]), likelihood=Likelihood([-8.0] * 60, [4] * 60))
    page = Page(make_page(report))
    assert "7.39" in page.text
    assert "reference 2.00 nats per subword" in page.text


def test_without_resamples_there_are_no_intervals():
    page = Page(make_page(make_report([GOOD, BAD], samples=0)))
    assert "±" not in page.text
    assert "p =" not in page.text


def test_the_histogram_counts_every_sentence():
    found = make_report([GOOD, BAD], names=("chrf",)).scores
    drawing = charts.draw_spread(["a", "b"], [scores[0].measured for scores in found])
    counts = [[int(count) for count in re.findall(rf"{name}: (\d+) sentences", drawing)] for name in ("a", "b")]
    assert [sum(some) for some in counts] == [60, 60]
    assert drawing.count("<polyline") == 2
    worst = charts.draw_spread(["a"], [mean_of("ter", "", [250.0, 10.0, 99.0])])
    assert re.findall(r"(\d+) to (\d+): a: ([1-9]\d*) sentences", unescape(worst)) == [
        ("10", "15", "1"),
        ("95", "100", "2"),
    ]


def test_bars_are_the_scores_of_sets_of_about_the_same_length():
    texts = make_texts([GOOD], [REFERENCES])
    [[found]] = measure(texts, ["bleu"], MetricSettings())
    lengths = charts.np.array([len(line.split()) for line in REFERENCES])
    drawing = charts.draw_lengths(["a"], [found], lengths, "reference")
    shown = re.findall(r"a, (\d+)–(\d+) words: ([\d.]+) \((\d+) sentences\)", drawing)
    assert sum(int(count) for *_, count in shown) == 60
    for low, high, value, count in shown:
        chosen = [place for place, length in enumerate(lengths) if int(low) <= length <= int(high)]
        assert len(chosen) == int(count)
        part = make_texts([[GOOD[place] for place in chosen]], [[REFERENCES[place] for place in chosen]])
        [[alone]] = measure(part, ["bleu"], MetricSettings())
        assert f"{alone.value:.2f}" == value


def test_bars_stand_beside_each_other():
    found = [scores[0].measured for scores in make_report([GOOD, BAD, GOOD], names=("chrf",)).scores]
    drawing = charts.draw_lengths(["a", "b", "c"], found, charts.np.array([3] * 20 + [8] * 20 + [90] * 20), "source")
    bars = sorted(
        (float(x), float(x) + float(width)) for x, width in re.findall(r' x="(.*?)" .* width="(.*?)"', drawing)
    )
    assert len(bars) == 9
    assert all(end <= begin for (_, end), (begin, _) in pairwise(bars))
    assert "61+" in drawing


@pytest.mark.parametrize("values", [[0.0] * 9, [100.0] * 9, [0.0], [3.3, 1e-9] * 5])
def test_any_scores_can_be_drawn(values: list[float]):
    found: list[Measured] = [mean_of("chrf", "", values)]
    lengths = charts.np.array([0, *range(len(values) - 1)])
    for drawing in (charts.draw_spread(["a"], found), charts.draw_lengths(["a"], found, lengths, "source")):
        assert "nan" not in drawing
        assert "inf" not in drawing


def test_the_file_is_written_whole(tmp_path: Path):
    path = tmp_path / "report.html"
    path.write_text("old")
    report = make_report([GOOD])
    write_report(report, path)
    assert path.read_text(encoding="utf-8") == make_page(report)
    assert list(tmp_path.iterdir()) == [path]
