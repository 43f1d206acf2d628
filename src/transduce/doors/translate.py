"""The arguments of `transduce translate`."""

import os
import re
from argparse import BooleanOptionalAction
from pathlib import Path

from transduce.doors.arguments import add_engine, check_chosen, check_positive
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings

FILE_NAME = re.compile(r"\S+\.(txt|html?|docx?|odt|pptx?|odp|epub|srt|vtt|pdf|rtf|xlsx?)", re.IGNORECASE)


def translate(parser: Parser, argv: list[str]) -> None:
    """Load the model and translate lines, or answer interactively at a terminal."""
    from transduce.config import SearchConfig
    from transduce.decoding.options import Options

    parser.add_argument(
        "names",
        metavar="RUN",
        nargs="*",
        help="run, checkpoint or model; several form an ensemble; with --to, texts to translate",
    )
    parser.add_argument(
        "--to", metavar="LANGUAGE", help="translate into this language with a model from `transduce models`"
    )
    parser.add_argument("--from", metavar="LANGUAGE", dest="source", help="source language, if several models fit --to")
    parser.add_argument("--text", metavar="TEXT", nargs="+", action="extend", default=[], help="translate these texts")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="file to translate: plain text, HTML, .docx, .odt, .pptx, .odp, .epub, .srt or .vtt "
        "(default standard input)",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="file to write; if the job is killed, the same command resumes it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: scores, alternatives, tokens")
    parser.add_argument(
        "--json-input",
        action="store_true",
        help="read lines of JSON objects: text, and optionally its own prefix, require and forbid",
    )
    parser.add_argument(
        "--html",
        action=BooleanOptionalAction,
        default=None,
        help="the input is HTML: translate its text and keep its tags (default: for .html and .htm files)",
    )
    parser.add_argument("--prefix", metavar="TEXT", default="", help="start every translation with this")
    parser.add_argument(
        "--require",
        metavar="TEXT",
        nargs="+",
        action="extend",
        default=[],
        help="phrases that every translation must contain",
    )
    parser.add_argument(
        "--forbid",
        metavar="TEXT",
        nargs="+",
        action="extend",
        default=[],
        help="phrases that no translation may contain",
    )
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        action="append",
        default=[],
        help="file of terms: on each line a term, a tab and its translation, or several separated by |; repeatable",
    )
    parser.add_argument(
        "--tag",
        metavar="LANGUAGE",
        default="",
        help="target language of a RUN that has several: fr puts the tag >>fr<< before every text that has none; --to "
        "finds it by itself",
    )
    add_engine(parser)
    add_settings(parser, SearchConfig)
    add_settings(parser, Options)
    given, flags = parser.parse(argv)
    check_positive(given.threads, "--threads")
    check_chosen(given)
    for text in given.names if given.to else ():
        if os.path.isfile(text):
            raise UsageError(f"{text} is a file: --input {text} translates it, --text {text} its name")
        if FILE_NAME.fullmatch(text):
            raise UsageError(
                f"{text}: no such file; --input names a file to translate, --text {text} translates its name"
            )

    from transduce.decoding.glossary import read_glossaries
    from transduce.decoding.run import TranslateJob, run_translation
    from transduce.decoding.shelf import find_direction

    found = find_direction(given.to, given.source) if given.to else None
    if found and found.tag and given.tag:
        raise UsageError(f"--to {given.to} and --tag {given.tag} both name a target language; leave out --tag")
    run_translation(
        TranslateJob(
            models=[found.folder] if found else [Path(name) for name in given.names],
            texts=(*(given.names if given.to else ()), *given.text),
            input=Path(given.input) if given.input not in (None, "-") else None,
            out=Path(given.out) if given.out not in (None, "-") else None,
            json=given.json,
            json_input=given.json_input,
            html=given.html,
            prefix=given.prefix,
            require=tuple(given.require),
            forbid=tuple(given.forbid),
            glossary=read_glossaries(map(Path, given.glossary)),
            tag=given.tag or (found.tag if found else ""),
            device=given.device,
            precision=given.precision,
            threads=given.threads,
            engine=given.engine,
            settings=flags,
        )
    )
