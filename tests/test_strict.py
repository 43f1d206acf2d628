"""Strict reading: every key known, every type checked, all problems at once, and what is written reads back equal."""

import importlib
import json
import math
import pkgutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import transduce
from transduce.config import Config, ModelConfig, SearchConfig
from transduce.errors import ConfigError
from transduce.strict import (
    FromFlag,
    Settings,
    apply,
    describe,
    from_dict,
    read_toml,
    resolve,
    to_dict,
    to_toml,
)


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    """A nested section with one field of each kind."""

    section: ClassVar[str] = "inner"

    count: int = 1
    """a whole number,
    told over two lines"""
    share: float | None = 0.5
    """a number, or off"""
    name: str = "x"
    """a string"""
    on: bool = False
    """true or false"""
    mode: Literal["plain", "fancy"] = "plain"
    """one of two words"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(0, "count")
        yield from self.fraction("share")


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    """A section with its own fields and a nested one."""

    files: tuple[Path, ...] = ()
    """paths"""
    numbers: tuple[int, ...] | None = None
    """whole numbers, or off"""
    where: Path | None = None
    """a path, or off"""
    inner: Inner = field(default_factory=Inner)
    """the nested section"""

    def problems(self) -> Iterator[str]:
        if len(self.files) > self.inner.count + 2:
            yield f"files has {len(self.files)} entries; use at most inner.count + 2 = {self.inner.count + 2}"


@dataclass(frozen=True, kw_only=True)
class Required:
    """A record without defaults, not even for its nested one."""

    size: int
    inner: Inner


def error_of(differences: dict[str, Any], config: Any = None) -> list[str]:
    """Apply the differences and return the lines of the error."""
    with pytest.raises(ConfigError) as caught:
        apply(config or Config(), differences, "mine.toml")
    return str(caught.value).splitlines()


def test_differences_change_only_what_they_name():
    changed = apply(Config(), {"model": {"layers": 4}, "search": {"alpha": 1}}, "mine.toml")
    assert to_dict(changed) == to_dict(Config()) | {
        "model": to_dict(ModelConfig(layers=4)),
        "search": to_dict(SearchConfig(alpha=1.0)),
    }
    assert type(changed.search.alpha) is float


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": {"d_modle": 4}}, "unknown key model.d_modle; did you mean model.d_model?"),
        ({"model": {"beam": 4}}, "unknown key model.beam; did you mean search.beam?"),
        ({"d_model": 4}, "unknown key d_model; did you mean model.d_model?"),
        ({"seed": 4}, "unknown key seed; did you mean training.seed?"),
        ({"modle": {"d_model": 4}}, "unknown key modle; did you mean model?"),
        ({"model": {"qqq": 4}}, "unknown key model.qqq"),
        ({"model": 5}, "model = 5, wanted a table of vocabulary, source_vocabulary, layers"),
        ({"model": {"layers": {"x": 1}}}, "model.layers = {…}, wanted a whole number"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_one(wrong: dict[str, Any], message: str):
    (line,) = error_of(wrong)
    assert line.startswith(f"mine.toml: {message}")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("count", True, "true, wanted a whole number"),
        ("count", 1.0, "1.0, wanted a whole number"),
        ("count", "1", '"1", wanted a whole number'),
        ("count", FromFlag("1e5"), "1e5, wanted a whole number"),
        ("count", FromFlag("off"), "off, wanted a whole number"),
        ("count", None, '"off", wanted a whole number'),
        ("share", "half", '"half", wanted a number or "off"'),
        ("share", True, 'true, wanted a number or "off"'),
        ("share", math.nan, 'nan, wanted a number or "off"'),
        ("share", 10**400, f'{10**400}, wanted a number or "off"'),
        ("share", FromFlag("inf"), 'inf, wanted a number or "off"'),
        ("name", 3, "3, wanted a string"),
        ("on", 1, "1, wanted true or false"),
        ("on", FromFlag("yes"), "yes, wanted true or false"),
        ("mode", "fanci", '"fanci", wanted "plain" or "fancy"'),
        ("mode", ["plain"], '["plain"], wanted "plain" or "fancy"'),
    ],
)
def test_wrong_types_are_refused(name: str, value: object, wanted: str):
    assert error_of({"inner": {name: value}}, Outer()) == [f"mine.toml: inner.{name} = {wanted}"]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("files", 3, "3, wanted a path or a list of them"),
        ("files", ["a", 3], '["a", 3], wanted a path or a list of them'),
        ("files", [""], '[""], wanted a path or a list of them'),
        ("numbers", ["1"], '["1"], wanted a whole number or a list of them or "off"'),
    ],
)
def test_wrong_lists_are_refused(name: str, value: object, wanted: str):
    assert error_of({name: value}, Outer()) == [f"mine.toml: {name} = {wanted}"]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("25_000", "count", 25_000),
        ("1e-1", "share", 0.1),
        ("0", "share", 0.0),
        ("off", "share", None),
        ("off", "name", "off"),
        ("3", "name", "3"),
        ("true", "on", True),
        ("false", "on", False),
        ("fancy", "mode", "fancy"),
    ],
)
def test_text_from_flags_is_parsed_as_its_fields_type(text: str, name: str, value: object):
    found = getattr(apply(Outer(), {"inner": {name: FromFlag(text)}}, "flags").inner, name)
    assert found == value
    assert type(found) is type(value)


def test_a_lone_value_is_a_list_of_one():
    assert apply(Outer(), {"files": "a"}, "").files == (Path("a"),)
    assert apply(Outer(), {"numbers": 3}, "").numbers == (3,)
    assert apply(Outer(), {"numbers": [FromFlag("3"), FromFlag("4")]}, "").numbers == (3, 4)
    assert apply(Outer(numbers=(1,)), {"numbers": [FromFlag("off")]}, "").numbers is None


def test_all_problems_are_raised_at_once():
    wrong = {"inner": {"count": -1, "share": "half", "nam": "y"}, "where": 3, "files": ["a", "b", "c", "d"]}
    assert error_of(wrong, Outer()) == [
        'mine.toml: inner.share = "half", wanted a number or "off"',
        "mine.toml: unknown key inner.nam; did you mean inner.name?",
        'mine.toml: where = 3, wanted a path or "off"',
        "mine.toml: inner.count = -1 is out of range; use 0 or more",
        "mine.toml: files has 4 entries; use at most inner.count + 2 = 3",
    ]


def test_values_are_checked_without_any_reader():
    with pytest.raises(ConfigError, match=r"^inner\.count = -2 is out of range; use 0 or more$"):
        Inner(count=-2)


def test_only_the_outcome_of_all_layers_must_be_possible():
    file = {"files": ["a", "b", "c", "d"]}
    assert len(error_of(file, Outer())) == 1
    resolved = resolve(Outer(), {"mine.toml": file, "command line": {"inner": {"count": FromFlag("2")}}})
    assert (len(resolved.files), resolved.inner.count) == (4, 2)


def test_later_layers_win_and_each_problem_names_its_layer():
    layers = {"mine.toml": {"inner": {"count": 3, "name": "y"}}, "command line": {"inner": {"count": FromFlag("4")}}}
    assert resolve(Outer(), layers).inner == Inner(count=4, name="y")
    with pytest.raises(ConfigError) as caught:
        resolve(Outer(), {"mine.toml": {"inner": {"on": 1}}, "command line": {"inner": {"count": FromFlag("x")}}})
    assert str(caught.value).splitlines() == [
        "mine.toml: inner.on = 1, wanted true or false",
        "command line: inner.count = x, wanted a whole number",
    ]


def test_fields_without_a_default_must_be_given():
    assert from_dict(Required, {"size": 1, "inner": {}}, "x.json") == Required(size=1, inner=Inner())
    with pytest.raises(ConfigError) as caught:
        from_dict(Required, {"size": "1"}, "x.json")
    assert str(caught.value).splitlines() == ['x.json: size = "1", wanted a whole number', "x.json: missing key inner"]


# "off" cannot be told from None where None is allowed, so no path may be spelled like that.
paths = st.text(min_size=1).map(Path).filter(lambda path: str(path) != "off")
inners = st.builds(
    Inner,
    count=st.integers(0, 2**80),
    share=st.none() | st.floats(0, 1, exclude_max=True),
    name=st.text(),
    on=st.booleans(),
    mode=st.sampled_from(["plain", "fancy"]),
)
outers = st.builds(
    Outer,
    files=st.lists(paths, max_size=2).map(tuple),
    numbers=st.none() | st.lists(st.integers()).map(tuple),
    where=st.none() | paths,
    inner=inners,
)


@given(outers)
def test_what_is_written_reads_back_equal(settings: Outer):
    assert apply(Outer(), tomllib.loads(to_toml(settings)), "toml") == settings
    assert from_dict(Outer, json.loads(json.dumps(to_dict(settings))), "json") == settings


keys = st.sampled_from(["files", "numbers", "where", "inner", "count", "share", "name", "on", "mode", "other"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text().map(FromFlag)
anything = st.recursive(scalars, lambda inside: st.lists(inside) | st.dictionaries(keys, inside), max_leaves=8)


@given(st.dictionaries(keys, anything))
def test_whatever_is_read_gives_settings_or_a_config_error(differences: dict[str, Any]):
    settings, lines = Outer(), []
    try:
        settings = apply(settings, differences, "mine.toml")
    except ConfigError as error:
        lines = str(error).split("\n")
    assert all(line.startswith("mine.toml: ") for line in lines)
    assert from_dict(Outer, to_dict(settings), "") == settings


def test_toml_errors_name_the_file_and_the_line(tmp_path: Path):
    path = tmp_path / "mine.toml"
    with pytest.raises(ConfigError, match=r"mine\.toml: no such file"):
        read_toml(path)
    path.write_text("[model]\nlayers 4\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: not valid TOML: .*line 2"):
        read_toml(path)
    path.write_bytes(b"[model]\n# \xff\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: line 2 is not UTF-8"):
        read_toml(path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_toml(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbflayers = 4\n")
    assert read_toml(path) == {"layers": 4}


def test_descriptions_are_the_strings_under_the_fields():
    assert describe(Inner)["count"] == "a whole number, told over two lines"
    assert list(describe(Outer)) == ["files", "numbers", "where", "inner"]


def all_settings() -> list[type[Settings]]:
    """Import every module of the package and return the settings classes they define."""
    for module in pkgutil.walk_packages(transduce.__path__, "transduce."):
        if module.name != "transduce.__main__":
            importlib.import_module(module.name)
    classes: list[type[Settings]] = [Settings]
    for cls in classes:
        classes.extend(cls.__subclasses__())
    return [cls for cls in classes if cls is not Settings and cls.__module__.startswith("transduce.")]


def test_every_setting_is_described_and_every_section_is_named_like_its_field():
    found = all_settings()
    assert ModelConfig in found
    for cls in found:
        assert cls.__doc__
        assert not cls.__doc__.startswith(f"{cls.__name__}("), f"{cls} has only the docstring that dataclasses give it"
        for name, value in vars(cls()).items():
            if isinstance(value, Settings):
                assert value.section == name
            else:
                assert describe(cls).get(name), f"{cls}.{name} has no docstring"
