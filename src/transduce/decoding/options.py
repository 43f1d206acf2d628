"""What may be asked of a translation beside the search itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from transduce import strict
from transduce.config import SearchConfig
from transduce.errors import ConfigError, suggest
from transduce.strict import Settings, literal
from transduce.text.sentences import SplitWhen

Own = TypeVar("Own", bound=Settings)

OF_SAMPLES = ("temperature", "top_k", "top_p", "sample_seed")  # settings of the search that nothing else uses


@dataclass(frozen=True)
class Request:
    """A text to translate, and what its translation must and must not contain."""

    text: str
    prefix: str = ""
    """the translation begins with this"""
    require: tuple[str, ...] = ()
    """words and phrases the translation must contain"""
    forbid: tuple[str, ...] = ()
    """words and phrases it must not contain"""

    def __post_init__(self) -> None:
        for name in ("text", "prefix"):
            if not isinstance(value := getattr(self, name), str):
                raise ConfigError(f"{name} = {value!r}, wanted a string")
        for name in ("require", "forbid"):
            value = getattr(self, name)
            # A string is a sequence of strings as well: its letters, which nobody means.
            if isinstance(value, str) or not all(isinstance(phrase, str) for phrase in value):
                raise ConfigError(f"{name} = {value!r}, wanted a list of strings")
            object.__setattr__(self, name, tuple(value))

    def with_common(self, common: "Request") -> "Request":
        """This and what is asked of all texts; its own prefix comes first."""
        return Request(
            self.text,
            self.prefix or common.prefix,
            (*common.require, *self.require),
            (*common.forbid, *self.forbid),
        )


@dataclass(frozen=True, kw_only=True)
class Options(Settings):
    """How texts are split into sentences, and what to do besides the search."""

    split: SplitWhen = "long"
    """when to split a line into sentences: if it is long, always or never"""
    split_over: int = 100
    """a line with more tokens than this is long"""
    longest: int = 256
    """most tokens in a sentence; a longer one is cut into parts, or refused where nothing may be split"""
    capitals: bool = True
    """translate a sentence IN CAPITALS as lower case, if the model would have to spell it, and put the result in
    capitals"""
    copy_unknown: bool = True
    """copy from the source what the model has no subwords for, such as emoji in imported models"""
    alignments: bool = False
    """also report which source word each word comes from; needs --json"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "split_over", "longest")


@dataclass(frozen=True, kw_only=True)
class ParseOptions(Settings):
    """How sentences are split into words, and whether the output must be a tree."""

    tokenised: bool = False
    """the input is already split into words by spaces; otherwise it is split as in the Penn Treebank"""
    constrained: bool = True
    """search among well-formed trees only; without it, malformed output becomes a tree without constituents and is
    counted"""


def lay_over(options: Own, search: SearchConfig, settings: Mapping[str, Any], origin: str) -> tuple[Own, SearchConfig]:
    """Lay settings of both kinds over the options and the settings of the search; `origin` opens each error."""
    ours, theirs = ({field.name for field in fields(kind)} for kind in (options, search))
    if wrong := [key for key in settings if key not in ours | theirs]:
        raise ConfigError(
            "\n".join(f"{origin}: unknown key {key}{suggest(key, sorted(ours | theirs))}" for key in wrong)
        )
    options = strict.apply(options, {key: value for key, value in settings.items() if key in ours}, origin)
    config = strict.apply(search, {key: value for key, value in settings.items() if key in theirs}, origin)
    # Not those that the model's own settings have: they are for when it is asked to sample.
    unused = [key for key in OF_SAMPLES if key in settings and getattr(config, key) != getattr(search, key)]
    if unused and not config.sample:
        given = " and ".join(f"search.{key} = {literal(getattr(config, key))}" for key in unused)
        raise ConfigError(f"{origin}: only samples take {given}; use search.sample = true (--sample), or leave it out")
    return options, config
