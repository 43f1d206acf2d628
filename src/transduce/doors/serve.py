"""The arguments of `transduce serve`."""

from pathlib import Path

from transduce.doors.arguments import add_engine, check_chosen, check_positive
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings


def serve(parser: Parser, argv: list[str]) -> None:
    """Load models and answer requests until asked to stop."""
    from transduce.serving.options import ServeConfig

    parser.add_argument(
        "names", metavar="RUN", nargs="*", help="runs, checkpoints or models; en-de=RUN says the languages of one"
    )
    parser.add_argument(
        "--to",
        metavar="LANGUAGE",
        nargs="+",
        action="extend",
        default=[],
        help="also models of `transduce models` that translate into these",
    )
    parser.add_argument("--from", metavar="LANGUAGE", dest="source", help="from this language, where several can be")
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="terms with their translations, as for translate; en-de=FILE where several pairs of languages are served",
    )
    parser.add_argument("--api-keys", metavar="FILE", help="file of API keys, one to a line; who has none is refused")
    parser.add_argument("--open", action="store_true", help="let others in without a key")
    add_engine(parser)
    add_settings(parser, ServeConfig)
    given, flags = parser.parse(argv)
    check_positive(given.threads, "--threads")
    check_chosen(given)

    from transduce import strict
    from transduce.decoding.shelf import find_pair

    config = strict.apply(ServeConfig(), flags, "command line")
    try:
        from transduce.serving.run import ServeJob
        from transduce.serving.run import serve as answer
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("transduce"):
            raise
        raise UsageError(f"{error.name} is not installed; `pip install 'transduce[serve]'` brings it") from None

    answer(
        ServeJob(
            models=[*given.names, *(find_pair(target, given.source) for target in given.to)],
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
