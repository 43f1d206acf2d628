"""SentencePiece models are read and written as SentencePiece itself does it."""

import io

import pytest
import sentencepiece

from transduce.errors import DataError
from transduce.text import numbers
from transduce.text.pieces import BYTE, CONTROL, NORMAL, UNKNOWN, Piece, read_pieces, write_pieces
from transduce.text.subwords import SubwordsConfig, learn

LINES = [line for pair in numbers.corpus("train", 300) for line in pair]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest) -> bytes:
    return learn(LINES, SubwordsConfig(size=330, kind=request.param, symbols=("<tag>",)))


def test_pieces_are_those_that_sentencepiece_reads(model: bytes):
    found = read_pieces(model, "x")
    inner = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert [piece.text for piece in found.pieces] == [inner.id_to_piece(n) for n in range(len(found.pieces))]
    assert [piece.score for piece in found.pieces] == [inner.get_score(n) for n in range(len(found.pieces))]
    for number, piece in enumerate(found.pieces):
        assert (piece.kind == BYTE) == inner.is_byte(number)
        assert (piece.kind == CONTROL) == inner.is_control(number)
        assert (piece.kind == UNKNOWN) == inner.is_unknown(number)
    assert len(found.pieces) == inner.get_piece_size()


def test_numbers_can_be_changed(model: bytes):
    found = read_pieces(model, "x")
    pieces = found.pieces[:4][::-1] + found.pieces[4:][::-1]  # end, begin, unknown, padding
    written = sentencepiece.SentencePieceProcessor(model_proto=write_pieces(found, pieces, (2, 1, 0, 3)))
    assert (written.unk_id(), written.bos_id(), written.eos_id(), written.pad_id()) == (2, 1, 0, 3)
    old = sentencepiece.SentencePieceProcessor(model_proto=model)
    for line in (*LINES[:100], "<tag> ünknown 😀"):
        assert written.encode(line, out_type=str) == old.encode(line, out_type=str)
        assert written.decode(written.encode(line)) == old.decode(old.encode(line))


def test_the_kind_is_known(model: bytes, request: pytest.FixtureRequest):
    assert read_pieces(model, "x").is_bpe == ("bpe" in request.node.name)


def test_what_is_no_model_is_refused(model: bytes):
    for wrong in (b"", b"nothing of the kind", model[: len(model) // 2], b"\xff" * 20, b"\x0a\xff\xff\xff\x7f"):
        with pytest.raises(DataError, match=r"x: not a"):
            read_pieces(wrong, "x")


def test_a_piece_is_normal_unless_it_says_otherwise():
    inner = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=inner, vocab_size=80, hard_vocab_limit=False, minloglevel=2
    )
    kinds = {piece.kind for piece in read_pieces(inner.getvalue(), "x").pieces}
    assert kinds == {NORMAL, UNKNOWN, CONTROL}
    assert Piece("a").kind == NORMAL
