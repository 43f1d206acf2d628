"""No position sees its future, and no sentence another one: neither in the output nor in the gradients."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rows import SMALL, Row, assert_near, make_model, make_row, random_row, run
from threads import always_one_thread as always_one_thread
from torch import Tensor

from transduce.model import attention
from transduce.model.attention import Weights

MODELS = {
    "paper": make_model(SMALL),
    "additive, learned": make_model(replace(SMALL, attention="additive", positions="learned", max_positions=50)),
    "rotary, pre-norm": make_model(replace(SMALL, positions="rotary", norm="pre", activation="swiglu", tie="none")),
    "unscaled, d_v": make_model(replace(SMALL, attention="unscaled", d_v=3)),
}
NAMES = st.sampled_from(list(MODELS))
PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12)
BLOCKS = st.sampled_from([1, 300, 3000, 1 << 21])
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_rows(lengths: list[tuple[int, int]], seed: int) -> tuple[Row, Row]:
    torch.manual_seed(seed)
    return random_row([source for source, _ in lengths]), random_row([target for _, target in lengths])


@given(name=NAMES, lengths=PAIRS, seed=st.integers(0, 99), data=st.data())
@many
@torch.no_grad()
def test_the_future_never_changes_the_past(name: str, lengths: list[tuple[int, int]], seed: int, data: st.DataObject):
    source, target = make_rows(lengths, seed)
    before = run(MODELS[name], source, target)
    sentence = data.draw(st.integers(0, len(lengths) - 1))
    place = data.draw(st.integers(0, lengths[sentence][1] - 1))
    first = int(target.offsets[sentence])
    target.tokens[first + place : first + lengths[sentence][1]] += 1
    target.tokens %= 23
    after = run(MODELS[name], source, target)
    same = (before == after).all(-1)
    assert not same[first + place]
    same[first + place : first + lengths[sentence][1]] = True
    assert same.all()  # bit for bit


@given(name=NAMES, lengths=PAIRS, seed=st.integers(0, 99), data=st.data())
@many
@torch.no_grad()
def test_a_source_changes_its_own_translation_alone(
    name: str, lengths: list[tuple[int, int]], seed: int, data: st.DataObject
):
    source, target = make_rows(lengths, seed)
    before = target.split(run(MODELS[name], source, target))
    sentence = data.draw(st.integers(0, len(lengths) - 1))
    source.tokens[int(source.offsets[sentence])] += 1
    source.tokens[source.used :] = 7  # nor does the filler matter
    source.tokens %= 23
    after = target.split(run(MODELS[name], source, target))
    assert [number for number in range(len(lengths)) if not torch.equal(before[number], after[number])] == [sentence]


@given(name=NAMES, lengths=PAIRS, seed=st.integers(0, 99), pairs=BLOCKS)
@many
@torch.no_grad()
def test_a_sentence_is_the_same_alone_and_in_any_order(
    monkeypatch: pytest.MonkeyPatch, name: str, lengths: list[tuple[int, int]], seed: int, pairs: int
):
    model = MODELS[name]
    source, target = make_rows(lengths, seed)
    sentences = list(zip(source.split(source.tokens), target.split(target.tokens)))
    alone = [
        run(model, make_row([one], filler=0, empty=0), make_row([other], filler=0, empty=0)) for one, other in sentences
    ]
    monkeypatch.setattr(attention, "BLOCK_PAIRS", pairs)
    for order in (range(len(lengths)), torch.randperm(len(lengths)).tolist()):
        source = make_row([sentences[number][0] for number in order], filler=9, empty=5)
        target = make_row([sentences[number][1] for number in order], filler=0, empty=5)
        for number, logits in zip(order, target.split(run(model, source, target)), strict=True):
            assert_near(logits, alone[number])


@pytest.mark.parametrize("name", list(MODELS))
def test_a_sentences_gradient_stays_in_it(name: str):
    model = MODELS[name]
    source, target = make_rows([(4, 6), (5, 5), (30, 2), (1, 7)], seed=0)
    seen: list[Tensor] = []
    hook = model.dropout.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    logits = run(model, source, target)
    hook.remove()
    # A loss of the second sentence's third word: its gradient may reach the whole source and three target positions.
    loss = logits[6 + 2].square().sum()
    source_gradient, target_gradient = torch.autograd.grad(loss, seen)
    assert source_gradient.abs().sum(-1).nonzero().flatten().tolist() == list(range(4, 4 + 5))
    assert target_gradient.abs().sum(-1).nonzero().flatten().tolist() == list(range(6, 6 + 3))


@pytest.mark.parametrize("name", list(MODELS))
def test_the_filler_has_no_gradient(name: str):
    """The output after the last sentence may be anything, but nothing in a sentence depends on it."""
    model = MODELS[name]
    source, target = make_rows([(4, 6), (5, 5)], seed=0)
    model.zero_grad()
    run(model, source, target).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    source.tokens[source.used :] = 5
    target.tokens[target.used :] = 6
    model.zero_grad()
    run(model, source, target).square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.as_tensor(expected[parameter_name])), parameter_name


@pytest.mark.parametrize("name", list(MODELS))
def test_weights_are_shown_without_changing_anything(name: str):
    model = MODELS[name]
    lengths = [(4, 6), (5, 5), (30, 2), (1, 7)]
    source, target = make_rows(lengths, seed=0)
    encoder: list[Weights] = []
    decoder: list[Weights] = []
    cross: list[Weights] = []
    memory = model.encode(source.tokens, source.offsets, weights=encoder)
    states = model.decode(target.tokens, target.offsets, memory, source.offsets, weights=decoder, cross_weights=cross)
    assert_near(model.project(states)[: target.used], run(model, source, target))
    for layers, shapes in (
        (encoder, [(3, s, s) for s, _ in lengths]),
        (decoder, [(3, t, t) for _, t in lengths]),
        (cross, [(3, t, s) for s, t in lengths]),
    ):
        assert len(layers) == 2
        for layer in layers:
            assert [tuple(share.shape) for share in layer[: len(lengths)]] == shapes
            for share in layer[: len(lengths)]:
                assert_near(share.sum(-1), torch.ones_like(share[..., 0]))
    assert all(torch.equal(share.triu(1), torch.zeros_like(share)) for layer in decoder for share in layer)


@pytest.mark.parametrize("name", MODELS)
def test_torchs_default_device_is_not_asked(name: str):
    source, target = make_rows([(5, 7), (40, 3), (6, 30)], 1)
    expected = run(MODELS[name], source, target)
    with torch.device("meta"):  # where a tensor is made without a place, there is nothing to compute with
        found = run(MODELS[name], source, target)
    assert torch.equal(found, expected)
