"""Subtitles keep all but their words; a sentence may span cues, and each cue shows what is said in its time."""

import html
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.text.markup import Links
from transduce.text.shares import break_lines, cut_shares
from transduce.text.subtitles import MOST_CUES, WIDTH, Subtitles

Say = Callable[[str], tuple[str, Links | None]]


def keep(text: str) -> tuple[str, Links]:
    """Return the same text as a translation."""
    return text, [(place, place) for place in range(len(text.split()))]


def turn(text: str) -> tuple[str, Links]:
    """Return a translation with the words in reverse order."""
    words = text.split()[::-1]
    return " ".join(words), [(len(words) - 1 - place, place) for place in range(len(words))]


def grow(text: str) -> tuple[str, Links]:
    """Return a translation with twice as many words."""
    words = text.split()
    return " ".join(f"{word}x {word}" for word in words), [(place // 2, place) for place in range(2 * len(words))]


def translate(content: str, say: Say = keep, name: str = "a.srt") -> str:
    """Return a file, translated."""
    subtitles = Subtitles(name, content.encode())
    return subtitles.fill([say(text) for text in subtitles.texts])


def make(*cues: str, gap: float = 0.5, web: bool = False) -> str:
    """Return a file with these cues, each shown for a second."""
    parts: list[str] = []
    for number, cue in enumerate(cues):
        begin = 1 + number * (1 + gap)
        begin, end = (f"00:{at // 60:02.0f}:{at % 60:06.3f}" for at in (begin, begin + 1))
        times = f"{begin} --> {end}"
        parts.append(f"{number + 1}\n{times if web else times.replace('.', ',')}\n{cue}\n")
    return ("WEBVTT\n\n" if web else "") + "\n".join(parts)


def read(content: str) -> list[str]:
    """Return the lines of each cue in a file by `make`."""
    return [part.split("\n", 2)[2].rstrip("\n") for part in re.sub(r"^WEBVTT\n\n", "", content).split("\n\n") if part]


def texts(*cues: str, web: bool = False, gap: float = 0.5) -> list[str]:
    """Return the texts to translate in these cues."""
    return Subtitles("a.vtt" if web else "a.srt", make(*cues, gap=gap, web=web).encode()).texts


# ---- what stays ----

LINES = [
    "two",
    "nine euros,",
    "- Who?",
    "ANNA: I go",
    "[MUSIC]",
    "(SIGHS) Mr.",
    "♪ la la ♪",
    "<i>two</i> nine",
    "</b>two",
]
LINES += [
    "<i>two nine",
    "{\\an8}<i>Nine.</i>",
    "…and he",
    "I go...",
    "--and",
    "&amp; < 3 >",
    "1984",
    "<v Bob>two</v>",
    "...",
]
LINES += [
    "<font color='a b'>He said:</font>",
    "<c.a>two</c> <00:01.000>nine ",
    " two ",
    "two  nine",
    "é\u00a0\u3002",
    "中文。",
]
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])
CUES = st.lists(st.sampled_from(LINES), max_size=3)
TIMES = [
    "00:00:0{},000 --> 00:00:0{},500",
    "0:0{}.1-->0:0{}.2 X1:1",
    " 00:00:0{}.5 -->  00:00:0{}:900 line:0 ",
    "00:0{} --> 00:0{}",
]


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    """Draw the ending and the content of a file as people have them."""
    web, end = draw(st.booleans()), draw(ENDINGS)
    parts = [draw(st.sampled_from(["", "\ufeff"]))]
    if web:
        head = ["WEBVTT", "WEBVTT - a film", "WEBVTT\nKind: captions\n\nSTYLE\n::cue { color: red }\n\nNOTE a\nb"]
        parts.append(draw(st.sampled_from(head)).replace("\n", end) + end * 2)
    for number in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from([f"{number + 1}{end}", "", f"7{end}", f"{number}b{end}"]))
        times = draw(st.sampled_from(TIMES)).format(number + 1, number + 2)
        gap = end * draw(st.integers(1, 3))
        body = end.join(draw(CUES))
        if draw(st.booleans()) and not web:
            body = body.replace(end, end * 2)
        parts.append(f"{name}{times}{end}{body}{end}{gap}")
    whole = "".join(parts)
    return (".vtt" if web else ".srt"), whole.rstrip(end) if draw(st.booleans()) else whole


