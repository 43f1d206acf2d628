"""Subwords: exact round trip, and the table of words equals SentencePiece on whole lines."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import ConfigError, DataError
from transduce.text import numbers, subwords
from transduce.text.subwords import (
    BEGIN,
    END,
    PAD,
    SPACE,
    UNKNOWN,
    Subwords,
    SubwordsConfig,
    learn,
    learn_symbols,
    ragged_indices,
)

LINES = [side for pair in numbers.corpus("train", 3000) for side in pair]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest) -> Subwords:
    return Subwords(learn(LINES, SubwordsConfig(size=500, kind=request.param)))


@pytest.fixture(scope="module")
def bpe() -> Subwords:
    return Subwords(learn(LINES, SubwordsConfig(size=500)))


# Words the model knows, spaces of all kinds, SentencePiece's own marks, and any text at all.
TEXT = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(["zwanzig", "hundred", " ", "  ", SPACE, "<0xE2>", "<s>", "ß", "🙂", "\n", "\t", "\x00", "x"])
    ).map("".join),
)


@given(text=TEXT)
@settings(max_examples=300, deadline=None)
def test_every_text_comes_back_exactly(model: Subwords, text: str) -> None:
    assert model.decode(model.encode(text)) == text


@given(lines=st.lists(TEXT, max_size=8))
@settings(max_examples=200, deadline=None)
def test_many_lines_encode_as_one_line_does(model: Subwords, lines: list[str]) -> None:
    tokens, lengths = model.encode_lines(lines)
    expected = [[*model.encode(line), END] for line in lines]
    assert lengths.tolist() == [len(line) for line in expected]
    assert tokens.tolist() == [token for line in expected for token in line]


def test_real_lines_encode_as_sentencepiece_does(model: Subwords) -> None:
    plain = sentencepiece.SentencePieceProcessor(model_proto=model.model)
    tokens, lengths = model.encode_lines(LINES)
    expected = plain.encode(LINES, add_eos=True)
    assert tokens.tolist() == [token for line in expected for token in line]
    assert lengths.tolist() == [len(line) for line in expected]


def test_only_bpe_is_split_by_words() -> None:
    assert Subwords(learn(LINES, SubwordsConfig(size=500))).by_word
    assert not Subwords(learn(LINES, SubwordsConfig(size=500, kind="unigram"))).by_word


def test_a_full_table_takes_in_no_more_with_the_same_result(bpe: Subwords, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = Subwords(bpe.model).encode_lines(LINES)
    monkeypatch.setattr(subwords, "TABLE_WORDS", 20)
    small = Subwords(bpe.model)
    pieces = [small.encode_lines(LINES[i : i + 50])[0] for i in range(0, len(LINES), 50)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert small._table is not None
    assert len(small._table.rows) <= 20 < len({word for line in LINES for word in line.split()})


def test_special_tokens_have_their_places(model: Subwords) -> None:
    assert [PAD, UNKNOWN, BEGIN, END] == [0, 1, 2, 3]
    plain = model.processor
    assert [plain.pad_id(), plain.unk_id(), plain.bos_id(), plain.eos_id()] == [PAD, UNKNOWN, BEGIN, END]
    assert model.decode([BEGIN, *model.encode("twenty-one"), END, PAD]) == "twenty-one"


@given(text=TEXT)
@settings(max_examples=100, deadline=None)
def test_nothing_is_unknown(model: Subwords, text: str) -> None:
    assert UNKNOWN not in model.encode(text)


def test_digits_are_spelled_and_symbols_kept_whole() -> None:
    lines = [f"<2de> page {n} of 1234" for n in range(2000)]
    model = Subwords(learn(lines, SubwordsConfig(size=285, split_digits=True, symbols=("<2de>",))))
    pieces = model.pieces(model.encode("<2de> page 1234"))
    assert "<2de>" in pieces
    assert [piece for piece in pieces if any(map(str.isdigit, piece))] == ["1", "2", "3", "4"] or pieces[-4:] == list(
        "1234"
    )
    assert model.decode(model.encode("<2de> page 1234")) == "<2de> page 1234"


def test_the_size_is_exact(model: Subwords) -> None:
    assert len(model) == 500


def test_a_size_beyond_the_corpus_names_the_largest_possible() -> None:
    with pytest.raises(
        ConfigError, match=r"subwords.size = 60000 is more than .*; use --subwords (\d+) or fewer"
    ) as error:
        learn(LINES, SubwordsConfig(size=60_000))
    largest = int(str(error.value).split("--subwords ")[1].split()[0])
    assert len(Subwords(learn(LINES, SubwordsConfig(size=largest)))) == largest


def test_a_size_below_the_alphabet_is_named() -> None:
    lines = ["".join(map(chr, range(0x4E00, 0x4E00 + 400)))]
    with pytest.raises(ConfigError, match=r"size = 300 is too small for .* use --subwords 661 or more"):
        learn(lines, SubwordsConfig(size=300, coverage=1.0))
    with pytest.raises(ConfigError, match=r"or more, or a lower --subwords\.coverage \(at least 0\.98\)$"):
        learn(lines, SubwordsConfig(size=300, coverage=1.0))
    with pytest.raises(
        ConfigError, match=r"size = 300 is too small for .* use --subwords \d+ or more$"
    ):  # nor does less help
        learn(lines, SubwordsConfig(size=300, coverage=0.98))
    # SentencePiece takes no less; what is allowed here it learns from.
    with pytest.raises(ConfigError, match=r"coverage = 0\.979 is not between 0\.98 and 1"):
        SubwordsConfig(coverage=0.979)
    assert learn(LINES, SubwordsConfig(size=500, coverage=0.98))


def test_a_foreign_file_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "subwords.model"
    path.write_bytes(b"not a model")
    with pytest.raises(DataError, match=r"subwords.model: not a readable SentencePiece model"):
        Subwords.load(path)
    with pytest.raises(DataError, match="missing"):
        Subwords.load(tmp_path / "missing")


@given(lengths=st.lists(st.integers(0, 5)), starts=st.data())
def test_ragged_indices_are_runs_one_after_the_other(lengths: list[int], starts: st.DataObject) -> None:
    first = [starts.draw(st.integers(0, 100)) for _ in lengths]
    found = ragged_indices(np.array(first, np.int64), np.array(lengths, np.int64))
    assert found.tolist() == [start + i for start, length in zip(first, lengths) for i in range(length)]


def test_a_tag_is_one_subword_with_its_space() -> None:
    model = Subwords(learn(LINES, SubwordsConfig(size=500, symbols=(">>de<<", "<b>"))))
    pieces = model.pieces(model.encode(f">>de<< {LINES[0]}"))
    assert pieces == ["▁>>de<<", *model.pieces(model.encode(LINES[0]))]
    assert model.decode(model.encode(f">>de<< {LINES[0]}")) == f">>de<< {LINES[0]}"
    assert model.find_tag(">>de<< one") == ">>de<<"
    assert model.find_tag(">>fr<< one") == model.find_tag("<b> one") == ""


SYMBOLS = ["XX", "(", "(NP", ")NP", ")" + "LONG" * 20, ")É|ü", ",", ".", "``", "''", ":", "-LRB-", "$", "PRP$"]


@given(st.lists(st.lists(st.sampled_from(SYMBOLS), min_size=1).map(" ".join), min_size=1))
@settings(deadline=None)
def test_symbols_are_one_token_each(lines: list[str]) -> None:
    model = Subwords(learn_symbols(SYMBOLS))
    assert (model.kind, len(model)) == ("word", 4 + len(SYMBOLS))
    row, lengths = model.encode_lines(lines)
    for line, tokens in zip(lines, np.split(row, np.cumsum(lengths)[:-1])):
        assert tokens.tolist() == [*model.encode(line), END]
        assert len(tokens) == len(line.split()) + 1
        assert model.decode(tokens) == line
    assert model.encode("XX other XX")[1] == UNKNOWN


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_kind_of_a_model_is_known(kind: Literal["bpe", "unigram"]) -> None:
    assert Subwords(learn(LINES, SubwordsConfig(size=400, kind=kind))).kind == kind
