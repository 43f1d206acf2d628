"""The arguments of `transduce show` and `transduce heads`."""

from pathlib import Path

from transduce.errors import UsageError
from transduce.flags import Parser, add_settings


def show(parser: Parser, argv: list[str]) -> None:
    """Look at one sentence, on a page, in a picture or as JSON."""
    from transduce.config import SearchConfig
    from transduce.seeing.options import PictureConfig

    parser.add_argument("model", metavar="RUN", nargs="?", help="run, checkpoint or model; not with --to")
    parser.add_argument("sentence", metavar="SENTENCE", help="sentence to translate and look at")
    parser.add_argument(
        "--to", metavar="LANGUAGE", help="use a model from `transduce models` that translates into this language"
    )
    parser.add_argument("--from", metavar="LANGUAGE", dest="source", help="source language, if several models fit --to")
    parser.add_argument("--target", metavar="TEXT", help="look at this translation instead of searching for one")
    parser.add_argument(
        "--out", metavar="FILE", help="page to write (default attention.html, unless --svg or --json is given)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--svg", metavar="FILE", help="write a picture for a paper; --kind, --layer and --head choose what it shows"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON (docs/seeing.md)")
    parser.add_argument(
        "--roles",
        metavar="FILE",
        help="page or JSON written by transduce heads, to choose heads on the page by their role",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    add_settings(parser, PictureConfig)
    add_settings(parser, SearchConfig)
    given, flags = parser.parse(argv)

    if bool(given.to) == bool(given.model):
        raise UsageError("give a RUN and a sentence, or --to LANGUAGE and a sentence")

    from transduce import strict
    from transduce.decoding.shelf import find_direction

    own = {key: flags.pop(key) for key in list(flags) if key in strict.to_dict(PictureConfig())}
    picture = strict.apply(PictureConfig(), own, "command line")
    if own and not given.svg:
        raise UsageError(f"--{next(iter(own))} applies to pictures; give --svg FILE as well")

    from transduce.seeing.run import ShowJob
    from transduce.seeing.run import show as look

    found = find_direction(given.to, given.source) if given.to else None
    look(
        ShowJob(
            model=found.folder if found else Path(given.model),
            tag=found.tag if found else "",
            sentence=given.sentence,
            target=given.target,
            out=Path(given.out) if given.out else None,
            svg=Path(given.svg) if given.svg else None,
            json=given.json,
            open=given.open,
            roles=Path(given.roles) if given.roles else None,
            picture=picture,
            device=given.device,
            settings=flags,
        )
    )


def heads(parser: Parser, argv: list[str]) -> None:
    """Measure all heads over a test set."""
    from transduce.seeing.options import HeadsConfig

    parser.add_argument("model", metavar="RUN", help="run, checkpoint or model")
    parser.add_argument("--source", metavar="FILE", required=True, help="sentences of a test set, one to a line")
    parser.add_argument("--target", metavar="FILE", required=True, help="their translations")
    parser.add_argument(
        "--alignments",
        metavar="FILE",
        help="file of word alignments to compare heads with, as in 0-0 1-2 (default: the model's own)",
    )
    parser.add_argument("--out", metavar="FILE", help="page to write (default heads.html, unless --json is given)")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/seeing.md)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    add_settings(parser, HeadsConfig)
    given, flags = parser.parse(argv)

    from transduce import strict

    config = strict.apply(HeadsConfig(), flags, "command line")

    from transduce.seeing.run import HeadsJob
    from transduce.seeing.run import heads as measure

    measure(
        HeadsJob(
            model=Path(given.model),
            source=Path(given.source),
            target=Path(given.target),
            alignments=Path(given.alignments) if given.alignments else None,
            out=Path(given.out) if given.out else None,
            json=given.json,
            config=config,
            device=given.device,
        )
    )
