"""More subwords for a known vocabulary: old ones keep their numbers, old text its split, and new text gets shorter."""

import io
import random
from collections import Counter
from itertools import pairwise

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.interop.vocabulary import Foreign, number_sides
from transduce.text import numbers
from transduce.text.extend import FEWEST, count_words, extend
from transduce.text.pieces import NORMAL, PieceModel, read_pieces, write_pieces
from transduce.text.shards import SIDES, Side
from transduce.text.subwords import SPACE, UNKNOWN, Subwords, SubwordsConfig, learn, learn_symbols

SPECIALS = (1, 2, 3, 0)  # unknown, begin, end, padding
PAIRS = numbers.corpus("train", 600)
GENERAL = [line for pair in PAIRS for line in pair]
TEXTS: dict[Side, list[str]] = {"source": [pair[0] for pair in PAIRS], "target": [pair[1] for pair in PAIRS]}
LOST = "▁twenty"
WORDS = [
    "kubernetes",
    "config",
    "install",
    "installieren",
    "servers",
    "Größe",
    "→",
    "Привет",
    "мир",
    "v12.04",
    "--force",
]
DRAW = random.Random(1)
SPECIAL = [" ".join(DRAW.choices(WORDS, k=6)) for _ in range(200)]
NOTHING: Counter[str] = Counter()


