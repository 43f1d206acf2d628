"""Sentences: text comes back exactly, pieces fit, and sentences end where a reader ends them."""

import re
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import pairwise
from math import log2
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transduce.text import numbers
from transduce.text.sentences import SplitWhen, lay_out
from transduce.text.subwords import Subwords, SubwordsConfig, learn

SPLITS: tuple[SplitWhen, ...] = ("long", "always", "never")
ANY_LENGTH = 10**9

# What texts are made of: words, abbreviations, marks, quotes, all kinds of white space, characters of several parts.
TOKENS = """
    Tom the It he I Dr z B. a.m. usw 3 25 1999 . ! ? ?! … ... , ; : — - " ' ” “ „ » « ( ) [1] * 。 ， ！ 「 」 今 好 ।
    क्ष iPhone word http://x.org/y,z e\u0301 \u0301 👩\u200d👧 🇩🇪 😀 ᄒ ᅡ ᆫ ก็ \u200b \ufeff \u2060 \x00
""".split()
WORDS = ["Tom", "came.", "He", "left!", "(The", "end?)", "Dr.", "3.", "well,", "so;", "extraordinarily", "...", "—"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", "\x1f", "\x85", "\u00a0", "\u2028", "\u3000"]
TEXT = st.one_of(
    st.text(max_size=60), st.lists(st.sampled_from([*TOKENS, *SPACES, *[" "] * 12]), max_size=40).map("".join)
)
LINE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join)
SPLIT = st.sampled_from(SPLITS)
COUNTS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "bytes": lambda piece: len(piece.encode(errors="surrogatepass")) + 1,
    "uneven": lambda piece: 1 + len(piece.split()) + 5 * piece.count("o"),
}
COUNT = st.sampled_from(list(COUNTS.values()))


def split_always(text: str) -> list[str]:
    return lay_out(text, len, ANY_LENGTH, "always")[0]


@given(text=TEXT, count=COUNT, longest=st.integers(1, 40), split=SPLIT)
@settings(max_examples=250, deadline=None)
@example(text=")\x1fhe", count=len, longest=1, split="long")
@example(text="a" + " " * 40 + ". B", count=len, longest=5, split="always")
@example(text="a" * 8 + " " * 6 + "b" * 26, count=len, longest=10, split="long")
@example(text="a" * 26 + " " * 6 + "b" * 8, count=len, longest=10, split="long")
def test_pieces_joined_are_the_text(text: str, count: Callable[[str], int], longest: int, split: SplitWhen) -> None:
    pieces, layout = lay_out(text, count, longest, split)
    assert layout.join(pieces) == text
    for piece in pieces:
        assert piece
        assert piece == piece.strip()
        assert len(piece.splitlines()) == 1
        assert split == "never" or count(piece) <= longest or len(piece) == 1


@given(text=TEXT)
@settings(max_examples=100, deadline=None)
def test_never_gives_the_lines(text: str) -> None:
    text = re.sub("[\u200b\u2060\ufeff]", "", text)
    pieces, _ = lay_out(text, len, 1, "never")
    assert pieces == [line.strip() for line in text.splitlines() if line.strip()]
    assert all(lay_out(piece, len, 1, "never")[0] == [piece] for piece in pieces)


