"""Check that an exported model translates as ours does: both translate the same sentences."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from transduce.decoding.translator import Translator
from transduce.errors import DataError, TransduceError
from transduce.model.saved import Loaded
from transduce.scoring.bleu import choose_tokenizer
from transduce.scoring.metrics import MetricSettings, measure
from transduce.scoring.significance import SAMPLES, SEED, compare, resample
from transduce.scoring.texts import System, Texts, read_lines
from transduce.text.clean import CleanConfig, normalise
from transduce.text.shards import SIDES, DataSet
from transduce.text.subwords import Subwords

LONGEST = 100  # sentences of this many tokens or more are not used for the check
EXTRA = 50  # tokens by which a translation may exceed the longest source
APART = 0.003  # most nats per token between the two log-probabilities; some runtimes give padding and begin none
AS_PROBABLE = 0.01  # nats between two translations so close that rounding may choose either
WORSE = 0.2  # points of BLEU, or of F1 for trees, that int8 may lose
CHANCE = 0.05  # a larger loss with this p-value or more may be chance
WORSE_BY = f"it loses more than {WORSE} {{}}, and not by chance"
DIFFERENT = 100  # one sentence in this many may differ, since searches end in different ways


class Said(NamedTuple):
    """A translation by another runtime."""

    text: str
    whole: bool = True
    """false if it was cut at the length limit"""


Pair = tuple[list[int], list[int]]  # tokens of source and target, each with its end
Score = Callable[[Sequence[Pair]], list[float]]
Translate = Callable[[Sequence[str], int, int | None], list[Said]]


@dataclass(frozen=True)
class CheckText:
    """Sentences to check with, their origin, and their reference translations or trees, if there are any."""

    origin: str
    lines: list[str]
    references: list[str] | None = None
    why: str | None = None
    """why the sentences are made up, if they are"""


@dataclass(frozen=True)
class Check:
    """The result of a check, in sentences for people: what was found, and where the export is too far from ours."""

    found: tuple[str, ...]
    wrong: tuple[str, ...] = ()


def choose_text(loaded: Loaded, given: Path | None, reference: Path | None, most: int) -> CheckText:
    """Return lines of the given file, or else of the model's dev set, or else made of random subwords."""
    if given:
        lines, references = read_lines(given), read_lines(reference) if reference else None
        if references is not None and len(references) != len(lines):
            raise DataError(f"{reference}: has {len(references):,} lines, but {given} has {len(lines):,}")
        text = _usable(loaded, CheckText(given.name, lines, references), most)
        if not text.lines:
            raise DataError(f"{given}: has no line of 1 to {LONGEST} tokens to check with")
        return text
    data = find_data(loaded)
    if isinstance(data, DataSet):
        pairs = range(min(data.dev.pairs, 2 * most))
        lines, references = ([data.text("dev", side, pair) for pair in pairs] for side in SIDES)
        text = _usable(loaded, CheckText(f"the dev set of {data.folder}", lines, references), most)
        if text.lines:
            return text
        data = f"the dev set of {data.folder} has no sentence of 1 to {LONGEST} tokens"
    drawn = _draw_lines(loaded.subwords["source"], 2 * most)
    return _usable(loaded, CheckText("lines of random subwords", drawn, why=data), most)


def find_data(loaded: Loaded) -> DataSet | str:
    """Return the data set that the model was trained on, if unchanged and with a dev set, or else what is wrong."""
    known = loaded.about.get("trained_on") or {}
    if not isinstance(folder := known.get("folder"), str):
        return "the model does not record what it was trained on"
    try:
        data = DataSet.open(folder)
    except (OSError, TransduceError):
        return f"the data set it was trained on, {folder}, is missing"
    if data.manifest.get("fingerprint") != known.get("fingerprint"):
        return f"{folder} has been prepared again since the model was trained on it, so its dev set may differ"
    return data if "dev" in data.splits and data.dev.pairs else f"{folder} has no dev set"


def _usable(loaded: Loaded, text: CheckText, most: int) -> CheckText:
    """Normalise lines as for training; keep the first `most` that have a letter or digit and are not too long."""
    clean = CleanConfig(unicode=loaded.about.get("unicode", "NFC"), entities=False)
    lines = [normalise(line, clean)[0] for line in text.lines]
    kept = [
        number
        for number, line in enumerate(lines)
        if any(map(str.isalnum, line)) and len(loaded.subwords["source"].encode(line)) < LONGEST
    ][:most]
    references = None if text.references is None else [text.references[number] for number in kept]
    return replace(text, lines=[lines[number] for number in kept], references=references)


def _draw_lines(subwords: Subwords, many: int) -> list[str]:
    """Make lines of random subwords, without bytes, tags and unused ones."""
    drawn = random.Random(1)
    words = [
        token
        for token, piece in enumerate(subwords.pieces(range(len(subwords))))
        if any(map(str.isalnum, piece)) and "<" not in piece and not subwords.processor.is_unused(token)
    ]
    return [subwords.decode(drawn.choices(words, k=drawn.randint(3, 12))) for _ in range(many)]


