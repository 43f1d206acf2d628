"""Subword regularisation: the text stays, splits vary as the method says, and everything is reproducible."""

import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from transduce.config import BatchConfig
from transduce.text import numbers, sampling
from transduce.text.batches import Batches
from transduce.text.inputs import PrepareConfig
from transduce.text.prepare import prepare
from transduce.text.sampling import Chance, Splitter
from transduce.text.shards import DataSet
from transduce.text.subwords import Subwords, SubwordsConfig, learn, spell_symbols


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    folder: Path = tmp_path_factory.mktemp("numbers")
    for split, pairs in (("train", numbers.corpus("train", 8000)), ("dev", numbers.corpus("dev", 20))):
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")
    subwords = SubwordsConfig(size=800, kind=request.param)
    train, dev = (folder / "train.tsv",), (folder / "dev.tsv",)
    return prepare(folder / "data", PrepareConfig(pairs=train, dev_pairs=dev, workers=1, subwords=subwords))[0]


def make_config(data: DataSet) -> BatchConfig:
    """For unigrams the rate flattens the model's own probabilities, which are sharp for so small a vocabulary."""
    rate = 0.2 if data.subwords["source"].by_word else 0.97
    return BatchConfig(source_tokens=2400, target_tokens=2400, parts=8, subword_dropout=rate)


def test_the_text_stays_and_most_sentences_are_split_differently(data: DataSet) -> None:
    batches = Batches(data, make_config(data))
    changed = total = 0
    for step in range(12):
        batch = batches.batch(0, step)
        for side in ("source", "target"):
            row, offsets = getattr(batch, side).numpy(), getattr(batch, f"{side}_offsets").numpy()
            for place, pair in enumerate(batch.pairs):
                tokens = row[offsets[place] : offsets[place + 1]]
                assert data.subwords[side].decode(tokens) == data.text("train", side, pair)
                changed += tokens.tolist() != data.train.tokens(side, pair).tolist()
                total += 1
    assert 0.5 < changed / total < 1


def test_it_is_a_function_of_seed_and_epoch_and_not_of_the_number_of_processes(data: DataSet) -> None:
    one, again, eight = (
        Batches(data, make_config(data)),
        Batches(data, make_config(data)),
        Batches(data, make_config(data), shares=8),
    )
    again.batch(3, 7)  # meets other words first
    for step in (0, 5):
        whole = one.batch(1, step)
        assert whole.target.equal(again.batch(1, step).target)
        parts = [eight.batch(1, step, share) for share in range(8)]
        split = [part.target[: part.target_tokens].tolist() for part in parts]
        assert sorted(whole.target[: whole.target_tokens].tolist()) == sorted(token for part in split for token in part)
        first = parts[0].target[: parts[0].target_tokens]
        assert whole.target[: len(first)].equal(first)


def test_epochs_split_the_same_sentence_differently(data: DataSet) -> None:
    batches = Batches(data, make_config(data))
    assert batches.sampler
    pairs = np.arange(200)
    row, offsets = data.train.gather("target", pairs)
    splits = {
        tuple(batches.sampler.sample("target", row, offsets, pairs, epoch, capacity=10**6)[0].tolist())
        for epoch in range(5)
    }
    assert len(splits) == 5


@pytest.mark.parametrize("capacity_over", [0, 1, 7, 40])
def test_a_full_buffer_keeps_the_last_sentences_as_they_are(data: DataSet, capacity_over: int) -> None:
    sampler = Batches(data, make_config(data)).sampler
    assert sampler
    pairs = np.arange(60)
    row, offsets = data.train.gather("source", pairs)
    new, new_offsets = sampler.sample("source", row, offsets, pairs, 0, len(row) + capacity_over)
    assert len(new) <= len(row) + capacity_over
    assert len(new_offsets) == len(offsets)
    for place, pair in enumerate(pairs):
        tokens = new[new_offsets[place] : new_offsets[place + 1]]
        assert data.subwords["source"].decode(tokens) == data.text("train", "source", int(pair))
    assert new[new_offsets[-2] :].tolist() == row[offsets[-2] :].tolist()


def test_batches_stay_well_filled(data: DataSet) -> None:
    batches = Batches(data, make_config(data))
    filled = [batches.batch(0, step) for step in range(20)]
    longer = np.mean([max(batch.source_tokens, batch.target_tokens) for batch in filled]) / 2400
    assert longer > 0.85


