"""Translations in which all terms of a glossary are said, each where it belongs.

What a model says by itself is kept where it says all terms. Where it does not, attention tells which words come from
the term, and the term's translation takes their place. Other words may then have to stand right before it (an article
of another gender): of words like those that were said, those are taken with which the sentence is the most probable.
Behind the last term the model may go on as it likes, if that is more probable than what it had said.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from transduce.config import SearchConfig
from transduce.decoding.alignment import Place, attention_shares, number_words
from transduce.decoding.beams import Hypothesis
from transduce.decoding.force import Encoded, Pair, find_likely, score_pairs
from transduce.decoding.glossary import Mention, Term, bare, find_said, is_long, say
from transduce.decoding.rules import spell_piece
from transduce.decoding.search import Task
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, Subwords
from transduce.text.words import is_one_word

BEFORE = 2  # words before a term that may change with it
LIKELY = 16  # tokens in the place of each of these words'
OTHERS = 4, 2  # and how many that make a like word are tried: of the last word, of the one before it
BEHIND = 6  # tokens behind a term by which it is told what suits it
EASE = 0.3  # of these words' log-probability, as much as counts: that of others than these was already too high
ROUNDS = 2  # times that words are looked for which terms take the places of, and once more for each term

Search = Callable[[Sequence[Task], SearchConfig], list[list[Hypothesis]]]

_OPENING = "([{<\"'«„“‘‚¿¡/-"
_CLOSING = (".", "!", "?", ":", "…")


class Words(NamedTuple):
    """What was said, in words with the signs behind them: the first token and the first character of each, and ends."""

    tokens: list[int]
    first: list[int]
    places: list[int]
    text: str

    def __len__(self) -> int:
        return len(self.first) - 1


class Gap(NamedTuple):
    """Some words that a term takes the place of; those before it may change, from one of them on."""

    term: Term
    low: int
    run: int
    """from here on words may be left out: all come from a term of several words"""
    start: int
    end: int
    sure: bool
    """whether these words come from the term; else nothing does, and all behind it is said anew"""


@dataclass
class Sentence:
    """A sentence while its terms are said, one after the other."""

    number: int
    task: Task
    mentions: Sequence[Mention]
    found: Sequence[Hypothesis]
    words: Words
    gaps: list[Gap] = field(default_factory=list)
    """that are still to be filled"""
    stems: dict[str, int] = field(default_factory=dict)
    """of words that terms take the places of, and how often these were said"""
    settled: list[int] = field(default_factory=list)
    """tokens, up to the end of the last term"""
    left: list[int] = field(default_factory=list)
    """tokens of what was said behind it"""
    whole: list[int] = field(default_factory=list)
    """the last term's, if nothing may go on with its last word"""
    rounds: int = 0

    def plan(self, share: np.ndarray, source: Subwords, target: Subwords) -> None:
        """Find the words that terms take the places of."""
        self.words = cut(self.found[0].tokens.tolist(), target)
        self.gaps = find_gaps(self, share, source)
        places, text = self.words.places, bare(self.words.text).lower()
        old = {text[places[gap.start] : places[gap.end]]: gap.term for gap in self.gaps if gap.sure}
        stems = [(w[: max(4, len(w) - 2)], term) for some, term in old.items() for w in re.findall(r"\w{4,}", some)]
        known = {stem for stem, term in stems if not any(stem in bare(phrase).lower() for phrase in term)}
        self.stems = {stem: text.count(stem) for stem in known}
        self.settled, self.left = [], self.words.tokens
        self.rounds -= 1

    def rank(self, hypothesis: Hypothesis, target: Subwords) -> tuple[bool, bool, float]:
        """The lowest is the best: those with all terms, and first those without the words these take the places of."""
        said = target.decode(hypothesis.tokens)
        text = bare(said).lower()
        twice = any(text.count(stem) >= often for stem, often in self.stems.items())
        return lacking(self.mentions, said), twice, -hypothesis.score


def say_terms(
    tasks: Sequence[Task],
    mentions: Sequence[Sequence[Mention]],
    found: Sequence[Sequence[Hypothesis]],
    subwords: Mapping[Any, Subwords],
    config: SearchConfig,
    search: Search,
    model: Transformer,
    heads: Sequence[Place],
) -> Iterator[tuple[int, Sequence[Hypothesis]]]:
    """The numbers of the sentences that do not say all terms, and translations that do."""
    source, target = subwords["source"], subwords["target"]

    def lacks(one: Sentence) -> bool:
        return lacking(one.mentions, target.decode(one.found[0].tokens))

    waiting = [
        Sentence(number, task, own, some, cut((), target), rounds=ROUNDS + len(own))
        for number, (task, own, some) in enumerate(zip(tasks, mentions, found))
    ]
    waiting = [one for one in waiting if lacks(one)]
    encoded: Encoded = {}
    while waiting:
        pairs = [(one.task.source, np.append(one.found[0].tokens, END)) for one in waiting]
        for one, share in zip(waiting, attention_shares(model, pairs, heads)):
            one.plan(share, source, target)
        planned = [one for one in waiting if one.gaps]
        while some := [one for one in planned if one.gaps]:
            fill(some, target, model, encoded)
        finish(planned, target, config, search)
        again = [one for one in planned if one.rounds and lacks(one)]
        yield from ((one.number, one.found) for one in waiting if one not in again)
        waiting = again


