"""The arguments of `transduce serve`."""

from pathlib import Path

from transduce.doors.arguments import add_engine, check_chosen, check_positive
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings


def serve(parser: Parser, argv: list[str]) -> None:
    """Load models and answer requests until asked to stop."""
    from transduce.serving.options import ServeConfig

    parser.add_argument(
        "names", metavar="RUN", nargs="*", help="runs, checkpoints or models; en-de=RUN gives a model's languages"
    )
    parser.add_argument(
        "--to",
        metavar="LANGUAGE",
        nargs="+",
        action="extend",
        default=[],
        help="also serve models from `transduce models` that translate into these",
    )
    parser.add_argument("--from", metavar="LANGUAGE", dest="source", help="source language, if several models fit --to")
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="terms and their translations, as for translate; en-de=FILE if several language pairs are served",
    )
    parser.add_argument(
        "--api-keys", metavar="FILE", help="file of API keys, one to a line; requests without one are refused"
    )
    parser.add_argument("--open", action="store_true", help="allow other machines without API keys")
    add_engine(parser)
    add_settings(parser, ServeConfig)
    given, flags = parser.parse(argv)
    check_positive(given.threads, "--threads")
    check_chosen(given)

    from transduce import strict
    from transduce.decoding.shelf import find_direction

    config = strict.apply(ServeConfig(), flags, "command line")
    try:
        from transduce.serving.run import ServeJob
        from transduce.serving.run import serve as answer
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("transduce"):
            raise
        raise UsageError(f"{error.name} is not installed; run: pip install 'transduce[serve]'") from None

    answer(
        ServeJob(
            models=[*given.names, *(find_direction(target, given.source) for target in given.to)],
            config=config,
            glossaries=given.glossary,
            api_keys=Path(given.api_keys) if given.api_keys else None,
            open=given.open,
            device=given.device,
            precision=given.precision,
            threads=given.threads,
            engine=given.engine,
        )
    )
