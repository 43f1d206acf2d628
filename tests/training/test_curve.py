"""The page of a run: complete in itself, and its charts show what was measured, read back by their own axes."""

import math
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import DEV, TRAIN
from sacrebleu.metrics.bleu import BLEU

from transduce.training.curve import write_curve
from transduce.training.metrics import DevMetrics, TrainMetrics

SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Parses a page: every tag must be closed in order; texts and attributes are kept."""

    ALONE = ("meta", "br")

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag's attributes."""
        self.attributes += attrs
        self.texts.setdefault(tag, [])
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the attributes of a tag that closes itself."""
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """Close the last open tag."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep a tag's text."""
        if self.open and data.strip():
            self.texts[self.open[-1]].append(data.strip())


class Chart:
    """A chart, read by the labels of its axes as by eye."""

    def __init__(self, figure: str):
        self.title = re.findall("<h2>(.*?)</h2>", figure)[0]
        self.keys = re.findall(r'<span class="key (\w+)">(.*?)</span>', figure)
        (drawing,) = re.findall("<svg.*?</svg>", figure, re.DOTALL)
        self.svg = ElementTree.fromstring(drawing)
        texts = [text for text in self.svg.iter(f"{SVG}text") if not text.get("class")]
        labels = [(text.get("text-anchor"), text) for text in texts if re.match(r"[\d.-]", text.text or "")]
        self.left = [(_number(text), float(text.get("y", ""))) for anchor, text in labels if anchor == "end"]
        self.right = [(_number(text), float(text.get("y", ""))) for anchor, text in labels if anchor is None]
        self.below = [(_number(text), float(text.get("x", ""))) for anchor, text in labels if anchor == "middle"]
        area = next(self.svg.iter(f"{SVG}rect"))
        self.area = {name: float(area.get(name, "")) for name in ("x", "y", "width", "height")}
        self.dots = [dot for dot in self.svg.iter(f"{SVG}circle") if "ring" not in dot.get("class", "")]
        self.rings = [dot for dot in self.svg.iter(f"{SVG}circle") if "ring" in dot.get("class", "")]
        self.lines = {line.get("class", ""): _places(line) for line in self.svg.iter(f"{SVG}polyline")}

    def value(self, y: float) -> float:
        """Return the value at a height."""
        (low, bottom), (high, top) = self.left[0], self.left[-1]
        return low + (high - low) * (bottom - y) / (bottom - top)

    def step(self, x: float) -> float:
        """Return the step at a place; the axis begins with step 0."""
        last, end = self.below[-1]
        return last * (x - self.area["x"]) / (end - self.area["x"])

    def points(self) -> list[tuple[float, float]]:
        """Return the steps and values of the dots."""
        return [(self.step(float(d.get("cx", ""))), self.value(float(d.get("cy", "")))) for d in self.dots]


def _number(text: ElementTree.Element) -> float:
    number, _, letter = (text.text or "").partition(" ")
    return float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[letter]


def _places(line: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (place.split(",") for place in line.get("points", "").split())]


def draw(
    folder: Path, train: list[TrainMetrics], dev: list[DevMetrics], title: str = "a run"
) -> tuple[dict[str, Chart], Page]:
    """Write a page and parse it."""
    write_curve(folder / "curve.html", train, dev, title, [("Best BLEU", "27.3"), ("Time", "1:02:45")])
    html = (folder / "curve.html").read_text(encoding="utf-8")
    charts = [Chart(figure) for figure in re.findall("<figure>.*?</figure>", html, re.DOTALL)]
    return {chart.title: chart for chart in charts}, Page(html)


def descent(step: float) -> float:
    """Return a loss that falls as usual."""
    return 1.7 + 7 * math.exp(-step / 2500)


def usual_train(last: int = 100_000, noise: float = 0.0) -> list[TrainMetrics]:
    chance = random.Random(1)
    return [replace(TRAIN, step=s, plain=descent(s) + chance.gauss(0, noise)) for s in range(50, last + 1, 50)]


