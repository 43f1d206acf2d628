"""The best tokens and the choice among them equal plain torch: interpreted by Triton, or on a GPU."""

import pytest
import torch
from random_batches import DEVICE
from torch import Tensor

from transduce.config import SearchConfig
from transduce.decoding.beams import Beams
from transduce.kernels import beams as kernels
from transduce.text.subwords import BEGIN, END, PAD

# NumPy, which the interpreter computes with, warns of what is masked away.
pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ("invalid value", "divide by zero", "All-NaN")]


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    torch.manual_seed(1)


# The best tokens


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK", 16)
    monkeypatch.setattr(kernels, "SPAN", 4)


@pytest.mark.parametrize("vocabulary", [8, 37, 64])
@pytest.mark.parametrize("k", [1, 4, 6])
def test_the_best_tokens(small_blocks: None, vocabulary: int, k: int):
    logits = (3 * torch.randn(6, vocabulary, device=DEVICE)).round()  # so that many are equal
    logits[0, : vocabulary - 6] = -torch.inf
    logits[1, 1:] = -torch.inf  # fewer than are asked for
    logits[2] = 5.0
    values, tokens = kernels.best(logits, k)
    plain_values, plain_tokens = kernels.plain_best(logits, k)
    assert torch.equal(tokens, plain_tokens)
    torch.testing.assert_close(values, plain_values)


def test_the_best_of_what_is_left(small_blocks: None):
    logits = torch.randn(3, 37, device=DEVICE)
    normaliser = logits.logsumexp(-1)
    logits[0, 3:] = -torch.inf
    logits[1] = -torch.inf
    values, tokens = kernels.best(logits, 4, normaliser)
    plain_values, plain_tokens = kernels.plain_best(logits, 4, normaliser)
    assert torch.equal(tokens, plain_tokens)
    torch.testing.assert_close(values, plain_values)
    assert (values[1] == -torch.inf).all()


def test_the_best_of_a_large_vocabulary():
    logits = 3 * torch.randn(2, 9_001, device=DEVICE)
    values, tokens = kernels.best(logits, 10)
    plain_values, plain_tokens = kernels.plain_best(logits, 10)
    assert torch.equal(tokens, plain_tokens)
    torch.testing.assert_close(values, plain_values)


def test_all_the_best_may_be_neighbours(small_blocks: None):
    logits = torch.zeros(2, 40, device=DEVICE)
    logits[0, 17:23] = torch.arange(1.0, 7.0, device=DEVICE)
    logits[1, 34:] = 3.0
    for row, best in enumerate(([22, 21, 20, 19, 18, 17], [34, 35, 36, 37, 38, 39])):
        assert kernels.best(logits, 6)[1][row].tolist() == best


def test_what_is_not_a_number_still_names_tokens(small_blocks: None):
    logits = torch.randn(2, 37, device=DEVICE)
    logits[0] = torch.nan
    _, tokens = kernels.best(logits, 5)
    assert ((tokens >= 0) & (tokens < 37)).all()
    assert torch.equal(tokens[1], kernels.plain_best(logits, 5)[1][1])


# The choice


def choose(beams: Beams, values: Tensor, candidates: Tensor) -> None:
    """Choose as the engine does."""
    kernels.choose(
        values,
        candidates,
        beams.state(),
        beams.penalty,
        min_tokens=beams.min_tokens,
        n_best=beams.config.n_best,
        until_full=beams.until_full,
        begin_token=BEGIN,
        end_token=END,
    )


def candidates(beams: Beams, vocabulary: int, likes_end: float = 0.0) -> tuple[Tensor, Tensor]:
    logits = 2 * torch.randn(len(beams.done), beams.beam, vocabulary, device=DEVICE)
    logits[..., END] += likes_end
    values, tokens = logits.log_softmax(-1).topk(min(beams.candidates, vocabulary))
    return values, tokens.int()


