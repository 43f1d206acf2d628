"""The arguments of `transduce score`."""

from pathlib import Path
from typing import Any

from transduce.doors.arguments import check_positive
from transduce.flags import Parser


def score(parser: Parser, argv: list[str]) -> None:
    """Score systems, print the scores and write the requested files."""

    def several(flag: str, name: str, text: str, **more: Any) -> None:
        parser.add_argument(flag, metavar=name, nargs="+", action="extend", help=text, **more)

    parser.add_argument(
        "systems",
        metavar="HYP",
        nargs="+",
        help="translations, one to a line; further files are compared with the first; - is standard input",
    )
    several("--reference", "REF", "reference translations, one file or several", required=True)
    parser.add_argument("--source", metavar="SRC", help="source sentences, for the report, --comet and --model")
    several(
        "--metrics",
        "NAME",
        "any of bleu chrf chrf++ ter exact paper (default: all but chrf++), or parseval for trees",
        default=[],
    )
    several("--leave-out", "TREES", "parseval: leave out sentences that are in these trees", default=[])
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="language of the references, for the paper's BLEU and the tokenizer (default: the ending of REF's name)",
    )
    parser.add_argument(
        "--tokenize",
        metavar="NAME",
        help="sacreBLEU tokenizer (default 13a; others for Chinese, Japanese, Korean and scripts without spaces)",
    )
    parser.add_argument("--lowercase", action="store_true", help="compare in lower case")
    parser.add_argument(
        "--sentences", metavar="FILE", help="write each sentence's scores as JSON lines; - is standard output"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page with the best and worst sentences")
    parser.add_argument(
        "--examples", metavar="N", type=int, default=20, help="sentences in each list of the report (default 20)"
    )
    parser.add_argument(
        "--samples",
        metavar="N",
        type=int,
        default=1000,
        help="resamples for intervals and p-values; 0: none (default 1000)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=12345, help="seed of the resamples (default: sacreBLEU's 12345)"
    )
    parser.add_argument(
        "--comet", metavar="MODEL", help="also score with this COMET model, such as Unbabel/wmt22-comet-da"
    )
    parser.add_argument("--model", metavar="RUN", help="also measure the references' perplexity with this run or model")
    parser.add_argument("--workers", metavar="N", type=int, help="processes (default: as many as are useful)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)
    check_positive(given.workers, "--workers")

    from transduce.scoring.score import ScoreJob, publish, score

    measure = None
    if given.model:
        from transduce.scoring.perplexity import measure_with

        measure = measure_with(Path(given.model))
    job = ScoreJob(
        systems=tuple(map(Path, given.systems)),
        references=tuple(map(Path, given.reference)),
        source=Path(given.source) if given.source else None,
        metrics=tuple(given.metrics),
        language=given.language,
        tokenize=given.tokenize,
        lowercase=given.lowercase,
        samples=given.samples,
        seed=given.seed,
        comet=given.comet,
        sentences=Path(given.sentences) if given.sentences else None,
        report=Path(given.report) if given.report else None,
        examples=given.examples,
        workers=given.workers,
        json=given.json,
        leave_out=tuple(map(Path, given.leave_out)),
    )
    publish(score(job, measure))
