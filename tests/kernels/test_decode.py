"""The kernels of a decoding step equal plain torch: interpreted by Triton, or on a GPU with TRITON_INTERPRET=0."""

import os

import numpy as np
import pytest
import torch
from torch import Tensor

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.engine import TorchEngine
from transduce.decoding.gpu import GraphEngine
from transduce.decoding.search import Task, search_all
from transduce.kernels import decode
from transduce.model.transformer import Transformer
from transduce.text.subwords import END

DEVICE = torch.device("cuda" if os.environ["TRITON_INTERPRET"] == "0" else "cpu")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    torch.manual_seed(1)


@pytest.mark.parametrize(("beam", "d_k", "d_v"), [(1, 8, 8), (3, 5, 3)])
def test_attention_to_what_a_line_has_said(beam: int, d_k: int, d_v: int):
    slots, target, heads = 3, 20, 2
    query, key, value = (random(slots * beam, heads, width) for width in (d_k, d_k, d_v))
    keys, values = (random(slots, target, beam, heads, width) for width in (d_k, d_v))
    ancestry = torch.randint(0, beam, (slots, beam, target), device=DEVICE)
    positions = torch.tensor([0, 19, 7], device=DEVICE)  # the first, the last; more and fewer than are read at a time
    plain_keys, plain_values = keys.clone(), values.clone()
    found = decode.attend_own(query, key, value, keys, values, ancestry, positions, 0.4)
    expected = decode.plain_attend_own(query, key, value, plain_keys, plain_values, ancestry, positions, 0.4)
    torch.testing.assert_close(found, expected)
    assert torch.equal(keys, plain_keys)
    assert torch.equal(values, plain_values)


def test_a_line_sees_its_ancestors_and_no_others():
    slots, target, beam, heads, width = 1, 6, 2, 1, 4
    query, key, value = (random(slots * beam, heads, width) for _ in range(3))
    keys, values = (random(slots, target, beam, heads, width) for _ in range(2))
    ancestry = torch.tensor([[[1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0]]], device=DEVICE)
    positions = torch.tensor([3], device=DEVICE)
    before = decode.attend_own(query, key, value, keys, values, ancestry, positions, 1.0)
    for place, line in ((0, 0), (1, 1), (2, 0), (4, 0), (5, 1)):  # not on the way of line 0
        for part in (keys, values):
            part[0, place, line] = torch.nan if place > 3 else 100.0
    after = decode.attend_own(query, key, value, keys, values, ancestry, positions, 1.0)
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])


@pytest.mark.parametrize(("beam", "d_k", "d_v"), [(1, 8, 8), (2, 3, 6)])
def test_attention_to_the_source(beam: int, d_k: int, d_v: int):
    query = random(4 * beam, 2, d_k)
    keys, values = random(4, 20, 2, d_k), random(4, 20, 2, d_v)
    lengths = torch.tensor([20, 0, 3, 16], device=DEVICE)
    found = decode.attend_source(query, keys, values, lengths, 0.4)
    torch.testing.assert_close(found, decode.plain_attend_source(query, keys, values, lengths, 0.4))
    assert torch.equal(found[beam : 2 * beam], torch.zeros_like(found[beam : 2 * beam]))


@torch.no_grad()
def test_residual_and_norm():
    norm = torch.nn.LayerNorm(12, device=DEVICE)
    norm.weight.normal_()
    norm.bias.normal_()
    x, y = random(5, 12), random(5, 12)
    for found, expected in zip(decode.add_norm(x, y, norm), decode.plain_add_norm(x, y, norm)):
        torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:invalid value")  # of NumPy, which the interpreter computes with: masked away
@pytest.mark.parametrize("vocabulary", [8, 37, 64])
def test_the_best_tokens(monkeypatch: pytest.MonkeyPatch, vocabulary: int):
    monkeypatch.setattr(decode, "BLOCK", 16)
    logits = (3 * random(6, vocabulary)).round()  # so that many are equal
    logits[0, : vocabulary - 6] = -torch.inf
    values, tokens = decode.best(logits, 5)
    plain_values, plain_tokens = decode.plain_best(logits, 5)
    assert torch.equal(tokens, plain_tokens)
    torch.testing.assert_close(values, plain_values)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rotary", "activation": "gelu", "tie": "none"}])
@pytest.mark.parametrize(
    "config", [SearchConfig(beam=2, n_best=2, max_tokens=3), SearchConfig(beam=1, no_repeat=1, max_tokens=3)]
)
def test_a_search_is_that_of_the_plain_engine(changes: dict[str, str], config: SearchConfig):
    """With its own choice of beams, and with rules that the search applies; sentences leave and others join."""
    sizes = ModelConfig(vocabulary=11, layers=1, d_model=8, d_ff=8, heads=2, **changes)  # pyright: ignore[reportArgumentType]
    model = Transformer(sizes).eval().to(DEVICE)
    with torch.no_grad():
        model.embedding.weight.mul_(4)
    tasks = [Task(np.array([*range(4, 4 + length), END], np.int32)) for length in (3, 2, 2)]
    engine = GraphEngine(model)
    engine.rows = 2 * config.beam
    found, expected = search_all(engine, tasks, config), search_all(TorchEngine(model), tasks, config)
    for ours, plain in zip(found, expected, strict=True):
        for one, other in zip(ours, plain, strict=True):
            assert (one.tokens.tolist(), one.ended) == (other.tokens.tolist(), other.ended)
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=1e-4)


def test_room_is_used_again():
    model = Transformer(ModelConfig(vocabulary=11, layers=1, d_model=8, d_ff=8, heads=2)).eval().to(DEVICE)
    engine = GraphEngine(model)
    lines = engine.open(3, 2, 70, 10)
    assert (lines.slots, lines.beam, lines.source, lines.target) == (4, 2, 128, 64)
    lines.close()
    assert engine.open(4, 2, 100, 64) is lines
    assert engine.open(4, 2, 100, 64) is not lines  # it is in use