def usual_dev(last: int = 100_000) -> list[DevMetrics]:
    steps = range(5000, last + 1, 5000)
    return [replace(DEV, step=s, plain=descent(s) + 0.1, bleu=27 - 20 * descent(s) / 9, best=s < 60_000) for s in steps]


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path):
    _, page = draw(tmp_path, usual_train(), usual_dev())
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "onload", "onclick"}
    assert "script" not in page.texts
    assert {value for _, value in page.attributes if value and "//" in value} == {SVG.strip("{}")}
    (style,) = page.texts["style"]
    assert not re.search(r"@import|@font-face|url\(|//", style)
    assert "prefers-color-scheme: dark" in style
    assert ("name", "viewport") in page.attributes
    used = set(re.findall(r"var\((--\w+)\)", style))
    assert used <= set(re.findall(r"(--\w+):", style))
    assert [path.name for path in tmp_path.iterdir()] == ["curve.html"]


def test_the_summary_is_a_table_and_text_is_escaped(tmp_path: Path):
    title = "<b>en & de</b> \udcff"
    write_curve(tmp_path / "curve.html", [], [], title, [("</td><script>", 'a < b & "c"'), ("Time", "1:02")])
    page = Page((tmp_path / "curve.html").read_text(encoding="utf-8"))
    assert page.texts["title"] == page.texts["h1"] == ["<b>en & de</b> ?"]
    assert page.texts["th"] == ["</td><script>", "Time"]
    assert page.texts["td"] == ['a < b & "c"', "1:02"]
    assert page.texts["p"] == ["Nothing has been measured yet."]
    assert "script" not in page.texts


def test_a_signature_is_escaped_too(tmp_path: Path):
    _, page = draw(tmp_path, [], [replace(DEV, signature="<i>&")])
    assert any(text.endswith("<i>&") for text in page.texts["p"])


def test_the_charts_are_there_with_their_keys(tmp_path: Path):
    charts, page = draw(tmp_path, usual_train(), usual_dev())
    assert list(charts) == ["Loss", "BLEU", "Learning rate", "Tokens per second"]
    assert charts["Loss"].keys == [("train", "train"), ("dev", "dev")]
    assert charts["Learning rate"].keys == []
    assert charts["Learning rate"].left[0][0] == charts["Tokens per second"].left[0][0] == 0
    assert {"nats", "perplexity", "step"} <= set(page.texts["text"])
    assert "BLEU" not in draw(tmp_path, usual_train(), [replace(DEV, bleu=None)])[0]
    assert draw(tmp_path, usual_train(), [])[0]["Loss"].dots == []


def test_dots_lie_where_the_axes_say(tmp_path: Path):
    dev = usual_dev()
    charts, _ = draw(tmp_path, usual_train(), dev)
    for name, field, within in (("Loss", "plain", 0.01), ("BLEU", "bleu", 0.02)):
        points = charts[name].points()
        assert len(points) == len(dev)
        for (step, value), metrics in zip(points, dev):
            assert step == pytest.approx(metrics.step, abs=20)
            assert value == pytest.approx(getattr(metrics, field), abs=within)
    hovers = [dot.findtext(f"{SVG}title") for dot in charts["Loss"].dots]
    assert hovers[0] == "step 5,000: 2.747 nats, perplexity 15.60, BLEU 21.1 (best so far)"
    assert hovers[-1] == "step 100,000: 1.800 nats, perplexity 6.05, BLEU 23.2"


def test_perplexity_stands_at_its_loss(tmp_path: Path):
    narrow = [replace(TRAIN, step=s, plain=2 + s / 1000) for s in range(1, 101)]
    wide = [replace(TRAIN, step=s, plain=s * 0.4) for s in range(1, 101)]
    for train in (usual_train(), narrow, wide):
        chart = draw(tmp_path, train, [])[0]["Loss"]
        assert len(chart.right) >= 3
        assert all(before - after >= 12 for (_, before), (_, after) in pairwise(chart.right))
        for perplexity, y in chart.right:
            assert chart.value(y) == pytest.approx(math.log(perplexity), abs=0.015)


