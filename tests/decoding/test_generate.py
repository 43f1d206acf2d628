"""The same translations as Hugging Face's `generate` finds with our weights in its Marian.

At the length limit, Hugging Face ranks translations that were cut among those that have ended; here they come last. So
beams are compared where all that it returns has ended. Its length penalty is another, so they are compared without one.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from marian import make_marian
from sentences import make_model, random_sentences
from threads import always_one_thread as always_one_thread
from torch.nn.utils.rnn import pad_sequence

from transduce.config import SearchConfig
from transduce.decoding.beams import Hypothesis
from transduce.decoding.engine import TorchEngine
from transduce.decoding.search import Task, search_all
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END, PAD

VOCABULARY = 60
LENGTHS = [4, 9, 1, 2, 6, 12]
SEEDS = [0, 5, 6]


@cache
def make_pair(seed: int, end: float = 6.4) -> tuple[Transformer, Any]:
    """Return a model with other output at each position and a liking for the end, and Marian with the same weights."""
    ours = make_model(seed=seed, vocabulary=VOCABULARY, d_model=16, d_ff=32, heads=2)
    with torch.no_grad():
        # With small embeddings much depends on positions; what leaves the decoder is larger for it.
        ours.embedding.weight.mul_(0.3)
        norm = ours.decoder[-1].get_submodule("feed_forward_residual.norm")
        norm.get_parameter("weight").mul_(10.0)
        # The first number of each state is 1, and of each embedding 0 but for the end's, which has no other.
        norm.get_parameter("weight")[0], norm.get_parameter("bias")[0] = 0.0, 1.0
        ours.embedding.weight[:, 0] = 0.0
        ours.embedding.weight[END] = 0.0
        ours.embedding.weight[END, 0] = end
    return ours, make_marian(ours, longest=64)


def generate(marian: Any, sources: list[list[int]], many: int = 1, **settings: Any):
    """Return Hugging Face's translations of each sentence, and their scores if it gives any."""
    tokens = pad_sequence([torch.tensor(source) for source in sources], True, PAD)
    result: Any = marian.generate(
        tokens,
        attention_mask=(tokens != PAD).long(),
        do_sample=False,
        num_return_sequences=many,
        suppress_tokens=[PAD, BEGIN],
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    # What comes after the end only fills the line.
    texts = [line[1 : [*line, END].index(END) + 1] for line in result.sequences.tolist()]
    scores = result.sequences_scores.tolist() if "sequences_scores" in result else [0.0] * len(texts)
    found = list(zip(texts, scores))
    return [found[place : place + many] for place in range(0, len(found), many)]


def sources_of(seed: int) -> list[list[int]]:
    return random_sentences(LENGTHS, VOCABULARY, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_logits_are_the_same(seed: int):
    """Otherwise all that follows would compare two models."""
    ours, marian = make_pair(seed)
    source, target = torch.tensor(sources_of(seed)[1]), torch.tensor([BEGIN, 7, 9, 40])
    with torch.no_grad():
        expected = marian(input_ids=source[None], decoder_input_ids=target[None]).logits[0]
        found = ours(source, torch.tensor([0, 9]), target, torch.tensor([0, 4]))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    shares = found.softmax(-1).amax(-1)
    assert 0.05 < shares.mean() < 0.95


RULES = [({}, {}), ({"min_tokens": 3, "no_repeat": 2}, {"min_new_tokens": 3, "no_repeat_ngram_size": 2})]
either_rules = pytest.mark.parametrize(("rules", "their_rules"), RULES, ids=["free", "ruled"])


def search_ours(ours: Transformer, sources: list[list[int]], **settings: Any) -> list[list[Hypothesis]]:
    return search_all(TorchEngine(ours), [Task(np.array(source)) for source in sources], SearchConfig(**settings))


def text_of(hypothesis: Hypothesis) -> list[int]:
    return [*hypothesis.tokens.tolist(), *[END] * hypothesis.ended]


@either_rules
@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_search(seed: int, rules: dict[str, int], their_rules: dict[str, int]):
    ours, marian = make_pair(seed)
    sources, limit = sources_of(seed), 20
    found = search_ours(ours, sources, beam=1, max_tokens=limit, **rules)
    expected = generate(marian, sources, max_new_tokens=limit, num_beams=1, **their_rules)
    assert [text_of(hypothesis) for (hypothesis,) in found] == [text for ((text, _),) in expected]
    assert max(len(hypothesis.tokens) for (hypothesis,) in found) > 2


@either_rules
@pytest.mark.parametrize("stop", ["exact", "full"])
@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_beam_search(seed: int, beam: int, stop: str, rules: dict[str, int], their_rules: dict[str, int]):
    ours, marian = make_pair(seed)
    sources, limit = sources_of(seed), 30
    found = search_ours(ours, sources, beam=beam, n_best=beam, alpha=0.0, max_tokens=limit, stop=stop, **rules)
    expected = generate(
        marian,
        sources,
        beam,
        max_new_tokens=limit,
        num_beams=beam,
        length_penalty=0.0,
        early_stopping=stop == "full",
        **their_rules,
    )
    compared: list[Hypothesis] = []
    for hypotheses, theirs in zip(found, expected, strict=True):
        if any(text[-1] != END for text, _ in theirs):
            continue
        assert [text_of(hypothesis) for hypothesis in hypotheses] == [text for text, _ in theirs]
        scores = [hypothesis.score for hypothesis in hypotheses]
        np.testing.assert_allclose(scores, [score for _, score in theirs], 1e-5, 1e-5)
        compared += hypotheses
    assert len(compared) >= 4 * beam
    assert len({hypothesis.score for hypothesis in compared}) == len(compared)
    assert max(len(hypothesis.tokens) for hypothesis in compared) > 2
