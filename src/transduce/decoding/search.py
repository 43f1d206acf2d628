"""Search for translations: greedy, beam or sampling, under rules; finished sentences leave and others join."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.beams import Beams, Hypothesis, Record
from transduce.decoding.brackets import Brackets, OpenTrees, find_brackets
from transduce.decoding.engine import Engine, Lines, Runs
from transduce.decoding.phrases import Phrases
from transduce.decoding.rules import Rule, Spellings, make_rules, penalise_repetition
from transduce.decoding.sampling import draw, make_key, random_numbers
from transduce.errors import ConfigError, DataError
from transduce.text.subwords import BEGIN, END, PAD

# Sentences that share a room have at least this share of the longest's tokens, so that its memory is well used.
SIMILAR = 0.5
# New sentences join when this share of the slots is free: encoding a few at a time costs nearly as much as many.
JOIN = 0.25
# Steps that `Runs` take between checks for finished sentences, as a check makes the device wait.
STEPS = 4


@dataclass(frozen=True)
class Task:
    """A sentence to translate, as tokens with its end, and what its translation must and must not contain."""

    source: Int[np.ndarray, " source"]
    prefix: Sequence[int] = ()
    phrases: Sequence[Sequence[int]] = ()
    """phrases that the translation must contain as whole words, each as tokens"""
    forbidden: Sequence[str] = ()
    """words and phrases it must not contain"""
    in_any_case: bool = False
    """whether these are forbidden in capitals and lower case alike"""
    spelled: frozenset[str] | None = None
    """if given, characters spelled in bytes must be whole, and usual or among these, the source's"""
    max_tokens: int | None = None
    """a limit to its tokens, besides those of the settings"""
    words: Sequence[int] | None = None
    """if given, it must be a tree in brackets over the words with these tokens (`Brackets.find_words`)"""


