"""English sentences with numbers, times, dates and prices, and their German: text has few of them.

One in a hundred of Tatoeba's pairs has a number in words, mostly below twenty, so a small model guesses what
"zweiundvierzig" means. The words come from the built-in corpus (`transduce.text.numbers`); the sentences around them
are in this file. `QUIZ` has sentences that are in no training text, to ask for every number in.
"""

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from transduce.text.numbers import (
    DOLLAR,
    ENGLISH_MONTHS,
    EURO,
    GERMAN_MONTHS,
    PARTS_OF_DAY,
    english_cardinal,
    german_cardinal,
    say_ordinal,
    say_price,
    say_time,
    say_year,
)
from transduce.text.vary import make_up_name

Pair = tuple[str, str]
T = TypeVar("T")
IN_FIGURES = 0.2  # share of the sentences whose numbers are in figures

THINGS = (
    *(("books", "Bücher"), ("letters", "Briefe"), ("houses", "Häuser"), ("cars", "Autos"), ("tickets", "Karten")),
    *(("eggs", "Eier"), ("bottles", "Flaschen"), ("chairs", "Stühle"), ("rooms", "Zimmer"), ("e-mails", "E-Mails")),
    *(("stamps", "Briefmarken"), ("songs", "Lieder"), ("pictures", "Bilder"), ("mistakes", "Fehler")),
    *(("questions", "Fragen"), ("languages", "Sprachen"), ("sheep", "Schafe"), ("apples", "Äpfel"), ("beds", "Betten")),
)
PEOPLE = (
    *(("people", "Leute"), ("people", "Menschen"), ("guests", "Gäste"), ("children", "Kinder"), ("pupils", "Schüler")),
    *(("women", "Frauen"), ("men", "Männer"), ("soldiers", "Soldaten"), ("workers", "Arbeiter"), ("girls", "Mädchen")),
)
SPANS = (("minutes", "Minuten"), ("hours", "Stunden"), ("days", "Tage"), ("weeks", "Wochen"), ("months", "Monate"))
PERSONS = (
    *(
        ("My grandmother", "Meine Großmutter"),
        ("My father", "Mein Vater"),
        ("Tom", "Tom"),
        ("Her brother", "Ihr Bruder"),
    ),
    *(("Our teacher", "Unsere Lehrerin"), ("The woman", "Die Frau"), ("His wife", "Seine Frau"), ("Mary", "Maria")),
    *(("The king", "Der König"), ("My best friend", "Mein bester Freund"), ("Our neighbour", "Unser Nachbar")),
)
# Half of the persons have made-up names, which resemble these.
NAMES = (
    *("Sarah", "Okonkwo", "Freya", "Miroslav", "Aylin", "Hansen", "Giulia", "Takeshi", "Beatriz", "Novak", "Priya"),
    *("Lindqvist", "Amara", "Dubois", "Kowalski", "Nguyen", "Fernando", "Siobhan", "Petrescu", "Yusuf", "Ingrid"),
)

