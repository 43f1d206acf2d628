"""The arguments of `transduce inspect`."""

import sys
from pathlib import Path

from transduce.doors.arguments import print_json
from transduce.flags import Parser


def inspect(parser: Parser, argv: list[str]) -> None:
    """Show a data set, or check its files."""
    parser.add_argument("data", metavar="DATA", help="folder written by transduce prepare")
    parser.add_argument("--examples", metavar="N", type=int, default=3, help="sentence pairs to show (default 3)")
    parser.add_argument("--report", action="store_true", help="show what prepare changed and dropped, with examples")
    parser.add_argument("--verify", action="store_true", help="read every file and compare its checksum")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)

    from transduce.errors import DataError
    from transduce.text import inspect as text
    from transduce.text.report import show_report
    from transduce.text.shards import DataSet

    data = DataSet.open(Path(given.data))
    if given.verify:
        if problems := list(data.verify()):
            raise DataError("\n".join([*problems, "run prepare again with the same settings to repair the data set"]))
        print(f"{given.data}: all {len(data.files())} files match their checksums", file=sys.stderr)
    if given.report:
        print_json(data.report()) if given.json else show_report(data.report(), sys.stdout)
    else:
        found = text.inspect(data, given.examples)
        print_json(found) if given.json else text.show_inspection(found)
