"""The arguments of `transduce doctor`."""

from transduce.doors.arguments import print_json
from transduce.flags import Parser


def doctor(parser: Parser, argv: list[str]) -> None:
    """Print what the machine has and can do."""
    from transduce.doctor import examine, lines

    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)
    found = examine()
    print_json(found) if given.json else print("\n".join(lines(found)))
