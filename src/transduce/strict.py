"""Strict reading and writing of settings: one mechanism for TOML, JSON and flags.

Settings are frozen dataclasses. What a user writes are *differences*: a nested dictionary laid over them by `apply`,
which knows every key, checks every type and value, and raises all problems at once.
"""

import ast
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from transduce.errors import ConfigError, suggest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class FromFlag(str):
    """Text from the command line, still to be parsed as its field's type."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings that checks its own values."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if problems := list(self.problems()):
            raise ConfigError("\n".join(problems))

    def problems(self) -> Iterator[str]:
        """Yield one line for each impossible value, with full keys: what was found, what was wanted, what to do."""
        yield from ()

    def key(self, name: str) -> str:
        """Return a field's full key, such as `model.heads`."""
        return f"{self.section}.{name}" if self.section else name

    def at_least(self, least: float, *names: str) -> Iterator[str]:
        """Yield a problem for each named field under `least`; fields that are off pass."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                yield f"{self.key(name)} = {value} is out of range; use {least} or more"

    def above(self, bound: float, *names: str) -> Iterator[str]:
        """Yield a problem for each named field not above `bound`; fields that are off pass."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not bound < value < math.inf:
                yield f"{self.key(name)} = {value} is out of range; use more than {bound}"

    def fraction(self, *names: str) -> Iterator[str]:
        """Yield a problem for each named field outside [0, 1); fields that are off pass."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                yield f"{self.key(name)} = {value} is out of range; use 0 or more and less than 1"


def apply(config: T, differences: Mapping[str, object], origin: str) -> T:
    """Lay nested differences over a dataclass; `origin` (a file, or the command line) opens each line of the error."""
    return resolve(config, {origin: differences})


def resolve(config: T, layers: Mapping[str, Mapping[str, object]]) -> T:
    """Lay differences over a dataclass layer by layer, each under its origin, and check the values of the outcome."""
    return _read(type(config), _values(config), layers)


def from_dict(cls: type[T], mapping: Mapping[str, object], origin: str) -> T:
    """Read a dataclass from a nested dictionary; only fields with a default may be missing."""
    return _read(cls, _defaults(cls), {origin: mapping})


def to_dict(config: "DataclassInstance") -> dict[str, Any]:
    """Return a dataclass as a nested dictionary that JSON can hold."""
    return {name: _plain(value) for name, value in _values(config).items()}


def to_toml(config: "DataclassInstance") -> str:
    """Return a dataclass as TOML text that reads back equal."""
    return "\n".join(_toml_lines(to_dict(config), "")) + "\n"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with the file and the line named in every error."""
    try:
        # Some editors open UTF-8 files with a byte order mark, which TOML itself forbids.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


@cache
def describe(cls: type["DataclassInstance"]) -> dict[str, str]:
    """Return each field's docstring: the string written under it in the source."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if is_dataclass(base)]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except OSError:  # installed without sources: the flags work, their help is bare
            continue
        definition = ast.parse(source).body[0]
        assert isinstance(definition, ast.ClassDef)
        for statement, following in pairwise(definition.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return {field.name: texts[field.name] for field in fields(cls) if field.name in texts}


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Suggest a dotted key or flag: one of the same last name in another section, or else the most similar."""
    known = list(known)
    same_name = [key for key in known if _last_name(key) == _last_name(wrong)]
    return suggest(wrong, same_name) or (f"; did you mean {same_name[0]}?" if same_name else suggest(wrong, known))


def literal(value: object) -> str:
    """Return a value as TOML writes it, with None as "off"; text from a flag stays as it was typed."""
    match value:
        case None:
            return '"off"'
        case bool():
            return "true" if value else "false"
        case FromFlag() if value.isprintable():
            return str(value)
        case str() | Path():
            # JSON escapes as TOML does, except DEL, which JSON leaves as it is.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(literal(item) for item in value)}]"
        case Mapping():
            return "{…}"
        case _:
            return str(value)


def _read(cls: type[T], current: dict[str, Any], layers: Mapping[str, Mapping[str, object]]) -> T:
    lines: list[str] = []
    merged: dict[str, Any] = {}
    for origin, differences in layers.items():
        problems: list[str] = []
        merged = _merge(merged, _check(cls, differences, "", list(_keys(cls)), problems))
        lines += [f"{origin}: {problem}" for problem in problems]
    problems = []
    result = _build(cls, current, merged, "", problems)
    origins = " and ".join(origin for origin, differences in layers.items() if differences) or " and ".join(layers)
    lines += [f"{origins}: {problem}" for problem in problems]
    if lines or result is None:
        raise ConfigError("\n".join(lines))
    return result


