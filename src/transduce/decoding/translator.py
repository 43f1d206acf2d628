"""Text in, text out: `Translator` splits texts into sentences, searches for their translations and joins them again."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, overload

import numpy as np

from transduce.config import SearchConfig
from transduce.decoding.alignment import Links, Place, align_words, attention_shares, match_unknown, read_places
from transduce.decoding.beams import Hypothesis, Record
from transduce.decoding.brackets import refuse_other
from transduce.decoding.capitals import to_capitals, to_small
from transduce.decoding.characters import is_byte, is_text
from transduce.decoding.engine import Engine
from transduce.decoding.engines import Name, Precision, load_engine
from transduce.decoding.force import Pair, score_pairs
from transduce.decoding.glossary import Glossary, Mention, check_terms, find_whole, read_glossary
from transduce.decoding.options import Options, Request, lay_over
from transduce.decoding.rules import spell_piece
from transduce.decoding.search import Task, search, search_all
from transduce.decoding.terms import cut, find_lacking, is_forbidden, say_terms
from transduce.decoding.translation import Alternative, Sentence, Translation, join
from transduce.errors import ConfigError, DataError, TransduceError, name_some
from transduce.model.saved import Loaded
from transduce.text.clean import CleanConfig, normalise
from transduce.text.sentences import Layout, lay_out
from transduce.text.subwords import END, UNKNOWN, Subwords

WINDOW_TOKENS = 1 << 15  # source tokens of texts that are searched together, sorted by length
WINDOW_TEXTS = 2048
COPIED = -1  # in place of a task's number: the sentence is its own translation

LaidOut = tuple[list[str], Layout]
Terms = Mapping[str, str | Sequence[str]]  # each with its translations, one of which must be used


class Translator:
    """Translates texts with a model, or with several as an ensemble; several threads may use it at once."""

    loaded: list[Loaded]
    engine: Engine
    search: SearchConfig
    subwords: dict[str, Subwords]
    glossary: Glossary
    tag: str
    """the language tag, such as >>de<<, that is put before each sentence of a text without one; or nothing"""

    def __init__(self, loaded: Sequence[Loaded], engine: Engine, terms: Terms | None = None, tag: str = ""):
        self.loaded, self.engine = list(loaded), engine
        first = self.loaded[0]
        refuse_other(first, parses=False)
        self.search, self.subwords = first.config.search, first.subwords
        self.tag = self.subwords["source"].tag_of(tag) if tag else ""
        if tag and not self.tag:
            known = self.subwords["source"].tags
            there = f"its tags are {name_some(known)}" if known else "it has none"
            raise DataError(f"tag = {tag!r}: is not a language tag of {first.name}; {there}")
        self._clean = CleanConfig(unicode=first.about.get("unicode", "NFC"), entities=False)
        self._positions = engine.config.max_positions if engine.config.positions == "learned" else None
        self.glossary = Glossary(check_terms({} if terms is None else terms), self._normal)
        for phrase in dict.fromkeys(phrase for term in self.glossary.terms.values() for phrase in term):
            if UNKNOWN in self.subwords["target"].encode(phrase):
                raise DataError(f"glossary: {first.name} has no subwords for {phrase!r}; leave it out")

    @classmethod
    def load(
        cls,
        *paths: Path | str,
        device: str = "auto",
        precision: Precision = "auto",
        threads: int | None = None,
        engine: Name = "auto",
        glossary: Path | str | Terms | None = None,
        tag: str = "",
    ) -> "Translator":
        """Load a run, a checkpoint or a model; several become an ensemble.

        With precision auto, a CPU uses float32 (int8 for a model stored as int8) and a GPU bf16 where that is fast.
        A glossary is a file, or terms with their translations.
        """
        if not paths:
            raise ConfigError("Translator.load needs the folder of a run, a checkpoint or a model")
        terms = read_glossary(Path(glossary)) if isinstance(glossary, Path | str) else glossary
        return cls(*load_engine(paths, device, precision, threads, engine), terms, tag)

    def __repr__(self) -> str:
        return f"Translator({', '.join(one.name for one in self.loaded)})"

    def __call__(self, texts: str | Sequence[str], **settings: Any) -> list[dict[str, str]]:
        """Translate like a translation pipeline of Hugging Face: return a list of {"translation_text": …}."""
        several = [texts] if isinstance(texts, str) else texts
        return [{"translation_text": found.text} for found in self.translate(several, **settings)]

    @overload
    def translate(self, texts: str | Request, options: Options | None = None, **settings: Any) -> Translation: ...
    @overload
    def translate(
        self, texts: Sequence[str | Request], options: Options | None = None, **settings: Any
    ) -> list[Translation]: ...
    def translate(
        self, texts: str | Request | Sequence[str | Request], options: Options | None = None, **settings: Any
    ) -> Translation | list[Translation]:
        """Translate a text, or each of several; settings are fields of `SearchConfig` and `Options`, such as beam=8."""
        if isinstance(texts, bytes) or not isinstance(texts, Iterable | Request):
            raise ConfigError(f"texts = {texts!r}, wanted a string or a list of strings")
        if isinstance(texts, str | Request):
            return next(self.stream([texts], options, name=lambda _: "the text", **settings))
        return list(self.stream(texts, options, **settings))

    def stream(
        self,
        texts: Iterable[str | Request],
        options: Options | None = None,
        *,
        name: Callable[[int], str] = "text {:,}".format,
        done: Callable[[int, int], None] = lambda found, wanted: None,
        **settings: Any,
    ) -> Iterator[Translation]:
        """Translate any number of texts in order, a window at a time.

        `name` names a text in errors by its number, counted from 1; the texts before it are translated first.
        `done` is called with how many sentences of the window are found, and how many there are.
        """
        options, config = self.resolve(options, settings)
        number = 0
        for window, problem in _cut_windows(texts):
            laid_out: list[LaidOut] = []
            try:
                for request in window:
                    number += 1
                    laid_out.append(self.lay_out(request, options, name(number)))
            except TransduceError as error:
                problem = error
            yield from self._translate(window[: len(laid_out)], laid_out, options, config, done)
            if problem:
                raise problem

    def resolve(self, options: Options | None, settings: Mapping[str, Any]) -> tuple[Options, SearchConfig]:
        """Lay settings over the options and over the model's own search settings."""
        options, config = lay_over(options or Options(), self.search, settings, "settings")
        if self.glossary and config.sample:
            raise ConfigError("search.sample = true draws at random, but a glossary needs a search; use one of them")
        return options, config

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
        """Return the log-probabilities of given translations' tokens, the end last, by the first model in float32."""
        for number, pair in enumerate(pairs, 1):
            if not (isinstance(pair, tuple | list) and [type(text) for text in pair] == [str, str]):
                raise ConfigError(f"pair {number:,} = {pair!r}, wanted a sentence and its translation")
            for text in pair:
                self.check(Request(text), f"pair {number:,}")
        rows = [
            (self.tokens(self._tagged(source), "source"), self.tokens(target, "target")) for source, target in pairs
        ]
        return score_pairs(self.loaded[0].model, rows)

    def _translate(
        self,
        window: Sequence[Request],
        laid_out: Sequence[LaidOut],
        options: Options,
        config: SearchConfig,
        done: Callable[[int, int], None],
    ) -> list[Translation]:
        # Repeated sentences are searched once.
        tasks: dict[tuple[object, ...], int] = {}
        wanted: list[Task] = []
        texts: list[str] = []
        numbers: list[list[tuple[int, str]]] = []
        for request, (pieces, _) in zip(window, laid_out):
            numbers.append([])
            for piece in pieces:
                given = to_small(piece, request, self.subwords["source"], self._normal) if options.capitals else piece
                key = (given, given != piece, request.prefix, request.require, request.forbid)
                if key not in tasks:
                    tasks[key] = COPIED if _is_copied(given, request) else len(wanted)
                    if tasks[key] != COPIED:
                        wanted.append(replace(self.task(replace(request, text=given)), in_any_case=given != piece))
                        texts.append(given)
                numbers[-1].append((tasks[key], given))
        found, unsaid = self._search(texts, wanted, config, done)
        alternatives = self._describe(texts, wanted, found, options)
        return [
            join(
                request,
                layout,
                [
                    _copy(piece)
                    if number == COPIED
                    else self._sentence(piece, given, request, alternatives[number], unsaid[number])
                    for piece, (number, given) in zip(pieces, own)
                ],
            )
            for request, (pieces, layout), own in zip(window, laid_out, numbers)
        ]

    def _search(
        self, texts: Sequence[str], wanted: Sequence[Task], config: SearchConfig, done: Callable[[int, int], None]
    ) -> tuple[list[list[Hypothesis]], list[tuple[str, ...]]]:
        """Translate sentences and put in the terms that the model misses; also return those still missing in each."""
        mentions = [self._find_terms(text, task) for text, task in zip(texts, wanted)]
        several = config.n_best > 1 and not config.sample
        # Some hypotheses are the same text in other subwords: with the whole beam, others take their places.
        wider = replace(config, n_best=config.beam) if several else config
        wanted, found = self.find(texts, wanted, wider, done=done)
        if several:
            found = [self._different(hypotheses)[: config.n_best] for hypotheses in found]
        numbers = [number for number, own in enumerate(mentions) if own for _ in found[number]]
        if numbers:
            said = say_terms(
                [wanted[number] for number in numbers],
                [mentions[number] for number in numbers],
                [one for own, some in zip(mentions, found) if own for one in some],
                self.subwords,
                config,
                lambda tasks, own: search_all(self.engine, tasks, own, self.pieces),
                self.loaded[0].model,
                self._heads,
            )
            for number, own in groupby(zip(numbers, said), key=itemgetter(0)):
                some = self._different([one for _, one in own])
                # Only those with the most terms are kept.
                many = [len(find_lacking(mentions[number], self._decode(one))) for one in some]
                kept = [one for one, lacks in zip(some, many) if lacks == min(many)]
                found[number] = sorted(kept, key=lambda one: -one.score)
        lacking = [find_lacking(own, self._decode(some[0])) if own else [] for own, some in zip(mentions, found)]
        return found, [tuple(term[0] for term in terms) for terms in lacking]

    def _find_terms(self, text: str, task: Task) -> list[Mention]:
        """Find the terms in a sentence, each with those of its translations that are not forbidden."""
        found: list[Mention] = []
        if not self.glossary:
            return found
        source = self.subwords["source"]
        said = cut(source.open(task.source.tolist()), source).text
        for one in self.glossary.find(said, any_case=task.in_any_case):
            allowed = tuple(own for own in one.translations if not is_forbidden(task, own))
            if not allowed:
                name = one.translations[0]
                raise DataError(f"{text[:60]!r}: {name!r} is in the glossary and forbidden; drop one of them")
            found.append(one._replace(translations=allowed))
        return found

    def find(
        self,
        texts: Sequence[str],
        tasks: Sequence[Task],
        config: SearchConfig,
        *,
        done: Callable[[int, int], None] = lambda found, wanted: None,
        records: dict[int, Record] | None = None,
    ) -> tuple[list[Task], list[list[Hypothesis]]]:
        """Search for translations; return the tasks as they were searched in the end, and the translations.

        The few with halves of characters are searched again, under a rule that would slow down all others.
        """
        tasks, found = list(tasks), [list[Hypothesis]()] * len(tasks)

        def run(numbers: Sequence[int], done: Callable[[int, int], None]) -> None:
            own: dict[int, Record] | None = None if records is None else {}
            some = search(self.engine, [tasks[number] for number in numbers], config, self.pieces, own)
            for count, (place, hypotheses) in enumerate(some, 1):
                found[numbers[place]] = hypotheses
                done(count, len(numbers))
            if own and records is not None:
                records.update({numbers[place]: record for place, record in own.items()})

        run(range(len(tasks)), done)
        broken = [number for number, some in enumerate(found) if any(map(self._is_broken, some))]
        for number in broken:
            tasks[number] = replace(tasks[number], spelled=frozenset(self._normal(texts[number])))
        if broken:
            run(broken, lambda found, wanted: None)
        return tasks, found

    def _is_broken(self, hypothesis: Hypothesis) -> bool:
        """Whether a hypothesis has bytes that do not make characters."""
        if not self._bytes[hypothesis.tokens].any():
            return False
        return not is_text(b"".join(spell_piece(self.pieces[token]) for token in hypothesis.tokens))

    def _decode(self, hypothesis: Hypothesis) -> str:
        return self.subwords["target"].decode(hypothesis.tokens)

    @cached_property
    def _heads(self) -> list[Place]:
        """The heads that show which word comes from which."""
        return read_places(self.loaded[0].about, self.loaded[0].model)

    def _sentence(
        self,
        piece: str,
        given: str,
        request: Request,
        alternatives: tuple[Alternative, ...],
        unsaid: tuple[str, ...],
    ) -> Sentence:
        """Return a sentence with its alternatives, in capitals if the model was given it in lower case."""
        if given != piece:
            raised: dict[str, Alternative] = {}
            for one in alternatives:
                raised.setdefault(text := to_capitals(one.text, request, self._normal), replace(one, text=text))
            alternatives = tuple(raised.values())
        return Sentence(self._normal(given), alternatives, unsaid)

    def _different(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return the hypotheses that differ as text, in order; of the same text in other subwords, only the first."""
        first: dict[str, Hypothesis] = {}
        for one in hypotheses:
            first.setdefault(self._decode(one), one)
        return list(first.values())

    def lay_out(self, request: Request, options: Options, name: str) -> LaidOut:
        """Return the sentences of a text, unchanged, and the layout around them."""
        self.check(request, name)
        longest = options.longest if self._positions is None else min(options.longest, self._positions - 1)

        def count(text: str) -> int:
            return len(self.subwords["source"].encode(self._normal(self._tagged(text))))

        one = bool(request.prefix or request.require)
        text, split = request.text, "never" if one else options.split
        if tag := self.subwords["source"].find_tag(text):  # says the target language, so each sentence needs it
            before, _, behind = text.partition(tag)
            bare = behind.lstrip(" ")
            pieces, layout = lay_out(before + bare, count, longest, split, options.split_over)
            pieces = [f"{tag} {piece}" for piece in pieces]
            layout = replace(layout, tag=tag + " " * (len(behind) - len(bare)))
        else:
            pieces, layout = lay_out(text, count, longest, split, options.split_over)
        if one and len(pieces) > 1:
            raise DataError(
                f"{name}: has {len(pieces):,} lines, but a prefix or a required phrase is for one sentence; "
                "give each line as a separate text"
            )
        for piece in pieces:
            # What may be split has been; the rest is refused by name. A token has a byte or more, save the first space.
            if len(self._normal(self._tagged(piece)).encode()) >= longest and (tokens := count(piece)) > longest:
                whole = "text with a prefix or a required phrase" if one else "sentence that may not be split"
                remedy = f", or raise longest = {longest:,}" if longest == options.longest else ""
                raise DataError(
                    f"{name}: a {whole} has {tokens:,} tokens, and at most {longest:,} are translated "
                    f"at once; split it{remedy}: {piece[:60]!r} …"
                )
        return pieces, layout

    def check(self, request: Request, name: str) -> None:
        """Refuse what is not text, empty phrases, and phrases both required and forbidden."""
        for text in (request.text, request.prefix, *request.require, *request.forbid):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                number = ord(text[error.start])
                # Python keeps bytes of a command line or a terminal that are not UTF-8 in this range.
                byte = (
                    f", or byte 0x{number - 0xDC00:02X} of text that is not UTF-8" if 0xDC80 <= number <= 0xDCFF else ""
                )
                raise DataError(
                    f"{name}: character {error.start + 1} is half of a surrogate pair{byte}; remove it"
                ) from None
        for phrase in (*request.require, *request.forbid):
            if not self._normal(phrase):
                raise DataError(f"{name}: {phrase!r} has no words to require or forbid; give some, or leave it out")
        for phrase in request.require:
            own = (one for one in request.forbid if find_whole(self._normal(one), self._normal(phrase)))
            if (wrong := next(own, None)) is not None:
                raise DataError(f"{name}: {phrase!r} is required and {wrong!r} forbidden; drop one of them")

    def _tagged(self, text: str) -> str:
        """Return a text as the model reads it, with the language tag before it."""
        return f"{self.tag} {text}" if self._is_tagged(text) else text

    def _is_tagged(self, text: str) -> bool:
        """Return whether the language tag is put before a text: it has none of its own."""
        return bool(self.tag) and not self.subwords["source"].find_tag(text)

    def _normal(self, text: str) -> str:
        """Normalise a text as the training text was."""
        return normalise(text, self._clean)[0]

    def task(self, request: Request) -> Task:
        """Turn a request of one sentence into a task for the search."""
        target = self.subwords["target"]
        return Task(
            self.tokens(self._tagged(request.text), "source"),
            target.encode(self._normal(request.prefix)),
            [target.encode(self._normal(phrase)) for phrase in request.require],
            [self._normal(phrase) for phrase in request.forbid],
        )

    def tokens(self, text: str, side: str) -> np.ndarray:
        """Return the tokens of a text, normalised as the training text was, with their end."""
        subwords = self.subwords[side]
        return np.array(subwords.close(subwords.encode(self._normal(text))), np.int32)

    def align(self, pairs: Sequence[Pair]) -> list[Links]:
        """Link the words of each translation to those of its source, both given as tokens with their ends."""
        shares = attention_shares(self.loaded[0].model, pairs, self._heads)
        sides = self.subwords["source"], self.subwords["target"]
        return [
            align_words(share, *(own.pieces(own.open(tokens)) for own, tokens in zip(sides, pair)))
            for share, pair in zip(shares, pairs)
        ]

    def _describe(
        self, texts: Sequence[str], tasks: Sequence[Task], found: Sequence[Sequence[Hypothesis]], options: Options
    ) -> list[tuple[Alternative, ...]]:
        target = self.subwords["target"]
        pairs = [(task.source, np.append(h.tokens, END)) for task, some in zip(tasks, found) for h in some]
        sources = [text for text, some in zip(texts, found) for _ in some]
        links: Iterator[Links | None] = iter([None] * len(pairs))
        if options.alignments:
            aligned = zip(sources, self.align(pairs))
            links = iter([_drop_first(own) if self._is_tagged(text) else own for text, own in aligned])
        unknown = iter(self._copy_unknown(sources, pairs) if options.copy_unknown else [()] * len(pairs))
        return [
            tuple(Alternative.read(hypothesis, target, next(links), next(unknown)) for hypothesis in hypotheses)
            for hypotheses in found
        ]

    def _copy_unknown(self, texts: Sequence[str], pairs: Sequence[Pair]) -> list[Sequence[str]]:
        """Return the source's texts for the unknown tokens of each translation; nothing for one without any."""
        copied: list[Sequence[str]] = [()] * len(pairs)
        numbers = [number for number, pair in enumerate(pairs) if all(UNKNOWN in tokens for tokens in pair)]
        if not numbers:
            return copied
        shown = attention_shares(self.loaded[0].model, [pairs[number] for number in numbers], self._heads)
        for number, shares in zip(numbers, shown):
            own = self.subwords["source"].find_unknown(self._normal(texts[number]))
            if len(own) == np.count_nonzero(pairs[number][0] == UNKNOWN):
                copied[number] = [own[place] for place in match_unknown(shares, *pairs[number])]
        return copied

    @cached_property
    def _bytes(self) -> np.ndarray:
        """Which of the target's subwords are single bytes of multi-byte characters."""
        return np.array([is_byte(spell_piece(piece)) for piece in self.pieces])

    @cached_property
    def pieces(self) -> list[str]:
        """The target's subwords as text."""
        return self.subwords["target"].pieces(range(len(self.subwords["target"])))


def _cut_windows(texts: Iterable[str | Request]) -> Iterator[tuple[list[Request], TransduceError | None]]:
    """Yield the texts to search together; an error while reading them comes with the texts before it."""
    window: list[Request] = []
    characters = 0
    try:
        for text in texts:
            request = text if isinstance(text, Request) else Request(text)
            window.append(request)
            characters += len(request.text)
            if len(window) == WINDOW_TEXTS or characters > 4 * WINDOW_TOKENS:  # about four to a token
                yield window, None
                window, characters = [], 0
    except TransduceError as error:
        yield window, error
        return
    if window:
        yield window, None


def _drop_first(links: Links) -> Links:
    """Return links without those of the first source word, with the others counted from the one after it."""
    return [(source - 1, target) for source, target in links if source]


def _is_copied(piece: str, request: Request) -> bool:
    """Whether a sentence is its own translation: it has no letters or digits, and the request allows it."""
    if any(map(str.isalnum, piece)) or request.prefix or request.require:
        return False
    return not any(phrase in piece for phrase in request.forbid)


def _copy(piece: str) -> Sentence:
    return Sentence(piece, (Alternative(piece, 0.0, 0.0, True, (), ()),))
