"""Forced decoding: the model's own probability of each token in a given translation."""

import numpy as np
import pytest
from sentences import KINDS, make_model, random_sentences
from threads import always_one_thread as always_one_thread
from toys import teller

from transduce.config import SearchConfig
from transduce.decoding import force
from transduce.decoding.engine import TorchEngine
from transduce.decoding.force import score_pairs
from transduce.decoding.search import Task, search_all
from transduce.text.subwords import END

SOURCES = [np.array(source) for source in random_sentences([4, 9, 1, 6, 2])]
TARGETS = [np.array(target) for target in random_sentences([7, 1, 3, 5, 2], seed=1)]
PAIRS = list(zip(SOURCES, TARGETS))


@pytest.mark.parametrize("name", list(KINDS))
def test_scores_are_those_of_each_token_after_those_before(name: str):
    model = make_model(**KINDS[name])
    for (source, target), scores in zip(PAIRS, score_pairs(model, PAIRS), strict=True):
        tell, tokens = teller(model, source.tolist()), target.tolist()
        expected = [tell(tuple(tokens[:place]))[token] for place, token in enumerate(tokens)]
        np.testing.assert_allclose(scores, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("most", [1, 5 * 19, 9 * 19])
def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch, most: int):
    model = make_model()
    expected = score_pairs(model, PAIRS)
    monkeypatch.setattr(force, "LOGITS", most)
    for order in (PAIRS, PAIRS[::-1]):
        found = score_pairs(model, order)
        for one, other in zip(found, expected if order is PAIRS else expected[::-1], strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-5)
    assert score_pairs(model, []) == []


def test_what_a_search_has_found_is_scored_the_same():
    model = make_model(seed=2)
    found = search_all(TorchEngine(model), [Task(source) for source in SOURCES], SearchConfig(n_best=4, extra_tokens=3))
    both = [
        (hypothesis, (source, np.append(hypothesis.tokens, END)))
        for source, hypotheses in zip(SOURCES, found)
        for hypothesis in hypotheses
    ]
    for (hypothesis, _), scores in zip(both, score_pairs(model, [pair for _, pair in both]), strict=True):
        np.testing.assert_allclose(hypothesis.token_scores, scores[: len(hypothesis.token_scores)], 1e-4, 1e-5)
