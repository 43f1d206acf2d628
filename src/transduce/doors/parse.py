"""The arguments of `transduce parse`."""

from pathlib import Path

from transduce.decoding.options import ParseOptions
from transduce.doors.arguments import add_engine, check_positive
from transduce.flags import Parser, add_settings
from transduce.presets import PRESETS


def parse(parser: Parser, argv: list[str]) -> None:
    """Load the model and parse lines."""
    parser.add_argument("models", metavar="RUN", nargs="+", help="run, checkpoint or model; several form an ensemble")
    parser.add_argument("--input", metavar="FILE", help="sentences, one to a line (default standard input)")
    parser.add_argument(
        "--trees",
        metavar="FILE",
        help="parse the words of these trees instead, so that the output can be scored against them",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="file to write; if the job is killed, the same command resumes it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: words, tree, scores, alternatives")
    parser.add_argument("--draw", action="store_true", help="draw the trees as text")
    parser.add_argument("--svg", metavar="FILE", help="also draw them, up to 200, as a picture")
    add_engine(parser)
    add_settings(parser, PRESETS["parsing"].config.search)
    add_settings(parser, ParseOptions)
    given, flags = parser.parse(argv)
    check_positive(given.threads, "--threads")

    from transduce.decoding.parse import ParseJob, run_parse

    run_parse(
        ParseJob(
            models=[Path(model) for model in given.models],
            input=_file(given.input),
            trees=Path(given.trees) if given.trees else None,
            out=_file(given.out),
            json=given.json,
            draw=given.draw,
            svg=Path(given.svg) if given.svg else None,
            device=given.device,
            precision=given.precision,
            threads=given.threads,
            engine=given.engine,
            settings=flags,
        )
    )


def _file(name: str | None) -> Path | None:
    return None if name in (None, "-") else Path(name)
