"""The built-in corpus says what a German would say, in one way only, and holds out what it says it does."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text import numbers
from transduce.text.numbers import DOLLAR, EURO, POUND, Currency, Example, Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
ANY_NUMBER = st.integers(0, 999_999) | st.integers(0, 999_999_999)


@pytest.fixture(scope="module")
def splits() -> dict[Split, list[Example]]:
    """Each split at its usual size."""
    return {split: list(islice(numbers.examples(split), numbers.PAIRS[split])) for split in SPLITS}


# ---- hand-checked words ----

CARDINALS = [
    (0, "zero", "null"),
    (1, "one", "eins"),
    (7, "seven", "sieben"),
    (11, "eleven", "elf"),
    (12, "twelve", "zwölf"),
    (16, "sixteen", "sechzehn"),
    (17, "seventeen", "siebzehn"),
    (20, "twenty", "zwanzig"),
    (21, "twenty-one", "einundzwanzig"),
    (30, "thirty", "dreißig"),
    (44, "forty-four", "vierundvierzig"),
    (67, "sixty-seven", "siebenundsechzig"),
    (76, "seventy-six", "sechsundsiebzig"),
    (99, "ninety-nine", "neunundneunzig"),
    (100, "one hundred", "einhundert"),
    (101, "one hundred and one", "einhunderteins"),
    (117, "one hundred and seventeen", "einhundertsiebzehn"),
    (421, "four hundred and twenty-one", "vierhunderteinundzwanzig"),
    (600, "six hundred", "sechshundert"),
    (1000, "one thousand", "eintausend"),
    (1001, "one thousand and one", "eintausendeins"),
    (1005, "one thousand and five", "eintausendfünf"),
    (1100, "one thousand one hundred", "eintausendeinhundert"),
    (2016, "two thousand and sixteen", "zweitausendsechzehn"),
    (16_070, "sixteen thousand and seventy", "sechzehntausendsiebzig"),
    (21_021, "twenty-one thousand and twenty-one", "einundzwanzigtausendeinundzwanzig"),
    (101_000, "one hundred and one thousand", "einhunderteintausend"),
    (
        333_333,
        "three hundred and thirty-three thousand three hundred and thirty-three",
        "dreihundertdreiunddreißigtausenddreihundertdreiunddreißig",
    ),
    (1_000_000, "one million", "eine Million"),
    (1_000_001, "one million and one", "eine Million eins"),
    (1_100_000, "one million one hundred thousand", "eine Million einhunderttausend"),
    (2_300_004, "two million three hundred thousand and four", "zwei Millionen dreihunderttausendvier"),
    (21_000_000, "twenty-one million", "einundzwanzig Millionen"),
    (101_001_000, "one hundred and one million one thousand", "einhunderteine Millionen eintausend"),
]
YEARS = [
    (1100, "eleven hundred", "elfhundert"),
    (1616, "sixteen sixteen", "sechzehnhundertsechzehn"),
    (1800, "eighteen hundred", "achtzehnhundert"),
    (1901, "nineteen oh one", "neunzehnhunderteins"),
    (1905, "nineteen oh five", "neunzehnhundertfünf"),
    (1984, "nineteen eighty-four", "neunzehnhundertvierundachtzig"),
    (2000, "two thousand", "zweitausend"),
    (2005, "two thousand and five", "zweitausendfünf"),
    (2010, "twenty ten", "zweitausendzehn"),
    (2021, "twenty twenty-one", "zweitausendeinundzwanzig"),
]
DAYS = [
    (1, "first", "erst"),
    (2, "second", "zweit"),
    (3, "third", "dritt"),
    (5, "fifth", "fünft"),
    (7, "seventh", "siebt"),
    (8, "eighth", "acht"),
    (9, "ninth", "neunt"),
    (12, "twelfth", "zwölft"),
    (19, "nineteenth", "neunzehnt"),
    (20, "twentieth", "zwanzigst"),
    (21, "twenty-first", "einundzwanzigst"),
    (27, "twenty-seventh", "siebenundzwanzigst"),
    (30, "thirtieth", "dreißigst"),
    (31, "thirty-first", "einunddreißigst"),
]
TIMES = [
    (1, 0, "one o'clock", "ein Uhr"),
    (1, 5, "five past one", "fünf nach eins"),
    (3, 10, "ten past three", "zehn nach drei"),
    (4, 15, "quarter past four", "Viertel nach vier"),
    (5, 20, "twenty past five", "zwanzig nach fünf"),
    (7, 25, "twenty-five past seven", "fünf vor halb acht"),
    (6, 0, "six o'clock", "sechs Uhr"),
    (6, 30, "half past six", "halb sieben"),
    (7, 35, "twenty-five to eight", "fünf nach halb acht"),
    (9, 40, "twenty to ten", "zwanzig vor zehn"),
    (8, 45, "quarter to nine", "Viertel vor neun"),
    (10, 50, "ten to eleven", "zehn vor elf"),
    (12, 30, "half past twelve", "halb eins"),
    (12, 55, "five to one", "fünf vor eins"),
]
PRICES = [
    (3, 50, EURO, False, "three euros and fifty cents", "drei Euro und fünfzig Cent", "drei Euro und fünfzig Cent"),
    (3, 50, EURO, True, "three euros fifty", "drei Euro fünfzig", "drei Euro fünfzig"),
    (1, 0, EURO, False, "one euro", "ein Euro", "einen Euro"),
    (1, 1, EURO, False, "one euro and one cent", "ein Euro und ein Cent", "einen Euro und einen Cent"),
    (0, 21, EURO, False, "twenty-one cents", "einundzwanzig Cent", "einundzwanzig Cent"),
    (1, 0, DOLLAR, False, "one dollar", "ein Dollar", "einen Dollar"),
    (99, 0, DOLLAR, False, "ninety-nine dollars", "neunundneunzig Dollar", "neunundneunzig Dollar"),
    (12, 0, POUND, False, "twelve pounds", "zwölf Pfund", "zwölf Pfund"),
    (1, 20, POUND, True, "one pound twenty", "ein Pfund zwanzig", "ein Pfund zwanzig"),
    (1, 1, POUND, False, "one pound and one penny", "ein Pfund und ein Penny", "ein Pfund und einen Penny"),
    (0, 50, POUND, False, "fifty pence", "fünfzig Pence", "fünfzig Pence"),
]
SENTENCES = {
    "the twenty-first of May": "der einundzwanzigste Mai",
    "the first of January": "der erste Januar",
    "the third of October": "der dritte Oktober",
    "on the third of March": "am dritten März",
    "on the eighth of July": "am achten Juli",
    "on the thirtieth of December": "am dreißigsten Dezember",
    "on Monday the third of June": "am Montag, dem dritten Juni",
    "half past six": "halb sieben",
    "half past six in the morning": "halb sieben morgens",
    "quarter to nine in the evening": "Viertel vor neun abends",
    "ten past three in the afternoon": "zehn nach drei nachmittags",
    "half past ten in the morning": "halb elf vormittags",
    "half past twelve at night": "halb eins nachts",
    "at one o'clock": "um ein Uhr",
    "the train leaves at half past six": "der Zug fährt um halb sieben ab",
    "please call me at quarter past eight": "bitte rufen Sie mich um Viertel nach acht an",
    "he did not come home until five to one": "er kam erst um fünf vor eins nach Hause",
    "I woke up at twenty-five past four": "ich bin um fünf vor halb fünf aufgewacht",
    "at ten to two the lesson begins": "um zehn vor zwei fängt der Unterricht an",
    "we have been waiting since five o'clock": "wir warten seit fünf Uhr",
    "in nineteen eighty-four": "im Jahr neunzehnhundertvierundachtzig",
    "the bridge was built in eighteen hundred": "die Brücke wurde im Jahr achtzehnhundert gebaut",
    "in two thousand and five he moved to Berlin": "im Jahr zweitausendfünf zog er nach Berlin",
    "he can count to twenty-one": "er kann bis einundzwanzig zählen",
    "the answer is one": "die Antwort lautet eins",
    "forty-two people live in this town": "in dieser Stadt leben zweiundvierzig Menschen",
    "please open the book at page seventy-one": "bitte schlagen Sie das Buch auf Seite einundsiebzig auf",
    "he still owes me one euro": "er schuldet mir noch einen Euro",
    "she paid one pound for the coffee": "sie hat für den Kaffee ein Pfund bezahlt",
    "the book costs five dollars": "das Buch kostet fünf Dollar",
    "for three euros you get a ticket": "für drei Euro bekommt man eine Karte",
}


@pytest.mark.parametrize(("n", "english", "german"), CARDINALS)
def test_cardinals(n: int, english: str, german: str) -> None:
    assert (numbers.english_cardinal(n), numbers.german_cardinal(n)) == (english, german)


@pytest.mark.parametrize(("year", "english", "german"), YEARS)
def test_years(year: int, english: str, german: str) -> None:
    assert numbers.say_year(year) == (english, german)


@pytest.mark.parametrize(("day", "english", "german"), DAYS)
def test_days(day: int, english: str, german: str) -> None:
    assert numbers.say_ordinal(day) == (english, german)


@pytest.mark.parametrize(("hour", "minute", "english", "german"), TIMES)
def test_times(hour: int, minute: int, english: str, german: str) -> None:
    assert numbers.say_time(hour, minute) == (english, german)


@pytest.mark.parametrize(("coins", "parts", "currency", "brief", "english", "german", "accusative"), PRICES)
def test_prices(
    coins: int, parts: int, currency: Currency, brief: bool, english: str, german: str, accusative: str
) -> None:
    assert numbers.say_price(coins, parts, currency, brief) == (english, german)
    assert numbers.say_price(coins, parts, currency, brief, accusative=True) == (english, accusative)


def test_sentences(splits: dict[Split, list[Example]]) -> None:
    """Chance decides which are drawn; those that are must be right."""
    drawn = {e.source: e.target for examples in splits.values() for e in examples if e.source in SENTENCES}
    assert drawn == {source: SENTENCES[source] for source in drawn}
    assert len(drawn) > 0.6 * len(SENTENCES)


@pytest.mark.parametrize(
    "call",
    [
        lambda: numbers.english_cardinal(10**9),
        lambda: numbers.german_cardinal(-1),
        lambda: numbers.say_year(1066),
        lambda: numbers.say_ordinal(32),
        lambda: numbers.say_time(0, 30),
        lambda: numbers.say_time(6, 31),
        lambda: numbers.corpus("dve"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_has_no_words_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r" = .*; use "):
        call()


# ---- back from words to numbers, written apart from the module ----

ENGLISH = {
    **{"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9},
    **{"ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16},
    **{"seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50},
    **{"sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90},
}
GERMAN = {
    **{"null": 0, "ein": 1, "eins": 1, "eine": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7},
    **{"acht": 8, "neun": 9, "zehn": 10, "elf": 11, "zwölf": 12, "dreizehn": 13, "vierzehn": 14, "fünfzehn": 15},
    **{"sechzehn": 16, "siebzehn": 17, "achtzehn": 18, "neunzehn": 19, "zwanzig": 20, "dreißig": 30, "vierzig": 40},
    **{"fünfzig": 50, "sechzig": 60, "siebzig": 70, "achtzig": 80, "neunzig": 90},
}


def parse_english(text: str) -> int:
    """Add up words from the left; a hundred multiplies its group, a thousand or a million closes it."""
    total = group = 0
    for word in re.split("[ -]", text):
        if word == "hundred":
            group *= 100
        elif word in ("thousand", "million"):
            total, group = total + group * {"thousand": 1000, "million": 10**6}[word], 0
        elif word != "and":
            group += ENGLISH[word]
    return total + group


def parse_german(text: str) -> int:
    """Cut at the largest size first and read what stands on each side of the cut."""
    for name, size in ((" Millionen", 10**6), (" Million", 10**6), ("tausend", 1000), ("hundert", 100)):
        head, found, rest = text.partition(name)
        if found:
            return parse_german(head) * size + (parse_german(rest.strip()) if rest else 0)
    unit, found, tens = text.partition("und")
    return GERMAN[unit] + (GERMAN[tens] if found else 0)


@given(ANY_NUMBER)
def test_english_reads_back(n: int) -> None:
    assert parse_english(numbers.english_cardinal(n)) == n


@given(ANY_NUMBER)
def test_german_reads_back(n: int) -> None:
    assert parse_german(numbers.german_cardinal(n)) == n


def test_all_numbers_to_ten_thousand_read_back() -> None:
    """The properties above rarely meet small numbers."""
    for n in range(10_001):
        assert parse_english(numbers.english_cardinal(n)) == parse_german(numbers.german_cardinal(n)) == n


@given(ANY_NUMBER)
def test_spelling_follows_the_rules(n: int) -> None:
    """British English has "and" before the last tens; German writes one word up to the noun of the million."""
    english, german = numbers.english_cardinal(n), numbers.german_cardinal(n)
    if n > 100:
        assert n % 100 == 0 or english.endswith(" and " + numbers.english_cardinal(n % 100))
    assert german.count(" ") == (0 if n < 10**6 else 1 + (n % 10**6 > 0))
    assert {word for word in german.split() if not word.islower()} <= {"Million", "Millionen"}
    assert german.endswith("eins") == (n % 100 == 1)


# ---- the corpus ----


def test_sizes_and_no_duplicates(splits: dict[Split, list[Example]]) -> None:
    assert {split: len(examples) for split, examples in splits.items()} == {
        "train": 40_000,
        "dev": 1_000,
        "test": 1_000,
    }
    for split, examples in splits.items():
        assert numbers.corpus(split) == [(e.source, e.target) for e in examples]
        assert len({e.source for e in examples}) == len(examples)


def test_fewer_pairs_are_a_prefix_and_a_seed_changes_them() -> None:
    assert numbers.corpus("train", 500) == numbers.corpus("train", 1_000)[:500]
    assert numbers.corpus("dev", 0) == []
    assert set(numbers.corpus("dev", 300, seed=1)) != set(numbers.corpus("dev", 300, seed=2))


def test_every_process_draws_the_same() -> None:
    """It would not if anything depended on the order of a set or on Python's own hashes."""
    program = "from transduce.text.numbers import corpus; print([corpus(s, 300) for s in ('train', 'dev', 'test')])"
    expected = str([numbers.corpus(split, 300) for split in SPLITS])
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert run.stdout.decode().strip() == expected


