"""The weights shown are the model's: torch's own attention gives the same, and every row is a distribution."""

from typing import Any

import numpy as np
import pytest
import torch
from lookers import CHOICES, VOCABULARY, make_model, make_pairs
from torch import Tensor, nn

from transduce.decoding.force import make_row, score_pairs
from transduce.errors import DataError
from transduce.model.attention import MultiHeadAttention
from transduce.model.layers import DecoderLayer, EncoderLayer
from transduce.seeing import attention as module
from transduce.seeing.attention import look
from transduce.seeing.kinds import KINDS
from transduce.text.subwords import BEGIN

LENGTHS = [(6, 4), (1, 7), (5, 1), (9, 9)]


def by_torch(ours: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the weights of torch.nn.MultiheadAttention with the same matrices."""
    theirs = nn.MultiheadAttention(x.shape[-1], ours.heads, bias=False, batch_first=True, dtype=x.dtype).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.projection)
        theirs.out_proj.weight.copy_(ours.output)
        return theirs(x[None], memory[None], memory[None], attn_mask=mask, average_attn_weights=False)[1][0]


@torch.no_grad()
def test_the_weights_are_those_of_torch():
    """All three kinds in every layer, for one sentence alone; each layer gets our output of the previous one."""
    model = make_model(layers=2)
    ((source, target),) = make_pairs([(6, 5)])
    ((_, looked),) = look(model, [(source, target)])
    row, offsets = make_row([source], model.device)
    x = model.embed(row, torch.arange(6), "source")
    for number, layer in enumerate(model.encoder):
        assert isinstance(layer, EncoderLayer)
        wanted = by_torch(layer.self_attention, x, x)
        np.testing.assert_allclose(looked.attention.encoder[number], wanted, atol=1e-6)
        x = layer.self_residual(x, lambda x, layer=layer: torch_output(layer.self_attention, x, x))
        x = layer.feed_forward_residual(x, layer.feed_forward)
    memory = model.encode(row, offsets)
    torch.testing.assert_close(x, memory)
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1)  # torch's masks say what may not be seen
    y = model.embed(torch.tensor([BEGIN, *target[:-1].tolist()]), torch.arange(5), "target")
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        own = by_torch(layer.self_attention, y, y, ahead)
        np.testing.assert_allclose(looked.attention.decoder[number], own, atol=1e-6)
        y = layer.self_residual(y, lambda y, layer=layer: torch_output(layer.self_attention, y, y, ahead))
        across = by_torch(layer.cross_attention, y, memory)
        np.testing.assert_allclose(looked.attention.cross[number], across, atol=1e-6)
        y = layer.cross_residual(y, lambda y, layer=layer: torch_output(layer.cross_attention, y, memory))
        y = layer.feed_forward_residual(y, layer.feed_forward)
    scores = model.project(y).log_softmax(-1)[torch.arange(5), torch.from_numpy(target.astype(np.int64))]
    np.testing.assert_allclose(looked.log_probabilities, scores, atol=1e-5)


def torch_output(ours: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the output of torch.nn.MultiheadAttention."""
    theirs = nn.MultiheadAttention(x.shape[-1], ours.heads, bias=False, batch_first=True, dtype=x.dtype).eval()
    theirs.in_proj_weight.copy_(ours.projection)
    theirs.out_proj.weight.copy_(ours.output)
    return theirs(x[None], memory[None], memory[None], attn_mask=mask)[0][0]


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
def test_every_row_is_a_distribution_of_the_right_shape(changes: dict[str, Any]):
    model = make_model(**changes)
    pairs = make_pairs(LENGTHS)
    found = dict(look(model, pairs))
    assert sorted(found) == list(range(len(pairs)))
    encoder_layers, decoder_layers = model.config.stacks()
    for number, (source, target) in enumerate(pairs):
        seen = found[number].attention
        shapes = {"encoder": (len(source),) * 2, "decoder": (len(target),) * 2, "cross": (len(target), len(source))}
        layers = {"encoder": encoder_layers, "decoder": decoder_layers, "cross": decoder_layers}
        for kind in KINDS:
            assert [layer.shape for layer in seen.of(kind)] == [(3, *shapes[kind])] * layers[kind]
            for layer in seen.of(kind):
                np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-6)
                assert (layer >= 0).all()
        for layer in seen.decoder:
            assert (np.triu(layer, 1) == 0).all()  # nothing looks ahead


@pytest.mark.parametrize("changes", CHOICES.values(), ids=CHOICES)
def test_what_is_said_does_not_change_by_looking(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Without weights, with other pairs or alone: the probabilities, rivals and weights are the same."""
    model = make_model(**changes)
    pairs = make_pairs(LENGTHS)
    found = dict(look(model, pairs, rivals=4))
    plain = score_pairs(model, pairs)
    monkeypatch.setattr(module, "WEIGHTS", 1)
    alone = dict(look(model, pairs, rivals=4))
    for number, (source, target) in enumerate(pairs):
        one, other = found[number], alone[number]
        np.testing.assert_allclose(one.log_probabilities, plain[number], atol=1e-5)
        with torch.inference_mode():
            rows = [BEGIN, *target[:-1]]
            logits = model(*make_row([source], model.device), *make_row([np.array(rows)], model.device))
        best = logits.log_softmax(-1).sort(descending=True)
        assert one.rivals.tolist() == best.indices[:, :4].tolist()
        np.testing.assert_allclose(one.rival_scores, best.values[:, :4], atol=1e-5)
        for kind in KINDS:
            for first, second in zip(one.attention.of(kind), other.attention.of(kind)):
                np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_sentence_without_positions_is_refused():
    model = make_model(positions="learned", max_positions=8)
    assert len(dict(look(model, make_pairs([(8, 8)])))) == 1
    with pytest.raises(DataError, match="a sentence has 9 tokens, but the model has learned positions for only 8"):
        dict(look(model, make_pairs([(3, 4), (2, 9)])))


def test_there_are_no_more_rivals_than_tokens():
    ((_, looked),) = look(make_model(), make_pairs([(3, 2)]), rivals=1000)
    assert looked.rivals.shape == (2, VOCABULARY)
    np.testing.assert_allclose(np.exp(looked.rival_scores).sum(1), 1, atol=1e-6)