FRAMES: dict[str, tuple[Pair, ...]] = {
    "count": (
        ("{person} has {n} {things}.", "{person} hat {n} {things}."),
        ("{person} needs {n} {things}.", "{person} braucht {n} {things}."),
        ("{person} bought {n} {things}.", "{person} hat {n} {things} gekauft."),
        ("{person} counted {n} {things}.", "{person} zählte {n} {things}."),
        ("We need {n} {things}.", "Wir brauchen {n} {things}."),
        ("We have {n} {things}.", "Wir haben {n} {things}."),
        ("I have {n} {things} left.", "Ich habe noch {n} {things}."),
        ("I have found {n} {things}.", "Ich habe {n} {things} gefunden."),
        ("Only {n} {people} were there.", "Nur {n} {people} waren da."),
        ("More than {n} {people} were there.", "Mehr als {n} {people} waren da."),
        ("There were about {n} {people} there.", "Es waren ungefähr {n} {people} da."),
        ("How do you know that there were {n} {people}?", "Woher weißt du, dass es {n} {people} waren?"),
        ("{n} {people} work there.", "Dort arbeiten {n} {people}."),
        ("{n} {people} were killed.", "{n} {people} wurden getötet."),
        ("{n} {things} are missing.", "{n} {things} fehlen."),
        ("{n} {things} and {m} {others} are missing.", "{n} {things} und {m} {others} fehlen."),
        ("Not {n}, but {m} {things}!", "Nicht {n}, sondern {m} {things}!"),
        ("He wants {n} or {m} {things}.", "Er möchte {n} oder {m} {things}."),
    ),
    "age": (
        ("{person} is {few}.", "{person} ist {few}."),
        ("{person} is {few} years old.", "{person} ist {few} Jahre alt."),
        ("{person} will be {few} next week.", "{person} wird nächste Woche {few}."),
        ("{person} turned {few} yesterday.", "{person} ist gestern {few} geworden."),
        ("{person} died at the age of {few}.", "{person} starb im Alter von {few} Jahren."),
        ("I am {few} years old.", "Ich bin {few} Jahre alt."),
        ("When I was {few}, I moved to Berlin.", "Als ich {few} war, zog ich nach Berlin."),
        ("They have been married for {few} years.", "Sie sind seit {few} Jahren verheiratet."),
    ),
    "measure": (
        ("It took {few} {spans}.", "Es dauerte {few} {spans}."),
        ("We waited {few} {spans}.", "Wir haben {few} {spans} gewartet."),
        ("{person} stayed for {few} {spans}.", "{person} blieb {few} {spans}."),
        ("The film lasts {few} minutes.", "Der Film dauert {few} Minuten."),
        ("It is {n} kilometres to the next town.", "Bis zur nächsten Stadt sind es {n} Kilometer."),
        ("The tower is {few} metres high.", "Der Turm ist {few} Meter hoch."),
        ("It is {few} degrees today.", "Heute sind es {few} Grad."),
        ("He weighs {few} kilos.", "Er wiegt {few} Kilo."),
        ("The parcel weighs {n} grams.", "Das Paket wiegt {n} Gramm."),
        ("The village has {n} inhabitants.", "Das Dorf hat {n} Einwohner."),
        ("The book has {n} pages.", "Das Buch hat {n} Seiten."),
        ("{few} per cent were against it.", "{few} Prozent waren dagegen."),
        ("The price rose by {few} per cent.", "Der Preis stieg um {few} Prozent."),
        ("Open your books at page {few}.", "Schlagt eure Bücher auf Seite {few} auf."),
        ("He lives at number {n}.", "Er wohnt in Nummer {n}."),
        ("You are in room {n}.", "Sie haben Zimmer {n}."),
        ("{n} plus {m} is {sum}.", "{n} plus {m} ist {sum}."),
        ("It is the number {n}.", "Es ist die Nummer {n}."),
        ("Take the number {few} bus.", "Nehmen Sie den Bus Nummer {few}."),
    ),
    "price": (
        ("That is {p}.", "Das macht {p}."),
        ("{person} paid {p} for it.", "{person} hat {p} dafür bezahlt."),
        ("I paid {p} for this jacket.", "Ich habe für diese Jacke {p} bezahlt."),
        ("He still owes me {p}.", "Er schuldet mir noch {p}."),
        ("The ticket costs {p}.", "Die Fahrkarte kostet {p}."),
        ("This coat cost {p}.", "Dieser Mantel hat {p} gekostet."),
        ("Can you lend me {p}?", "Kannst du mir {p} leihen?"),
        ("I only have {p} left.", "Ich habe nur noch {p}."),
        ("She earns {p} an hour.", "Sie verdient {p} in der Stunde."),
        ("The rent is {p}.", "Die Miete beträgt {p}."),
    ),
    "time": (
        ("It is {t}.", "Es ist {t}."),
        ("It is already {t}.", "Es ist schon {t}."),
        ("It was {t} when he came.", "Es war {t}, als er kam."),
        ("At {t}.", "Um {t}."),
        ("Let's meet at {t}.", "Treffen wir uns um {t}."),
        ("We'll meet at {t}.", "Wir treffen uns um {t}."),
        ("See you at {t}!", "Wir sehen uns um {t}!"),
        ("Be there at {t}.", "Sei um {t} da."),
        ("I get up at {t}.", "Ich stehe um {t} auf."),
        ("I have to go at {t}.", "Ich muss um {t} gehen."),
        ("The film begins at {t}.", "Der Film fängt um {t} an."),
        ("The museum opens at {t}.", "Das Museum öffnet um {t}."),
        ("The shop is open until {t}.", "Der Laden hat bis {t} offen."),
        ("Our flight leaves at {t}.", "Unser Flug geht um {t}."),
        ("The ship leaves at {t}.", "Das Schiff fährt um {t} ab."),
        ("The train to Berlin arrives at {t}.", "Der Zug nach Berlin kommt um {t} an."),
        ("The last bus leaves at {t}.", "Der letzte Bus fährt um {t}."),
        ("Can you come at {t}?", "Kannst du um {t} kommen?"),
        ("Could you wake me at {t}?", "Könnten Sie mich um {t} wecken?"),
        ("{person} came home at {t}.", "{person} kam um {t} nach Hause."),
        ("{person} called me at {t}.", "{person} hat mich um {t} angerufen."),
        ("We are open from {t} to {u}.", "Wir haben von {t} bis {u} geöffnet."),
        ("Dinner is at {t}.", "Abendessen gibt es um {t}."),
    ),
    "date": (
        ("Today is {d}.", "Heute ist {d}."),
        ("My birthday is {on}.", "Mein Geburtstag ist {on}."),
        ("{person} was born {on}.", "{person} wurde {on} geboren."),
        ("{person} was born {on} {y}.", "{person} wurde {on} {y} geboren."),
        ("The exam is {on}.", "Die Prüfung ist {on}."),
        ("School begins {on}.", "Die Schule fängt {on} an."),
        ("We arrive {on}.", "Wir kommen {on} an."),
        ("They got married {on}.", "Sie haben {on} geheiratet."),
    ),
    "year": (
        ("{person} was born in {y}.", "{person} wurde {y} geboren."),
        ("{person} died in {y}.", "{person} starb {y}."),
        ("The church was built in {y}.", "Die Kirche wurde {y} gebaut."),
        ("In {y} we moved to Hamburg.", "{y} sind wir nach Hamburg gezogen."),
        ("That was in {y}.", "Das war {y}."),
    ),
    "order": (
        ("This is the {o} time.", "Das ist das {o}e Mal."),
        ("{person} came in {o}.", "{person} wurde {o}er."),
        ("I live on the {o} floor.", "Ich wohne im {o}en Stock."),
        ("It was his {o} birthday.", "Es war sein {o}er Geburtstag."),
        ("in the {o} century", "im {o}en Jahrhundert"),
    ),
}
KINDS = ("count",) * 5 + ("age",) * 3 + ("measure",) * 5 + ("price",) * 2 + ("time",) * 5 + ("date", "year", "order")


