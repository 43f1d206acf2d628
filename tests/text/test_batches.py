"""Batches: each pair once, every buffer full but never over, any step at once, the same for any number of processes."""

from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transduce.config import BatchConfig
from transduce.errors import ConfigError, DataError
from transduce.text.batches import Batch, Batches, Loader, Position
from transduce.text.shards import DataSet, Side
from transduce.text.subwords import BEGIN, PAD

MakeData = Callable[..., DataSet]
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)
CONFIGS = st.builds(
    lambda tokens, parts, similar, sentences: BatchConfig(
        source_tokens=tokens * parts,
        target_tokens=tokens * parts,
        parts=parts,
        similar_lengths=similar,
        sentences=sentences and sentences * parts,
    ),
    st.integers(40, 120),
    st.integers(1, 8),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 4)),
)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def whole_epoch(batches: Batches, epoch: int) -> list[Batch]:
    return [batches.batch(epoch, step) for step in range(len(batches.plan(epoch)))]


def read_back(batch: Batch, side: Side) -> list[list[int]]:
    """Return the sentences in a batch, by its row and offsets."""
    row = getattr(batch, side).tolist()
    offsets = getattr(batch, f"{side}_offsets").tolist()
    return [row[first:end] for first, end in pairwise(offsets)]


@given(lengths=LENGTHS, config=CONFIGS, seed=st.integers(0, 2**31), epoch=st.integers(0, 10_000))
@many
def test_every_pair_is_in_exactly_one_batch_of_an_epoch(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, seed: int, epoch: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    found = [pair for batch in whole_epoch(Batches(data, config, seed=seed), epoch) for pair in batch.pairs.tolist()]
    assert sorted(found) == list(range(len(lengths)))


def shapes(batch: Batch) -> tuple[int, int, int]:
    """Return how many tokens and sentences a batch has room for; all its tensors must agree."""
    assert len(batch.target_input) == len(batch.target)
    assert len(batch.source_offsets) == len(batch.target_offsets)
    return len(batch.source), len(batch.target), len(batch.source_offsets) - 1


@given(lengths=LENGTHS, config=CONFIGS, epoch=st.integers(0, 3))
@many
def test_rows_hold_the_pairs_and_padding_behind_them(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, epoch: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    for batch in whole_epoch(Batches(data, config), epoch):
        for side in ("source", "target"):
            expected = [data.train.tokens(side, pair).tolist() for pair in batch.pairs]
            found = read_back(batch, side)
            assert found[: batch.sentences] == expected
            assert all(sentence == [] for sentence in found[batch.sentences :])
            count = batch.source_tokens if side == "source" else batch.target_tokens
            assert count == sum(map(len, expected))
            assert set(getattr(batch, side)[count:].tolist()) <= {PAD}


@given(lengths=LENGTHS, config=CONFIGS, shares=st.integers(1, 8))
@many
def test_an_epoch_has_one_shape_with_little_room_to_spare(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, shares: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    batches = Batches(data, config, shares=min(shares, config.parts))
    for epoch in (0, 1):
        steps = range(len(batches.plan(epoch)))
        made = [batches.batch(epoch, step, share) for step in steps for share in range(batches.shares)]
        (shape,) = {shapes(batch) for batch in made}
        assert shape == batches.plan(epoch).sizes
        # The fullest of each kind leaves less free than a 64th of the most there can be, or than 8.
        used = [(batch.source_tokens, batch.target_tokens, batch.sentences) for batch in made]
        for size, most, fullest in zip(shape, batches.most, map(max, zip(*used))):
            assert fullest <= size <= most
            assert size - fullest < max(8, most / 64)
    parts = -(-config.parts // batches.shares)
    assert batches.most.source == parts * config.source_tokens // config.parts
    assert batches.most.target == parts * config.target_tokens // config.parts


def test_epochs_of_other_pairs_may_have_other_shapes(make_data: MakeData) -> None:
    # One pair is much longer than the others, and is in about half of the epochs.
    data = make_data([5] * 20 + [60, 5], [5] * 20 + [60, 5], [(0, 20, 1.0), (20, 22, 0.5)])
    config = BatchConfig(source_tokens=400, target_tokens=400, parts=4, sentences=4)
    batches = Batches(data, config)
    found = [{shapes(batch) for batch in whole_epoch(batches, epoch)} for epoch in range(12)]
    assert all(len(epoch) == 1 for epoch in found)
    assert len(set.union(*found)) == 2


@given(lengths=LENGTHS, config=CONFIGS)
@many
def test_the_decoder_sees_each_target_one_place_later(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    for batch in whole_epoch(Batches(data, config), 0):
        inputs = batch.target_input.tolist()
        for first, end in pairwise(batch.target_offsets.tolist()):
            if end > first:
                assert inputs[first:end] == [BEGIN, *batch.target.tolist()[first : end - 1]]
        assert set(inputs[batch.target_tokens :]) <= {PAD}


@given(lengths=LENGTHS, config=CONFIGS, shares=st.integers(1, 8))
@many
def test_shares_split_the_same_batch(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, shares: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    if shares > config.parts:
        with pytest.raises(ConfigError, match=f"batch.parts = .* is too few .* raise it to {shares}"):
            Batches(data, config, shares=shares)
        return
    one, several = Batches(data, config), Batches(data, config, shares=shares)
    for step in range(len(one.plan(2))):
        split = [several.batch(2, step, share) for share in range(shares)]
        whole = one.batch(2, step)
        assert sorted(whole.pairs.tolist()) == sorted(pair for part in split for pair in part.pairs.tolist())
        assert sum(part.target_tokens for part in split) == whole.target_tokens
        # All of them have the one shape of the epoch.
        assert {shapes(part) for part in split} == {several.plan(2).sizes}


@given(lengths=LENGTHS, config=CONFIGS, pieces=st.integers(1, 200))
@many
def test_pieces_are_the_same_sentences_without_padding(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, pieces: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    for batch in whole_epoch(Batches(data, config), 0):
        split = batch.split(pieces)
        assert 1 <= len(split) <= pieces
        assert all(piece.sentences for piece in split)
        assert np.concatenate([piece.pairs for piece in split]).tolist() == batch.pairs.tolist()
        for side in ("source", "target"):
            whole = read_back(batch, side)[: batch.sentences]
            assert [sentence for piece in split for sentence in read_back(piece, side)] == whole
            for piece in split:
                offsets = getattr(piece, f"{side}_offsets")
                assert offsets[0] == 0
                assert len(offsets) == piece.sentences + 1
                assert offsets[-1] == len(getattr(piece, side)) == getattr(piece, f"{side}_tokens")
                assert offsets.dtype == batch.source_offsets.dtype
        inputs = [token for piece in split for token in piece.target_input.tolist()]
        assert inputs == batch.target_input.tolist()[: batch.target_tokens]
        assert {(piece.position, piece.next_position) for piece in split} == {(batch.position, batch.next_position)}


@given(lengths=LENGTHS, config=CONFIGS, pieces=st.integers(1, 200))
@many
def test_pieces_have_about_equally_many_tokens(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, pieces: int
) -> None:
    """None has more than its share plus one pair; with as many pieces as tokens, each pair is a piece."""
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    for batch in whole_epoch(Batches(data, config), 0):
        total = batch.source_tokens + batch.target_tokens
        longest = max(sum(lengths[pair]) for pair in batch.pairs)
        for piece in batch.split(pieces):
            assert piece.source_tokens + piece.target_tokens <= total / pieces + longest
        assert [piece.sentences for piece in batch.split(total)] == [1] * batch.sentences


@given(lengths=LENGTHS, config=CONFIGS, shares=st.integers(1, 8), epoch=st.integers(0, 3))
@many
def test_tokens_are_those_of_the_whole_batch_for_any_number_of_shares(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, shares: int, epoch: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    batches = Batches(data, config, shares=min(shares, config.parts))
    for step in range(len(batches.plan(epoch))):
        split = [batches.batch(epoch, step, share) for share in range(batches.shares)]
        assert batches.tokens(epoch, step) == sum(part.source_tokens + part.target_tokens for part in split)
    total = sum(batches.tokens(epoch, step) for step in range(len(batches.plan(epoch))))
    assert total == sum(map(sum, lengths))


def test_a_share_without_sentences_has_no_pieces(make_data: MakeData) -> None:
    batches = Batches(make_data([5], [5]), SMALL, shares=4)
    assert [len(batches.batch(0, 0, share).split(3)) for share in range(4)] == [1, 0, 0, 0]


@given(lengths=LENGTHS, config=CONFIGS, seed=st.integers(0, 100), epoch=st.integers(0, 5))
@many
def test_the_order_is_a_function_of_seed_and_epoch(
    make_data: MakeData, lengths: list[tuple[int, int]], config: BatchConfig, seed: int, epoch: int
) -> None:
    data = make_data([s for s, _ in lengths], [t for _, t in lengths])
    walked = Batches(data, config, seed=seed)
    for earlier in range(epoch):
        walked.plan(earlier)
    direct = Batches(data, config, seed=seed)
    for step in range(len(direct.plan(epoch))):
        a, b = walked.batch(epoch, step), direct.batch(epoch, step)
        assert a.pairs.tolist() == b.pairs.tolist()
        assert a.source.equal(b.source)
        assert a.target.equal(b.target)


def uniform(make_data: MakeData, pairs: int = 200) -> DataSet:
    chance = np.random.default_rng(0)
    return make_data(chance.integers(2, 40, pairs).tolist(), chance.integers(2, 40, pairs).tolist())


SMALL = BatchConfig(source_tokens=400, target_tokens=400, parts=4)


def test_epochs_and_seeds_have_different_orders(make_data: MakeData) -> None:
    data = uniform(make_data)
    orders = [Batches(data, SMALL, seed=seed).plan(epoch).pairs.tolist() for seed in (1, 2) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_similar_lengths_are_together_only_if_asked(make_data: MakeData) -> None:
    data = uniform(make_data, 600)
    longer = np.maximum(data.train.lengths("source"), data.train.lengths("target")).astype(int)

    def spread(similar: bool) -> float:
        config = BatchConfig(source_tokens=400, target_tokens=400, parts=4, similar_lengths=similar)
        return float(np.mean([np.ptp(longer[batch.pairs]) for batch in whole_epoch(Batches(data, config), 0)]))

    assert spread(True) < 3 < 15 < spread(False)


def test_batches_of_similar_lengths_come_in_no_order(make_data: MakeData) -> None:
    data = uniform(make_data, 600)
    longer = np.maximum(data.train.lengths("source"), data.train.lengths("target"))
    means = [float(longer[batch.pairs].mean()) for batch in whole_epoch(Batches(data, SMALL), 0)]
    assert means != sorted(means)


def test_parts_are_filled_until_the_next_pair_does_not_fit(make_data: MakeData) -> None:
    data = uniform(make_data, 600)
    batches = Batches(data, SMALL)
    plan = batches.plan(0)
    lengths = {side: data.train.lengths(side).astype(int) for side in ("source", "target")}
    for part in range(len(plan.part_offsets) - 2):
        first, end = plan.part_offsets[part : part + 2]
        fits = [lengths[side][plan.pairs[first:end]].sum() <= 100 for side in lengths]
        one_more = [lengths[side][plan.pairs[first : end + 1]].sum() <= 100 for side in lengths]
        assert all(fits)
        assert not all(one_more)


@given(weight=st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 3.25]), epoch=st.integers(0, 5))
@many
def test_weights_repeat_and_sample_inputs(make_data: MakeData, weight: float, epoch: int) -> None:
    data = make_data([5] * 60, [6] * 60, [(0, 20, 1.0), (20, 60, weight)])
    shown = Counter(pair for batch in whole_epoch(Batches(data, SMALL), epoch) for pair in batch.pairs.tolist())
    assert all(shown[pair] == 1 for pair in range(20))
    assert sum(shown[pair] for pair in range(20, 60)) == 40 * weight
    assert {shown[pair] for pair in range(20, 60)} <= {int(weight), int(weight) + (weight != int(weight))}


def test_the_fraction_of_a_weight_is_drawn_anew_each_epoch(make_data: MakeData) -> None:
    data = make_data([5] * 60, [6] * 60, [(0, 60, 0.5)])
    drawn = [frozenset(Batches(data, SMALL).plan(epoch).pairs.tolist()) for epoch in range(4)]
    assert len(set(drawn)) == 4


def test_a_pair_longer_than_a_part_is_named_with_the_remedy(make_data: MakeData) -> None:
    data = make_data([5, 101, 5], [5, 5, 5])
    with pytest.raises(DataError, match=r"pair 1 has 101 source tokens, but a part .* holds 100 .*--clean.tokens 99"):
        Batches(data, SMALL)


def test_the_loader_goes_on_from_any_position_over_the_end_of_epochs(make_data: MakeData) -> None:
    batches = Batches(uniform(make_data), SMALL)
    steps = len(batches.plan(0))
    with Loader(batches, ahead=3) as loader:
        walked = list(islice(loader, steps + 4))
    assert [batch.position for batch in walked[-4:]] == [Position(1, step) for step in range(4)]
    with Loader(batches, walked[steps - 3].position) as loader:
        resumed = list(islice(loader, 7))
    for a, b in zip(walked[steps - 3 :], resumed, strict=True):
        assert a.position == b.position
        assert a.source.equal(b.source)
        assert a.target_input.equal(b.target_input)
    assert walked[steps - 1].next_position == Position(1, 0)


def test_an_error_in_the_loader_reaches_its_user(make_data: MakeData) -> None:
    data = uniform(make_data)
    batches = Batches(data, SMALL)
    for part in (data.parts).glob("*.tokens.npy"):
        part.write_bytes(b"")  # lengths are known by now, tokens are gone
    data.train.__dict__.pop("_arrays", None)
    with pytest.raises(DataError, match="damaged"), Loader(batches) as loader:
        next(iter(loader))


def test_iterating_gives_one_epoch(make_data: MakeData) -> None:
    batches = Batches(uniform(make_data), SMALL)
    assert sorted(pair for batch in batches for pair in batch.pairs.tolist()) == list(range(200))
