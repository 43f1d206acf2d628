"""Put the terms of a glossary into translations, each where it belongs.

A translation that contains all terms is kept. Otherwise attention tells which words come from a missing term, and the
term's translation takes their place. The words right before it may then need another form (an article of another
gender): of similar words, those are chosen with which the sentence is most probable. Everything else stays as it was,
so that nothing is lost. Where no word comes from a term alone, as in a compound with another word, nothing changes.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from transduce.config import SearchConfig
from transduce.decoding.alignment import Place, attention_shares
from transduce.decoding.beams import Hypothesis
from transduce.decoding.force import Encoded, Pair, find_likely, score_pairs
from transduce.decoding.glossary import Mention, Term, find_said, find_whole, say
from transduce.decoding.rules import spell_piece
from transduce.decoding.search import Task, most_tokens
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, Subwords
from transduce.text.words import is_one_word

BEFORE = 2  # words before a term that may change with it
LIKELY = 16  # most tokens considered in place of each token of these words
LESS = 6.5  # nats that they may be below the best
OTHERS = 4, 2  # of them, how many that make a similar word are tried: for the last word, for the one before it
BEHIND = 6  # tokens after a term that help to score its variants
COMPOUND = 0.5  # share of a word's attention to a term; with more on a source word nothing covers, it stands for both
EASE = 0.3  # weight of the log-probability of the words before a term, which favours the words already there

Search = Callable[[Sequence[Task], SearchConfig], list[list[Hypothesis]]]

_OPENING = "([{<\"'«„“‘‚¿¡/-"
_CLOSING = (".", "!", "?", ":", "…")


class Words(NamedTuple):
    """An output cut into words with the signs after them: each one's first token and first character, and the ends."""

    tokens: list[int]
    first: list[int]
    places: list[int]
    text: str

    def __len__(self) -> int:
        return len(self.first) - 1

    def is_apart(self, word: int) -> bool:
        """Whether a space stands before a word."""
        return self.text[self.places[word] :].startswith(" ")

    def has_letters(self, word: int) -> bool:
        """Whether a word is more than punctuation."""
        return any(map(str.isalnum, self.text[self.places[word] : self.places[word + 1]]))


class Gap(NamedTuple):
    """Words `start` to `end`, which a term replaces; those from `low` to `start` may change."""

    translations: Term
    low: int
    run: int
    """words from here to `start` may be left out, as all come from a term of several words"""
    start: int
    end: int


@dataclass(eq=False)
class Sentence:
    """A translation into which terms are put, one after the other."""

    task: Task
    mentions: Sequence[Mention]
    found: Hypothesis
    words: Words
    gaps: list[Gap] = field(default_factory=list)
    """still to be filled"""
    settled: list[int] = field(default_factory=list)
    """tokens up to the end of the last term put in"""
    left: list[int] = field(default_factory=list)
    """tokens after that"""


def say_terms(
    tasks: Sequence[Task],
    mentions: Sequence[Sequence[Mention]],
    found: Sequence[Hypothesis],
    subwords: Mapping[Any, Subwords],
    config: SearchConfig,
    search: Search,
    model: Transformer,
    heads: Sequence[Place],
) -> list[Hypothesis]:
    """Return the translations with the terms of their sources; unchanged where there is nothing to do."""
    source, target = subwords["source"], subwords["target"]
    sentences = [
        Sentence(task, own, one, cut(one.tokens.tolist(), target)) for task, own, one in zip(tasks, mentions, found)
    ]
    lacking = [one for one in sentences if one.found.ended and find_lacking(one.mentions, one.words.text)]
    pairs = [(one.task.source, np.append(one.found.tokens, END)) for one in lacking]
    for one, share in zip(lacking, attention_shares(model, pairs, heads)):
        one.gaps, one.left = find_gaps(one, share, source, target), one.words.tokens
    changed = [one for one in lacking if one.gaps]
    encoded: Encoded = {}
    while some := [one for one in changed if one.gaps]:
        fill(some, target, model, encoded)
    longest = [most_tokens(one.task, config, model.config) for one in changed]
    changed = [one for one, most in zip(changed, longest) if len(one.settled) + len(one.left) < most]
    # Search along the new words, for their score.
    whole = [replace(one.task, prefix=[*one.settled, *one.left, END], phrases=()) for one in changed]
    for one, (hypothesis, *_) in zip(changed, search(whole, replace(config, beam=1, n_best=1)), strict=True):
        one.found = hypothesis
    return [one.found for one in sentences]