def pick(random: Random, items: Sequence[T]) -> T:
    """Return a random item; only `Random.random` promises the same numbers in every version of Python."""
    return items[int(random.random() * len(items))]


def say_number(n: int, figures: bool = False) -> Pair:
    """Return a number in both languages, in figures or in words."""
    if figures:
        return f"{n:,}", (f"{n:,}".replace(",", ".") if n >= 10_000 else str(n))
    return english_cardinal(n), german_cardinal(n)


def draw_person(random: Random) -> Pair:
    """Draw a person, whose name may be made up."""
    if random.random() < 0.5:
        return pick(random, PERSONS)
    names = [make_up_name(pick(random, NAMES), random) for _ in range(1 + (random.random() < 0.4))]
    return " ".join(names), " ".join(names)


def draw_number(random: Random) -> int:
    """Draw a number, mostly of two figures; never 1 or one that ends in 01, whose German depends on what is counted."""
    share = random.random()
    n = 2 + int(random.random() * (98 if share < 0.7 else 998 if share < 0.9 else 99_998))
    n = n if n < 100 or random.random() < 0.5 else n // 10 ** (digits := len(str(n)) - 2) * 10**digits
    return n + 1 if n % 100 == 1 else n


def draw_time(random: Random, figures: bool) -> Pair:
    """Draw a time of day."""
    if figures:
        hour, minute = int(random.random() * 24), int(random.random() * 60) if random.random() < 0.8 else 0
        half = "am" if hour < 12 else "pm"
        english = f"{(hour - 1) % 12 + 1}:{minute:02} {half}" if minute else f"{(hour - 1) % 12 + 1} {half}"
        return english, f"{hour}:{minute:02} Uhr" if minute else f"{hour} Uhr"
    hour, minute = 1 + int(random.random() * 12), 5 * int(random.random() * 12)
    english, german = say_time(hour, minute)
    if random.random() < 0.7:
        english = re.sub(r"\bquarter", "a quarter", english)
    if not minute and random.random() < 0.5:
        return english_cardinal(hour), german_cardinal(hour)
    parts = [part for part in PARTS_OF_DAY if hour in part[2]]
    if parts and random.random() < 0.25:
        english_part, german_part, _ = pick(random, parts)
        return f"{english} {english_part}", f"{german} {german_part}"
    return english, german


def draw_price(random: Random, figures: bool) -> Pair:
    """Draw an amount of money, in the accusative."""
    coins = draw_number(random)
    parts = 1 + int(random.random() * 99) if random.random() < 0.5 else 0
    if not figures:
        return say_price(coins, parts, EURO if random.random() < 0.7 else DOLLAR, brief=parts > 9, accusative=True)
    english, german = say_number(coins, figures=True)
    if parts:
        english, german = f"{english}.{parts:02}", f"{german},{parts:02}"
    return (f"€{english}", f"{german} €") if random.random() < 0.4 else (f"{english} euros", f"{german} Euro")