def exact_dropout(splitter: Splitter, text: str) -> dict[tuple[str, ...], float]:
    """Return the probability of each split under BPE-dropout, by following every choice."""
    result: dict[tuple[str, ...], float] = defaultdict(float)

    def follow(parts: tuple[str, ...], weight: float) -> None:
        merges = sorted(
            (-splitter.scores[a + b], place) for place, (a, b) in enumerate(pairwise(parts)) if a + b in splitter.scores
        )
        for _, place in merges:  # the best that is not passed over
            merged = (*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :])
            follow(merged, weight * (1 - splitter.rate))
            weight *= splitter.rate
        result[parts] += weight

    follow(tuple(text), 1.0)
    return result


def test_splits_are_as_frequent_as_bpe_dropout_says(data: DataSet) -> None:
    subwords = data.subwords["target"]
    if not subwords.by_word:
        return check_unigram(subwords)
    splitter = Splitter(subwords, 0.2, ())
    word = tuple(subwords.encode("zwanzig"))
    expected = exact_dropout(splitter, "▁zwanzig")
    draws = 20_000
    drawn = Counter(splitter.split(word, Chance(seed << 32)) for seed in range(draws))
    found = {tuple(subwords.pieces(split)): count / draws for split, count in drawn.items()}
    assert sum(expected.values()) == pytest.approx(1)
    assert found.keys() <= expected.keys()
    for split, probability in expected.items():
        assert found.get(split, 0) == pytest.approx(probability, abs=5 * (probability / draws) ** 0.5 + 1e-3)
    return None


def check_unigram(subwords: Subwords) -> None:
    splitter, draws = Splitter(subwords, 0.9, ()), 3000
    words = ("zwanzig", "Januar", "Montag", "Euro", "fünfzig", "ausgegeben")
    best = max((subwords.processor.nbest_encode_as_ids(w, nbest_size=sampling.ALTERNATIVES) for w in words), key=len)
    weights = [math.exp((1 - 0.9) * sum(map(subwords.processor.get_score, tokens))) for tokens in best]
    drawn = Counter(splitter.split(tuple(best[0]), Chance(seed << 32)) for seed in range(draws))
    assert len(best) > 1
    for tokens, weight in zip(best, weights):
        assert drawn[tuple(tokens)] / draws == pytest.approx(weight / sum(weights), abs=0.05)


def test_no_dropout_gives_the_usual_split_and_full_dropout_gives_letters(data: DataSet) -> None:
    subwords = data.subwords["target"]
    if not subwords.by_word:
        assert Splitter(subwords, 0.5, ()).split(tuple(subwords.encode("ß🙂")), Chance(1)) == tuple(
            subwords.encode("ß🙂")
        )
        return
    for text in ("einundzwanzig", "März", "viertausend", "🙂"):
        word = tuple(subwords.encode(text))
        assert Splitter(subwords, 0.0, ())._drop_merges("▁zwanzig", Chance(5)) == tuple(subwords.encode("zwanzig"))
        assert Splitter(subwords, 0.0, ()).split(word, Chance(3)) == word
    letters = Splitter(subwords, 1 - 1e-12, ()).split(tuple(subwords.encode("zwanzig")), Chance(7))
    assert subwords.pieces(letters) == list("▁zwanzig")


@pytest.mark.parametrize("most_tokens", [1 << 25, 400])
def test_a_full_table_gives_the_same_result(data: DataSet, monkeypatch: pytest.MonkeyPatch, most_tokens: int) -> None:
    usual = Batches(data, make_config(data))
    whole = [usual.batch(0, step).target for step in range(6)]
    monkeypatch.setattr(sampling, "TABLE_WORDS", 30)
    monkeypatch.setattr(sampling, "TABLE_TOKENS", most_tokens)
    small = Batches(data, make_config(data))
    for step in range(6):
        assert small.batch(0, step).target.equal(whole[step])
    assert small.sampler
    assert len(small.sampler.alternatives["target"].words) < 400


def test_tags_are_never_split() -> None:
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    subwords = Subwords(learn(lines, SubwordsConfig(size=400, symbols=(">>de<<",))))
    splitter = Splitter(subwords, 0.99, spell_symbols([">>de<<"]))
    (tag,) = subwords.encode(">>de<<")
    assert all(splitter.split((tag,), Chance(seed)) == (tag,) for seed in range(20))
