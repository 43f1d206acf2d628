"""Differences between two sentences are marked word by word, and no character is lost."""

from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.scoring.differences import Piece, closest, compare_words, cut_words

TEXT = st.text(st.sampled_from(list("ab äß,.-'’\t\u00a0\n我กア𠀀\U0001f600\u0301")), max_size=25)


def show(pieces: list[Piece]) -> str:
    """Return pieces as text: [words of this sentence alone], {words that stand elsewhere}."""
    around = {"same": "{}", "moved": "{{{}}}", "other": "[{}]"}
    return "".join(around[piece.kind].format(piece.text) for piece in pieces)


@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_the_pieces_make_up_the_sentence(sentence: str, others: list[str]):
    pieces = compare_words(sentence, *others)
    assert "".join(piece.text for piece in pieces) == sentence
    words = {word for other in others for word in cut_words(other)}
    for piece in pieces:
        if piece.kind == "moved":
            assert set(cut_words(piece.text)) <= words
    if sentence in others:
        assert all(piece.kind == "same" for piece in pieces)
    if not words & set(cut_words(sentence)):
        assert all(piece.kind == "other" or piece.text.isspace() for piece in pieces)


def test_words_that_the_other_does_not_have_are_marked():
    assert show(compare_words("Das rote, alte Haus.", "Das neue Haus.")) == "Das [rote, alte] Haus."
    assert show(compare_words("Das neue Haus.", "Das rote, alte Haus.")) == "Das [neue] Haus."
    assert show(compare_words("Das Haus", "Das Haus!")) == "Das Haus"
    assert show(compare_words("", "Das Haus!")) == ""
    assert show(compare_words("Das Haus!", "")) == "[Das Haus!]"


def test_words_that_stand_elsewhere_are_told_from_others():
    assert show(compare_words("heute geht er weg", "er geht heute weg")) in (
        "{heute} geht {er} weg",
        "{heute geht} er weg",
        "heute {geht er} weg",
    )
    # As many as the other has, and no more.
    assert show(compare_words("ja a b ja", "a b ja")) == "[ja] a b ja"
    assert show(compare_words("ja a b ja ja", "a b c ja c")) == "[ja] a b ja [ja]"
    assert show(compare_words("ja ja a b c", "a b c ja")) == "{ja} [ja] a b c"


def test_a_word_counts_as_found_if_any_of_several_has_it():
    assert show(compare_words("a b c", "a x x", "x x c")) == "a [b] c"
    assert show(compare_words("a b", "b a", "a b")) == "a b"


def test_words_are_words():
    assert cut_words("z.B. Kilo-Meter, it's 5 %") == ["z", ".", "B", ".", "Kilo-Meter", ",", "it's", "5", "%"]
    assert cut_words("我们 go ไป") == ["我", "们", "go", "ไ", "ป"]
    assert cut_words("हिन्दी में, שָׁלוֹם.") == ["हिन्दी", "में", ",", "שָׁלוֹם", "."]
    assert show(compare_words("我们去", "我们来")) == "我们[去]"


def test_a_word_may_be_frequent_in_a_long_sentence():
    assert [piece.kind for piece in compare_words("x" + " und so" * 150, "und so " * 150)] == ["other", "same", "same"]


def test_the_closest_of_several_is_found():
    assert closest("ein Haus am See", ["am See ein Hund", "ein Haus am Meer", "x"]) == 1
    assert closest("", ["a", "b"]) == 0