def both(subwords: Subwords, lines: list[str], count: int, *symbols: str) -> Subwords:
    """Extend a vocabulary of both sides."""
    new = extend(dict.fromkeys(SIDES, subwords), {"source": count_words(lines), "target": NOTHING}, count, symbols)
    assert new["source"] is new["target"]
    return new["source"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def old(request: pytest.FixtureRequest) -> Subwords:
    return Subwords(learn(GENERAL, SubwordsConfig(size=360, kind=request.param, coverage=1.0)))


@pytest.fixture(scope="module")
def new(old: Subwords) -> Subwords:
    return both(old, SPECIAL, 60)


def in_old_ones(tokens: list[int], new: Subwords, old: Subwords) -> list[int]:
    """Replace each new subword by the old ones that spelled it."""
    spelled = (old.encode_piece(piece) for piece in new.pieces(tokens))
    return [n for token, parts in zip(tokens, spelled) for n in ([token] if token < len(old) else parts)]


def test_old_subwords_keep_their_numbers_and_new_ones_follow(old: Subwords, new: Subwords):
    assert len(old) < len(new) <= len(old) + 60
    assert new.extends(old)
    assert not old.extends(new)
    assert new.kind == old.kind
    assert new.by_word == old.by_word


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_texts_are_split_as_before_but_for_new_subwords(old: Subwords, new: Subwords, data: st.DataObject):
    drawn = st.sampled_from([*WORDS, *" ".join(GENERAL[:60]).split()]) | st.text(max_size=6)
    text = " ".join(data.draw(st.lists(drawn, max_size=8)))
    before, after = old.encode(text), new.encode(text)
    assert new.decode(after) == text
    assert in_old_ones(after, new, old) == before
    if max(after, default=0) < len(old):
        assert after == before


def test_the_new_text_gets_shorter(old: Subwords, new: Subwords):
    special = [sum(len(model.encode(line)) for line in SPECIAL) for model in (old, new)]
    assert special[1] < special[0] / 3
    # Characters that were spelled in bytes are subwords now.
    for text in ("→", "Привет"):
        assert len(old.encode(text)) > len(text.encode())
        assert len(new.encode(text)) == 1
    assert not any(new.processor.is_byte(token) for line in SPECIAL for token in new.encode(line))


def test_nothing_is_learned_that_is_rare(old: Subwords):
    assert both(old, ["kubernetes"] * (FEWEST - 1), 10) is old
    assert len(both(old, ["kubernetes"] * FEWEST, 1)) == len(old) + 1


def test_letters_digits_and_signs_stay_apart(old: Subwords, new: Subwords):
    found = [piece.removeprefix(SPACE) for piece in new.pieces(range(len(old), len(new)))]
    assert any(piece.isalpha() and len(piece) > 3 for piece in found)
    for piece in filter(None, found):
        assert piece.isalpha() or not any(letter.isalpha() for letter in piece), piece
    # The old vocabulary never had two digits together, so neither has the new one.
    assert not any(a.isdigit() and b.isdigit() for piece in found for a, b in pairwise(piece))


def test_from_single_letters_it_learns_what_sentencepiece_learns():
    """But for equally frequent merges, whose order is arbitrary: the text is as short."""
    lines = [line for pair in numbers.corpus("train", 1000) for line in pair]
    theirs = learn(lines, SubwordsConfig(size=600, coverage=1.0))
    model = read_pieces(theirs, "x")
    letters = [piece for piece in model.pieces if piece.kind != NORMAL or len(piece.text) == 1]
    ours = both(Subwords(write_pieces(model, letters, SPECIALS)), lines, 600 - len(letters))
    both_models = Subwords(theirs), ours
    wanted, found = ({*subwords.pieces(range(600))} for subwords in both_models)
    assert len(wanted - found) <= 0.05 * (600 - len(letters))
    assert len({sum(len(subwords.encode(line)) for line in lines) for subwords in both_models}) == 1


def test_symbols_are_never_split(old: Subwords):
    known = next(piece for piece in old.pieces(range(len(old) - 1, 0, -1)) if len(piece) == 1 and piece.isalpha())
    more = both(old, SPECIAL, 5, "<br/>", known, "<s>")
    assert more.pieces([len(old)]) == ["<br/>"]
    assert more.pieces(more.encode("ab<br/>cd")).count("<br/>") == 1
    assert more.decode(more.encode("ab<br/>cd")) == "ab<br/>cd"
    assert more.processor.is_control(more.processor.piece_to_id("<s>"))  # which was the beginning, and stays it
    assert len(more) == len(old) + 6
    for line in SPECIAL[:20]:
        assert more.decode(more.encode(line)) == line
    assert both(old, SPECIAL, 5, ">>de<<").find_tag(">>de<< ab") == ">>de<<"


def test_sides_with_subwords_of_their_own_learn_their_own():
    models: dict[Side, Subwords] = {
        side: Subwords(learn(texts, SubwordsConfig(size=330))) for side, texts in TEXTS.items()
    }
    words: dict[Side, Counter[str]] = {"source": Counter(kubernetes=50), "target": Counter(installieren=50)}
    new = extend(models, words, 20)
    assert all(new[side].extends(models[side]) for side in models)
    assert "▁kubernetes" in new["source"].pieces(new["source"].encode("kubernetes"))
    assert "▁installieren" in new["target"].pieces(new["target"].encode("installieren"))
    assert len(new["target"].encode("kubernetes")) == len(models["target"].encode("kubernetes"))


def share(kind: str) -> dict[Side, Subwords]:
    """Return two models over one vocabulary, as OPUS-MT has: without bytes, and lacking one piece of the source."""
    models: dict[str, PieceModel] = {}
    for side, texts in TEXTS.items():
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=written, vocab_size=110, model_type=kind, minloglevel=2
        )
        models[side] = read_pieces(written.getvalue(), side)
    texts = dict.fromkeys(piece.text for model in models.values() for piece in model.pieces if piece.kind == NORMAL)
    del texts[LOST]
    vocabulary = Foreign(["</s>", "<unk>", *texts, "<pad>"], unknown=1, end=0, pad=len(texts) + 2)
    _, subwords = number_sides({"source": vocabulary, "target": vocabulary}, models)
    return {side: subwords[side] for side in SIDES}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_two_models_over_one_vocabulary_still_share_it(kind: str):
    old = share(kind)
    assert old["source"].numbers_like(old["target"])
    words: dict[Side, Counter[str]] = {
        "source": count_words(TEXTS["source"]) + Counter({"kubernetes": 500, "→": 400}),
        "target": Counter({"installieren": 50, "Größe": 30}),
    }
    new = extend(old, words, 80)
    size = len(new["source"])
    assert new["source"].numbers_like(new["target"])
    assert all(new[side].extends(old[side]) for side in old)
    assert len(old["source"]) < size <= len(old["source"]) + 80
    # Each side splits into what it has learned, and not into what the other one has.
    said = {side: new[side].pieces(new[side].encode("kubernetes installieren")) for side in new}
    assert "▁kubernetes" in said["source"]
    assert "▁installieren" in said["target"]
    assert "▁installieren" not in said["source"]
    assert "▁kubernetes" not in said["target"]
    # What was unknown has a number: the arrow, and the piece that the vocabulary lacked.
    assert UNKNOWN in old["source"].encode("→")
    assert UNKNOWN not in new["source"].encode("→")
    assert LOST in new["source"].pieces(range(size))
    assert LOST not in old["source"].pieces(range(len(old["source"])))
    for side, lines in TEXTS.items():
        for line in lines[:100]:
            before, after = old[side].encode(line), new[side].encode(line)
            if max(after) < len(old[side]):
                assert after == before
            assert UNKNOWN not in after
    assert any(UNKNOWN in old["source"].encode(line) for line in TEXTS["source"])


def test_whole_words_get_new_whole_words():
    """The symbols of trees: a label that no old tree has."""
    old = Subwords(learn_symbols(["(", ")NP", ")VP", "XX"]))
    words: dict[Side, Counter[str]] = {"source": Counter({")QP": 9, "XX": 50}), "target": NOTHING}
    new = extend(dict.fromkeys(SIDES, old), words, 10)
    subwords = new["source"]
    assert subwords.pieces(range(len(old), len(subwords))) == ["▁)QP"]
    assert subwords.kind == "word"
    assert subwords.decode(subwords.encode("( XX )QP")) == "( XX )QP"
