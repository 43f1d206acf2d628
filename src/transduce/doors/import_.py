"""The arguments of `transduce import`."""

from pathlib import Path

from transduce.flags import Parser

KINDS = ("huggingface",)


def import_(parser: Parser, argv: list[str]) -> None:
    """Read the arguments, import, and say what was found."""
    parser.add_argument("source", metavar="SOURCE", help="the other toolkit's model: its folder or file")
    parser.add_argument("--out", metavar="MODEL", required=True, help="folder of the new model")
    parser.add_argument("--kind", choices=KINDS, help="how SOURCE was saved (default: found by its files)")
    parser.add_argument(
        "--languages", metavar="CODE", nargs=2, help="source and target, where SOURCE does not say them: en de"
    )
    given, _ = parser.parse(argv)

    from transduce.interop.importing import Order, import_model

    languages = tuple(given.languages) if given.languages else None
    found = import_model(Order(Path(given.source), Path(given.out), given.kind, languages))
    model = found.config.model
    pair = f", {found.languages[0]} → {found.languages[1]}" if found.languages else ""
    print(f"{given.out}: {model.parameters():,} parameters, {model.vocabulary:,} subwords{pair}")