def test_the_best_is_marked(tmp_path: Path):
    charts, page = draw(tmp_path, usual_train(), usual_dev())
    (ring,) = charts["Loss"].rings
    assert charts["Loss"].step(float(ring.get("cx", ""))) == pytest.approx(55_000, abs=100)
    assert "best 1.800" in page.texts["text"]
    assert "best 23.2" in page.texts["text"]


def test_many_points_become_few_by_averaging(tmp_path: Path):
    train = [replace(TRAIN, step=s, plain=4 + (1 if s % 2 else -1)) for s in range(1, 8001)]
    chart = draw(tmp_path, train, [])[0]["Loss"]
    assert len(chart.lines["train"]) == 400
    assert {round(chart.value(y), 2) for _, y in chart.lines["train"]} == {4.0}
    assert chart.step(chart.lines["train"][0][0]) == pytest.approx(10.5, abs=10)
    assert chart.step(chart.lines["train"][-1][0]) == pytest.approx(7990.5, abs=10)


def test_only_a_noisy_line_is_smoothed(tmp_path: Path):
    calm = draw(tmp_path, usual_train(), [])[0]["Loss"]
    assert list(calm.lines) == ["train"]
    noisy = draw(tmp_path, usual_train(noise=0.5), [])[0]["Loss"]
    assert list(noisy.lines) == ["train rough", "train"]
    rough, smooth = ([noisy.value(y) for _, y in noisy.lines[name]] for name in ("train rough", "train"))
    true = [descent(noisy.step(x)) for x, _ in noisy.lines["train"]]
    off = [sum(abs(a - b) for a, b in zip(line[20:], true[20:])) for line in (rough, smooth)]
    assert off[1] < 0.5 * off[0]


@pytest.mark.parametrize("first", [1e3, 1e25, 1e308, math.inf, math.nan])
def test_huge_losses_do_not_flatten_the_rest(tmp_path: Path, first: float):
    train = [replace(m, plain=first) if m.step < 500 else m for m in usual_train()]
    dev = [replace(DEV, step=1, plain=first, best=False), *usual_dev()]
    charts, _ = draw(tmp_path, train, dev)
    chart = charts["Loss"]
    assert chart.left[0][0] <= 1.7
    assert chart.left[-1][0] < 8
    assert len(chart.points()) == len(dev) - 1
    assert all(-1000 < y < 1000 for line in chart.lines.values() for _, y in line)
    later = [chart.value(y) for x, y in chart.lines["train"] if chart.step(x) > 10_000]
    assert later == pytest.approx([descent(chart.step(x)) for x, _ in chart.lines["train"][-len(later) :]], abs=0.02)


def test_dev_losses_above_those_of_training_are_seen(tmp_path: Path):
    train = [replace(TRAIN, step=s, plain=0.05) for s in range(10, 1001, 10)]
    dev = [replace(DEV, step=s, plain=2 + s / 500, best=False) for s in range(100, 1001, 100)]
    chart = draw(tmp_path, train, dev)[0]["Loss"]
    assert len(chart.dots) == 10
    assert chart.left[-1][0] >= 4


def test_points_that_are_no_numbers_are_counted(tmp_path: Path):
    train = [replace(m, plain=math.nan) if m.step > 90_000 else m for m in usual_train()]
    charts, page = draw(tmp_path, train, [])
    assert any(text.endswith("200 of 2,000 points are not finite and are left out.") for text in page.texts["p"])
    assert charts["Loss"].step(charts["Loss"].lines["train"][-1][0]) == pytest.approx(90_000, abs=300)