def lacking(mentions: Sequence[Mention], text: str) -> bool:
    """Whether a text says some term less often than its source has it."""
    return any(
        len(find_said(term, text)) < sum(not {*term}.isdisjoint(other.term) for other in mentions)
        for term in {mention.term for mention in mentions}
    )


def find_gaps(sentence: Sentence, share: np.ndarray, source: Subwords) -> list[Gap]:
    """Where terms are not said, from left to right."""
    words = sentence.words
    numbers = number_words(source.pieces(source.open(sentence.task.source.tolist())))
    table = np.zeros((len(words), numbers[-1] + 1))
    rows = np.repeat(np.arange(len(words)), np.diff(words.first))
    np.add.at(table, (rows[:, None], numbers[None, :]), share[: len(rows), : len(numbers)])
    looks_at = table.argmax(1) if len(words) else np.empty(0)
    said = {mention.term: _touched(find_said(mention.term, words.text), words) for mention in sentence.mentions}
    fixed = sum(place < len(sentence.task.prefix) for place in words.first[:-1])
    taken = set[int]().union(range(fixed), *said.values())
    gaps: list[Gap] = []
    for first, last, term in sentence.mentions:
        own = {word for word in range(len(words)) if first <= looks_at[word] <= last}
        free = (own or {*range(len(words))}) - taken
        if said[term] & own or (said[term] and not own):
            continue
        if not free:  # nothing is left to take the place of: at the end
            gaps.append(Gap(term, len(words), len(words), len(words), len(words), sure=False))
            continue
        start = run = max(sorted(free), key=table[:, first : last + 1].sum(1).__getitem__)
        end = start + 1
        while own and run - 1 in own - taken:
            run -= 1
        while end in own - taken:
            end += 1
        settled = max((word + 1 for word in taken if word < run), default=0)
        taken |= {*range(run, end)}
        run = start if first == last else run  # what comes from a single word beside it is an article
        low = max(settled, min(run, start - BEFORE))
        gaps.append(Gap(term, low, run, start, end if own else start, sure=bool(own)))
    return sorted(gaps, key=lambda gap: gap.start)


def fill(sentences: Sequence[Sentence], target: Subwords, model: Transformer, encoded: Encoded) -> None:
    """Say the next term of each sentence."""
    ways = find_ways(sentences, target, model, encoded)
    pairs: list[Pair] = []
    ends: list[tuple[int, list[int], list[int], int, list[int]]] = []
    for number, (one, own) in enumerate(zip(sentences, ways)):
        gap = one.gaps[0]
        kept, _, behind = _parts(one, gap, target)
        for change in own:
            before = [*kept, *chain.from_iterable(change)]
            text = target.decode(before)
            begins = not text.strip() or text.rstrip().endswith(_CLOSING)
            for phrase in gap.term:
                apart = not text or not _is_open(one, gap, text)
                settled = [*before, *_encode(say(phrase, begins=begins), target, apart=apart)]
                rest = [*behind, END][:BEHIND] if gap.sure else []
                pairs.append((one.task.source, np.array(settled + rest)))
                ends.append((number, settled, behind, len(before), [] if is_long(phrase) else target.encode(phrase)))
    first = [len(_parts(sentences[number], sentences[number].gaps[0], target)[0]) for number, *_ in ends]
    best: dict[int, tuple[float, list[int], list[int], list[int]]] = {}
    found = score_pairs(model, pairs, first, encoded)
    for scores, (number, settled, behind, before, whole), place in zip(found, ends, first):
        score = float(scores.sum() - (1 - EASE) * scores[: before - place].sum())
        if number not in best or score > best[number][0]:
            best[number] = score, settled, behind, whole
    for number, one in enumerate(sentences):
        gap = one.gaps.pop(0)
        _, one.settled, one.left, one.whole = best[number]
        if not gap.sure:
            one.gaps, one.left = [], []