def test_a_source_has_one_target(splits: dict[Split, list[Example]]) -> None:
    """Over all splits, and over other seeds as well."""
    pairs = {(e.source, e.target) for examples in splits.values() for e in examples}
    for seed in (2, 3):
        pairs.update(pair for split in SPLITS for pair in numbers.corpus(split, 5_000, seed))
    assert len({source for source, _ in pairs}) == len(pairs)


def test_splits_share_no_source_and_no_value(splits: dict[Split, list[Example]]) -> None:
    """Nor does dev share anything with a train drawn from another seed."""
    train, dev, test = (splits[split] for split in SPLITS)
    other_train = list(islice(numbers.examples("train", seed=7), 5_000))
    for left, right in ((train, dev), (train, test), (dev, test), (other_train, dev)):
        assert {e.source for e in left}.isdisjoint(e.source for e in right)
        assert {value for e in left for value in e.values}.isdisjoint(value for e in right for value in e.values)


MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October"]
MONTHS += ["November", "December"]
NUMBER = r"\b(?:{0})(?:(?: and |[ -])(?:{0}))*\b".format("|".join([*ENGLISH, "hundred", "thousand", "million", "oh"]))
DAY = rf"the ([\w-]+) of ({'|'.join(MONTHS)})"
CLOCK = r"(?<![\w-])(?:(five|ten|quarter|twenty|twenty-five|half) (past|to) (\w+)|(\w+) o'clock)"
MINUTES = {"five": 5, "ten": 10, "quarter": 15, "twenty": 20, "twenty-five": 25, "half": 30}
YEAR_WORDS = {numbers.say_year(year)[0]: year for year in range(1100, 2100)}
DAY_WORDS = {numbers.say_ordinal(day)[0]: day for day in range(1, 32)}


