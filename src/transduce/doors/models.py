"""The arguments of `transduce models`."""

from pathlib import Path

from transduce.doors.arguments import print_json
from transduce.flags import Parser


def models(parser: Parser, argv: list[str]) -> None:
    """List the available models, or print the card of one."""
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="*", help="also list the models anywhere below these folders"
    )
    parser.add_argument("--card", metavar="MODEL", help="print this model's card: what it is and what it is good for")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)

    from transduce.decoding.shelf import list_models, read_card
    from transduce.errors import name_some
    from transduce.places import user_folder
    from transduce.tables import print_table

    if given.card:
        print(read_card(Path(given.card)))
        return
    found = list_models(*map(Path, given.folders))
    if given.json:
        print_json([model.as_dict() for model in found])
    elif found:
        rows = [
            (
                model.name,
                name_some([str(direction) for direction in model.directions]),
                f"{model.parameters / 1e6:.1f} M",
                f"{model.bytes / 1e6:.1f} MB",
                model.where,
            )
            for model in found
        ]
        print_table(("name", "languages", "parameters", "size", "where"), rows)
    else:
        print(f"no models: put some into {user_folder()}, or name a folder that holds runs")
