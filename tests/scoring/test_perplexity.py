"""The perplexity of references is the exponential of a token's mean surprisal."""

import math

import pytest

from transduce.errors import DataError
from transduce.scoring.perplexity import Likelihood


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    lengths = [3, 1, 20]
    likelihood = Likelihood([-length * math.log(37_000) for length in lengths], lengths)
    assert likelihood.perplexity == pytest.approx(37_000)
    assert likelihood.nats == pytest.approx(math.log(37_000))


def test_every_token_counts_the_same_however_long_its_sentence():
    assert Likelihood([-1.0, -30.0], [1, 9]).nats == pytest.approx(3.1)
    assert Likelihood([0.0], [4]).perplexity == 1


def test_what_cannot_be_is_infinite():
    assert Likelihood([-math.inf, -1.0], [2, 2]).perplexity == math.inf
    assert Likelihood([-1e6], [1]).perplexity == math.inf


def test_every_sentence_has_both_numbers():
    with pytest.raises(DataError, match="there are 2 log-probabilities and 1 lengths"):
        Likelihood([-1.0, -2.0], [3])
