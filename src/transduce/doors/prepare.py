"""The arguments of `transduce prepare`."""

import sys
from pathlib import Path

from transduce.doors.arguments import resolve
from transduce.flags import Parser, add_settings


def prepare(parser: Parser, argv: list[str]) -> None:
    """Resolve the settings, prepare the data set and report on it."""
    from transduce import strict
    from transduce.text.inputs import PrepareConfig, starting_config

    parser.add_argument("out", metavar="OUT", help="folder for the data set")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings; flags override it")
    add_settings(parser, PrepareConfig)
    given, flags = parser.parse(argv, stray="name text with --source and --target, or with --pairs")
    file = strict.read_toml(Path(given.config)) if given.config else {}
    start = starting_config(*(flags.get(name) or file.get(name) for name in ("builtin", "task")))
    config = resolve(start, given.config, flags)

    from transduce.text import prepare as text  # imported late, so that help and errors appear sooner
    from transduce.text.report import show_report

    data, made = text.prepare(Path(given.out), config)
    if made:
        show_report(data.report(), sys.stderr)
    if config.save_dropped:
        print(f"dropped pairs: {data.parts / text.DROPPED}", file=sys.stderr)
