"""The built-in corpus: numbers, years, dates, clock times and prices in English and German; it needs no download.

It is small but real. Order crosses within a word ("twenty-one", "einundzwanzig"), within a phrase ("twenty-five to
eight", "fünf nach halb acht") and within a sentence ("the train leaves at …", "der Zug fährt um … ab"). Each source has
exactly one target, so exact match is a fair score.

Values are held out: a number, a year, a day of a month, a time or an amount that occurs in dev or test never occurs in
train, neither alone nor in a date or a sentence. The numbers from 0 to 100 are exempt and always in train, so that it
teaches every word of dev and test.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Literal, NamedTuple, TypeVar

Split = Literal["train", "dev", "test"]
PAIRS: dict[Split, int] = {"train": 40_000, "dev": 1_000, "test": 1_000}
ALWAYS_IN_TRAIN = range(101)
T = TypeVar("T")


def _words(row: str) -> list[str]:
    """Split a row of words."""
    return row.split()


def _check(name: str, value: int, allowed: range) -> None:
    """Refuse a value that cannot be put into words here."""
    if value not in allowed:
        raise ValueError(f"{name} = {value} has no words here; use one in {allowed}")


# ---- cardinals: "four hundred and twenty-one", "vierhunderteinundzwanzig" ----

NUMBERS = range(10**9)
ENGLISH_SMALL = _words("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen")
ENGLISH_SMALL += _words("sixteen seventeen eighteen nineteen")
GERMAN_SMALL = _words("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn")
GERMAN_SMALL += _words("sechzehn siebzehn achtzehn neunzehn")
ENGLISH_TENS = _words("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
GERMAN_TENS = _words("null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")


def english_cardinal(n: int) -> str:
    """Write a number below a thousand million in British English."""
    _check("number", n, NUMBERS)
    if n < 20:
        return ENGLISH_SMALL[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return f"{ENGLISH_TENS[tens]}-{ENGLISH_SMALL[unit]}" if unit else ENGLISH_TENS[tens]
    size, name = (10**6, "million") if n >= 10**6 else (1000, "thousand") if n >= 1000 else (100, "hundred")
    head, rest = divmod(n, size)
    words = f"{english_cardinal(head)} {name}"
    return f"{words}{' and ' if rest < 100 else ' '}{english_cardinal(rest)}" if rest else words


def german_cardinal(n: int) -> str:
    """Write a number below a thousand million in German."""
    _check("number", n, NUMBERS)
    millions, rest = divmod(n, 10**6)
    if not millions:
        return _german_word(n, one="eins")
    # The million is a feminine noun, and a one before it agrees: "eine Million", "einhunderteine Millionen".
    words = f"{_german_word(millions, one='eine')} {'Million' if millions == 1 else 'Millionen'}"
    return f"{words} {_german_word(rest, one='eins')}" if rest else words


def _german_word(n: int, one: str) -> str:
    """Write a number below a million as one word, with the given form of a one at its end."""
    if n < 20:
        return one if n == 1 else GERMAN_SMALL[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return f"{_german_word(unit, one='ein')}und{GERMAN_TENS[tens]}" if unit else GERMAN_TENS[tens]
    size, name = (1000, "tausend") if n >= 1000 else (100, "hundert")
    head, rest = divmod(n, size)
    return _german_word(head, one="ein") + name + (_german_word(rest, one) if rest else "")


# ---- years and days: "nineteen eighty-four", "neunzehnhundertvierundachtzig"; "twenty-first", "einundzwanzigst" ----

ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
ENGLISH_ORDINALS |= {"nine": "ninth", "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth"}
GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
ENGLISH_MONTHS = _words("January February March April May June July August September October November December")
GERMAN_MONTHS = _words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
ENGLISH_WEEKDAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
GERMAN_WEEKDAYS = _words("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag")


@cache
def say_year(year: int) -> tuple[str, str]:
    """Say a year in both languages, each with its own range of years said in hundreds."""
    _check("year", year, range(1100, 2100))
    century, rest = divmod(year, 100)
    tail = "hundred" if rest == 0 else f"oh {english_cardinal(rest)}" if rest < 10 else english_cardinal(rest)
    english = english_cardinal(year) if 2000 <= year < 2010 else f"{english_cardinal(century)} {tail}"
    in_hundreds = f"{german_cardinal(century)}hundert{german_cardinal(rest) if rest else ''}"
    return english, german_cardinal(year) if year >= 2000 else in_hundreds


@cache
def say_ordinal(day: int) -> tuple[str, str]:
    """Say a day of the month as an ordinal in both languages, the German one without its ending."""
    _check("day", day, range(1, 32))
    head, hyphen, last = english_cardinal(day).rpartition("-")
    german = german_cardinal(day) + ("t" if day < 20 else "st")
    return head + hyphen + ENGLISH_ORDINALS.get(last, f"{last}th"), GERMAN_ORDINALS.get(day, german)


# ---- clock times: "twenty-five to eight in the evening", "fünf nach halb acht abends" ----

CLOCK = {
    0: ("{this} o'clock", "{this} Uhr"),
    5: ("five past {this}", "fünf nach {this}"),
    10: ("ten past {this}", "zehn nach {this}"),
    15: ("quarter past {this}", "Viertel nach {this}"),
    20: ("twenty past {this}", "zwanzig nach {this}"),
    25: ("twenty-five past {this}", "fünf vor halb {next}"),
    30: ("half past {this}", "halb {next}"),
    35: ("twenty-five to {next}", "fünf nach halb {next}"),
    40: ("twenty to {next}", "zwanzig vor {next}"),
    45: ("quarter to {next}", "Viertel vor {next}"),
    50: ("ten to {next}", "zehn vor {next}"),
    55: ("five to {next}", "fünf vor {next}"),
}
PARTS_OF_DAY = (  # each with the hours for which it is usual in both languages
    ("in the morning", "morgens", range(5, 10)),
    ("in the morning", "vormittags", range(10, 12)),
    ("in the afternoon", "nachmittags", range(1, 5)),
    ("in the evening", "abends", range(6, 10)),
    ("at night", "nachts", range(11, 13)),
)


@cache
def say_time(hour: int, minute: int) -> tuple[str, str]:
    """Say a time on the twelve-hour clock in both languages."""
    _check("hour", hour, range(1, 13))
    _check("minute", minute, range(0, 60, 5))
    english, german = CLOCK[minute]
    german_hour = _german_word(hour, one="eins" if minute else "ein")  # "fünf nach eins", but "ein Uhr"
    english = english.format(this=english_cardinal(hour), next=english_cardinal(hour % 12 + 1))
    return english, german.format(this=german_hour, next=german_cardinal(hour % 12 + 1))


# ---- prices: "three euros and fifty cents", "drei Euro und fünfzig Cent"; "one pound fifty", "ein Pfund fünfzig" ----


class Currency(NamedTuple):
    """The names of a coin and of its hundredth part, singular and plural, and the accusative of a one before it."""

    english: tuple[str, str]
    english_part: tuple[str, str]
    german: str
    german_part: tuple[str, str]
    accusative: str


EURO = Currency(("euro", "euros"), ("cent", "cents"), "Euro", ("Cent", "Cent"), "einen")
DOLLAR = Currency(("dollar", "dollars"), ("cent", "cents"), "Dollar", ("Cent", "Cent"), "einen")
POUND = Currency(("pound", "pounds"), ("penny", "pence"), "Pfund", ("Penny", "Pence"), "ein")


def say_price(
    coins: int, parts: int, currency: Currency, brief: bool = False, accusative: bool = False
) -> tuple[str, str]:
    """Say an amount in both languages; a brief one does not name cents or pence; only a one shows the accusative."""
    one, one_part = (currency.accusative, "einen") if accusative else ("ein", "ein")
    english = f"{english_cardinal(coins)} {currency.english[coins != 1]}"
    german = f"{one if coins == 1 else german_cardinal(coins)} {currency.german}"
    english_part = f"{english_cardinal(parts)} {currency.english_part[parts != 1]}"
    german_part = f"{one_part if parts == 1 else german_cardinal(parts)} {currency.german_part[parts != 1]}"
    if not parts:
        return english, german
    if not coins:
        return english_part, german_part
    if brief:
        return f"{english} {english_cardinal(parts)}", f"{german} {german_cardinal(parts)}"
    return f"{english} and {english_part}", f"{german} und {german_part}"


# ---- phrases: a random value in both languages ----


class Phrase(NamedTuple):
    """A value in canonical form, which decides its split, with its words in both languages."""

    value: str
    english: str
    german: str


def _pick(random: Random, items: Sequence[T]) -> T:
    """Pick one item; only `Random.random` promises the same numbers in every version of Python."""
    return items[int(random.random() * len(items))]


def _number(random: Random, lengths: Sequence[int]) -> int:
    """Pick a number, its length first so that short ones occur too, and make one in four rounder."""
    length = _pick(random, lengths)
    n = int(random.random() * 10**length)
    return n - n % 10 ** _pick(random, range(length)) if random.random() < 0.25 else n


def _cardinal(random: Random, lengths: Sequence[int], counts: bool = False) -> Phrase:
    """Say a number; one that counts things never ends in 01, since Germans differ about its form before a noun."""
    n = _number(random, lengths)
    while counts and (n == 0 or n % 100 == 1):
        n = _number(random, lengths)
    return Phrase(str(n), english_cardinal(n), german_cardinal(n))


def _year(random: Random) -> Phrase:
    """Say a year of the last few centuries."""
    year = _pick(random, range(1600, 2030))
    return Phrase(str(year), *say_year(year))


def _day(english: str, german: str, random: Random) -> Phrase:
    """Say a day of a month, and of the week if the patterns ask for it."""
    month, week = _pick(random, range(12)), _pick(random, range(7))
    day = _pick(random, range(1, monthrange(2001, month + 1)[1] + 1))  # any year may follow, so never a leap day
    english_day, german_day = say_ordinal(day)
    return Phrase(
        f"{month + 1:02}-{day:02}",
        english.format(day=english_day, month=ENGLISH_MONTHS[month], weekday=ENGLISH_WEEKDAYS[week]),
        german.format(day=german_day, month=GERMAN_MONTHS[month], weekday=GERMAN_WEEKDAYS[week]),
    )


def _time(random: Random) -> Phrase:
    """Say a time; half of those with a usual part of the day name it."""
    hour, minute = _pick(random, range(1, 13)), _pick(random, range(0, 60, 5))
    english, german = say_time(hour, minute)
    parts = [part for part in PARTS_OF_DAY if hour in part[2]]
    if parts and random.random() < 0.5:
        english_part, german_part, _ = _pick(random, parts)
        english, german = f"{english} {english_part}", f"{german} {german_part}"
    return Phrase(f"{hour}:{minute:02}", english, german)


def _price(random: Random, accusative: bool = False) -> Phrase:
    """Say an amount of money in any currency, but never with a number of coins above 1 that ends in 01."""
    coins = parts = 0
    while coins == parts == 0 or (coins > 1 and coins % 100 == 1):
        coins = _number(random, lengths=(1, 2, 3, 4))
        parts = _pick(random, range(100)) if random.random() < 0.7 else 0
    currency, brief = _pick(random, (EURO, DOLLAR, POUND)), parts >= 10 and random.random() < 0.5
    value = f"{coins}.{parts:02}" if parts and coins in ALWAYS_IN_TRAIN else str(coins)
    return Phrase(value, *say_price(coins, parts, currency, brief, accusative))


# ---- sentences: phrases in their places, which differ between the languages ----

PHRASES: dict[str, Callable[[Random], Phrase]] = {
    "number": partial(_cardinal, lengths=(2, 3, 3, 4, 4, 5, 5, 6, 6) * 5 + (7, 8, 9)),
    "count": partial(_cardinal, lengths=(2, 3, 4, 5, 6), counts=True),
    "year": _year,
    "day": partial(_day, "the {day} of {month}", "der {day}e {month}"),
    "on_day": partial(_day, "on the {day} of {month}", "am {day}en {month}"),
    "on_weekday": partial(_day, "on {weekday} the {day} of {month}", "am {weekday}, dem {day}en {month}"),
    "time": _time,
    "later": _time,
    "price": _price,
    "cost": partial(_price, accusative=True),
}
ALONE: dict[str, tuple[str, ...]] = {kind: (f"{{{kind}}}",) for kind in ("number", "year", "time", "price")}
ALONE["date"] = ("{day}", "{on_day}", "{on_weekday}", "{day} {year}", "{on_day} {year}")
SENTENCES = {
    "number": (
        ("the answer is {number}", "die Antwort lautet {number}"),
        ("he can count to {number}", "er kann bis {number} zählen"),
        ("she has already counted to {number}", "sie hat schon bis {number} gezählt"),
        ("please open the book at page {number}", "bitte schlagen Sie das Buch auf Seite {number} auf"),
        ("{count} people live in this town", "in dieser Stadt leben {count} Menschen"),
        ("today the town has {count} inhabitants", "heute hat die Stadt {count} Einwohner"),
        ("last year he read {count} pages", "letztes Jahr hat er {count} Seiten gelesen"),
        ("we have sold {count} tickets", "wir haben {count} Karten verkauft"),
    ),
    "year": (
        ("in {year}", "im Jahr {year}"),
        ("in {year} he moved to Berlin", "im Jahr {year} zog er nach Berlin"),
        ("the bridge was built in {year}", "die Brücke wurde im Jahr {year} gebaut"),
        ("the house has been empty since {year}", "das Haus steht seit {year} leer"),
    ),
    "date": (
        ("today is {day}", "heute ist {day}"),
        ("today is {day} {year}", "heute ist {day} {year}"),
        ("the letter arrived {on_day}", "der Brief kam {on_day} an"),
        ("she was born {on_day} {year}", "sie wurde {on_day} {year} geboren"),
        ("{on_day} {year} she was born", "{on_day} {year} wurde sie geboren"),
        ("the contract was signed {on_day} {year}", "der Vertrag wurde {on_day} {year} unterschrieben"),
        ("{on_weekday} the museum was closed", "{on_weekday}, war das Museum geschlossen"),
        ("the concert began {on_day} at {time}", "das Konzert fing {on_day} um {time} an"),
        ("the ship arrived {on_weekday} at {time}", "das Schiff kam {on_weekday}, um {time} an"),
    ),
    "time": (
        ("at {time}", "um {time}"),
        ("it is already {time}", "es ist schon {time}"),
        ("at {time} the lesson begins", "um {time} fängt der Unterricht an"),
        ("please call me at {time}", "bitte rufen Sie mich um {time} an"),
        ("I woke up at {time}", "ich bin um {time} aufgewacht"),
        ("he did not come home until {time}", "er kam erst um {time} nach Hause"),
        ("we have been waiting since {time}", "wir warten seit {time}"),
        ("the train leaves at {time}", "der Zug fährt um {time} ab"),
        ("the train leaves at {time} and arrives at {later}", "der Zug fährt um {time} ab und kommt um {later} an"),
        ("the shop opens at {time} and closes at {later}", "das Geschäft macht um {time} auf und um {later} zu"),
    ),
    "price": (
        ("the book costs {cost}", "das Buch kostet {cost}"),
        ("she paid {cost} for the coffee", "sie hat für den Kaffee {cost} bezahlt"),
        ("I have already spent {cost} today", "ich habe heute schon {cost} ausgegeben"),
        ("he still owes me {cost}", "er schuldet mir noch {cost}"),
        ("for {cost} you get a ticket", "für {cost} bekommt man eine Karte"),
    ),
}
KINDS = ("number",) * 8 + ("date",) * 5 + ("price",) * 3 + ("time",) * 2 + ("year",)


@dataclass(frozen=True)
class Example:
    """A source with its one right target, and the values in both."""

    kind: str
    source: str
    target: str
    values: tuple[str, ...]


def split_of(value: str) -> Split:
    """Return the one split in which a value may occur: a tenth of the values go to dev and a tenth to test."""
    if value.isdigit() and int(value) in ALWAYS_IN_TRAIN:
        return "train"
    tenth = int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big") % 10
    return "dev" if tenth == 0 else "test" if tenth == 1 else "train"


def _draw(split: Split, random: Random) -> Example:
    """Draw a phrase or a sentence, all of whose values belong to the split."""
    kind = _pick(random, KINDS)
    alone = _pick(random, ALONE[kind])
    source, target = _pick(random, SENTENCES[kind]) if random.random() < 0.6 else (alone, alone)
    phrases: dict[str, Phrase] = {}
    for name in re.findall(r"{(\w+)}", source):
        while name not in phrases or split_of(phrases[name].value) != split:
            phrases[name] = PHRASES[name](random)
    return Example(
        kind,
        source.format_map({name: phrase.english for name, phrase in phrases.items()}),
        target.format_map({name: phrase.german for name, phrase in phrases.items()}),
        tuple(phrase.value for phrase in phrases.values()),
    )


def examples(split: Split, seed: int = 1) -> Iterator[Example]:
    """Yield a split without end and without a repeated source; train begins by counting from 0 to 100."""
    if split not in PAIRS:
        raise ValueError(f"split = {split!r} is unknown; use {', '.join(PAIRS)}")
    counted = ALWAYS_IN_TRAIN if split == "train" else ()
    yield from (Example("number", english_cardinal(n), german_cardinal(n), (str(n),)) for n in counted)
    seen = {english_cardinal(n) for n in counted}
    random = Random(seed * len(PAIRS) + list(PAIRS).index(split))
    while True:
        example = _draw(split, random)
        if example.source not in seen:
            seen.add(example.source)
            yield example


def corpus(split: Split, pairs: int | None = None, seed: int = 1) -> list[tuple[str, str]]:
    """Return the first pairs of a split, by default as many as `PAIRS` says; fewer pairs are a prefix of more."""
    stream = islice(examples(split, seed), PAIRS.get(split) if pairs is None else pairs)
    return [(example.source, example.target) for example in stream]