def read_values(kind: str, text: str) -> set[str]:
    """Find the values of an example in its English words alone."""
    if kind == "number":
        return {str(parse_english(words)) for words in re.findall(NUMBER, text)}
    if kind == "price":
        amounts = re.findall(rf"({NUMBER})( euro| dollar| pound)?", text)
        coins = sum(parse_english(words) for words, coin in amounts if coin)
        parts = sum(parse_english(words) for words, coin in amounts if not coin)
        return {f"{coins}.{parts:02}" if parts and coins <= 100 else str(coins)}
    values = {f"{MONTHS.index(month) + 1:02}-{DAY_WORDS[day]:02}" for day, month in re.findall(DAY, text)}
    for minutes, side, hour, sharp in re.findall(CLOCK, text):
        past = 0 if sharp else MINUTES[minutes] if side == "past" else 60 - MINUTES[minutes]
        values.add(f"{(ENGLISH[hour or sharp] - 1 - (side == 'to')) % 12 + 1}:{past:02}")
    rest = re.sub(CLOCK, "", re.sub(DAY, "", text))
    return values | {str(YEAR_WORDS[words]) for words in re.findall(NUMBER, rest)}


def test_values_are_all_that_the_words_say(splits: dict[Split, list[Example]]) -> None:
    """So that no number of an example can escape the holding out."""
    for examples in splits.values():
        for example in examples:
            assert read_values(example.kind, example.source) == set(example.values), example