@pytest.mark.parametrize("dev", [[], [replace(DEV, step=3)]])
@pytest.mark.parametrize("plain", [0.0, 3.0, 5000.0])
def test_a_single_point_is_seen(tmp_path: Path, dev: list[DevMetrics], plain: float):
    charts, _ = draw(tmp_path, [replace(TRAIN, step=3, plain=plain)], dev)
    for chart in charts.values():
        assert chart.dots
        for dot in chart.dots:
            assert chart.area["y"] <= float(dot.get("cy", "")) <= chart.area["y"] + chart.area["height"]
    assert (3.0, pytest.approx(plain, abs=20 if plain > 10 else 0.02)) in [
        (pytest.approx(step, abs=0.02), value) for step, value in charts["Loss"].points()
    ]


@pytest.mark.parametrize("before", [[], [95.0]])
def test_the_best_score_there_is_lies_within_the_axis(tmp_path: Path, before: list[float]):
    best = BLEU(effective_order=False).corpus_score(["one two three four five"], [["one two three four five"]]).score
    assert best > 100  # by a hair
    dev = [replace(DEV, step=step, bleu=bleu, best=True) for step, bleu in enumerate([*before, best], 1)]
    charts, page = draw(tmp_path, [], dev)
    assert charts["BLEU"].left[-1][0] == 100
    assert len(charts["BLEU"].dots) == len(dev)
    assert len(charts["BLEU"].rings) == 1
    assert "best 100.0" in page.texts["text"]


def test_averaged_weights_have_their_own_line(tmp_path: Path):
    dev = [replace(m, weights=w) for m in usual_dev() for w in ("current", "average")]
    chart = draw(tmp_path, usual_train(), dev)[0]["Loss"]
    assert chart.keys == [("train", "train"), ("dev", "dev"), ("average", "dev, averaged weights")]
    assert len(chart.lines["dev"]) == len(chart.lines["average"]) == 20
    assert len(chart.rings) == 2
    alone = draw(tmp_path, [], [replace(DEV, weights="average")])[0]["BLEU"]
    assert alone.keys == [("average", "dev, averaged weights")]


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=30),
    st.integers(1, 1000) | st.integers(1, 10**7),
)
def test_axes_are_round_and_hold_every_score(tmp_path_factory: pytest.TempPathFactory, scores: list[float], every: int):
    dev = [replace(DEV, step=(index + 1) * every, bleu=score) for index, score in enumerate(scores)]
    chart = draw(tmp_path_factory.mktemp("curve"), [], dev)[0]["BLEU"]
    ticks = [tick for tick, _ in chart.left]
    gaps = [after - before for before, after in pairwise(ticks)]
    assert 2 <= len(ticks) <= 8
    assert ticks[0] >= 0
    assert ticks[-1] <= 100
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-3)
    assert float(f"{gaps[0]:.3e}".split("e")[0]) in (1, 2, 5)
    assert len(chart.dots) == len(scores)
    span = ticks[-1] - ticks[0]
    for (step, score), metrics in zip(chart.points(), dev):
        assert score == pytest.approx(metrics.bleu, abs=span / 500)
        assert step == pytest.approx(metrics.step, abs=dev[-1].step / 500)
    assert all(tick == int(tick) for tick, _ in chart.below)
    assert chart.below[-1][1] <= chart.area["x"] + chart.area["width"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.3, 0.6, [0.3, 0.4, 0.5, 0.6]),
        (0.02, 0.07, [0.02, 0.03, 0.04, 0.05, 0.06, 0.07]),
        (12.1, 27.4, [10, 15, 20, 25, 30]),
        (0.0, 0.0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (5.0, 5.0, [2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_an_axis_ends_with_the_round_numbers_around_it(tmp_path: Path, low: float, high: float, ticks: list[float]):
    dev = [replace(DEV, step=1, bleu=low), replace(DEV, step=2, bleu=high)]
    assert [tick for tick, _ in draw(tmp_path, [], dev)[0]["BLEU"].left] == ticks