@given(files(), st.booleans())
def test_what_is_translated_by_itself_is_the_same_bytes(file: tuple[str, str], linked: bool):
    ending, content = file
    say: Say = keep if linked else lambda text: (text, None)
    assert translate(content, say, f"a{ending}") == content


@given(files(), st.sampled_from([turn, grow]))
def test_all_but_words_stays(file: tuple[str, str], say: Say):
    ending, content = file
    subtitles = Subtitles(f"a{ending}", content.encode())
    found = subtitles.fill([say(text) for text in subtitles.texts])
    lines, before = (re.sub("\r\n?", "\n", whole) for whole in (found, content))
    for pattern in (
        r"[^\r\n]*-->[^\r\n]*[\r\n]*",
        r"(?m)^(?:WEBVTT|NOTE|STYLE|::cue).*$",
        r"(?m)^\d+b?\n(?=[^\n]*-->)",
        r"\{.*?\}",
    ):
        assert re.findall(pattern, lines) == re.findall(pattern, before)
    assert found.startswith("\ufeff") == content.startswith("\ufeff")
    # All words are said, and no others.
    said = "".join(one for text in subtitles.texts for one in say(text)[0])
    before = "".join(subtitles.texts)
    found, content = (re.sub(r"</?[a-z0-9][^<>]*>", "", whole) for whole in (found, content))
    if ending == ".vtt":
        found, content = html.unescape(found), html.unescape(content)
    for letter in "twonieusragh":
        assert found.count(letter) - content.count(letter) == said.count(letter) - before.count(letter)


def test_a_file_of_webvtt_keeps_its_blocks():
    content = (
        "\ufeffWEBVTT - two\r\nKind: captions\r\n\r\nNOTE two\r\nnine\r\n\r\nREGION\r\nid:two\r\n\r\ntwo\r\n"
        "00:01.000 --> 00:02.000 line:0 position:20%\r\n<v Anna><c.yellow>two &amp;&nbsp;nine</c></v>\r\n\r\n"
        "00:03.000 --> 00:04.000\r\n\r\nnobody sees this"
    )
    subtitles = Subtitles("a.vtt", content.encode())
    assert subtitles.texts == ["two &\xa0nine"]
    assert subtitles.fill([("nine < two", None)]) == content.replace("two &amp;&nbsp;nine", "nine &lt; two")


def test_letters_of_subrip_are_not_escaped():
    assert translate(make("Tom & Jerry <3 <i>you</i>"), turn) == make("<i>you</i> <3 Jerry & Tom")
    assert translate(make("Tom &amp; you", web=True), turn, "a.vtt") == make("you &amp; Tom", web=True)


# ---- what is a text ----