def find_lacking(mentions: Sequence[Mention], text: str) -> list[Term]:
    """Return the terms that a text contains less often than its source."""
    return [
        term
        for term in dict.fromkeys(mention.translations for mention in mentions)
        if len(find_said(term, text)) < sum(not {*term}.isdisjoint(other.translations) for other in mentions)
    ]


def find_gaps(sentence: Sentence, share: np.ndarray, source: Subwords, target: Subwords) -> list[Gap]:
    """Return the words that missing terms are to replace, from left to right."""
    words, sources = sentence.words, cut(source.open(sentence.task.source.tolist()), source)
    if not len(words):
        return []
    table = np.zeros((len(words), len(sources)))
    rows, columns = (np.repeat(np.arange(len(own)), np.diff(own.first)) for own in (words, sources))
    np.add.at(table, (rows[:, None], columns[None, :]), share[: len(rows), : len(columns)])
    looks_at = table.argmax(1).tolist()
    said = {
        mention.translations: _touched(find_said(mention.translations, words.text), words)
        for mention in sentence.mentions
    }
    fixed = sum(place < len(sentence.task.prefix) for place in words.first[:-1])
    required = (find_whole(target.decode(phrase), words.text) for phrase in sentence.task.phrases)
    taken = set[int]().union(range(fixed), *said.values(), *(_touched(spans, words) for spans in required))
    gaps: list[Gap] = []
    for span, several, term in sentence.mentions:
        asked = sorted(_touched([span], sources))
        own = {word for word, best in enumerate(looks_at) if best in asked}
        weights = table[:, asked].sum(1)
        # If another word attends to the term more than its own do, it is a compound, and those are articles and such.
        if said[term] & own or not (free := own - taken) or int(weights.argmax()) not in own:
            continue
        start = max(sorted(free), key=weights.__getitem__)
        others = sorted({*range(len(sources))}.difference(asked, looks_at))
        if table[start, others].max(initial=0.0) > COMPOUND * weights[start]:
            continue
        end = start + 1
        while start - 1 in free and not words.is_apart(start) and words.has_letters(start - 1):
            start -= 1
        run = start
        # The words beside that of a one-word term are articles and verbs, and stay. For a term of several words all are
        # replaced, even with another between them, as in "Handbuch des Benutzers".
        while several and run - 1 in free:
            run -= 1
        while several and (end in free or (end + 1 in free and end not in taken)):
            end += 1
        settled = max((word + 1 for word in taken if word < run), default=0)
        taken |= {*range(run, end)}
        gaps.append(Gap(term, max(settled, min(run, start - BEFORE)), run, start, end))
    return sorted(gaps, key=lambda gap: gap.start)


def fill(sentences: Sequence[Sentence], target: Subwords, model: Transformer, encoded: Encoded) -> None:
    """Put the next term into each sentence."""
    ways = find_ways(sentences, target, model, encoded)
    pairs: list[Pair] = []
    ends: list[tuple[int, list[int], list[int], int, int]] = []
    for number, (one, own) in enumerate(zip(sentences, ways)):
        gap = one.gaps[0]
        kept, _, behind = _parts(one, gap, target)
        for change in own:
            before = [*kept, *chain.from_iterable(change)]
            text = target.decode(before)
            begins = not text.strip() or text.rstrip().endswith(_CLOSING)
            for phrase in gap.translations:
                spelled = say(phrase, begins=begins)
                apart = not text or one.words.is_apart(gap.start)
                settled = [*before, *(target.encode(spelled) if apart else target.encode_piece(spelled))]
                if not is_forbidden(one.task, target.decode([*settled, *behind])):
                    pairs.append((one.task.source, np.array([*settled, *[*behind, END][:BEHIND]])))
                    ends.append((number, settled, behind, len(kept), len(before)))
    found = score_pairs(model, pairs, [kept for *_, kept, _ in ends], encoded)
    best: dict[int, tuple[float, list[int], list[int]]] = {}
    for scores, (number, settled, behind, kept, before) in zip(found, ends):
        score = float(scores.sum() - (1 - EASE) * scores[: before - kept].sum())
        if number not in best or score > best[number][0]:
            best[number] = score, settled, behind
    for number, one in enumerate(sentences):
        one.gaps.pop(0)
        if number in best:
            _, one.settled, one.left = best[number]


