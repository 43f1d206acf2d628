"""The verb `score`: reads the texts, measures, resamples, prints the scores and writes the files asked for."""

import json
import sys
from collections.abc import Iterator, Sequence

from transduce.disk import may_be_page
from transduce.errors import DataError, UsageError
from transduce.scoring.bleu import PACKAGES, TOKENIZER_OF, UNSPACED, choose_tokenizer, find_special
from transduce.scoring.findings import Score, ScoreJob, ScoreReport
from transduce.scoring.metrics import Measured, MetricSettings, check_metrics, measure
from transduce.scoring.paper import LANGUAGES
from transduce.scoring.perplexity import Measure
from transduce.scoring.report import write_report
from transduce.scoring.show import show_scores, to_dict, write_sentences
from transduce.scoring.significance import compare, find_interval, resample
from transduce.scoring.texts import STANDARD_INPUT, find_oddities, name_of, read_texts, read_trees, same_file
from transduce.text.corpus import find_language
from transduce.text.detect import name_language

DEFAULT_METRICS = ("bleu", "chrf", "ter", "exact", "paper")
OF_WORDS = ("ter", "paper")  # they count words with spaces between them


def score(job: ScoreJob, likelihood: Measure | None = None) -> ScoreReport:
    """Score systems; `likelihood` measures references (second argument) as translations of sources (first)."""
    settings, metrics = resolve(job)
    check_job(job, needs_source=likelihood is not None)
    check_metrics(metrics, settings)
    if job.comet:
        from transduce.scoring.comet import import_comet

        import_comet()
    if "parseval" in metrics:
        texts = read_trees(job.systems, job.references, job.leave_out)
    else:
        texts = read_texts(job.systems, job.references, job.source)
        settings, metrics = resolve(job, texts.first_references())  # whose script may say more than their name
    notes = _explain_choices(job, settings, metrics, texts.first_references())
    for note in (*notes, *find_oddities(texts, trees="parseval" in metrics)):
        print(f"note: {note}", file=sys.stderr)
    measured = measure(texts, metrics, settings, job.workers)
    if job.comet:
        from transduce.scoring.comet import measure_comet

        for of_system, found in zip(measured, measure_comet(texts, job.comet)):
            of_system.append(found)
    surprise = None
    if likelihood:
        assert texts.source is not None
        surprise = likelihood(texts.source, texts.first_references())
    return ScoreReport(job, settings, texts, compare_systems(measured, job.samples, job.seed), surprise)


def publish(report: ScoreReport) -> None:
    """Print the scores and write the files that were asked for."""
    job = report.job
    if job.json:
        print(json.dumps(to_dict(report), indent=2, ensure_ascii=False))
    else:
        # Sentences on standard output are for another program; the table must not be among them.
        show_scores(report, sys.stderr if job.sentences == STANDARD_INPUT else sys.stdout)
    if job.sentences:
        write_sentences(report, job.sentences)
    if job.report:
        write_report(report, job.report)


def resolve(job: ScoreJob, references: Sequence[str] = ()) -> tuple[MetricSettings, tuple[str, ...]]:
    """Return the settings and metrics, with the language, tokenizer and metrics chosen if they are not given."""
    language = job.language
    if language is None and (found := find_language(job.references[0])) and (found in LANGUAGES or find_special(found)):
        language = found
    special = find_special(language or "", references)
    tokenize = job.tokenize or choose_tokenizer(language or "", references)
    metrics = tuple(dict.fromkeys(job.metrics))
    if not metrics:
        metrics = tuple(name for name in DEFAULT_METRICS if name != "paper" or language in LANGUAGES)
        metrics = tuple(name for name in metrics if name not in OF_WORDS or special not in UNSPACED)
    return MetricSettings(tokenize, job.lowercase, language), metrics