def test_german_says_the_same_number(splits: dict[Split, list[Example]]) -> None:
    """In examples whose target is a number and nothing else."""
    alone = [
        e for e in splits["train"] if e.kind == "number" and e.source == numbers.english_cardinal(int(e.values[0]))
    ]
    assert len(alone) > 1_000
    assert all(str(parse_german(e.target)) == e.values[0] for e in alone)


def test_numbers_to_a_hundred_are_always_in_train(splits: dict[Split, list[Example]]) -> None:
    pairs = {(e.source, e.target) for e in splits["train"]}
    assert {(numbers.english_cardinal(n), numbers.german_cardinal(n)) for n in range(101)} <= pairs
    held_out = {value for split in ("dev", "test") for e in splits[split] for value in e.values if value.isdigit()}
    assert min(map(int, held_out)) > 100


def german_parts(text: str) -> set[str]:
    """Cut German into words, and its number words into the numbers they are made of."""
    number = "|".join(sorted([*GERMAN, "und", "hundert", "tausend"], key=len, reverse=True))
    words = re.findall(r"\w+", text)
    return {
        part
        for word in words
        for part in (re.findall(number, word) if re.fullmatch(f"(?:{number})+", word) else [word])
    }


def test_every_word_can_be_learnt_from_train(splits: dict[Split, list[Example]]) -> None:
    english = {word for e in splits["train"] for word in re.split("[ -]", e.source)}
    german = set().union(*(german_parts(e.target) for e in splits["train"]))
    for split in ("dev", "test"):
        for example in splits[split]:
            assert set(re.split("[ -]", example.source)) <= english
            assert german_parts(example.target) <= german