def draw_day(random: Random, figures: bool) -> tuple[Pair, Pair]:
    """Draw a day of a month, and return it without and with "on"."""
    month = int(random.random() * 12)
    day = 1 + int(random.random() * monthrange(2001, month + 1)[1])
    english, german = ENGLISH_MONTHS[month], GERMAN_MONTHS[month]
    if figures:
        return (f"{day} {english}", f"der {day}. {german}"), (f"on {day} {english}", f"am {day}. {german}")
    ordinal, stem = say_ordinal(day)
    called, being = f"the {ordinal} of {english}", f"the {ordinal} of {english}"
    return (called, f"der {stem}e {german}"), (f"on {being}", f"am {stem}en {german}")


def fill(frame: Pair, random: Random) -> Pair:
    """Fill a frame at random; return the sentence in both languages."""
    figures = random.random() < IN_FIGURES
    n, m = draw_number(random), draw_number(random)
    year = 1500 + int(random.random() * 530)
    things, others = pick(random, THINGS), pick(random, THINGS)
    day, on_day = draw_day(random, figures)
    said: dict[str, Pair] = {
        "n": say_number(n, figures),
        "m": say_number(m, figures),
        "sum": say_number(n + m, figures),
        "few": say_number(2 + int(random.random() * 99), figures),
        "things": things,
        "people": pick(random, PEOPLE),
        "others": others,
        "spans": pick(random, SPANS),
        "person": draw_person(random),
        "p": draw_price(random, figures),
        "t": draw_time(random, figures),
        "u": draw_time(random, figures),
        "d": day,
        "on": on_day,
        "y": (str(year), str(year)) if figures else say_year(year),
        "o": say_ordinal(2 + int(random.random() * 29)),
    }
    english, german = (frame[side].format_map({name: pair[side] for name, pair in said.items()}) for side in (0, 1))
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def make_pairs(count: int, seed: int = 1) -> list[Pair]:
    """Make this many sentence pairs, none of them twice."""
    random = Random(seed)
    found: dict[str, Pair] = {}
    while len(found) < count:
        pair = fill(pick(random, FRAMES[pick(random, KINDS)]), random)
        found.setdefault(pair[0], pair)
    return list(found.values())


# Not in any training text. Filled with every number from 21 to 99 that is not round, or a time for every five minutes.
QUIZ = (
    ("It costs {n} euros.", "Es kostet {n} Euro."),
    ("There are {n} people.", "Da sind {n} Leute."),
    ("She is {n} years old.", "Sie ist {n} Jahre alt."),
    ("The train leaves at {t}.", "Der Zug fährt um {t} ab."),
)


def make_quiz(frame: Pair, source: int, target: int) -> list[tuple[str, re.Pattern[str]]]:
    """Return a frame's sentences in one language (0 or 1), and patterns for the right answers in the other."""
    quiz: list[tuple[Pair, list[str]]] = []
    if "{n}" in frame[0]:
        for n in (n for n in range(21, 100) if n % 10):
            said = say_number(n)
            quiz.append((said, [re.escape(said[target]).replace(r"\-", "[- ]?"), str(n)]))
    else:
        for hour, minute in ((hour, minute) for hour in range(1, 13) for minute in range(0, 60, 5)):
            quiz.append((say_time(hour, minute), list(_write_time(hour, minute, target))))
    return [
        (frame[source].format(n=pair[source], t=pair[source]), re.compile(rf"{_BEFORE}({'|'.join(ways)})\b(?![.:,]\d)"))
        for pair, ways in quiz
    ]


# What before a match makes it another time or number.
_BEFORE = r"(?<![\w-])" + "".join(
    rf"(?<!\b{word} )" for word in ("vor", "nach", "bis", "to", "past", "before", "after", "and")
)


def _write_time(hour: int, minute: int, language: int) -> Iterator[str]:
    """Yield patterns for the ways to say a time."""
    words = re.escape(say_time(hour, minute)[language])
    yield words.replace(r"\ to\ ", " (to|before|till) ").replace(r"\ past\ ", " (past|after) ")
    if minute == 0:
        yield (english_cardinal, german_cardinal)[language](hour) + (r"(?=\W*$)", " ab")[language]
    for hours in (hour, hour + 12, hour % 12):
        exact = ("( ?o'clock| ?[ap]\\.?m)", " Uhr")[language] if minute == 0 else ""
        yield rf"{hours}[.:]{minute:02}" if minute else rf"{hours}([.:]00)?{exact}"