def check_job(job: ScoreJob, *, needs_source: bool) -> None:
    """Refuse requests that cannot be met, before any work is done."""
    if job.samples < 0 or job.seed < 0 or job.examples < 0:
        raise UsageError("--samples, --seed and --examples must be whole numbers, 0 or more")
    if job.workers is not None and job.workers < 1:
        raise UsageError(f"--workers {job.workers} is not positive")
    if "parseval" in job.metrics and (len(job.metrics) > 1 or job.source or job.comet or needs_source):
        raise UsageError(
            "parseval scores trees, which have no other score; leave out --source, --model and other metrics"
        )
    if "parseval" in job.metrics and (job.lowercase or job.tokenize or job.language):
        raise UsageError("parseval compares brackets, not words; leave out --lowercase, --tokenize and --language")
    if job.leave_out and "parseval" not in job.metrics:
        raise UsageError("--leave-out is for trees; give --metrics parseval")
    for flag, wanted in (("--comet", bool(job.comet)), ("--model", needs_source)):
        if wanted and job.source is None:
            raise UsageError(f"{flag} reads the source sentences as well; give --source FILE")
    if job.json and job.sentences == STANDARD_INPUT:
        raise UsageError("--json and --sentences - both write to standard output; give --sentences a file")
    read = [path for path in (*job.systems, *job.references, job.source) if path]
    for flag, path in (("--sentences", job.sentences), ("--report", job.report)):
        if path is None or (flag == "--sentences" and path == STANDARD_INPUT):
            continue
        if path == STANDARD_INPUT:
            raise UsageError("--report cannot write to standard output; name a file, such as report.html")
        if any(same_file(path, other) for other in read):
            raise UsageError(f"{flag} {path} would overwrite an input file; choose another name")
        if path.is_dir():
            raise UsageError(f"{flag} {path} is a folder; name a file in it")
        if flag == "--report" and not may_be_page(path):
            raise DataError(f"{path}: already exists and is not a page; choose another name for {flag}")
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: already exists and is not a regular file; choose another name for {flag}")
        if not path.parent.is_dir():
            raise DataError(f"{path}: its folder does not exist; create it, or choose another name for {flag}")


def compare_systems(measured: list[list[Measured]], samples: int, seed: int) -> list[list[Score]]:
    """Resample all results with the same draws, and compare each system with the first."""
    if not samples:
        return [[Score(found) for found in of_system] for of_system in measured]
    all_scores = iter(resample([found for of_system in measured for found in of_system], samples, seed))
    resampled = [[next(all_scores) for _ in of_system] for of_system in measured]
    firsts = list(zip(measured[0], resampled[0]))
    return [
        [
            Score(found, find_interval(some), compare(first.value, found.value, of_first, some) if number else None)
            for (first, of_first), found, some in zip(firsts, measured[number], resampled[number])
        ]
        for number in range(len(measured))
    ]


def _explain_choices(
    job: ScoreJob, settings: MetricSettings, metrics: tuple[str, ...], references: Sequence[str]
) -> Iterator[str]:
    """Say which tokenizer is missing, and why metrics are left out of the default ones, if any are."""
    special = find_special(settings.language or "", references)
    wanted = TOKENIZER_OF.get(special or "", settings.tokenize)
    if "bleu" in metrics and not job.tokenize and settings.tokenize != wanted:
        yield (
            f"sacreBLEU's tokenizer for {name_language(special or '')}, {wanted}, is not installed, so BLEU takes "
            f"{settings.tokenize}; for the usual scores: pip install '{PACKAGES[wanted]}'"
        )
    if job.metrics or "parseval" in metrics or "paper" in metrics:
        return
    if "ter" not in metrics:
        yield (
            "TER and the paper's BLEU are left out: they count words with spaces between them, and "
            f"{name_language(special or '')} is written without; --metrics names them all the same"
        )
        return
    why = (
        f"Moses does not know the language {settings.language}"
        if settings.language
        else f"{name_of(job.references[0])} does not name a language that Moses knows; --language de would"
    )
    yield f"the paper's BLEU is left out: {why}"
