"""Scores as one HTML page: the scores, their distribution, and the best and worst sentences with their differences.

It loads nothing from elsewhere and is complete without scripts; a short one lets a reader search and sort.
"""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from transduce.disk import replace_file
from transduce.scoring.charts import COLOURS, draw_lengths, draw_spread
from transduce.scoring.differences import Piece, closest, compare_words, cut_words
from transduce.scoring.findings import Score, ScoreReport
from transduce.scoring.metrics import Measured, explain
from transduce.scoring.show import describe_test_set, format_p

# The first of these that was measured orders the sentences: those that say most about one sentence come first.
ORDERS = ("f1", "comet", "chrf", "chrf++", "bleu", "ter", "exact")
SIGNIFICANT = 0.05

STYLE = """
:root { --back: #fff; --card: #f7f8fa; --text: #1c2430; --quiet: #66707e; --grid: #e3e7ec; --other: #b4480a;
  --other-back: #ffe9d9; --missing: #1f5fc4; --missing-back: #e0ecff; --good: #1d7a4a; --bad: #b3261e;
  --0: #2f6fdb; --1: #d9730d; --2: #2a8f5b; --3: #8e5bd0; --4: #b5892a; --5: #c2407a; }
@media (prefers-color-scheme: dark) { :root { --back: #14171c; --card: #1b2027; --text: #e4e8ee; --quiet: #949eac;
  --grid: #2d343f; --other: #ffb27a; --other-back: #43280f; --missing: #9cc2ff; --missing-back: #14305c;
  --good: #62cf97; --bad: #ff8f85; --0: #74a9ff; --1: #ffab57; --2: #62cf97; --3: #bf9bf5; --4: #e0bd62;
  --5: #f083b0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 20px 64px; max-width: 1000px; background: var(--back); color: var(--text);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 24px; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 4px; }
p { margin: 4px 0 12px; color: var(--quiet); overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 20px; }
th, td { padding: 9px 0 9px 20px; border-bottom: 1px solid var(--grid); vertical-align: top; text-align: right; }
th:first-child { padding-left: 0; text-align: left; font-weight: normal; }
thead th { color: var(--quiet); font-weight: normal; font-size: 13px; overflow-wrap: anywhere; min-width: 90px; }
th b { font-weight: 600; }
td { white-space: nowrap; font-variant-numeric: tabular-nums; }
.value { font-size: 20px; font-weight: 600; line-height: 1.3; }
small { display: block; color: var(--quiet); font-size: 12.5px; }
code { font: 11.5px/1.4 ui-monospace, monospace; color: var(--quiet); overflow-wrap: anywhere; }
.better { color: var(--good); } .worse { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 8px 36px; }
figure { margin: 24px 0 0; }
figcaption { font-weight: 600; margin-bottom: 8px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); }
polygon, svg rect { fill: var(--colour); } polygon { fill-opacity: .85; }
polyline { fill: none; stroke: var(--colour); stroke-width: 2; stroke-linejoin: round; }
svg .touch { fill: transparent; }
.keys { margin: 28px 0 -12px; }
.key { white-space: nowrap; margin-right: 16px; }
.key::before { content: ""; display: inline-block; width: 11px; height: 11px; margin-right: 6px; border-radius: 2px;
  background: var(--colour); }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 36px 0 12px; padding-top: 16px;
  border-top: 1px solid var(--grid); }
a { color: var(--0); text-underline-offset: 3px; }
.tools { display: none; flex-wrap: wrap; gap: 8px; margin: 12px 0; align-items: center; }
.script .tools { display: flex; }
input, select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--grid);
  border-radius: 6px; padding: 5px 10px; min-width: 0; }
input { flex: 1 1 220px; }
article { background: var(--card); border-radius: 10px; padding: 12px 16px 14px; margin-top: 12px; }
article[hidden] { display: none; }
article header { display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--quiet); font-size: 13px;
  margin-bottom: 6px; font-variant-numeric: tabular-nums; }
header b { color: var(--text); }
dl { display: grid; grid-template-columns: minmax(72px, max-content) 1fr; gap: 4px 16px; margin: 0; }
dt { color: var(--quiet); font-size: 13px; line-height: 23px; max-width: 170px; overflow-wrap: anywhere; }
dt[class] { color: var(--colour); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
dd small { display: inline; margin-left: 6px; white-space: nowrap; }
mark { color: var(--other); background: var(--other-back); border-radius: 3px; padding: 0 1px;
  text-decoration: underline; text-decoration-thickness: 1.5px; text-underline-offset: 3px; }
mark.missing { color: var(--missing); background: var(--missing-back); }
mark.moved { color: inherit; background: none; text-decoration: underline dotted var(--quiet); }
.nothing { color: var(--quiet); font-style: italic; }
@media (max-width: 560px) { dl { grid-template-columns: 1fr; gap: 0; } dt { margin-top: 4px; max-width: none; }
  svg text { font-size: 14px; } }
"""

