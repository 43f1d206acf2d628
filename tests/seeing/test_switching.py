"""A head that is switched off adds nothing, and afterwards the model has the same bits as before."""

import numpy as np
import pytest
import torch
from lookers import make_model, make_pairs
from torch import Tensor

from transduce.decoding.force import score_pairs
from transduce.model.attention import MultiHeadAttention
from transduce.seeing.attention import look
from transduce.seeing.kinds import KINDS
from transduce.seeing.switching import Head, all_heads, attention_of, switched_off

PAIRS = make_pairs([(6, 5), (3, 8)])


def test_every_head_is_listed_once():
    model = make_model(encoder_layers=1, decoder_layers=3)
    heads = all_heads(model)
    assert len(heads) == len(set(heads)) == (1 + 3 + 3) * 3
    assert len({id(attention_of(model, head.kind, head.layer)) for head in heads}) == 7
    assert [head.kind for head in heads] == sorted((head.kind for head in heads), key=KINDS.index)


@pytest.mark.parametrize("head", [Head("encoder", 0, 2), Head("decoder", 1, 0), Head("cross", 0, 1)])
@pytest.mark.parametrize("width", [None, 5])
def test_it_is_the_head_with_its_output_masked(head: Head, width: int | None, monkeypatch: pytest.MonkeyPatch):
    """Masking where heads are concatenated, before W^O, gives the same loss; only what comes later changes."""
    model = make_model(d_v=width, d_k=width)
    with switched_off(model, [head]):
        found = score_pairs(model, PAIRS)
        seen = dict(look(model, PAIRS))
    before = score_pairs(model, PAIRS)
    own = attention_of(model, head.kind, head.layer)
    combine = MultiHeadAttention.combine

    def masked(self: MultiHeadAttention, heads: Tensor) -> Tensor:
        if self is own:
            heads = heads.clone()
            heads[:, head.head] = 0
        return combine(self, heads)

    monkeypatch.setattr(MultiHeadAttention, "combine", masked)
    for one, other, whole in zip(found, score_pairs(model, PAIRS), before):
        np.testing.assert_allclose(one, other, atol=1e-6)
        assert abs(one - whole).max() > 1e-3
    monkeypatch.undo()
    # What comes before is as it was: the head's own weights too.
    untouched = dict(look(model, PAIRS))[0].attention.of(head.kind)[head.layer]
    np.testing.assert_array_equal(seen[0].attention.of(head.kind)[head.layer], untouched)


def test_the_model_is_left_as_it_was():
    model = make_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def same() -> bool:
        return all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())

    def fail() -> None:
        with switched_off(model, all_heads(model)):
            assert not same()
            raise RuntimeError("in the middle")

    with switched_off(model, [Head("cross", 1, 2), Head("cross", 1, 2), Head("cross", 1, 1)]):
        assert not same()
    assert same()
    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert same()
    with pytest.raises(IndexError), switched_off(model, [Head("encoder", 0, 0), Head("encoder", 9, 0)]):
        pass
    assert same()
    assert all(weight.requires_grad for weight in model.parameters())


def test_without_all_its_heads_the_decoder_does_not_see_the_source():
    model = make_model()
    (source, target), (other, _) = PAIRS
    across = [head for head in all_heads(model) if head.kind == "cross"]
    with switched_off(model, across):
        one, two = score_pairs(model, [(source, target), (other, target)])
    np.testing.assert_allclose(one, two, atol=1e-6)
    one, two = score_pairs(model, [(source, target), (other, target)])
    assert abs(one - two).max() > 1e-3