def search(
    engine: Engine,
    tasks: Sequence[Task],
    config: SearchConfig,
    pieces: Sequence[str] = (),
    records: dict[int, Record] | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield each sentence's number and translations, the best first, in the order in which sentences are done.

    `pieces` are the target's subwords as text, which rules about words and trees need; `records`, if given, receives
    the record of each sentence's search.
    """
    limits = [most_tokens(task, config, engine.config) for task in tasks]
    _check_lengths(tasks, engine.config)
    if config.sample and any(task.phrases for task in tasks):
        raise ConfigError("search.sample = true draws at random, but required phrases need a search; use one of them")
    ruled = any(task.forbidden or task.phrases or task.spelled is not None for task in tasks)
    spellings = Spellings(pieces if ruled else ())
    brackets = find_brackets(tuple(pieces)) if any(task.words is not None for task in tasks) else None
    for number, (task, limit) in enumerate(zip(tasks, limits), 1):
        check_room(task, limit, brackets, f"sentence {number:,}")
    # The longest first: if memory is too small, that shows at the beginning.
    order = sorted(
        range(len(tasks)),
        key=lambda number: (bool(tasks[number].phrases), -len(tasks[number].source)),
    )
    first = 0
    while first < len(order):
        longest = tasks[order[first]]
        last = first + 1
        while last < len(order) and _go_together(longest, tasks[order[last]]):
            last += 1
        some = order[first:last]
        room = _Room(
            engine,
            [tasks[number] for number in some],
            [limits[number] for number in some],
            config,
            spellings,
            brackets,
        )
        try:
            for number, found in room.search():
                if records is not None:
                    records[order[first + number]] = room.record(number)
                yield order[first + number], found
        finally:
            room.lines.close()
        first = last


def search_all(
    engine: Engine,
    tasks: Sequence[Task],
    config: SearchConfig,
    pieces: Sequence[str] = (),
) -> list[list[Hypothesis]]:
    """Return the translations of each sentence, in the order of the sentences."""
    found = dict(search(engine, tasks, config, pieces))
    return [found[number] for number in range(len(tasks))]


def _go_together(longest: Task, other: Task) -> bool:
    alike = bool(other.phrases) == bool(longest.phrases) and (other.words is None) == (longest.words is None)
    return alike and len(other.source) >= SIMILAR * len(longest.source)


def most_tokens(task: Task, config: SearchConfig, model: ModelConfig) -> int:
    """Return the most tokens that a translation may have, its end counted."""
    limits = [
        len(task.source) + config.extra_tokens,
        config.max_tokens,
        task.max_tokens,
    ]
    if model.positions == "learned":
        limits.append(model.max_positions)
    return max(1, min(limit for limit in limits if limit is not None))


def _check_lengths(tasks: Sequence[Task], config: ModelConfig) -> None:
    assert all(len(task.source) for task in tasks)  # even an empty text has one token
    known = config.max_positions
    long = [number for number, task in enumerate(tasks, 1) if len(task.source) > known]
    if long and config.positions == "learned":
        others = f" (and {len(long) - 1:,} more like it)" if len(long) > 1 else ""
        raise DataError(
            f"sentence {long[0]:,} has {len(tasks[long[0] - 1].source):,} tokens{others}, but the model has learned "
            f"positions for only {known:,} (model.max_positions); split long sentences before translating them"
        )


def check_room(task: Task, limit: int, brackets: Brackets | None, name: str) -> None:
    """Refuse a sentence whose words alone take more tokens than its tree may have."""
    if task.words is not None and brackets and brackets.to_a_word * len(task.words) >= limit:
        raise DataError(
            f"{name}: has {len(task.words):,} words, but its tree may have only {limit:,} tokens with its end; "
            "raise extra_tokens or max_tokens, or split the sentence"
        )


@dataclass
class _Sentence:
    """A sentence during its search."""

    number: int
    task: Task
    rules: list[Rule]
    phrases: Phrases | None
    key: bytes
    said: list[list[int]] = field(default_factory=list)  # tokens of each line; kept only if a rule needs them


class _Room:
    """The search for sentences of similar length, as many at a time as there are slots."""

    def __init__(
        self,
        engine: Engine,
        tasks: Sequence[Task],
        limits: Sequence[int],
        config: SearchConfig,
        spellings: Spellings,
        brackets: Brackets | None,
    ):
        self.config, self.spellings = config, spellings
        self.beam = config.n_best if config.sample else config.beam
        self.slot_of: dict[int, int] = {}  # of the sentences found last
        self.waiting = deque(zip(range(len(tasks)), tasks, limits))
        source, target = max(len(task.source) for task in tasks), max(limits)
        many = max(
            1,
            min(
                len(tasks),
                engine.rows // self.beam,
                engine.tokens // (source + self.beam * target),
            ),
        )
        self.slots: list[_Sentence | None] = [None] * many
        self.lines: Lines = engine.open(many, self.beam, source, target)
        self.watches = bool(config.no_repeat or config.repetition_penalty != 1) or any(
            task.phrases or task.forbidden or task.spelled is not None for task in tasks
        )
        brackets = brackets if tasks[0].words is not None else None
        rules = self.watches or config.sample or any(task.prefix for task in tasks)
        self.runs = self.lines if isinstance(self.lines, Runs) and not rules else None
        self.ruled = rules or brackets is not None
        if self.runs:
            self.beams, self.trees = self.runs.beams_for(config, brackets)
        else:
            self.beams = Beams(many, target, config, engine.device, 0 if self.ruled else config.min_tokens)
            where = engine.device
            self.trees = OpenTrees(brackets, many, self.beam, target, where, config.word_share) if brackets else None
        self.k = min(self.beams.candidates, self.trees.many if self.trees else engine.config.vocabulary)
        shape = (many, self.beam, self.k)
        self.values = torch.zeros(shape, device=engine.device)
        self.tokens = torch.zeros(shape, dtype=torch.int32, device=engine.device)

    def search(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Search until no sentence waits and none is open."""
        while self.waiting or any(self.slots):
            with torch.inference_mode():
                self._admit()
                open_slots = np.flatnonzero([sentence is not None for sentence in self.slots])
                self.runs.run(STEPS) if self.runs else self._step(open_slots)
                found = self._collect(open_slots)
            yield from found

    def _admit(self) -> None:
        free = [slot for slot, sentence in enumerate(self.slots) if sentence is None]
        if not self.waiting or len(free) < min(len(self.waiting), max(1, JOIN * len(self.slots))):
            return
        joining = [self.waiting.popleft() for _ in range(min(len(free), len(self.waiting)))]
        free = free[: len(joining)]
        self.lines.admit(
            free,
            [np.ascontiguousarray(task.source, np.int32) for _, task, _ in joining],
        )
        self.beams.begin(free, [limit for _, _, limit in joining])
        if self.trees:
            self.trees.begin(free, [task.words or [] for _, task, _ in joining], [limit for _, _, limit in joining])
        for slot, (number, task, _) in zip(free, joining):
            rules = self._make_rules(task) if self.ruled else []
            phrases = Phrases(task.phrases, self.spellings) if task.phrases else None
            key = make_key(np.asarray(task.source), self.config.sample_seed) if self.config.sample else b""
            self.slots[slot] = _Sentence(number, task, rules, phrases, key, [[] for _ in range(self.beam)])

    def _make_rules(self, task: Task) -> list[Rule]:
        own = task.prefix, task.forbidden, self.spellings
        return make_rules(self.config, *own, in_any_case=task.in_any_case, spelled=task.spelled)

    def _step(self, slots: Int[np.ndarray, " open"]) -> None:
        beams = self.beams
        open_next, open_parents = (
            beams.next.cpu().numpy()[slots],
            beams.parents.cpu().numpy()[slots],
        )
        logits = self.lines.advance(slots, open_next, open_parents)
        sentences = [sentence for slot in slots if (sentence := self.slots[slot])]
        normaliser = self._rule(slots, sentences, logits)
        if sentences[0].phrases:
            self._choose_with_phrases(slots, sentences, logits, normaliser)
        elif self.config.sample:
            self._draw(slots, sentences, logits, normaliser)
        else:
            values, tokens = self._best(slots, logits, normaliser)
            if len(slots) == len(self.slots):
                beams.choose(values.view_as(self.values), tokens.view_as(self.tokens))
            else:
                index = torch.from_numpy(slots).to(values.device)
                self.values[index] = values.unflatten(0, (-1, self.beam))
                self.tokens[index] = tokens.unflatten(0, (-1, self.beam))
                beams.choose(self.values, self.tokens)
        if self.trees:
            self.trees.go_on(beams.parents, beams.next)
        if self.watches:
            new, parents = beams.next.cpu().numpy(), beams.parents.cpu().numpy()
            for slot, sentence in zip(slots, sentences):
                sentence.said = [
                    [*sentence.said[parent], token] for parent, token in zip(parents[slot].tolist(), new[slot].tolist())
                ]

    def _best(self, slots: np.ndarray, logits: Tensor, normaliser: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the largest log-probabilities of each line, and their tokens."""
        if not self.trees:
            return self.lines.best(logits, self.k, normaliser)
        found, tokens = self.trees.choices(logits, slots, normaliser)
        values, places = self.lines.best(found, self.k, normaliser)
        return values, tokens.gather(1, places.long()).int()

    def _rule(self, slots: np.ndarray, sentences: list[_Sentence], logits: Tensor) -> Tensor | None:
        """Apply the rules; return the normaliser of the logits before them, or None if nothing needs it."""
        each = logits.unflatten(0, (-1, self.beam)).unbind()
        said = [self._said(sentence) for sentence in sentences] if self.watches else []
        if self.config.repetition_penalty != 1:
            for rows, tokens in zip(each, said):
                penalise_repetition(rows, tokens, self.config.repetition_penalty)
        ruled = any(sentence.rules or sentence.phrases for sentence in sentences)
        if not (self.config.sample or self.trees or ruled):
            return None
        normaliser = self.lines.normaliser(logits).clone()
        lengths = self.beams.length.tolist()
        for place, (slot, sentence) in enumerate(zip(slots, sentences)):
            # If nothing else is watched, rules look only at the number of tokens.
            tokens = said[place] if self.watches else np.empty((self.beam, lengths[slot]), np.int64)
            for rule in sentence.rules:
                rule.forbid(each[place], tokens)
        return normaliser

    def _said(self, sentence: _Sentence) -> np.ndarray:
        return np.array(sentence.said, np.int64).reshape(self.beam, -1)

    def _draw(
        self,
        slots: np.ndarray,
        sentences: list[_Sentence],
        logits: Tensor,
        normaliser: Tensor | None,
    ) -> None:
        """Continue each line with a token drawn at random; a line that draws the end has ended."""
        beams = self.beams
        assert normaliser is not None
        logits[:, [PAD, BEGIN]] = -torch.inf
        if self.trees:
            found, tokens = self.trees.choices(logits, slots)
            logits.fill_(-torch.inf).scatter_(1, tokens, found)
        lengths = beams.length.tolist()
        numbers = [
            number
            for slot, sentence in zip(slots, sentences)
            for number in random_numbers(sentence.key, lengths[slot], self.beam)
        ]
        drawn = draw(logits, torch.tensor(numbers, dtype=torch.float64), self.config)
        gained = logits.gather(1, drawn[:, None]).flatten() - normaliser
        index = torch.from_numpy(slots).to(logits.device)
        tokens = torch.full_like(beams.next, END)
        tokens[index] = drawn.int().view(-1, self.beam)
        sums = beams.scores.clone()
        sums[index] += gained.view(-1, self.beam)
        lines = torch.arange(self.beam, device=index.device).repeat(len(self.slots), 1)
        ends = tokens == END
        beams.end(sums.masked_fill(~ends, -torch.inf), lines)
        beams.go_on(sums.masked_fill(ends, -torch.inf), lines, tokens)

    def _choose_with_phrases(
        self,
        slots: np.ndarray,
        sentences: list[_Sentence],
        logits: Tensor,
        normaliser: Tensor | None,
    ) -> None:
        beams, shape = self.beams, (len(self.slots), self.beam)
        assert normaliser is not None
        log_probabilities = (logits - normaliser[:, None]).view(len(slots), self.beam, -1)
        tokens = log_probabilities.topk(self.k).indices.cpu().numpy()
        known, scores = log_probabilities.cpu().numpy(), beams.scores.cpu().numpy()
        last = (beams.length + 1 == beams.limit).tolist()
        sums, new_scores = (
            np.full(shape, -np.inf, np.float32),
            np.full(shape, -np.inf, np.float32),
        )
        ended_lines, parents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        new = np.full(shape, END, np.int32)
        for place, (slot, sentence) in enumerate(zip(slots, sentences)):
            assert sentence.phrases
            step = sentence.phrases.choose(
                sentence.said,
                scores[slot],
                known[place],
                tokens[place],
                last=last[slot],
            )
            for line, (score, parent, _) in enumerate(step.ended):
                sums[slot, line], ended_lines[slot, line] = score, parent
            for line, (score, parent, token) in enumerate(step.going):
                new_scores[slot, line], parents[slot, line], new[slot, line] = (
                    score,
                    parent,
                    token,
                )
        device = beams.scores.device
        beams.end(torch.from_numpy(sums).to(device), torch.from_numpy(ended_lines).to(device))
        beams.go_on(*(torch.from_numpy(part).to(device) for part in (new_scores, parents, new)))

    def _collect(self, slots: Int[np.ndarray, " open"]) -> list[tuple[int, list[Hypothesis]]]:
        done = slots[self.beams.done.cpu().numpy()[slots]].tolist()
        if not done:
            return []
        numbers = [sentence.number for slot in done if (sentence := self.slots[slot])]
        self.slot_of = dict(zip(numbers, done))
        for slot in done:
            self.slots[slot] = None
        return list(zip(numbers, self.beams.results(done)))

    def record(self, number: int) -> Record:
        """Return the record of a sentence that was just found; the next step may give its slot to another."""
        return self.beams.record(self.slot_of[number])


def greedy_all(
    engine: Engine, tasks: Sequence[Task], config: SearchConfig, pieces: Sequence[str] = ()
) -> list[Int[np.ndarray, " tokens"]]:
    """Return each sentence's greedy output: the most probable token at each step, without the end."""
    greedy = replace(config, beam=1, n_best=1, sample=False)
    return [found[0].tokens for found in search_all(engine, tasks, greedy, pieces)]
