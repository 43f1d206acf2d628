"""English text split into words as in the Penn Treebank, and text in capitals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.text.words import find_width, in_capitals, is_one_word, is_small, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog barks.", "The dog barks ."),
        ('"I don\'t know," he said.', "`` I do n't know , '' he said ."),
        ("Mr. Smith paid $1,000 (70%) at 10:30 a.m. today.", "Mr. Smith paid $ 1,000 ( 70 % ) at 10:30 a.m. today ."),
        ("The dogs' owner can't, won't and cannot stop!", "The dogs ' owner ca n't , wo n't and can not stop !"),
        ('She said: "it is John\'s."', "She said : `` it is John 's . ''"),
        ("He left -- at last...", "He left -- at last ..."),
        ("IL-2 and NF-kappaB were found (Fig. 1).", "IL-2 and NF-kappaB were found ( Fig. 1 ) ."),
        ("“I’m here,” she said.", "“ I ’m here , ” she said ."),
        ("the 'best' of the 1990's", "the ' best ' of the 1990 's"),
        ("we'll, they've; you're I'd", "we 'll , they 've ; you 're I 'd"),
        ('He said "yes" (and "no").', "He said `` yes '' ( and `` no '' ) ."),
        ("  ", ""),
    ],
)
def test_words_are_those_of_the_treebank(text: str, words: str):
    assert split_words(text) == words.split()


def test_quotation_marks_may_stay_as_they_are():
    assert split_words('He said "yes".', treebank_quotes=False) == ["He", "said", '"', "yes", '"', "."]


@given(st.text())
def test_nothing_is_lost_but_space_and_the_shape_of_quotation_marks(text: str):
    def bare(some: str) -> str:
        return "".join(c for c in some if not c.isspace() and c not in "\"`'…." and c != "\x00")

    assert bare("".join(split_words(text))) == bare(text)


@pytest.mark.parametrize("text", ["The dog barks .", "`` I do n't know , '' he said .", "( 70 % ) of IL-2 's"])
def test_words_that_are_apart_stay_so(text: str):
    assert split_words(text) == text.split()


@pytest.mark.parametrize(
    ("text", "capitals"),
    [
        ("WHERE IS THE STATION?", True),
        ("ATTENTION!", True),
        ("OPEN THE DOOR", True),
        ("ÜBERALL 2024", True),
        ("ВЫХОД ЗДЕСЬ", True),
        ("US ARMY", False),
        ("A B C D E", False),
        ("12345 67890", False),
        ("WHERE is it", False),
        ("iPHONE", False),
        ("東京タワー", False),
        ("", False),
    ],
)
def test_what_is_all_in_capitals(text: str, capitals: bool):
    assert in_capitals(text) == capitals


@pytest.mark.parametrize(
    ("before", "behind", "one"),
    [
        ("the cat", "s sat", True),
        ("größ", "er", True),
        ("हिन्द", "ी", True),  # a vowel that is written on the letter before it
        ("हिन्दी", "में", True),
        ("10", "5", True),
        ("고양이", "가", True),
        ("cat", " sat", False),
        ("cat", ", and", False),
        ("100%", "a", False),
        ("猫", "が", False),  # where no spaces are any character may begin a word
        ("แมว", "กิน", False),
        ("iPhone", "は", False),
        ("ก", "ิน", True),
        ("", "cat", False),
        ("cat", "", False),
    ],
)
def test_where_a_word_goes_on(before: str, behind: str, one: bool):
    assert is_one_word(before, behind) == one


def test_which_letters_are_small():
    assert all(map(is_small, "aßéжոꭰ"))
    assert not any(map(is_small, "AÉЖ1א中हაᲐ"))  # Georgian letters have capitals, but not for one word among small ones


def test_how_wide_a_text_is():
    assert find_width("naïve 中") == find_width("nai\u0308ve 中") == 7
    assert find_width("שָׁלוֹם") == 4
    assert find_width("हिन्दी") == 5
