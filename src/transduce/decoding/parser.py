"""Sentences in, trees out (section 6.3): `Parser` searches among the trees over exactly a sentence's words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from transduce.config import SearchConfig
from transduce.decoding.beams import Hypothesis
from transduce.decoding.brackets import find_brackets, refuse_other
from transduce.decoding.engine import Engine
from transduce.decoding.engines import Name, Precision, load_engine
from transduce.decoding.options import ParseOptions, lay_over
from transduce.decoding.search import Task, check_room, most_tokens, search
from transduce.errors import ConfigError, DataError
from transduce.model.saved import Loaded
from transduce.text.clean import CleanConfig, normalise
from transduce.text.pictures import make_svg
from transduce.text.subwords import Subwords
from transduce.text.trees import ROOT, Tree, TreeError, escape_word, from_sequence, tag_of, to_sentence
from transduce.text.words import split_words

WINDOW = 1024  # sentences that are searched together, sorted by length


@dataclass(frozen=True)
class Candidate:
    """One tree of a sentence."""

    tree: Tree
    score: float
    """log-probability, with words weighted by `word_share`, over the length penalty; trees are ranked by it"""
    log_probability: float
    """log P(tree | sentence), in nats"""
    whole: bool
    """false if the output was not a whole tree, which happens only in an unconstrained search"""


@dataclass(frozen=True)
class Parse:
    """A sentence's words and its trees, the best first."""

    words: tuple[str, ...]
    candidates: tuple[Candidate, ...]

    @property
    def tree(self) -> Tree:
        """The best tree."""
        return self.candidates[0].tree

    @property
    def score(self) -> float:
        """The score of the best tree."""
        return self.candidates[0].score

    @property
    def whole(self) -> bool:
        """Whether the best output was a whole tree."""
        return self.candidates[0].whole

    def __str__(self) -> str:
        return str(self.tree)

    def _repr_svg_(self) -> str:  # shown by a notebook
        return make_svg([self.tree])


