"""Command-line flags built from settings: one flag for each field, with its docstring as help."""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from transduce.errors import UsageError
from transduce.strict import FromFlag, Settings, describe, literal, nearest

# Destinations of settings start with a dot, so that a field may share its name with a verb's own argument.
_MARK = "."
_MANY = ("+", "*")  # argparse's marks of an argument that takes several values


class Parser(argparse.ArgumentParser):
    """The parser of one verb: takes `_` for `-` in flags, no abbreviations, and raises UsageError."""

    def __init__(self, verb: str, *, summary: str, usage: str, example: str) -> None:
        super().__init__(
            prog=f"transduce {verb}",
            usage=f"transduce {verb} {usage}",
            description=summary,
            epilog=f"example: {example}",
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34),
        )
        self._flags: list[str] = []  # those given

    def parse(self, argv: list[str], *, stray: str = "") -> tuple[argparse.Namespace, dict[str, Any]]:
        """Return the verb's own arguments, and the settings given as nested differences for `strict.apply`.

        `stray` says what to do with an argument too many.
        """
        end = argv.index("--") if "--" in argv else len(argv)
        before = [_hyphens(argument) for argument in argv[:end]]
        self._refuse_unknown(before)
        self._flags = [
            flag for argument in before if (flag := argument.partition("=")[0]) in self._option_string_actions
        ]
        given, extra = self.parse_known_args(before + argv[end:])
        if extra:
            if not stray and any(own.nargs in _MANY for own in self._get_positional_actions()):
                stray = "give all arguments without a flag in one place"
            self.error(f"unexpected argument {extra[0]}{stray and f'; {stray}'}")
        settings = {key.removeprefix(_MARK): value for key, value in vars(given).items() if key.startswith(_MARK)}
        own = {name: value for name, value in vars(given).items() if not name.startswith(_MARK)}
        return argparse.Namespace(**own), _nest(settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse ignores a closed pipe here; the command line handles it.
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{self._find_taken(message)}; see {self.prog} --help")

    def _find_taken(self, message: str) -> str:
        """Say which flag may have taken the positional arguments that argparse misses."""
        missing = [own.metavar for own in self._get_positional_actions() if f"required: {own.metavar}" in message]
        taking = [flag for flag in self._flags if self._option_string_actions[flag].nargs in _MANY]
        return f"; put {missing[0]} before {taking[0]}, which takes all that follows it" if missing and taking else ""

    def _refuse_unknown(self, argv: list[str]) -> None:
        # Done before argparse, which would take an unknown flag's value for a positional argument and blame that.
        # A lone hyphen is standard input, a digit makes it a negative number, a space makes it a text.
        known = self._option_string_actions
        flags = [argument.partition("=")[0] for argument in argv if re.match(r"-(?!$|\.?\d)", argument)]
        flags = [flag for flag in flags if " " not in flag]
        long = [flag for flag in known if flag.startswith("--")]
        problems = [
            f"unknown flag {flag}{self._describe_positional(flag) or nearest(flag, long)}"
            for flag in flags
            if flag not in known
        ]
        if problems:
            raise UsageError("\n".join(problems))

    def _describe_positional(self, flag: str) -> str:
        """Say how to give an argument that has no flag here, if that is meant."""
        for own in self._get_positional_actions():
            names = {own.dest, str(own.metavar).lower(), "model" if own.metavar == "RUN" else ""}
            if flag.lstrip("-") in names:
                return f"; {own.metavar} is given without a flag: {self.usage}"
        return ""


def add_settings(
    parser: argparse.ArgumentParser, settings: Settings | type[Settings], prefix: str = "", *, hidden: bool = False
) -> None:
    """Add a flag for each field of the settings and of those nested in them.

    A field's metadata may hold `flag`, a shorter name for its flag, and `hidden`, which leaves it out of the help.
    """
    settings = settings() if isinstance(settings, type) else settings
    path = f"{prefix}." if prefix else ""
    nested = [field for field in fields(settings) if is_dataclass(getattr(settings, field.name))]
    plain = [field for field in fields(settings) if field not in nested]
    shown = {field.name for field in plain if not (hidden or field.metadata.get("hidden"))}
    title = prefix or settings.section or "settings"
    group = parser.add_argument_group(title, type(settings).__doc__) if shown else parser
    kinds, texts = get_type_hints(type(settings)), describe(type(settings))
    for field in plain:
        key = path + field.name
        names = [field.metadata["flag"]] if "flag" in field.metadata else []
        text = (texts.get(field.name, "") + _default(getattr(settings, field.name))).replace("%", "%%")
        (group if field.name in shown else parser).add_argument(
            *names,
            _hyphens(f"--{key}"),
            dest=_MARK + key,
            default=argparse.SUPPRESS,
            help=text if field.name in shown else argparse.SUPPRESS,
            **_options(kinds[field.name]),
        )
    for field in nested:
        inner = getattr(settings, field.name)
        add_settings(parser, inner, path + field.name, hidden=hidden or bool(field.metadata.get("hidden")))


def _options(kind: Any) -> Mapping[str, Any]:
    """Return what argparse must know about a type; its values are read later, by `strict.apply`."""
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    options = {"type": FromFlag, "metavar": "|".join(_words(kind))}
    if any(get_origin(member) is tuple for member in (kind, *get_args(kind))):
        options |= {"nargs": "+", "action": "extend"}
    return options


def _words(kind: Any) -> Iterator[str]:
    """Yield the words that stand for a type's values in the help."""
    if get_origin(kind) is Literal:
        yield from map(str, get_args(kind))
    elif get_args(kind):
        for member in get_args(kind):
            yield from _words(member) if member is not ... else ()
    else:
        yield {int: "N", float: "X", str: "TEXT", bool: "true|false", Path: "PATH", NoneType: "off"}[kind]


def _default(value: object) -> str:
    if value in ("", ()):
        return ""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else literal(value).strip('"')
    return f" (default {text})"


def _hyphens(argument: str) -> str:
    name, equals, value = argument.partition("=")
    is_flag = argument.startswith("--") and " " not in name
    return name.replace("_", "-") + equals + value if is_flag else argument


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, name = key.split(".")
        table = nested
        for step in path:
            table = table.setdefault(step, {})
        table[name] = value
    return nested