@given(line=LINE, longest=st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_only_long_lines_are_split_and_only_long_sentences_are_cut(line: str, longest: int) -> None:
    pieces, _ = lay_out(line, len, longest, "long")
    if len(line) <= longest:
        assert pieces == [line.strip()]
        return
    for sentence in split_always(line):
        if len(sentence) <= longest:
            assert pieces.pop(0) == sentence
        else:
            parts = [pieces.pop(0)]
            while sum(len("".join(part.split())) for part in parts) < len("".join(sentence.split())):
                parts.append(pieces.pop(0))
            assert sentence.startswith(parts[0])
            assert sentence.endswith(parts[-1])
            assert len(parts) > 1
    assert pieces == []


@given(text=TEXT)
@settings(max_examples=100, deadline=None)
def test_no_sentence_is_punctuation_only_unless_its_line_is(text: str) -> None:
    for line in lay_out(text, len, 1, "never")[0]:
        sentences = split_always(line)
        assert len(sentences) == 1 or all(re.search(r"[^\W_]", sentence) for sentence in sentences)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("text", ["", " ", "\n", " \t\r\n\u00a0\u3000\u2028 ", "\ufeff", "\u200b\n\u2060 "])
def test_nothing_to_translate_comes_back(text: str, split: SplitWhen) -> None:
    pieces, layout = lay_out(text, len, 5, split)
    assert pieces == []
    assert layout.join([]) == text


def test_the_layout_stays_when_the_words_change() -> None:
    text = "\ufeff  One here.  Two there.\r\n\r\n\tThree\u00a0\u2028- four \x85\u3000five\n"
    pieces, layout = lay_out(text, len, ANY_LENGTH, "always")
    assert pieces == ["One here.", "Two there.", "Three", "- four", "five"]
    assert layout.join(["1", "2", "", "4", "5"]) == "\ufeff  1  2\r\n\r\n\t\u00a0\u20284 \x85\u30005\n"


@pytest.mark.parametrize(
    "line_break", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_lines_are_never_joined(line_break: str) -> None:
    for split in SPLITS:
        assert lay_out(f"one{line_break}two", len, ANY_LENGTH, split)[0] == ["one", "two"]


def test_tokens_are_counted_once_a_line_where_nothing_is_long() -> None:
    counted: list[str] = []

    def count(piece: str) -> int:
        counted.append(piece)
        return len(piece)

    text = "First line. It has two.\n  Second line. \n\nThird"
    lay_out(text, count, 100, "never")
    assert counted == []
    for split in ("long", "always"):
        counted.clear()
        lay_out(text, count, 100, split)
        assert counted == ["First line. It has two.", "Second line.", "Third"]
    counted.clear()
    assert lay_out("Two words. Two more.", count, 20, "long")[0] == ["Two words. Two more."]
    assert counted == ["Two words. Two more."]
    counted.clear()
    lay_out("one two three", count, 8, "long")
    assert counted == ["one two three", "three", "one two"]


def test_a_wrong_number_of_translations_or_no_room_is_refused() -> None:
    _, layout = lay_out("One.\nTwo.", len, 10, "long")
    for translations in ([], ["Eins."], ["Eins.", "Zwei.", "Drei."]):
        with pytest.raises(ValueError, match=f"{len(translations)} translations for 2 pieces"):
            layout.join(translations)
    with pytest.raises(ValueError, match="longest = 0"):
        lay_out("One.", len, 0, "long")
    with pytest.raises(FrozenInstanceError):
        layout.gaps = ()  # pyright: ignore[reportAttributeAccessIssue]


# A bar stands where one sentence ends and the next begins.
ENGLISH = """
Mr. and Mrs. Brown met Dr. Green. | They talked. | Ms. White did not.
He lives in St. Ives. | She does not. | Gen. Al Dunn and Sen. La Rue do.
J. R. R. Marlowe wrote it. | P. Q. Dunn, E. A. Poole and A. De Witt read it.
It costs 3.50 dollars. | Version 2.0.1 is out. | Mail a.b@example.com. | Open notes.txt. | Then close it.
See https://example.org/a.b?c=d. | It is short.
Really?! | Yes!!! | He paused... then went on. | Wait... | What? | Well... I think so. | "So do I." | Good.
He waited ... Tom came. | They (est. 1951) paid... 6 dollars. | It ended … | The rest was silence.
"Why?" Ann asked. | "Stop!" Old Tom cried. | "Because." | He left.
Did he go? | Tom said no. | "Go away!" he said. | "I will not." | (She stayed.) | Then night fell.
He said: "I came. | I saw." | 'Fine.' | She went.
He works for Acme Inc. | The firm is old. | Acme Corp. Europe is new.
The U.S. Navy came. | He lives in the U.S. | He likes it. | She got a Ph.D. | It helped.
See Fig. 3, p. 12, vol. IV and No. 5. | Did he come? | No. | He stayed. | I like art. | Music too.
Is it true?[1] | It is.[2][3] | Good.
The first iPhone came. | iPads came later. | The end. and no more.
The end. | - The beginning. | — Another. | • Item. | (One more.)
We won. | $6 is more. | 7 is less. | €8 is not.
Hello! 😀 | How are you? 😀😀 | Fine.
**Note.** | The rest is _plain._ | It is.
See e.g. Smith et al. 2004, i.e. Jones vs. Miller. | Cf. Brown, approx. 1990.
I like plan B. | The rest is bad. | He ran 5 km. | Tom ran 6 mm. | Ann etc. | It's late. | Etc. | Don't go.
He is 25. | He lives here. | She was born in 1990. | Tom was not.
On Jan. 5 we met Jan. | Tom sat.
WE STOP. | GO HOME. | MR. SMITH IS HERE.
Hello . | How are you ? | Fine .
"""
GERMAN = """
Am 3. Mai kam er an. | Der 2. Weltkrieg endete 1945. | Danach war Frieden. | Das 165. Fest folgte.
Das ist z. B. Unsinn, d. h. Quatsch. | Er kam u. a. Montag usw. | Die anderen nicht.
Das ist z.B. Die Zeit, i. d. R. Die Welt. | Siehe Abs. 2 Nr. 3. | Das gilt i. d. R. Montag bis Freitag, vgl. Anlage 4.
Er wohnt in der Hauptstr. Nummer 5. | Sie auch. | Das ist die Art. | Art. 5 gilt.
Im 19. Jh. Berlin war klein. | Um 500 v. Chr. Geburt. | Ludwig XIV. König der Franken. | Er starb.
Vom 10.-11. Dezember, am 15./16. Oktober und am 3. 5. 2014. | Dann ist Pause. | Im Jahr 2011/12. | Tom kam.
„Kommst du?“ | Er nickte. | »Ja.« | Sie ging. | ‚Gut.‘ | Ende. | Er ging. | »Nein«, sagte sie.
Prof. Dr. h. c. Grün kam. | Hr. Das und die Fa. Meier bzw. Schulze nicht. | Das sind 3 Mio. Euro, ca. Hälfte.
Wir brauchen drei Dinge: 1. Die Luft. | 2. Das Wasser. | 3. Die Erde.
Vor jdm./etw. Angst haben, ggf. Hilfe holen, inkl. Porto, evtl. Montag, sog. Experten.
"""
FRENCH = """
M. Le Goff arrive. | MM. Blanc et Noir aussi. | Mme. Petit part.
« Qui est là ? » | Personne ne répondit. | « Moi. » | Il rit. | « Ah ! » dit-il.
C'est vrai, p. ex. Paris. | Il mourut en 44 av. J.-C. | Il était vieux. | Il est né au XIX. Siècle.
Quoi ? | Rien ! | Il part… | Elle reste. | C’est l’art. 5 et l'art. 6. | Où est tout, etc. | J’y vais.
"""
SPANISH_AND_ITALIAN = """
¿Cómo estás? | ¡Bien! | ¿Y tú? | El Sr. Gómez y la Sra. Ruiz llegan, p. ej. Pedro. | Vive en EE. UU. | Es feliz.
Il sig. Rossi parla. | Il dott. Bianchi ascolta. | Pane, vino ecc. | È tardi. | Dell'art. 3 si parla.
"""
OTHERS = """
यह अच्छा है। | वह गया। | क्या?
هل هذا صحيح؟ | نعم. | ذهب الولد.
Он пришёл. | А. С. Иванов ушёл.
그는 갔다. | 그녀는 왔다.
ის წავიდა. | მე აქ ვარ. | რატომ?
Ես այստեղ եմ։ | Նա գնաց։
"""
LISTS = ["1. The first", "12. Tom", "A. The first", "IV. The fourth", "1.2. The second", "(3. Third)"]


@pytest.mark.parametrize(
    "marked",
    [line for table in (ENGLISH, GERMAN, FRENCH, SPANISH_AND_ITALIAN, OTHERS) for line in table.split("\n") if line],
)
def test_sentences_end_where_a_reader_ends_them(marked: str) -> None:
    assert split_always(marked.replace(" | ", " ")) == marked.split(" | ")
    assert split_always(marked.replace(" | ", " \t")) == marked.split(" | ")


@pytest.mark.parametrize("line", LISTS)
def test_numbers_of_lists_stay_with_what_they_number(line: str) -> None:
    assert split_always(line) == [line]
    assert split_always(f"They said so. {line} was said.") == ["They said so.", f"{line} was said."]


def test_dots_at_the_beginning_are_no_sentence() -> None:
    assert split_always("... The end. ... He left. !!!") == ["... The end. ...", "He left. !!!"]


@pytest.mark.parametrize(
    "marked",
    [
        "今天很好。|我们走吧！|真的吗？|好",
        "「好。」と言った。|彼は言った。|「はい。」|「いいえ。」",
        "３．５です。|終わり．|次",
        "（注意。）|次です！？|はい。”と”。」",
    ],
)
def test_chinese_and_japanese_need_no_spaces(marked: str) -> None:
    assert split_always(marked.replace("|", "")) == marked.split("|")
    assert split_always(marked.replace("|", "\u3000")) == marked.split("|")


def test_translations_from_scripts_without_spaces_get_them_where_needed() -> None:
    text = "今天很好。我们走吧！\n真的吗？“好。”他走。"
    pieces, layout = lay_out(text, len, ANY_LENGTH, "always")
    assert pieces == ["今天很好。", "我们走吧！", "真的吗？", "“好。”他走。"]
    assert layout.join(["Fine today.", "Let's go!", "Really?", "He goes."]) == "Fine today. Let's go!\nReally? He goes."
    assert layout.join(["今日は。", "行こう！", "", "はい。"]) == "今日は。行こう！\nはい。"
    _, layout = lay_out("He came—and he saw", len, 12, "long")
    assert [layout.join(["Er kam" + end, "und sah"]) for end in ("—", "", ",")] == [
        "Er kam—und sah",
        "Er kam und sah",
        "Er kam, und sah",
    ]


def test_quotes_do_not_hide_a_script_without_spaces() -> None:
    _, layout = lay_out("今天很好。我们走吧！\n真的吗？“好。”他走。", len, ANY_LENGTH, "always")
    assert layout.join(["(好。)", "b", '"好"', "d"]) == '(好。)b\n"好"d'


def test_the_parts_of_a_word_are_joined_without_spaces() -> None:
    pieces, layout = lay_out("see " + "QUJDRE" * 20 + " now", len, 50, "long")
    assert [piece for piece in pieces if "Q" not in piece] == ["see", "now"]
    assert layout.join([piece.lower() for piece in pieces]) == "see " + "qujdre" * 20 + " now"


@pytest.mark.parametrize("words", [7, 30, 31, 59, 100, 1000])
def test_cuts_are_even_where_no_place_is_better(words: int) -> None:
    counted = 0

    def count(piece: str) -> int:
        nonlocal counted
        tokens = len(piece.split())
        counted += tokens
        return tokens

    pieces, _ = lay_out(" ".join(["word"] * words), count, 30, "long")
    assert counted <= words * (2 + log2(len(pieces)))
    sizes = [len(piece.split()) for piece in pieces]
    assert sum(sizes) == words
    assert len(sizes) <= 1.2 * words / 30 + 1
    assert max(sizes) <= min(30, 1.6 * min(sizes))


@pytest.mark.parametrize(
    "marked",
    [
        "the old man who lived there | spoke to nobody at all that day",
        "the old man, who lived there alone, | spoke to nobody at all that day",
        "the old man lived there, alone; | he spoke to nobody, ever, on that day",
        "the old man lived there alone: | he spoke to nobody, ever, that day",
        "the old man lived there — | alone, as he was — with nobody",
        "the old man lived there, alone, | with a dog - and nobody else, ever",
        "he lived here alone. | then, one day, somebody came; or not",
        "he lived with Mr. Brown and his dog, | and with somebody else who came",
        "they all went to see their Dr. Brown, | about the dog he had seen",
        "he asked who (and when?) | he came, they said they did not know it",
    ],
)
def test_a_long_sentence_is_cut_at_its_clauses(marked: str) -> None:
    text = marked.replace(" | ", " ")
    assert lay_out(text, len, len(text) * 3 // 4, "long")[0] == marked.split(" | ")


@pytest.mark.parametrize(
    ("text", "longest", "pieces"),
    [
        ("今天天气很好，我们去公园吧", 10, ["今天天气很好，", "我们去公园吧"]),
        ("我们使用transformer模型", 14, ["我们使用", "transformer模型"]),
        ("transformers模型很好用吗", 14, ["transformers", "模型很好用吗"]),
        ("他说了“好！”然后他就走了", 10, ["他说了“好！”", "然后他就走了"]),
        ("He came—and he saw", 12, ["He came—", "and he saw"]),
        ("https://example.org/some/long/path", 20, ["https://example.", "org/some/long/path"]),
        ("ไทย\u200bไทย", 4, ["ไทย", "ไทย"]),
        ("a ! ! ! ! ! b", 8, ["a ! !", "! ! ! b"]),
        ("no, no!!!! !!!!", 12, ["no,", "no!!!! !!!!"]),
        ("!!!! !!!! no, no", 13, ["!!!! !!!! no,", "no"]),
    ],
)
def test_what_has_few_spaces_is_cut_between_its_parts(text: str, longest: int, pieces: list[str]) -> None:
    assert lay_out(text, len, longest, "long")[0] == pieces


def test_a_word_is_cut_only_when_it_is_too_long_itself() -> None:
    # Its letters cost nothing, so that the even place is far from every space.
    def count(piece: str) -> int:
        return 10 * len(piece.split())

    text = "a b c " + "d" * 500 + " e f g"
    assert lay_out(text, count, 10, "long")[0] == text.split()


def test_punctuation_stays_with_words_though_the_cut_is_far_from_even() -> None:
    text = "!!! " + "a" * 40 + "b b b"
    assert lay_out(text, lambda piece: piece.count("b"), 1, "long")[0] == [text[:-4], "b", "b"]


# An accent, emoji of two people, a flag, a skin tone, Korean in two spellings, a selector, Indic vowels and consonants,
# Thai AM, plain letters, a half-width voiced syllable.
CHARACTERS = """
    e\u0301 \U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u1100\u1161\u11a8 \uac00\u11a8
    ☺\ufe0f \u0915\u093f \u0915\u094d\u0937\u093f \u0e01\u0e33 a \u597d \uff76\uff9e
""".split()


@pytest.mark.parametrize("character", CHARACTERS, ids=ascii)
def test_no_cut_goes_through_a_character(character: str) -> None:
    for longest in range(len(character), 12):
        pieces, _ = lay_out(character * 20, len, longest, "long")
        assert all(piece == character * (len(piece) // len(character)) for piece in pieces)


def test_a_heap_of_marks_is_cut_all_the_same() -> None:
    pieces, _ = lay_out("e" + "\u0301" * 100, len, 30, "long")
    assert max(map(len, pieces)) <= 30


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_fit_as_subwords_count_them(kind: Literal["bpe", "unigram"]) -> None:
    lines = [side for pair in numbers.corpus("train", 1000) for side in pair]
    model = Subwords(learn(lines, SubwordsConfig(size=400, kind=kind)))

    def count(piece: str) -> int:
        return len(model.encode(piece))

    text = " ".join(lines[:100]) + "\n" + ", ".join(lines[100:150]) + "\n" + "".join(lines[150:170]).replace(" ", "")
    for longest in (8, 50, 200):
        pieces, layout = lay_out(text, count, longest, "long")
        assert max(map(count, pieces)) <= longest
        assert layout.join(pieces) == text
        # Two neighbours of one line seldom fit into half the room together: pieces are not crumbs.
        crumbs = sum(count(one + two) < longest / 4 for one, two in pairwise(pieces) if "." not in one)
        assert crumbs <= len(pieces) / 4


@pytest.mark.parametrize(
    "text",
    [
        "a" * 30_000,
        "." * 80_000,
        "! " * 15_000 + "A",
        "a. " * 10_000 + "A",
        '."' * 15_000 + "A",
        "!" + '"' * 30_000 + "A",
        "a" + " " * 30_000 + "A",
        ("a" + " " * 6000 + "\n") * 10,
        "今天" * 10_000,
        "🇩🇪" * 10_000,
        "3. " * 10_000,
        "e" + "\u0301" * 10_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_no_text_takes_long(text: str) -> None:
    begun = time.perf_counter()
    pieces, layout = lay_out(text, len, 1000, "always")
    assert (
        time.perf_counter() - begun < 5
    )  # tenths of a second where the time grows with the length, minutes with its square
    assert layout.join(pieces) == text