class Parser:
    """Parses sentences with a model trained on trees, or with several as an ensemble."""

    loaded: list[Loaded]
    engine: Engine
    search: SearchConfig
    subwords: dict[str, Subwords]

    def __init__(self, loaded: Sequence[Loaded], engine: Engine):
        self.loaded, self.engine = list(loaded), engine
        first = self.loaded[0]
        refuse_other(first, parses=True)
        self.search, self.subwords = first.config.search, first.subwords
        self._clean = CleanConfig(unicode=first.about.get("unicode", "NFC"), entities=False)
        self._brackets = find_brackets(tuple(self._pieces))

    @classmethod
    def load(
        cls,
        *paths: Path | str,
        device: str = "auto",
        precision: Precision = "auto",
        threads: int | None = None,
        engine: Name = "auto",
    ) -> "Parser":
        """Load a run, a checkpoint or a model; several become an ensemble."""
        if not paths:
            raise ConfigError("Parser.load needs the folder of a run, a checkpoint or a model")
        return cls(*load_engine(paths, device, precision, threads, engine))

    @overload
    def parse(self, texts: str, options: ParseOptions | None = None, **settings: Any) -> Parse: ...
    @overload
    def parse(
        self, texts: list[str] | tuple[str, ...], options: ParseOptions | None = None, **settings: Any
    ) -> list[Parse]: ...
    def parse(
        self, texts: str | list[str] | tuple[str, ...], options: ParseOptions | None = None, **settings: Any
    ) -> Parse | list[Parse]:
        """Parse a sentence, or each of several; settings are those of the search and `ParseOptions`, such as beam=8."""
        if isinstance(texts, bytes) or not isinstance(texts, Iterable):
            raise ConfigError(f"texts = {texts!r}, wanted a string or a list of strings")
        if isinstance(texts, str):
            return next(self.stream([texts], options, name=lambda _: "the text", **settings))
        return list(self.stream(texts, options, **settings))

    def stream(
        self,
        texts: Iterable[str],
        options: ParseOptions | None = None,
        *,
        name: Callable[[int], str] = "text {:,}".format,
        done: Callable[[int, int], None] = lambda found, wanted: None,
        **settings: Any,
    ) -> Iterator[Parse]:
        """Parse any number of sentences in order, a window at a time.

        `name` names a text in errors by its number, counted from 1; `done` is called with how many sentences of the
        window are parsed, and how many there are.
        """
        options, config = self.resolve(options, settings)
        waiting, number = iter(texts), 0
        while window := list(islice(waiting, WINDOW)):
            tasks: dict[tuple[str, ...], Task] = {}  # repeated sentences are searched once
            sentences: list[tuple[str, ...]] = []
            for text in window:
                number += 1
                words = self.split(text, options, name(number))
                sentences.append(words)
                if words not in tasks:
                    tasks[words] = task = self._task(words, options)
                    check_room(task, most_tokens(task, config, self.engine.config), self._brackets, name(number))
            found = self._parse(tasks, options, config, done)
            yield from (found[words] for words in sentences)

    def resolve(self, options: ParseOptions | None, settings: Mapping[str, Any]) -> tuple[ParseOptions, SearchConfig]:
        """Lay settings over the options and over the model's own search settings."""
        return lay_over(options or ParseOptions(), self.search, settings, "settings")

    def split(self, text: str, options: ParseOptions, name: str) -> tuple[str, ...]:
        """Return a text's words, as trees hold them."""
        if not isinstance(text, str):
            raise ConfigError(f"{name} = {text!r}, wanted a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{name}: character {error.start + 1} is half of a surrogate pair, which is not text; remove it"
            ) from None
        if options.tokenised:
            words = text.split()
        else:
            words = split_words(text.translate(self._straight), treebank_quotes=self._knows_quotes)
        if not words:
            raise DataError(f"{name}: has no words, and a tree needs at least one")
        return tuple(map(escape_word, words))

    def _parse(
        self,
        tasks: Mapping[tuple[str, ...], Task],
        options: ParseOptions,
        config: SearchConfig,
        done: Callable[[int, int], None],
    ) -> dict[tuple[str, ...], Parse]:
        found: dict[tuple[str, ...], Parse] = {}
        share = config.word_share if options.constrained and not config.sample else 1.0
        sentences = list(tasks)
        for number, hypotheses in search(self.engine, list(tasks.values()), config, self._pieces):
            words = sentences[number]
            found[words] = Parse(words, tuple(self._read(words, one, share) for one in hypotheses))
            done(len(found), len(tasks))
        return found

    def _task(self, words: Sequence[str], options: ParseOptions) -> Task:
        # A word has at least one token, unless it is nothing but invisible characters.
        tokens = self.subwords["source"].encode(normalise(to_sentence(words), self._clean)[0])
        said = self._brackets.find_words(normalise(word, self._clean)[0] for word in words)
        return Task(
            np.array(self.subwords["source"].close(tokens), np.int32), words=said if options.constrained else None
        )

    def _read(self, words: Sequence[str], hypothesis: Hypothesis, share: float) -> Candidate:
        log_probability = hypothesis.log_probability
        if share != 1 and self._brackets.words:
            said = hypothesis.token_scores[1:][self._brackets.leaves[hypothesis.tokens]]
            log_probability += float(said.sum(dtype=np.float64)) * (1 / share - 1)
        symbols = [self._brackets.symbols[token] for token in hypothesis.tokens]
        try:
            tree, whole = from_sequence(symbols, words), True
        except TreeError:
            tree, whole = Tree(ROOT, tuple(Tree(tag_of(word), word=word) for word in words)), False
        return Candidate(tree, hypothesis.score, log_probability, whole and hypothesis.ended)

    @cached_property
    def _pieces(self) -> list[str]:
        return self.subwords["target"].pieces(range(len(self.subwords["target"])))

    @cached_property
    def _straight(self) -> dict[int, str]:
        """The straight quotation marks that replace curly ones unknown to the treebank."""
        subwords = self.subwords["source"]
        curly = dict.fromkeys("“”„", '"') | dict.fromkeys("‘’", "'")
        known = {mark for mark in curly if any(mark in piece for piece in subwords.pieces(subwords.encode(mark)))}
        return str.maketrans({mark: straight for mark, straight in curly.items() if mark not in known})

    @cached_property
    def _knows_quotes(self) -> bool:
        """Whether the treebank writes `` for a quotation mark: then that is one subword."""
        return len(self.subwords["source"].encode("``")) == 1