def test_mixture(splits: dict[Split, list[Example]]) -> None:
    """Each kind has its share, in sentences and alone; numbers have all lengths and are seldom millions."""
    for examples in splits.values():
        kinds = Counter(e.kind for e in examples)
        assert set(kinds) == {"number", "date", "time", "price", "year"}
        assert min(kinds.values()) > 0.02 * len(examples)
        assert kinds["number"] == max(kinds.values())
        assert 6 < sum(len(e.source.split()) for e in examples) / len(examples) < 11
        assert 4 < sum(len(e.target.split()) for e in examples) / len(examples) < 9
        assert max(len(e.source.split()) for e in examples) < 30
        lengths = Counter(len(e.values[0]) for e in examples if e.kind == "number")
        assert all(lengths[digits] > 0.1 * kinds["number"] for digits in (3, 4, 5, 6))
        assert 0 < sum(lengths[digits] for digits in (7, 8, 9)) < 0.1 * kinds["number"]


def test_every_sentence_is_drawn_in_every_split(splits: dict[Split, list[Example]]) -> None:
    for examples in splits.values():
        sources = "\n".join(e.source for e in examples)
        for sentences in numbers.SENTENCES.values():
            for source, _ in sentences:
                pattern = "^" + re.sub(r"\\{\w+\\}", "[^\n]+", re.escape(source)) + "$"
                assert re.search(pattern, sources, re.MULTILINE), source


def test_characters(splits: dict[Split, list[Example]]) -> None:
    for examples in splits.values():
        for example in examples:
            assert re.fullmatch(r"[A-Za-z'-]+( [A-Za-z'-]+)*", example.source)
            assert re.fullmatch(r"[A-Za-zäöüß]+(,? [A-Za-zäöüß]+)*", example.target)


def test_german_grammar(splits: dict[Split, list[Example]]) -> None:
    """A weekday's date stands between commas, a one agrees with its noun, and contested forms are avoided."""
    for example in splits["train"]:
        target = example.target
        if re.search(r"tag,|woch,", target):
            assert re.search(r"am \w+(tag|woch), dem \w+en \w+(, \w+ .+)?$", target)
        assert not re.search(r"eins (Euro|Dollar|Pfund|Cent|Penny|Uhr|Seiten|Karten|Menschen|Einwohner)", target)
        if example.kind == "price" and not re.match(rf"{NUMBER} (euro|dollar|pound|cent|penny|pence)", example.source):
            assert not re.search(r"\bein (Euro|Dollar|Cent|Penny)", target)
