"""Token by token with a cache is the same as whole sentences at once, whichever sentences are kept on the way."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentences import KINDS, make_model, make_row, random_sentences
from sentences import one_thread as one_thread
from torch import Tensor

from transduce.decoding.cache import Cache
from transduce.model.transformer import Transformer

MODELS = {name: make_model(**changes) for name, changes in KINDS.items()}
LENGTHS = [5, 1, 13, 2, 13]
STEPS = 9


def whole(model: Transformer, sources: list[list[int]], targets: list[list[int]]) -> list[Tensor]:
    """The logits at each place of each target, from whole sentences at once."""
    source, source_offsets = make_row(sources)
    target, target_offsets = make_row(targets)
    memory = model.encode(source, source_offsets)
    states = model.decode(target, target_offsets, memory, source_offsets)
    return list(model.project(states).split(target_offsets.diff().tolist()))


def make_cache(model: Transformer, sources: list[list[int]], capacity: int = STEPS) -> Cache:
    source, offsets = make_row(sources)
    return Cache(model, model.encode(source, offsets), offsets, capacity)


def make_pairs(model: Transformer, lengths: list[int] = LENGTHS, seed: int = 0) -> tuple[list[list[int]], Tensor]:
    """Sources of these lengths and, a line for each, what the decoder is to be given."""
    sources = random_sentences(lengths, model.config.source_vocabulary or model.config.vocabulary, seed)
    return sources, torch.randint(0, model.config.vocabulary, (len(lengths), STEPS), dtype=torch.int32)


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", list(MODELS))
@torch.no_grad()
def test_token_by_token_is_whole_sentences_at_once(name: str):
    model = MODELS[name]
    sources, targets = make_pairs(model)
    cache = make_cache(model, sources)
    found = torch.stack([cache.advance(tokens) for tokens in targets.T], dim=1)
    assert_near(found, torch.stack(whole(model, sources, targets.tolist())))
    assert found.std(dim=1).min() > 1e-3  # they do depend on the place


@given(
    name=st.sampled_from(list(MODELS)),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@torch.no_grad()
def test_sentences_may_be_dropped_reordered_and_repeated(name: str, lengths: list[int], seed: int, data: st.DataObject):
    model = MODELS[name]
    sources, targets = make_pairs(model, lengths, seed)
    cache = make_cache(model, sources)
    rows = torch.arange(len(sources))  # the source of each line now
    said = torch.empty(len(rows), 0, dtype=torch.int32)  # what each line has been given so far
    for step in range(STEPS):
        if step in (2, 3, 6):
            kept = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)))
            cache.select(kept)
            rows, said = rows[kept], said[kept]
        # Lines of the same sentence go apart: what one is given must not reach the other.
        tokens = (targets[rows, step] + torch.arange(len(rows), dtype=torch.int32)) % model.config.vocabulary
        said = torch.cat((said, tokens[:, None]), dim=1)
        found = cache.advance(tokens)
        expected = whole(model, [sources[row] for row in rows], said.tolist())
        assert_near(found, torch.stack([logits[-1] for logits in expected]))


@pytest.mark.parametrize("name", list(MODELS))
@torch.no_grad()
def test_neighbours_do_not_matter(name: str):
    model = MODELS[name]
    sources, targets = make_pairs(model)
    together = make_cache(model, sources)
    found = torch.stack([together.advance(tokens) for tokens in targets.T], dim=1)
    for number, source in enumerate(sources):
        alone = make_cache(model, [source])
        expected = torch.cat([alone.advance(token[None]) for token in targets[number]])
        assert_near(found[number], expected)
    changed = [sources[0], *random_sentences([30, 1, 2, 7], seed=8)]
    other = make_cache(model, changed)
    again = torch.stack([other.advance(tokens) for tokens in targets.T], dim=1)
    assert_near(again[0], found[0])
    assert (again[1:] - found[1:]).abs().amax((1, 2)).min() > 1e-3


@torch.no_grad()
def test_what_lies_in_unused_memory_does_not_matter():
    model = MODELS["paper"]
    sources, targets = make_pairs(model)
    cache, larger = make_cache(model, sources), make_cache(model, sources, capacity=3 * STEPS)
    for key, value in larger.own:
        key.fill_(torch.nan)
        value.fill_(torch.nan)
    for tokens in targets.T:
        assert torch.equal(cache.advance(tokens), larger.advance(tokens))


@pytest.mark.parametrize("name", list(MODELS))
def test_half_precision_is_near(name: str):
    model = MODELS[name]
    sources, targets = make_pairs(model)
    with torch.inference_mode():
        expected = torch.stack(whole(model, sources, targets.tolist()))
        single = make_model(**KINDS[name]).float()
        with torch.autocast("cpu", torch.bfloat16):
            cache = make_cache(single, sources)
            found = torch.stack([cache.advance(tokens) for tokens in targets.T], dim=1)
    assert found.dtype == torch.bfloat16
    assert torch.cosine_similarity(found.double().flatten(), expected.flatten(), dim=0) > 0.999
