"""Weights rounded to integers stay near, and rounding them again changes nothing."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from transduce.model.compact import compact, expand


@given(st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**31), st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_every_weight_is_within_half_a_step(rows: int, columns: int, seed: int, size: float):
    weight = size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    small = compact({"a": weight, "b": weight[0]})
    kinds = {name: tensor.dtype for name, tensor in small.items()}
    assert kinds == {"a": torch.int8, "a.scale": torch.float32, "b": torch.float32}
    back = expand(small)
    assert back.keys() == {"a", "b"}
    assert torch.equal(back["b"], weight[0])
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((back["a"] - weight).abs() <= step * 0.5001).all()
    assert torch.equal(compact(back)["a"], small["a"])


def test_rows_of_zeros_stay_zeros():
    zeros = {"a": torch.zeros(3, 4)}
    assert torch.equal(expand(compact(zeros))["a"], zeros["a"])


def test_what_was_not_rounded_comes_back_as_it_is():
    weights = {"a": torch.randn(3, 4), "b": torch.randn(5)}
    assert all(map(torch.equal, expand(weights).values(), weights.values()))