@pytest.mark.parametrize(
    ("cues", "expected"),
    [
        (["I know that", "he went home."], ["I know that he went home."]),
        (["I know that\nhe, who", "went\nhome."], ["I know that he, who went home."]),
        (["I know.", "He went home."], ["I know.", "He went home."]),
        (["I know Mr.", "Smith well."], ["I know Mr. Smith well."]),
        # Only the sentence that goes on is a text with the next cue.
        (["I know. Yes. Do you", "go? He", "is here. No."], ["I know. Yes.", "Do you go?", "He is here.", "No."]),
        # Dots show that a sentence goes on, if the next cue does; they are not translated.
        (["I know that...", "...he is here."], ["I know that he is here."]),
        (["I know…", "that he is here."], ["I know that he is here."]),
        (["I know that...", "He is here."], ["I know that...", "He is here."]),
        # New speakers.
        (["I know that", "- he is here."], ["I know that", "he is here."]),
        (["I know that", "ANNA: He is here."], ["I know that", "He is here."]),
        (["I know that", "[MUSIC]"], ["I know that", "MUSIC"]),
        (["I know that", "(door slams)"], ["I know that", "door slams"]),
        (["I know that", "♪ he is here ♪"], ["I know that", "he is here"]),
        (["I know that", ">> he is here."], ["I know that", "he is here."]),
        (["<v Anna>I know that", "<v Bob>he is here."], ["I know that", "he is here."]),
        (["<v Anna>I know that", "<v Anna>he is here."], ["I know that he is here."]),
        # Capitals are a name if what follows is not in capitals.
        (["CHAPTER TWO: THE END", "It is. So."], ["CHAPTER TWO: THE END", "It is. So."]),
        (["I know that", "1984", "he is here."], ["I know that", "he is here."]),
        # Within a cue.
        (["- Who?\n- It is\nAnna."], ["Who?", "It is Anna."]),
        (["[DOOR\nSLAMS] I know.\n(SIGHS)\nHe is."], ["DOOR SLAMS", "I know.", "SIGHS", "He is."]),
        (["♪ he is here ♪\n♪ I am not ♪"], ["he is here", "I am not"]),
        (["He left (or so\nI thought)."], ["He left (or so I thought)."]),
        (["12:30 - 14\n...\n♪"], []),
        (["two\n\nnine euros"], ["two nine euros"]),
        # Where no sentence has a mark, only a small letter shows that it goes on.
        (["I know him", "He is here", "and there"], ["I know him", "He is here and there"]),
        (["两欧元", "九欧元"], ["两欧元", "九欧元"]),
        # Georgian has no capitals; other scripts have marks of their own.
        (["ის წავიდა.", "მე აქ ვარ", "ახლა."], ["ის წავიდა.", "მე აქ ვარ ახლა."]),
        (["ში", "და"], ["ში", "და"]),
        (["وہ گیا۔", "میں یہاں", "ہوں۔"], ["وہ گیا۔", "میں یہاں ہوں۔"]),
        (["ሰላም።", "እኔ እዚህ", "ነኝ።"], ["ሰላም።", "እኔ እዚህ ነኝ።"]),
    ],
    ids=range(30),
)
def test_a_sentence_is_a_text(cues: list[str], expected: list[str]):
    assert texts(*cues) == expected
    content = make(*cues)
    assert Subtitles("a.srt", content.encode()).has_elements == any(one not in " ".join(cues) for one in expected) or (
        "\n" in content
    )


def test_a_sentence_does_not_go_on_for_ever():
    assert texts("I know that", "he went home.", gap=1.9) == ["I know that he went home."]
    assert texts("I know that", "he went home.", gap=2.1) == ["I know that", "he went home."]
    assert [text.count("two") for text in texts(*["two"] * (2 * MOST_CUES + 1))] == [MOST_CUES, MOST_CUES, 1]
    # What comes before is no continuation.
    assert texts("and two", "and nine", gap=-2) == ["and two", "and nine"]


# ---- cuts ----


def cut(parts: Sequence[str], translation: str, links: Links | None) -> list[str]:
    return [share.text for share in cut_shares(parts, " ".join(parts), translation, links)]


def test_cuts_follow_links():
    parts = ["ab cd ef", "gh ij kl"]
    straight = [(place, place) for place in range(6)]
    assert cut(parts, "a b c d e f", straight) == ["a b c", "d e f"]
    # What comes from the second part is said in its cue, also where it is longer or shorter.
    assert cut(parts, "a b c d e f", [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4), (5, 5)]) == ["a b", "c d e f"]
    assert cut(parts, "a b c d e f", [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (5, 5)]) == ["a b c d", "e f"]
    # One link that goes astray moves nothing.
    assert cut(parts, "a b c d e f", [(0, 0), (5, 1), (2, 2), (3, 3), (4, 4), (1, 5)]) == ["a b c", "d e f"]
    # Without links, or where these tell nothing, it is the share of characters, and punctuation near it.
    assert cut(parts, "aa bb cc dd ee ff", None) == ["aa bb cc", "dd ee ff"]
    assert cut(parts, "aa bb, cc dd ee ff", []) == ["aa bb,", "cc dd ee ff"]
    # Words of Hindi may end in vowels that are marks, which are no punctuation.
    assert cut(parts, "लाला बाबा, काका दादा नाना मामा", []) == ["लाला बाबा,", "काका दादा नाना मामा"]


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=6), st.data()
)
def test_every_part_gets_words_in_their_order(parts: list[str], data: st.DataObject):
    source = sum(len(part.split()) for part in parts)
    words = [str(place) for place in range(data.draw(st.integers(len(parts), 20)))]
    link = st.tuples(st.integers(0, source - 1), st.integers(0, len(words) - 1))
    links = data.draw(st.lists(link, max_size=30) | st.none())
    shares = cut_shares(parts, " ".join(parts), " ".join(words), links)
    assert " ".join(share.text for share in shares).split() == words
    assert all(share.text for share in shares)
    for part, share in zip(parts, shares, strict=True):
        assert all(origin < len(part.split()) and word < len(share.text.split()) for origin, word in share.links or ())