def check(
    translator: Translator,
    text: CheckText,
    translate: Translate,
    score: Score,
    runtime: str,
    *,
    alike: bool,
    exact: bool,
) -> Check:
    """Translate with both models, greedily and with our model's beam, and let both score our translations.

    If their search is not `alike`, both search without a length penalty, up to the same length. If the export is not
    `exact`, only its BLEU is judged.
    """
    search = translator.search
    longest = max(len(translator.tokens(line, "source")) for line in text.lines) + EXTRA
    if translator.engine.config.positions == "learned":
        longest = min(longest, translator.engine.config.max_positions)
    settings = {} if alike else {"alpha": 0.0, "max_tokens": longest, "extra_tokens": longest}
    found = [f"{len(text.lines):,} sentences ({text.origin}), translated by {runtime} and by transduce"]
    if text.why:
        found.append(f"{text.why}, so they are made up; --check FILE --reference FILE uses your own sentences")
    wrong: list[str] = []
    ours: list[str] = []
    theirs: list[str] = []
    greedily_same = False
    for beam in dict.fromkeys((1, search.beam)):
        translations = translator.translate(
            text.lines, split="never", capitals=False, copy_unknown=False, beam=beam, n_best=1, **settings
        )
        ours = [translation.text.strip() for translation in translations]
        complete = [all(s.alternatives[0].complete for s in translation.sentences) for translation in translations]
        said = translate(text.lines, beam, None if alike else longest)
        theirs = [one.text.strip() for one in said]
        name = "greedily" if beam == 1 else f"with beam {beam}"
        same = [one == other for one, other in zip(ours, theirs)]
        if beam == 1:
            greedily_same = all(same)
        if not exact:
            found.append(f"{name}: {sum(same):,} of {len(same):,} the same")
            continue
        # In a beam, other runtimes rank cut hypotheses among the ended ones; ours ranks them last.
        whole = [ours_whole and one.whole for ours_whole, one in zip(complete, said)]
        counted = [number for number, both in enumerate(whole) if both or alike or beam == 1]
        differing = [number for number in counted if not same[number]]
        real = [
            number
            for number in differing
            if not _is_as_good(translator, text.lines[number], ours[number], theirs[number], beam)
        ]
        cut = len(text.lines) - len(counted)
        same_many, notes = len(counted) - len(differing), _others(differing, real, cut)
        found.append(f"{name}: {same_many:,} of {len(counted):,} the same{notes}")
        if len(real) > (most := len(counted) // DIFFERENT):
            wrong.append(f"{name}, {len(real):,} of {len(counted):,} translations differ, and at most {most} may")
            first = real[0]
            found.append(f"source: {text.lines[first]}\nours: {ours[first]}\ntheirs: {theirs[first]}")
    apart = _compare_scores(translator, text.lines, ours, score)
    found.append(f"probabilities of the same translations: at most {apart:.2g} nats a token apart")
    if exact and apart > APART:
        though = ", though all greedy translations are the same" * greedily_same
        wrong.append(f"probabilities differ by up to {apart:.2g} nats a token, and {APART} is allowed{though}")
    if not exact:
        line, good = check_quality(ours, theirs, text.references, "bleu")
        found.append(line)
        wrong += [] if good else [WORSE_BY.format("BLEU")]
    return Check(tuple(found), tuple(wrong))


def _others(differing: Sequence[int], real: Sequence[int], cut: int) -> str:
    ties = len(differing) - len(real)
    notes = f", {ties:,} equally probable" * bool(ties) + f", {len(real):,} different" * bool(real)
    return notes + f"; {cut:,} reached the length limit and are not compared" * bool(cut)


def _is_as_good(translator: Translator, source: str, ours: str, theirs: str, beam: int) -> bool:
    """Return whether our model finds their translation as good as its own.

    Greedily: where the two part, it finds both tokens equally probable. With a beam: it finds their translation at
    least as probable as its own.
    """
    own, other = translator.score([(source, ours), (source, theirs)])
    if beam > 1:
        return float(other.sum()) >= float(own.sum()) - AS_PROBABLE
    tokens = zip(translator.tokens(ours, "target"), translator.tokens(theirs, "target"))
    parting = next((place for place, (one, another) in enumerate(tokens) if one != another), None)
    return parting is not None and abs(float(own[parting] - other[parting])) <= AS_PROBABLE


def _compare_scores(translator: Translator, lines: Sequence[str], ours: Sequence[str], score: Score) -> float:
    """Return the largest difference in nats per token: a confident model may say the same with a wrong weight."""
    pairs = [
        (translator.tokens(line, "source").tolist(), translator.tokens(said, "target").tolist())
        for line, said in zip(lines, ours)
    ]
    expected = [float(scores.sum()) for scores in translator.score(list(zip(lines, ours)))]
    return max(abs(one - other) / len(pair[1]) for one, other, pair in zip(expected, score(pairs), pairs))


def check_quality(
    ours: list[str], theirs: list[str], references: list[str] | None, metric: Literal["bleu", "parseval"]
) -> tuple[str, bool]:
    """Say how their translations or trees score, and return whether a loss is small enough or may be chance."""
    name = {"bleu": "BLEU", "parseval": "F1"}[metric]
    texts = Texts([System("ours", ours), System("theirs", theirs)], [list(references or ours)], None)
    settings = MetricSettings(choose_tokenizer("", references or ours))
    before, after = (found[0] for found in measure(texts, (metric,), settings, workers=1))
    if references is None:
        remedy = "--check FILE --reference FILE" if metric == "bleu" else "--check TREES"
        return (
            f"{name} against ours: {after.value:.1f} (for information only; to judge it by your own text: {remedy})",
            True,
        )
    loss = compare(before.value, after.value, *resample([before, after], SAMPLES, SEED))
    chance = f", by chance with p = {loss.p_value:.2f}" * (loss.difference < -WORSE)
    said = f"{name} {after.value:.2f}, ours in float32 {before.value:.2f}{chance} ({after.signature})"
    return said, loss.difference >= -WORSE or loss.p_value >= CHANCE
