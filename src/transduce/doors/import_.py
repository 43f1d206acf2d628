"""The arguments of `transduce import`."""

import sys
from pathlib import Path

from transduce.flags import Parser

KINDS = ("huggingface", "marian", "fairseq", "joeynmt", "opennmt", "ctranslate2")


def import_(parser: Parser, argv: list[str]) -> None:
    """Read the arguments, import, and print what was found."""
    parser.add_argument("source", metavar="SOURCE", help="folder or file of the other toolkit's model")
    parser.add_argument("--out", metavar="MODEL", required=True, help="folder for the new model")
    parser.add_argument("--kind", choices=KINDS, help="toolkit that saved SOURCE (default: told by its files)")
    parser.add_argument(
        "--languages", metavar="CODE", nargs=2, help="source and target, as in en de (default: as SOURCE says)"
    )
    parser.add_argument(
        "--vocabularies",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="vocabularies of source and target, if SOURCE names none",
    )
    parser.add_argument(
        "--pieces",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="SentencePiece models of source and target, if SOURCE names none",
    )
    given, _ = parser.parse(argv)
    for name in ("vocabularies", "pieces"):
        if len(getattr(given, name)) > 2:
            parser.error(f"--{name} takes one file for both sides, or one for each")

    from transduce.interop.importing import ImportJob, import_model

    languages = tuple(given.languages) if given.languages else None
    files = (tuple(map(Path, given.vocabularies)), tuple(map(Path, given.pieces)))
    found = import_model(ImportJob(Path(given.source), Path(given.out), given.kind, languages, *files))
    model = found.config.model
    if languages and found.languages and languages != found.languages:
        said = " ".join(found.languages)
        print(f"note: {given.source} says --languages {said}; using yours instead", file=sys.stderr)
    languages = languages or found.languages
    pair = f", {languages[0]} → {languages[1]}" if languages else ""
    print(f"{given.out}: {model.parameters():,} parameters, {model.vocabulary:,} subwords{pair}")
