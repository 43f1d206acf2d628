"""Characters spelled in bytes: they are whole, and in the source or near others that the vocabulary has."""

import unicodedata
from pathlib import Path

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from models import learn_subwords, save_tiny
from test_rules import only
from toys import Said, Toy, assert_same, plain_beam

from transduce.config import SearchConfig
from transduce.decoding.characters import BLOCK, Characters, find_unfinished, is_text
from transduce.decoding.options import Request
from transduce.decoding.rules import Spellings, spell_piece
from transduce.decoding.search import Task, search_all
from transduce.decoding.translator import Translator
from transduce.text.subwords import END

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["<pad>", "<unk>", "<s>", "</s>", *BYTES, "▁die", "ä", "e", "–"]
TEXTS = Spellings(PIECES).texts
SOURCE = np.array([5, 4, END], np.int32)
ODD = "🍍日é…҉\ue000\x80"  # in and beside the blocks of the vocabulary, and in none of them


def is_usual(character: str) -> bool:
    """Whether a character is visible and in the block of one in the vocabulary, by definition."""
    blocks = {ord(one) // BLOCK for own in TEXTS if len(own) != 1 or own < b"\x80" for one in own.decode()}
    return ord(character) // BLOCK in blocks and unicodedata.category(character)[0] in "LMNPS"


USUAL = {chr(code).encode() for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000 and is_usual(chr(code))}


def may_follow(said: bytes, token: int, source: str) -> bool:
    """Whether a subword continues the output so far, whose last character may be unfinished."""
    begun, own = find_unfinished(said), TEXTS[token]
    if len(own) != 1 or own < b"\x80":
        return not begun
    return any(one.startswith(begun + own) for one in {*USUAL, *map(str.encode, source)})


@given(
    begun=st.characters(exclude_categories=["Cs"]).map(str.encode),
    cut=st.integers(0, 3),
    source=st.text(st.sampled_from(ODD), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_bytes_are_those_of_characters_that_may_be_spelled(begun: bytes, cut: int, source: str):
    unfinished = find_unfinished(begun[:cut])
    assert unfinished == (begun[:cut] if 0 < cut < len(begun) else b"")
    forbidden = set(Characters(TEXTS).breaking(unfinished, frozenset(map(str.encode, source))).tolist())
    assert forbidden == {token for token in range(len(TEXTS)) if not may_follow(unfinished, token, source)}


def test_what_is_no_text_is_told_from_what_is_unfinished():
    assert all(map(is_text, (b"", b"a", "ä".encode(), b"a\xc3", b"\xf0\x9f\x8d")))
    assert not any(map(is_text, (b"\xc3a", b"\x80", b"\xff", b"\xe0\x80", b"\xed\xa0\x80", b"\xc3\xc3")))


@given(seed=st.integers(0, 1000), beam=st.integers(1, 3), source=st.text(st.sampled_from(ODD), max_size=2))
@settings(max_examples=25, deadline=None)
def test_the_search_is_one_without_broken_characters(seed: int, beam: int, source: str):
    loved = {END: 3.0} | {PIECES.index(f"<0x{byte:02X}>"): 4.0 for byte in f"ä…{ODD}".encode()}
    toy = Toy(len(PIECES), seed=seed, loves=lambda said: loved)
    config = SearchConfig(beam=beam, n_best=beam, stop="full")
    task = Task(SOURCE, spelled=frozenset(source), max_tokens=6)
    (found,) = search_all(toy, [task], config, PIECES)

    def may(said: Said, token: int) -> bool:
        return may_follow(b"".join(TEXTS[one] for one in said), token, source)

    tell = only(toy.tell(SOURCE.tolist()), may)
    expected, gap = plain_beam(tell, beam=beam, alpha=0.6, limit=6, n_best=beam, stop="full")
    assume(gap > 1e-5)
    assert_same(found, expected)


def test_translations_have_no_halves_of_characters(tmp_path: Path):
    """Of a model that spells at random; translations that it spells well do not change."""
    subwords = learn_subwords()
    words = ["two", "euros", "nine", "Mr.", "日本語", "€9", "twenty", "fünf"]
    texts = [f"{one} {other}" for one in words for other in words]
    halves = whole = 0
    for seed in range(3):
        save_tiny(tmp_path / f"{seed}", seed=seed, spells=True)
        translator = Translator.load(tmp_path / f"{seed}", engine="torch")
        tasks = [translator.task(request) for request in map(Request, texts)]
        plain = search_all(translator.engine, tasks, translator.search)
        for text, (before, *_), after in zip(texts, plain, translator.translate(texts, capitals=False)):
            (sentence,) = after.sentences
            best = sentence.alternatives[0]
            said = b"".join(map(spell_piece, subwords.pieces(before.tokens)))
            if is_text(said):
                assert best.tokens == tuple(subwords.pieces(before.tokens)), text
                whole += 1
            else:
                assert is_text(b"".join(map(spell_piece, best.tokens))), text
                assert not best.complete or "\ufffd" not in best.text
                halves += 1
    assert halves > 20
    assert whole > 20