def test_where_words_are_too_few_the_last_cues_have_none():
    assert cut(["two", "nine", "euros"], "neun Euro", None) == ["neun", "Euro", ""]
    # Chinese is cut between its words' characters.
    assert cut(["two", "nine euros"], "两九欧元", None) == ["两", "九欧元"]
    content = make("<i>two</i>", "nine.")
    said = translate(content, lambda text: ("neun", [(0, 0)]))
    assert said == content.replace("two", "neun").replace("nine.", "")


# ---- lines ----


@given(st.lists(st.text("ab,", min_size=1, max_size=9), min_size=1, max_size=40), st.integers(1, 4), st.integers(5, 60))
def test_lines_are_no_wider_than_they_may_be(words: list[str], lines: int, most: int):
    found = break_lines([(word, len(word)) for word in words], lines, most, most)
    assert [number for line in found for number in line] == [*range(len(words))]
    widths = [len(" ".join(words[number] for number in line)) for line in found]
    assert max(widths) <= max(most, *map(len, words))
    # No more lines than there were, if those would do.
    least = len(break_lines([(word, len(word)) for word in words], 1, most, most))
    assert len(found) <= max(lines, least)


def test_lines_are_of_one_length():
    line = "one two three four five six seven eight nine ten"
    assert read(translate(make("a b c d e f g h i j"), lambda text: (line, None))) == [
        "one two three four five\nsix seven eight nine ten"
    ]
    assert read(translate(make("a b c d e\nf g h i j"), lambda text: ("one two", None))) == ["one two"]
    assert read(
        translate(make("one two three\nfour five six"), lambda text: ("one two three, four five sixes", None))
    ) == ["one two three,\nfour five sixes"]
    # Marks above and below letters take no room.
    line = "מֶלֶךְ " * 11 + "גָּדוֹל"
    assert read(translate(make("a b."), lambda text: (line, None)))[0].count("\n") == 1
    # A file that has longer lines may go on having them.
    wide = "a" * WIDTH + " and two"
    assert read(translate(make(wide, "Two nine."), grow))[0].count("\n") == 2
    assert read(translate(make(wide), lambda text: ("one " * 11 + "two", None))) == ["one " * 11 + "two"]


@pytest.mark.parametrize(
    ("cue", "translation", "expected"),
    [
        ("- Who is it?\n- Me.", "so", "- so\n- so"),
        ("-Who?\n–Me.", "so", "-so\n–so"),
        ("<i>two nine</i>\n<i>euros</i>", "eins zwei drei vier fünf", "<i>eins zwei drei</i>\n<i>vier fünf</i>"),
        ("{\\an8}<i>two nine\neuros</i>", "eins zwei drei vier", "{\\an8}<i>eins zwei\ndrei vier</i>"),
        ("{\\an8}<i>two</i>\n<i>nine</i>", "eins drei", "{\\an8}<i>eins</i>\n<i>drei</i>"),
        ("ANNA: two", "a" * 40, f"ANNA: {'a' * 40}"),
        ("- [SIGHS] Two.", "so", "- [so] so"),
        ("♪ two nine ♪", "so", "♪ so ♪"),
        ("<v Anna>two\n<v Bob>nine", "so", "<v Anna>so\n<v Bob>so"),
        ("two <i>nine", "eins zwei", "eins <i>zwei"),
        ('<font color="a b">two</font> nine', "eins zwei", '<font color="a b">eins</font> zwei'),
        (" two ", "so", " so "),
        ("two\n\nnine", "eins zwei", "eins\n\nzwei"),
        ("<c>two </c><00:01.000><c>nine</c>", "eins zwei", "<c>eins</c> <00:01.000><c>zwei</c>"),
    ],
    ids=range(14),
)
def test_what_is_in_a_cue_stays(cue: str, translation: str, expected: str):
    content = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    assert translate(content.format(cue), lambda text: (translation, None)) == content.format(expected)