@pytest.mark.parametrize(
    ("config", "likes_end"),
    [
        (SearchConfig(beam=1), 1.0),
        (SearchConfig(beam=1, min_tokens=3), 5.0),
        (SearchConfig(beam=2, stop="full", alpha=1.0), 3.0),
        (SearchConfig(beam=3, n_best=2), -2.0),
        (SearchConfig(beam=3, n_best=2), 3.0),
        (SearchConfig(beam=4, min_tokens=2, alpha=0.0), 3.0),
        (SearchConfig(beam=4, n_best=4, stop="full"), 0.0),
    ],
    ids=range(7),
)
def test_the_choice_is_that_of_the_plain_search(config: SearchConfig, likes_end: float):
    """Slot 1 is empty; slot 0 begins anew in the same memory while the others are at their ends."""
    slots, target, vocabulary = 4, 5, 9
    ours, plain = (Beams(slots, target, config, DEVICE, config.min_tokens) for _ in range(2))
    places = [part.data_ptr() for part in ours.state()]
    held = [0, 2, 3]
    for beams in (ours, plain):
        beams.begin(held, [5, 4, 1])
    for step in range(9):
        if step == 5:
            for beams in (ours, plain):
                beams.begin([0], [4])
        values, tokens = candidates(plain, vocabulary, likes_end)
        plain.choose(values, tokens)
        choose(ours, values, tokens)
        assert torch.equal(ours.done, plain.done)
        assert torch.equal(ours.length, plain.length)
        torch.testing.assert_close(ours.scores, plain.scores)
        torch.testing.assert_close(ours.ended.sort().values, plain.ended.sort().values)
        going = ~plain.done[:, None] & (plain.scores > -torch.inf)
        for part, other in ((ours.next, plain.next), (ours.parents, plain.parents)):
            assert torch.equal(part[going], other[going])
        assert ((ours.parents >= 0) & (ours.parents < ours.beam)).all()
        assert ((ours.next >= 0) & (ours.next < vocabulary)).all()
    assert ours.done.all()
    for one, other in zip(ours.results(held), plain.results(held), strict=True):
        assert [(found.tokens.tolist(), found.ended) for found in one] == [
            (found.tokens.tolist(), found.ended) for found in other
        ]
        for found, expected in zip(one, other):
            assert found.score == pytest.approx(expected.score, rel=1e-5)
            torch.testing.assert_close(*map(torch.from_numpy, (found.token_scores, expected.token_scores)))
    assert [part.data_ptr() for part in ours.state()] == places


def test_a_wide_beam():
    """So wide that several warps choose."""
    ours, plain = (Beams(1, 3, SearchConfig(beam=12, n_best=5), DEVICE) for _ in range(2))
    for beams in (ours, plain):
        beams.begin([0], [3])
    for _ in range(2):
        values, tokens = candidates(plain, 30, likes_end=2.0)
        plain.choose(values, tokens)
        choose(ours, values, tokens)
        torch.testing.assert_close(ours.ended.sort().values, plain.ended.sort().values)
        for part, other in zip(ours.state()[:3], plain.state()[:3]):
            torch.testing.assert_close(part, other)


@pytest.mark.parametrize("beam", [1, 4])
def test_of_equal_candidates_the_lower_line_and_rank_come_first(beam: int):
    beams = Beams(3, 9, SearchConfig(beam=beam, alpha=0.0), DEVICE, 2)
    beams.begin([0, 1, 2], [9, 9, 9])
    beams.scores.zero_()  # all lines of a slot are open
    for _ in range(4):
        k = beams.candidates
        order = torch.stack([torch.randperm(12, device=DEVICE)[:k] for _ in range(3 * beam)]).view(3, beam, k).int()
        values = -torch.randint(1, 3, (3, beam, k), device=DEVICE).sort(-1).values.float()  # 1 or 2
        never = (order == PAD) | (order == BEGIN) | ((order == END) & (beams.length < 2)[:, None, None])
        totals = (values + beams.scores[..., None]).masked_fill(never, -torch.inf).flatten(1)
        best = totals.sort(descending=True, stable=True).indices[:, : 2 * beam]
        choose(beams, values, order)
        for slot in (~beams.done).nonzero().flatten().tolist():
            first = [place for place in best[slot].tolist() if order[slot].flatten()[place] != END][:beam]
            assert beams.parents[slot].tolist() == [place // k for place in first]
            assert beams.next[slot].tolist() == [int(order[slot].flatten()[place]) for place in first]
            assert torch.equal(beams.scores[slot], totals[slot, first])


def test_the_end_comes_only_after_the_least_number_of_tokens():
    for least in (0, 1, 3):
        beams = Beams(1, 9, SearchConfig(beam=2), DEVICE, least)
        beams.begin([0], [9])
        while not beams.done.any():
            choose(beams, *candidates(beams, 9, likes_end=20.0))
        assert {len(found.tokens) for found in beams.results([0])[0]} == {least}


def test_where_nothing_may_be_said_a_sentence_is_cut():
    beams = Beams(2, 5, SearchConfig(beam=2), DEVICE)
    beams.begin([0, 1], [5, 5])
    values, tokens = candidates(beams, 9)
    choose(beams, values, tokens)
    values[0] = -torch.inf
    values[1] = torch.nan
    choose(beams, values, tokens)
    assert beams.done[0]
    assert len(beams.results([0])[0][0].tokens) == 1
    assert ((beams.parents >= 0) & (beams.parents < 2)).all()