def find_ways(
    sentences: Sequence[Sentence], target: Subwords, model: Transformer, encoded: Encoded
) -> list[list[list[list[int]]]]:
    """Return the words that may stand before the next term of each sentence, as tokens; first those already there."""
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
        for (number, way, word), likely in zip(asked, find_likely(model, pairs, first, LIKELY, LESS, encoded)):
            old = _spell(way[word], target)
            some = [[*way[word][:place], token] for place, row in enumerate(likely) for token in row]
            others = [other for other in some if is_like(old, _spell(other, target))][: OTHERS[back - 1]]
            ways[number] += [[*way[:word], other, *way[word + 1 :]] for other in others]
    return ways


def is_forbidden(task: Task, text: str) -> bool:
    """Whether a text contains something that a task forbids."""
    if task.in_any_case:
        return any(find_whole(phrase.casefold(), text.casefold()) for phrase in task.forbidden)
    return any(find_whole(phrase, text) for phrase in task.forbidden)


def _parts(sentence: Sentence, gap: Gap, target: Subwords) -> tuple[list[int], list[list[int]], list[int]]:
    """Return the tokens before a gap that stay, the words that may change, and the tokens from its last signs on."""
    words, tokens = sentence.words, sentence.words.tokens
    at = len(tokens) - len(sentence.left)
    low, *places, behind = (max(at, words.first[word]) for word in (*range(gap.low, gap.start + 1), gap.end))
    pieces = [_spell([token], target) for token in tokens[words.first[gap.start] : behind]]
    while pieces and not any(map(str.isalnum, pieces.pop())):
        behind -= 1
    changing = [tokens[first:end] for first, end in pairwise((low, *places)) if first < end]
    return sentence.settled + tokens[at:low], changing, tokens[behind:]


def _spell(tokens: Sequence[int], target: Subwords) -> str:
    """Return tokens as text, with the space before them."""
    return b"".join(map(spell_piece, target.pieces(tokens))).decode(errors="replace")


def is_like(old: str, new: str) -> bool:
    """Whether a word may be another form of the old one: it begins alike, or both are short, like el and la."""
    one, other = old.strip().lower(), new.strip().lower()
    if one == other or not (one + other).isalpha() or new.startswith(" ") != old.startswith(" "):
        return False
    if old.strip()[:1].isupper() != new.strip()[:1].isupper() or len(other) < min(2, len(one)):
        return False
    if old.strip()[:1].isupper() and len(one) > 6:  # not an article, but a name or a noun
        return False
    shorter, longer = sorted((len(one), len(other)))
    alike = shorter - 2 if shorter > 3 else 1 if longer <= 3 else shorter
    return longer <= 2 or (longer - shorter <= 2 and one[:alike] == other[:alike])


def _touched(spans: Sequence[tuple[int, int]], words: Words) -> set[int]:
    """Return the words that overlap any of some spans of characters."""
    parts = [*enumerate(pairwise(words.places))]
    return {word for first, last in spans for word, (begin, end) in parts if begin < last and first < end}


def cut(tokens: Sequence[int], target: Subwords) -> Words:
    """Cut an output into words; in scripts that need no spaces, each subword is one."""
    decoder = getincrementaldecoder("utf-8")("replace")
    text, first, places = "", list[int](), list[int]()
    for number, piece in enumerate(target.pieces(tokens)):
        more = decoder.decode(spell_piece(piece))
        apart = text[-1:].isalnum() and more[:1].isalnum() and not is_one_word(text, more)
        begins = text[-1:] in _OPENING or more[:1] == " " or apart
        # A lone space belongs to the next word.
        if not first or (begins and text[places[-1] :].strip()):
            first.append(number)
            places.append(len(text))
        text += more
    return Words(list(tokens), [*first, len(tokens)], [*places, len(text)], text)
