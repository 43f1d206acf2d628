"""Show scores as a table in a terminal, aligned text in a pipe or JSON, and all sentences as JSON lines."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from transduce.disk import replace_file
from transduce.scoring.findings import Score, ScoreReport
from transduce.scoring.metrics import explain
from transduce.scoring.perplexity import Likelihood
from transduce.scoring.texts import STANDARD_INPUT


def show_scores(report: ScoreReport, stream: TextIO) -> None:
    """Print the scores, then what each of them means."""
    rows = list(_rows(report))
    print(f"{', '.join(system.name for system in report.texts.systems)}: {describe_test_set(report)}", file=stream)
    if stream.isatty():
        _print_rich(rows, stream)
    else:
        print("\n".join(_aligned(rows)), file=stream)
    if report.likelihood:
        print(f"perplexity of the references: {describe_likelihood(report.likelihood)}", file=stream)
    print(file=stream)
    width = max(len(some.measured.title) for some in report.scores[0])
    for some in report.scores[0]:
        print(f"{some.measured.title:{width}}  {some.signature}", file=stream)
        print(f"{'':{width}}  {explain(some.name, report.settings)}", file=stream)
    if report.job.samples:
        paired = "; p: two-sided paired bootstrap" if len(report.scores) > 1 else ""
        seed = f"{report.job.samples:,} resamples of the sentences, seed {report.job.seed}"
        print(f"{'± 95 %':{width}}  {seed}{paired}", file=stream)


def describe_test_set(report: ScoreReport) -> str:
    """Say how much was scored, against what."""
    number = len(report.texts.references)
    against = f"{number} references" if number > 1 else "1 reference"
    return f"{report.texts.sentences:,} sentences, {against} ({report.reference_names})"


def describe_likelihood(likelihood: Likelihood) -> str:
    """Return the perplexity, with the nats and subwords behind it."""
    nats, tokens = likelihood.nats, sum(likelihood.tokens)
    return f"{likelihood.perplexity:,.2f} per subword ({nats:.3f} nats, {tokens:,} subwords)"


def format_p(p_value: float) -> str:
    """Return a p-value to three decimals."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def to_dict(report: ScoreReport) -> dict[str, Any]:
    """Return all scores as a dictionary for JSON."""
    found: dict[str, Any] = {
        "sentences": report.texts.sentences,
        "references": [str(path) for path in report.job.references],
        "language": report.settings.language,
        "samples": report.job.samples,
        "seed": report.job.seed,
        "systems": [
            {"name": system.name, "scores": {some.name: _score_as_dict(some) for some in scores}}
            for system, scores in zip(report.texts.systems, report.scores)
        ],
    }
    if report.likelihood:
        perplexity = report.likelihood.perplexity
        found["references_under_the_model"] = {
            "perplexity": perplexity if math.isfinite(perplexity) else None,
            "nats": report.likelihood.nats,
            "tokens": sum(report.likelihood.tokens),
        }
    return found


def write_sentences(report: ScoreReport, path: Path) -> None:
    """Write a JSON object for each sentence of each system, one to a line."""
    lines = (json.dumps(some, ensure_ascii=False) + "\n" for some in _sentences(report))
    if path == STANDARD_INPUT:  # the same hyphen means standard output here
        sys.stdout.writelines(lines)
    else:
        replace_file(path, "".join(lines).encode())


def _score_as_dict(score: Score) -> dict[str, Any]:
    found: dict[str, Any] = {"value": score.value, "signature": score.signature}
    if score.confidence:
        found |= {"mean": score.confidence.mean, "half_of_95_percent": score.confidence.half}
    if score.comparison:
        found |= {
            "difference": score.comparison.difference,
            "difference_95_percent": [score.comparison.low, score.comparison.high],
            "p_value": score.comparison.p_value,
        }
    return found


def _sentences(report: ScoreReport) -> Iterator[dict[str, Any]]:
    texts, likelihood = report.texts, report.likelihood
    for line in range(texts.sentences):
        for system, scores in zip(texts.systems, report.scores):
            found: dict[str, Any] = {"line": line + 1, "system": system.name}
            for some in scores:
                if some.measured.sentences is not None:
                    value = float(some.measured.sentences[line])
                    found[some.name] = value > 0 if some.name == "exact" else round(value, 4)
            if texts.source is not None:
                found["source"] = texts.source[line]
            found |= {"references": texts.references_of(line), "translation": system.lines[line]}
            if likelihood:
                found["reference_log_probability"] = round(float(likelihood.log_probabilities[line]), 4)
                found["reference_tokens"] = int(likelihood.tokens[line])
            yield found


def _rows(report: ScoreReport) -> Iterator[tuple[str, ...]]:
    """Yield the table: a header, then a row for each score of each system; some columns only if they have values."""
    several, sampled = len(report.scores) > 1, report.job.samples > 0
    header = ("score", "system" if several else "", "value", "mean ± 95 %" if sampled else "")
    yield (*header, *(("difference", "95 % of it", "p") if several and sampled else ()))
    for number, first in enumerate(report.scores[0]):
        for system, scores in zip(report.texts.systems, report.scores):
            yield _row(first.measured.title, system.name if several else "", scores[number])


def _row(title: str, system: str, score: Score) -> tuple[str, ...]:
    decimals = score.measured.decimals
    cells = [title, system, f"{score.value:.{decimals}f}"]
    if score.confidence:
        cells.append(f"{score.confidence.mean:.{decimals}f} ± {score.confidence.half:.{decimals}f}")
    if score.comparison:
        found = score.comparison
        cells.append(f"{found.difference:+.{decimals}f}")
        cells.append(f"{found.low:+.{decimals}f} to {found.high:+.{decimals}f}")
        cells.append(format_p(found.p_value))
    return tuple(cells)


def _columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    width = max(map(len, rows))
    columns = [[row[place] if place < len(row) else "" for row in rows] for place in range(width)]
    return [column for column in columns if any(column)]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines with the names of scores and systems flush left and numbers flush right."""
    padded: list[list[str]] = []
    for column in _columns(rows):
        width = max(map(len, column))
        left = column[0] in ("score", "system")
        padded.append([cell.ljust(width) if left else cell.rjust(width) for cell in column])
    for line in zip(*padded):
        yield "  ".join(line).rstrip()


def _print_rich(rows: Sequence[Sequence[str]], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = _columns(rows)
    table = Table(box=None, pad_edge=False)
    console = Console(file=stream, markup=False, highlight=False)
    # Lines may be longer than a narrow terminal is wide; rich would cut numbers short.
    console.width = max(console.width, sum(max(map(len, column)) + 2 for column in columns))
    for column in columns:
        style = "bold" if column[0] == "value" else ""
        left = column[0] in ("score", "system")
        table.add_column(column[0], justify="left" if left else "right", style=style, no_wrap=True)
    for line in list(zip(*columns))[1:]:
        table.add_row(*line)
    console.print(table)