def find_ways(
    sentences: Sequence[Sentence], target: Subwords, model: Transformer, encoded: Encoded
) -> list[list[list[list[int]]]]:
    """What words may stand before the next term of each sentence, as tokens."""
    parts = [_parts(one, one.gaps[0], target) for one in sentences]
    ways = [[change] for _, change, _ in parts]
    for (_, change, _), one, own in zip(parts, sentences, ways):
        if (many := one.gaps[0].start - one.gaps[0].run) and len(change) >= many:
            own.append(change[:-many])
    for back in range(BEFORE, 0, -1):
        asked = [(number, way, len(way) - back) for number, own in enumerate(ways) for way in own if back <= len(way)]
        said = [[*parts[number][0], *chain.from_iterable(way[: word + 1])] for number, way, word in asked]
        first = [len(tokens) - len(way[word]) for tokens, (_, way, word) in zip(said, asked)]
        pairs = [(sentences[number].task.source, np.array(tokens)) for tokens, (number, *_) in zip(said, asked)]
        for (number, way, word), likely in zip(asked, find_likely(model, pairs, first, LIKELY, encoded)):
            old = _spell(way[word], target)
            some = [[*way[word][:place], token] for place, row in enumerate(likely.tolist()) for token in row]
            others = [other for other in some if is_like(old, _spell(other, target))][: OTHERS[len(way) - word - 1]]
            ways[number] += [[*way[:word], other, *way[word + 1 :]] for other in others]
    return ways


def finish(sentences: Sequence[Sentence], target: Subwords, config: SearchConfig, search: Search) -> None:
    """What was said behind the last terms, or what the model would say there, if that is better."""
    new, old = (
        [
            replace(one.task, prefix=prefix, phrases=[*one.task.phrases, *([one.whole] if one.whole else [])])
            for one, prefix in zip(sentences, some)
        ]
        for some in ([one.settled for one in sentences], [[*one.settled, *one.left] for one in sentences])
    )
    greedy = search(old, replace(config, beam=1, n_best=1))
    for one, hypotheses, (spliced, *_) in zip(sentences, search(new, config), greedy, strict=True):
        ranked = sorted((one.rank(each, target), place) for place, each in enumerate([*hypotheses, spliced]))
        one.found = [[*hypotheses, spliced][place] for rank, place in ranked if rank[:2] == ranked[0][0][:2]]


def _parts(sentence: Sentence, gap: Gap, target: Subwords) -> tuple[list[int], list[list[int]], list[int]]:
    """The tokens before a gap that stay, the words that may change, and what is behind it, with its last signs."""
    words, tokens = sentence.words, sentence.words.tokens
    at = len(tokens) - len(sentence.left)
    low, *places, behind = (max(at, words.first[word]) for word in (*range(gap.low, gap.start + 1), gap.end))
    if gap.end > gap.start:
        pieces = [_spell([token], target) for token in tokens[words.first[gap.start] : behind]]
        while pieces and not any(map(str.isalnum, pieces.pop())):
            behind -= 1
    changing = [tokens[first:end] for first, end in pairwise((low, *places)) if first < end]
    return sentence.settled + tokens[at:low], changing, tokens[behind:]


def _spell(tokens: Sequence[int], target: Subwords) -> str:
    """Tokens as text, with the space before them."""
    return b"".join(map(spell_piece, target.pieces(tokens))).decode(errors="replace")


def is_like(old: str, new: str) -> bool:
    """Whether a word may be another form of one that was said: it begins alike, or both are short, as el and la."""
    one, other = old.strip().lower(), new.strip().lower()
    if one == other or not (one + other).isalpha() or new.startswith(" ") != old.startswith(" "):
        return False
    if old.strip()[:1].isupper() != new.strip()[:1].isupper():
        return False
    shorter, longer = sorted((len(one), len(other)))
    alike = shorter - 2 if shorter > 3 else 1 if longer <= 3 else shorter
    return longer <= 2 or one[:alike] == other[:alike]


def _is_open(sentence: Sentence, gap: Gap, before: str) -> bool:
    """Whether no space stands between what was said and a term."""
    place = sentence.words.places[gap.start]
    spaced = gap.start == len(sentence.words) or sentence.words.text[place:].startswith(" ")
    return before[-1:] in _OPENING or not spaced


def _encode(phrase: str, target: Subwords, *, apart: bool) -> list[int]:
    return target.encode(phrase) if apart else target.encode_piece(phrase)


def _touched(spans: Sequence[tuple[int, int]], words: Words) -> set[int]:
    """The words that have a part in some spans of characters."""
    parts = [*enumerate(pairwise(words.places))]
    return {word for first, last in spans for word, (begin, end) in parts if begin < last and first < end}


def cut(tokens: Sequence[int], target: Subwords) -> Words:
    """What was said, in words; scripts that need no spaces have one to each subword."""
    decoder = getincrementaldecoder("utf-8")("replace")
    text, first, places = "", list[int](), list[int]()
    for number, piece in enumerate(target.pieces(tokens)):
        more = decoder.decode(spell_piece(piece))
        apart = text[-1:].isalnum() and more[:1].isalnum() and not is_one_word(text, more)
        begins = text[-1:] in _OPENING or more[:1] == " " or apart
        # A space alone begins the word behind it.
        if not first or (begins and text[places[-1] :].strip()):
            first.append(number)
            places.append(len(text))
        text += more
    return Words(list(tokens), [*first, len(tokens)], [*places, len(text)], text)