def test_words_keep_their_tags_over_cues():
    content = make("I know that he\n<i>never</i> saw", "{\\an8}the <b>old</b> man...", "...and <i>me</i>.")
    subtitles = Subtitles("a.srt", content.encode())
    assert subtitles.texts == ["I know that he never saw the old man and me."]
    assert subtitles.has_elements
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (6, 5), (7, 6), (8, 7), (4, 4), (5, 8), (8, 9), (9, 10)]
    said = "Ich weiß, dass er nie den alten Mann sah und mich."
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (7, 6), (8, 7), (5, 8), (9, 9), (10, 10)]
    assert read(subtitles.fill([(said, links)])) == [
        "Ich weiß,\ndass er <i>nie</i>",
        "{\\an8}den <b>alten</b> Mann sah...",
        "...und <i>mich</i>.",
    ]


# ---- what cannot be read ----


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.srt", b"two\n", "a.srt:1: no line has times such as 00:00:01,000 --> 00:00:02,500"),
        ("a.srt", b"{0}{25}two\n", "save it as SubRip, or rename it to match its format"),
        (
            "a.srt",
            b"WEBVTT\n\n00:01.000 --> 00:02.000\ntwo\n",
            "a.srt:1: its content is WebVTT; rename it to .vtt",
        ),
        (
            "a.vtt",
            b"1\n00:00:01,000 --> 00:00:02,000\ntwo\n",
            "a.vtt:1: a .vtt file must begin with WEBVTT, but this begins with '1'",
        ),
        (
            "a.srt",
            b"1\n00:00:01,000 --> 00:00:02,000\ntwo\n\n2\n00:00:0x,000 --> 1\n",
            "a.srt:6: cannot read '00:00:0x,000 --> 1' as times",
        ),
        (
            "a.srt",
            b"1\n00:00:01,000 -> 00:00:02,000\ntwo\n",
            "a.srt:2: cannot read '00:00:01,000 -> 00:00:02,000' as times",
        ),
        (
            "a.vtt",
            b"WEBVTT\n\n00:01.000 --> 00:02.000\nx --> y\n",
            "a.vtt:4: cannot read 'x --> y' as times; write",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\nß\n".encode("latin-1"),
            "a.srt:3: not UTF-8; convert the text with: iconv -f LATIN1",
        ),
        ("a.vtt", "WEBVTT\n\n".encode("utf-16"), "a.vtt:1: not UTF-8; convert the text with: iconv -f UTF-16 -t UTF-8"),
    ],
    ids=range(9),
)
def test_what_cannot_be_read_is_named(name: str, content: bytes, reason: str):
    with pytest.raises(DataError) as error:
        Subtitles(name, content)
    assert reason in str(error.value)


def test_an_arrow_in_a_text_is_no_time():
    assert texts("two --> nine") == ["two --> nine"]
    for empty in ("", "\ufeff", "\n\n"):
        assert translate(empty) == translate(empty, name="a.vtt") == empty


def test_no_cue_takes_more_time_than_in_proportion_to_its_length():
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    many = ["two ", "<", "<i>", "<i>two</i>", "[a] ", "... ", "- ", "A: ", "♪ ", "(", "{\\", "two\n", "&", "a .. "]
    for body in (
        *(piece * 20_000 for piece in many),
        "two" + " " * 100_000 + "two",
        "<i>" * 9999 + "two" + "</i>" * 9999,
    ):
        for name, whole in (("a.srt", head + body), ("a.vtt", f"WEBVTT\n\n{head}{body}")):
            assert translate(whole, name=name) == whole
            translate(whole, lambda text: (f"{text} two", None), name)