SCRIPT = """
document.documentElement.classList.add("script");
const find = document.getElementById("find"), order = document.getElementById("order");
const lists = [...document.querySelectorAll(".list")];
function arrange() {
  const words = find.value.toLowerCase();
  for (const list of lists) {
    const all = [...list.children];
    all.sort((one, other) => one.dataset[order.value] - other.dataset[order.value]);
    for (const one of all) { one.hidden = !one.textContent.toLowerCase().includes(words); list.append(one); }
  }
}
find.addEventListener("input", arrange);
order.addEventListener("change", arrange);
"""


def write_report(report: ScoreReport, path: Path) -> None:
    """Write the page in one step."""
    replace_file(path, make_page(report).encode("utf-8", "replace"))  # the name of a file need not be Unicode


def make_page(report: ScoreReport) -> str:
    """Return the page as HTML."""
    names = [system.name for system in report.texts.systems]
    title = "Scores of " + (names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1])
    colours = "".join(f".system-{number} {{ --colour: var(--{number}); }}\n" for number in range(COLOURS))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{STYLE}{colours}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{escape(describe_test_set(report))}</p>
{_scores(report, names)}
{_charts(report, names)}
{_sentences(report, names)}
<script>{SCRIPT}</script>
</body>
</html>
"""


def _scores(report: ScoreReport, names: Sequence[str]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = [f"<thead><tr><th></th>{heads}</tr></thead>"] if len(names) > 1 else []
    for scores in zip(*report.scores):
        first: Score = scores[0]
        what = f"{explain(first.name, report.settings)}<br><code>{escape(first.signature)}</code>"
        cells = "".join(f"<td>{_cell(some)}</td>" for some in scores)
        rows.append(f"<tr><th><b>{escape(first.measured.title)}</b><small>{what}</small></th>{cells}</tr>")
    if report.likelihood:
        what = f"of the references under the model, per subword token: {report.likelihood.nats:.3f} nats"
        value = f'<td colspan="{len(names)}"><span class="value">{report.likelihood.perplexity:,.2f}</span></td>'
        rows.append(f"<tr><th><b>perplexity</b><small>{what}</small></th>{value}</tr>")
    note = ""
    if report.job.samples:
        note = f"± is the 95 % interval over {report.job.samples:,} resamples of the sentences."
        if len(names) > 1:
            note += f" Differences are from {names[0]}; p is from a two-sided paired bootstrap test."
    return f'<div class="wide"><table>{"".join(rows)}</table></div>\n<p><small>{escape(note)}</small></p>'


def _cell(score: Score) -> str:
    decimals = score.measured.decimals
    cell = f'<span class="value">{score.value:.{decimals}f}</span>'
    if score.confidence:
        cell += f"<small>± {score.confidence.half:.{decimals}f}</small>"
    if score.comparison:
        found = score.comparison
        kind = ""
        if found.p_value < SIGNIFICANT:
            kind = ' class="better"' if found.difference * score.measured.sign > 0 else ' class="worse"'
        difference = f"{found.difference:+.{decimals}f}".replace("-", "−")
        cell += f"<span{kind}>{difference}</span>"
        p_value = format_p(found.p_value)
        cell += f"<small>p {escape(p_value if p_value.startswith('<') else f'= {p_value}')}</small>"
    return cell


def _ordering(report: ScoreReport) -> int | None:
    """Return the index of the metric that orders the sentences, if there is one."""
    names = [some.name for some in report.scores[0]]
    return next((names.index(name) for name in ORDERS if name in names), None)


def _lengths(report: ScoreReport) -> tuple[np.ndarray, str]:
    source = report.texts.source
    lines = report.texts.first_references() if source is None else source
    return np.array([len(cut_words(line)) for line in lines]), "reference" if source is None else "source"


def _charts(report: ScoreReport, names: Sequence[str]) -> str:
    keys = "".join(f'<span class="key system-{n % COLOURS}">{escape(name)}</span>' for n, name in enumerate(names))
    lengths, side = _lengths(report)
    by_length = [scores[0].measured for scores in report.scores]
    figures = [(f"{by_length[0].title} by length", draw_lengths(names, by_length, lengths, side))]
    ordering = _ordering(report)
    if ordering is not None:
        found = [scores[ordering].measured for scores in report.scores]
        figures.insert(0, (f"Sentences by {found[0].title}", draw_spread(names, found)))
    drawn = "".join(f"<figure><figcaption>{title}</figcaption>\n{svg}</figure>\n" for title, svg in figures if svg)
    return (f'<p class="keys">{keys}</p>\n' if len(names) > 1 else "") + f'<div class="charts">\n{drawn}</div>'


def _sentences(report: ScoreReport, names: Sequence[str]) -> str:
    ordering = _ordering(report)
    if ordering is None or not report.job.examples:
        return ""
    found = [scores[ordering].measured for scores in report.scores]
    lists = list(_lists(found, names, _lengths(report)[0], report.job.examples))
    links = "".join(f'<a href="#list-{n}">{escape(title)}</a>' for n, (title, _, _) in enumerate(lists))
    parts = [
        f"<nav>{links}</nav>",
        "<p>In a translation, <mark>words that the reference does not have</mark>; in the reference, "
        '<mark class="missing">words that no translation has</mark>; '
        '<mark class="moved">words that are elsewhere</mark> in the other.</p>',
        '<div class="tools"><input id="find" type="search" placeholder="Find in these sentences" aria-label="Find">'
        '<select id="order" aria-label="Order"><option value="rank">in order of score</option>'
        '<option value="line">in order of the file</option><option value="words">shortest first</option></select>'
        "</div>",
    ]
    for number, (title, note, lines) in enumerate(lists):
        articles = "".join(_article(report, line, rank) for rank, line in enumerate(lines))
        parts.append(f'<h2 id="list-{number}">{escape(title)}</h2>\n<p>{escape(note)}</p>')
        parts.append(f'<div class="list">{articles}</div>')
    return "\n".join(parts)


def _lists(
    found: Sequence[Measured], names: Sequence[str], lengths: np.ndarray, most: int
) -> Iterator[tuple[str, str, list[int]]]:
    """Yield a title, a note and the lines of each list of sentences; among equal scores the longest come first."""
    quality = [some.sign * some.sentences for some in found if some.sentences is not None]
    of_first = f" of {names[0]}" if len(names) > 1 else ""
    worst = np.lexsort((-lengths, quality[0]))[:most].tolist()
    if len(worst) == len(lengths):
        yield f"All{of_first}", f"by {found[0].title}, the worst first", worst
    else:
        yield f"Worst{of_first}", f"by {found[0].title}", worst
        yield f"Best{of_first}", f"by {found[0].title}", np.lexsort((-lengths, -quality[0]))[:most].tolist()
    for name, other in zip(names[1:], quality[1:]):
        gain = other - quality[0]
        for title, moved in ((f"Where {name} is better", gain), (f"Where {name} is worse", -gain)):
            lines = np.lexsort((-lengths, -moved))[:most]
            share = (
                f"{int((moved > 0).sum()):,} of {len(gain):,} sentences, by {found[0].title}; largest difference first"
            )
            yield title, share, lines[moved[lines] > 0].tolist()


def _article(report: ScoreReport, line: int, rank: int) -> str:
    texts = report.texts
    references = list(dict.fromkeys(texts.references_of(line)))
    first = texts.systems[0].lines[line]
    compared = references[closest(first, references)]
    rows: list[str] = []
    if texts.source is not None:
        rows.append(_row("source", escape(texts.source[line])))
    for reference in references:
        pieces = compare_words(reference, *(system.lines[line] for system in texts.systems))
        rows.append(_row("reference", _mark(pieces, "missing") if reference == compared else escape(reference)))
    for number, (system, scores) in enumerate(zip(texts.systems, report.scores)):
        marked = _mark(compare_words(system.lines[line], compared), "") or '<span class="nothing">nothing</span>'
        if len(texts.systems) > 1:
            rows.append(_row(system.name, f"{marked} <small>{_single_scores(scores, line)}</small>", number))
        else:
            rows.append(_row("translation", marked))
    head = f"<b>line {line + 1:,}</b>"
    if len(texts.systems) == 1:
        head += f"<span>{_single_scores(report.scores[0], line)}</span>"
    if report.likelihood:
        tokens = max(1, int(report.likelihood.tokens[line]))
        nats = -float(report.likelihood.log_probabilities[line]) / tokens
        head += f"<span>reference {nats:.2f} nats per subword</span>"
    place = f'data-rank="{rank}" data-line="{line + 1}" data-words="{len(cut_words(compared))}"'
    return f"<article {place}><header>{head}</header><dl>{''.join(rows)}</dl></article>\n"


def _row(label: str, text: str, system: int | None = None) -> str:
    colour = "" if system is None else f' class="system-{system % COLOURS}"'
    return f'<dt{colour}>{escape(label)}</dt><dd dir="auto">{text}</dd>'


def _mark(pieces: Sequence[Piece], kind: str) -> str:
    """Mark the words that the other sentence has elsewhere, and those that it lacks."""
    classes = {"moved": ' class="moved"', "other": f' class="{kind}"' if kind else ""}
    return "".join(
        escape(piece.text) if piece.kind == "same" else f"<mark{classes[piece.kind]}>{escape(piece.text)}</mark>"
        for piece in pieces
    )


def _single_scores(scores: Sequence[Score], line: int) -> str:
    """Return the scores of one sentence as text."""
    found = [some.measured for some in scores if some.measured.sentences is not None and some.name != "exact"]
    return " · ".join(f"{some.title} {_of_line(some, line)}" for some in found)


def _of_line(measured: Measured, line: int) -> str:
    assert measured.sentences is not None
    return f"{measured.sentences[line]:.{measured.decimals - 1}f}"
