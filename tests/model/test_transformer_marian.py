"""The whole model against Hugging Face's Marian, an independent implementation: equal logits, equal gradients."""

import pytest
import torch
from marian import make_marian, marian_names
from rows import SMALL, assert_near, gradients, make_model, random_row, run
from threads import always_one_thread as always_one_thread
from torch.nn.utils.rnn import pad_sequence


@pytest.mark.parametrize("seed", [0, 1])
def test_logits_and_gradients_are_marians(seed: int):
    ours = make_model(SMALL, seed=seed)
    marian = make_marian(ours, longest=16)
    source, target = random_row([4, 16, 9, 1, 9]), random_row([16, 2, 10, 1, 3])
    source_tokens, target_tokens = (pad_sequence(row.split(row.tokens.long()), True) for row in (source, target))
    our_logits = run(ours, source, target)
    result = marian(
        input_ids=source_tokens,
        attention_mask=(source_tokens != 0).long(),
        decoder_input_ids=target_tokens,
        decoder_attention_mask=(target_tokens != 0).long(),
    )
    their_logits = result.logits[target_tokens != 0]
    assert_near(our_logits, their_logits)
    cotangent = torch.randn_like(our_logits)
    our_logits.backward(cotangent)
    their_logits.backward(cotangent)
    for name, gradient in gradients(ours).items():
        expected = torch.cat([torch.as_tensor(marian.get_parameter(other).grad) for other in marian_names(name)])
        assert_near(gradient, expected, 1e-9, name)
