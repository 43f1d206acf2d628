"""Beam search in C++, several steps at a time, equals the search that chooses with tensors, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentences import VOCABULARY, make_model, random_sentences
from threads import always_one_thread as always_one_thread
from torch import Tensor

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.brackets import Brackets
from transduce.decoding.cpu import CpuEngine, CpuLines
from transduce.decoding.engine import Runs
from transduce.decoding.search import Task, search_all

SHARP, FLAT = (make_model(seed=seed, tie="none").float() for seed in (1, 2))
with torch.no_grad():
    SHARP.output.weight.mul_(2)
    FLAT.output.weight.mul_(0.2)
ENGINES = [CpuEngine(model, precision="float32", threads=1) for model in (SHARP, FLAT)]


@dataclass
class StepByStep:
    """An engine's lines without the part that chooses by itself."""

    lines: CpuLines

    def admit(self, slots: Sequence[int], sources: Sequence[np.ndarray]) -> None:
        self.lines.admit(slots, sources)

    def advance(self, slots: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        return self.lines.advance(slots, tokens, parents)

    def normaliser(self, logits: Tensor) -> Tensor:
        return self.lines.normaliser(logits)

    def best(self, logits: Tensor, k: int, normaliser: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.lines.best(logits, k, normaliser)

    def close(self) -> None:
        self.lines.close()


@dataclass
class Slower:
    """An engine that chooses nothing by itself."""

    engine: CpuEngine
    rows: int

    tokens = 1 << 14

    @property
    def config(self) -> ModelConfig:
        return self.engine.config

    @property
    def device(self) -> torch.device:
        return self.engine.device

    def open(self, slots: int, beam: int, source: int, target: int) -> StepByStep:
        return StepByStep(self.engine.open(slots, beam, source, target))


@given(
    sharp=st.booleans(),
    beam=st.integers(1, 6),
    wanted=st.integers(1, 6),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    stop=st.sampled_from(["exact", "full"]),
    least=st.integers(0, 6),
    extra=st.integers(0, 6),
    most=st.one_of(st.none(), st.integers(6, 9)),
    lengths=st.lists(st.integers(1, 12), max_size=9),
    seed=st.integers(0, 99),
    together=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_several_steps_in_one_call_are_the_same_steps(
    sharp: bool,
    beam: int,
    wanted: int,
    alpha: float,
    stop: str,
    least: int,
    extra: int,
    most: int | None,
    lengths: list[int],
    seed: int,
    together: int,
):
    config = SearchConfig(
        beam=beam,
        n_best=min(wanted, beam),
        alpha=alpha,
        stop=stop,  # pyright: ignore[reportArgumentType]
        min_tokens=least,
        extra_tokens=extra,
        max_tokens=most,
    )
    engine = ENGINES[not sharp]
    engine.rows = together * beam
    tasks = [Task(np.array(source)) for source in random_sentences(lengths, seed=seed)]
    assert_same(engine, tasks, config)


def assert_same(engine: CpuEngine, tasks: list[Task], config: SearchConfig, pieces: Sequence[str] = ()) -> None:
    """Fail unless the search finds what a step at a time finds."""
    found = search_all(engine, tasks, config, pieces)
    expected = search_all(Slower(engine, engine.rows), tasks, config, pieces)
    for ours, plain in zip(found, expected, strict=True):
        assert [(one.tokens.tolist(), one.ended) for one in ours] == [(one.tokens.tolist(), one.ended) for one in plain]
        for one, other in zip(ours, plain):
            np.testing.assert_allclose(one.token_scores, other.token_scores, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(one.score, other.score, rtol=1e-5)


SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
LABELS = [f"▁){label}" for label in "ABCD"]
TREES = {
    "plain": [*SPECIAL, "▁XX", "▁(", *LABELS],
    "tags": [*SPECIAL, *LABELS, "▁NN", "▁(", "▁,", "▁(C", "▁(A"],
    "words": [*SPECIAL, "▁NN", "▁VB", "▁(A", "▁(B", "▁(C", *LABELS, *(f"▁=({number}" for number in range(6))],
}


@given(
    kind=st.sampled_from(sorted(TREES)),
    sharp=st.booleans(),
    beam=st.sampled_from([1, 2, 5, 21]),
    extra=st.integers(1, 30),
    words=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    share=st.sampled_from([1.0, 0.3]),
    together=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trees_grow_several_steps_in_one_call(
    kind: str, sharp: bool, beam: int, extra: int, words: list[int], share: float, together: int
):
    pieces = [*TREES[kind], *(f"▁,{number}" for number in range(VOCABULARY))][:VOCABULARY]
    brackets = Brackets.find(pieces)
    config = SearchConfig(beam=beam, n_best=min(beam, 3), alpha=0.3, extra_tokens=extra, word_share=share)
    engine = ENGINES[not sharp]
    engine.rows = together * beam
    tasks = [
        Task(np.array(source), words=brackets.find_words(str(word % 7) for word in range(many)))
        for many, source in zip(words, random_sentences([2 * many + 1 for many in words]))
    ]
    assert_same(engine, tasks, config, pieces)


def test_only_lines_that_can_choose_by_themselves_are_asked_to():
    lines = ENGINES[0].open(1, 1, 2, 3)
    assert isinstance(lines, Runs)
    assert not isinstance(StepByStep(lines), Runs)


def test_what_is_done_stays_as_it_is():
    lines = ENGINES[0].open(2, 2, 3, 5)
    beams, _ = lines.beams_for(SearchConfig(beam=2))
    lines.admit([0, 1], [np.array([5, 6, 3]), np.array([7, 3])])
    beams.begin([0, 1], [5, 2])
    lines.run(2)
    assert beams.done.tolist()[1]
    before = [part[1].clone() for part in (beams.scores, beams.length, beams.ended, beams.said)]
    results = beams.results([1])
    lines.run(3)
    assert beams.done.tolist() == [True, True]
    for old, part in zip(before, (beams.scores, beams.length, beams.ended, beams.said)):
        assert torch.equal(old, part[1])
    assert [one.tokens.tolist() for one in beams.results([1])[0]] == [one.tokens.tolist() for one in results[0]]
    lines.run(1)  # nothing is open: nothing happens