def _check(
    cls: Any, differences: Mapping[str, object], path: str, known: list[str], problems: list[str]
) -> dict[str, Any]:
    """Return the differences with every value as its field's type, or MISSING where that is a problem."""
    kinds = _kinds(cls)
    checked: dict[str, Any] = {}
    for name, value in differences.items():
        key = path + name
        if name not in kinds:
            sections = {leaf.rpartition(".")[0] for leaf in known} - {""}
            problems.append(f"unknown key {key}{nearest(key, sections if isinstance(value, Mapping) else known)}")
            continue
        checked[name] = MISSING
        if not is_dataclass(kinds[name]):
            try:
                checked[name] = _fit(value, kinds[name])
            except ValueError:
                problems.append(f"{key} = {literal(value)}, wanted {_wanted(kinds[name])}")
        elif isinstance(value, Mapping):
            checked[name] = _check(kinds[name], value, f"{key}.", known, problems)
        else:
            problems.append(f"{key} = {literal(value)}, wanted a table of {', '.join(_kinds(kinds[name]))}")
    return checked


def _build(cls: type[T], current: dict[str, Any], checked: dict[str, Any], path: str, problems: list[str]) -> T | None:
    """Return `cls` with its current values and the checked differences, or None and what is wrong with its values."""
    kinds = _kinds(cls)
    values = dict(current)
    for name, value in checked.items():
        if is_dataclass(kinds[name]) and value is not MISSING:
            inner = _values(current[name]) if name in current else _defaults(kinds[name])
            value = _build(kinds[name], inner, value, f"{path}{name}.", problems) or MISSING
        if value is not MISSING:
            values[name] = value
    problems += [f"missing key {path}{name}" for name in kinds if name not in values and name not in checked]
    if kinds.keys() != values.keys():
        return None
    try:
        return cls(**values)
    except ConfigError as error:
        problems += str(error).splitlines()
        return None


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merge(below[name], value)
        for name, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(name), dict)
    }
    return below | above | both


def _fit(value: object, kind: Any) -> Any:
    """Return the value as the annotated type, or raise ValueError."""
    choices = get_args(kind)
    text = isinstance(value, FromFlag)
    if get_origin(kind) in (Union, UnionType):
        # A flag that takes a list gives ["off"].
        if NoneType in choices and value in (None, "off", ["off"]):
            return None
        for choice in choices:
            with suppress(ValueError):
                return _fit(value, choice)
    elif get_origin(kind) is Literal:
        for choice in choices:
            if (text and value == str(choice)) or (value == choice and type(value) is type(choice)):
                return choice
    elif get_origin(kind) is tuple:
        return tuple(_fit(item, choices[0]) for item in (value if isinstance(value, list | tuple) else [value]))
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if text and value in ("true", "false"):
            return value == "true"
    elif kind is int:
        if text or (isinstance(value, int) and not isinstance(value, bool)):
            return int(value)
    elif kind is float:
        if text or (isinstance(value, int | float) and not isinstance(value, bool)):
            with suppress(OverflowError):
                number = float(value)
                if math.isfinite(number):
                    return number
    elif kind is str:
        if isinstance(value, str):
            return str(value)
    elif kind is Path:
        if isinstance(value, str | Path) and str(value):
            return Path(value)
    elif kind is not NoneType:
        raise TypeError(f"strict cannot read {kind}")
    raise ValueError


def _wanted(kind: Any) -> str:
    """Say in words what `_fit` takes."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_wanted(choice) for choice in get_args(kind))
    if get_origin(kind) is Literal:
        return " or ".join(literal(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return f"{_wanted(get_args(kind)[0])} or a list of them"
    return {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a string",
        Path: "a path",
        NoneType: '"off"',
    }[kind]


def _kinds(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _keys(cls: Any, path: str = "") -> Iterator[str]:
    for name, kind in _kinds(cls).items():
        if is_dataclass(kind):
            yield from _keys(kind, f"{path}{name}.")
        else:
            yield path + name


def _values(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


def _defaults(cls: Any) -> dict[str, Any]:
    made = {f.name: f.default_factory() for f in fields(cls) if f.default_factory is not MISSING}
    return made | {f.name: f.default for f in fields(cls) if f.default is not MISSING}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _toml_lines(values: Mapping[str, Any], path: str) -> Iterator[str]:
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    plain = {name: value for name, value in values.items() if name not in tables}
    if path:
        yield f"[{path}]"
    yield from (f"{name} = {literal(value)}" for name, value in plain.items())
    for index, (name, table) in enumerate(tables.items()):
        if index or plain or path:
            yield ""
        yield from _toml_lines(table, f"{path}.{name}" if path else name)


def _last_name(key: str) -> str:
    return key.lstrip("-").rpartition(".")[2]
