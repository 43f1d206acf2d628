"""The CPU engine: the model's logits, in every precision and build, with the same bits whatever the neighbours."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engines import Talk, find_builds, quantised
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentences import KINDS, make_model, random_sentences
from threads import always_one_thread as always_one_thread
from torch import Tensor

from transduce.config import ModelConfig
from transduce.decoding.cpu import CpuEngine, CpuLines
from transduce.kernels import native
from transduce.model.transformer import Transformer

# Sizes that fill no vector and no panel, and some that fill several.
ODD: dict[str, dict[str, Any]] = {
    "gelu, d_model 96": {"activation": "gelu", "d_model": 96, "heads": 6, "d_ff": 200, "vocabulary": 133},
    "swiglu, wide heads": {"activation": "swiglu", "d_model": 70, "heads": 2, "d_k": 66, "d_v": 35, "d_ff": 75},
    "learned, odd": {"positions": "learned", "d_model": 33, "heads": 3, "d_ff": 21, "encoder_layers": 1},
}
SUPPORTED = {name: changes for name, changes in {**KINDS, **ODD}.items() if changes.get("attention") != "additive"}
MODELS = {name: make_model(**changes) for name, changes in SUPPORTED.items()}
BUILDS = find_builds()
PRECISIONS = ["float32", "bf16", "int8"]
LENGTHS = [5, 1, 17, 2, 13, 16]
BEAM, TARGET = 3, 9


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


def make_engine(name: str, precision: Any = "float32", threads: int = 1, build: str = "native") -> CpuEngine:
    return CpuEngine(MODELS[name], precision=precision, threads=threads, flags=BUILDS[build])


def make_sources(model: Transformer, lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    vocabulary = model.config.source_vocabulary or model.config.vocabulary
    return [np.array(sentence, np.int32) for sentence in random_sentences(lengths, vocabulary, seed)]


def converse(engine: CpuEngine, seed: int = 0, sources: list[np.ndarray] | None = None) -> Talk:
    """Let sentences join and leave at different steps, in slots out of order, with random parents."""
    sources = sources or make_sources(MODELS["paper"], LENGTHS, seed)
    talk = Talk(engine.open(4, BEAM, 17, TARGET), seed)
    talk.join([2, 0], sources[:2])
    talk.step([0, 2])
    talk.step([2])
    talk.join([3], sources[2:3])
    for _ in range(4):
        talk.step([3, 0, 2])
    talk.join([0, 1], sources[3:5])  # the sentence of slot 0 has left
    for _ in range(3):
        talk.step([1, 0, 3])
    talk.join([2], sources[5:])
    for _ in range(2):
        talk.step([0, 1, 2, 3])
    return talk


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Fail unless all numbers are within the tolerance, as a share of the largest."""
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < tolerance, f"off by {error:.1e} of the largest"


def test_each_build_is_what_it_is_meant_to_be():
    kinds = {name: native.load(flags).transduce_kind().decode() for name, flags in BUILDS.items()}
    assert {name: kind for name, kind in kinds.items() if name != "native"} == {
        name: kind for name, kind in {"plain": "plain", "avx2": "AVX2"}.items() if name in BUILDS
    }


@pytest.mark.parametrize("build", list(BUILDS))
@pytest.mark.parametrize("name", list(MODELS))
def test_the_logits_are_the_models(name: str, build: str):
    talk = converse(make_engine(name, build=build))
    expected = talk.expected(MODELS[name])
    assert_near(talk.found(), expected, 3e-6)
    assert expected.std(0).min() > 1e-3


@pytest.mark.parametrize("build", list(BUILDS))
@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", list(MODELS))
def test_fewer_bits_are_as_they_should_be(name: str, precision: str, build: str):
    talk = converse(make_engine(name, precision, build=build))
    expected = quantised(talk, MODELS[name], precision)
    errors = (talk.found() - expected).abs().amax(1) / expected.abs().max()
    # A value halfway between two integers may be rounded either way if its last bits differ; this is rare.
    assert errors.median() < (1e-4 if precision == "bf16" else 1e-3), errors
    assert errors.max() < (2e-3 if precision == "bf16" else 2e-2), errors
    assert (talk.expected(MODELS[name]) - expected).abs().max() / expected.abs().max() > 1e-3  # not the plain model


@given(
    beam=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_knows_its_own_past(beam: int, lengths: list[int], seed: int, data: st.DataObject):
    model, engine = MODELS["paper"], ENGINE
    sources = make_sources(model, lengths, seed)
    talk = Talk(engine.open(len(sources), beam, 20, 6), seed)
    talk.join(range(len(sources)), sources)
    steps = [0] * len(sources)
    for _ in range(7):
        free = [slot for slot, step in enumerate(steps) if step < 6]
        chosen = data.draw(st.lists(st.sampled_from(free), unique=True) if free else st.just([]))
        parents = data.draw(
            st.lists(st.integers(0, beam - 1), min_size=beam * len(chosen), max_size=beam * len(chosen))
        )
        talk.step(chosen, np.array(parents, np.int32).reshape(len(chosen), beam))
        for slot in chosen:
            steps[slot] += 1
    if talk.records:
        assert_near(talk.found(), talk.expected(model), 3e-6)


ENGINE = CpuEngine(MODELS["paper"], precision="float32", threads=2)


@pytest.mark.parametrize("build", list(BUILDS))
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["paper", "gelu, d_model 96", "swiglu, wide heads"])
def test_neighbours_and_threads_change_no_bit(name: str, precision: str, build: str):
    engines = [make_engine(name, precision, threads, build) for threads in (1, 2, 3)]
    model = MODELS[name]
    many = make_sources(model, [*LENGTHS, *range(1, 17)])
    random = np.random.default_rng(0)
    tokens = random.integers(0, model.config.vocabulary, (TARGET, len(many), BEAM), np.int32)
    parents = random.integers(0, BEAM, (TARGET, len(many), BEAM), np.int32)

    def run(engine: CpuEngine, chosen: list[int], at_once: int) -> list[Tensor]:
        """Return logits and best tokens of some sentences, admitted so many at a time, in slots in reverse order."""
        lines = engine.open(len(chosen), BEAM, 17, TARGET)
        slots = np.arange(len(chosen))[::-1]
        for first in range(0, len(chosen), at_once):
            some = slice(first, first + at_once)
            lines.admit(slots[some].tolist(), [many[place] for place in chosen[some]])
        results: list[Tensor] = []
        for step in range(TARGET):
            logits = lines.advance(slots, tokens[step, chosen], parents[step, chosen])
            results += [logits.clone(), *lines.best(logits, 4)]
        return [result.unflatten(0, (len(chosen), BEAM)) for result in results]

    together = run(engines[0], list(range(len(many))), len(many))
    for engine, chosen, at_once in (
        (engines[0], [0], 1),
        (engines[1], [2], 1),
        (engines[0], [5, 1, 2], 2),
        (engines[1], list(range(len(many))), 5),
        (engines[2], [7, 21, 2, 9, 0], 5),
    ):
        for found, all_of_them in zip(run(engine, chosen, at_once), together):
            assert torch.equal(found, all_of_them[chosen])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_width_of_the_beam_changes_no_bit(precision: str):
    engine = make_engine("gelu, d_model 96", precision)
    (source,) = make_sources(MODELS["paper"], [16])
    tokens = np.random.default_rng(0).integers(0, 133, TARGET, np.int32)
    results: list[Tensor] = []
    for beam in (1, 2, 4, 6):
        lines = engine.open(1, beam, 16, TARGET)
        lines.admit([0], [source])
        same = np.arange(beam, dtype=np.int32)[None]
        logits = [lines.advance(np.array([0]), np.full((1, beam), token, np.int32), same).clone() for token in tokens]
        assert all(torch.equal(row, step[0]) for step in logits for row in step)
        results.append(torch.stack([step[0] for step in logits]))
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_long_sentences(precision: str):
    engine = make_engine("rotary, pre-norm, untied", precision, threads=2)
    model = MODELS["rotary, pre-norm, untied"]
    talk = Talk(engine.open(3, 2, 150, 70))
    talk.join([0, 1, 2], make_sources(model, [150, 1, 77]))
    for _ in range(70):
        talk.step([2, 0, 1])
    talk.records = talk.records[-6:]
    expected = talk.expected(model) if precision == "float32" else quantised(talk, model, precision)
    assert_near(talk.found(), expected, 3e-6 if precision == "float32" else 2e-2)


def test_more_tokens_than_are_encoded_together():
    model = MODELS["paper"]
    talk = Talk(ENGINE.open(40, 1, 60, 1))
    talk.join(range(40), make_sources(model, [60] * 40))
    talk.step(range(40))
    assert_near(talk.found(), talk.expected(model), 3e-6)


def test_large_keys_and_values_stay_finite():
    """Half precision ends at 65,504."""
    model = make_model()
    for layer in model.decoder:
        layer.self_attention.projection *= 1e6  # pyright: ignore
        layer.cross_attention.projection *= 1e6  # pyright: ignore
    talk = converse(CpuEngine(model, precision="int8"))
    assert talk.found().isfinite().all()
    assert talk.found().std(1).min() > 0.1


def test_a_row_of_zeros_is_multiplied_like_any_other():
    model = make_model(norm="pre", tie="none")
    for norm in (layer.feed_forward_residual.norm for layer in model.decoder):  # pyright: ignore
        norm.weight.zero_()  # pyright: ignore
        norm.bias.zero_()  # pyright: ignore
    model.output.weight[3:5] = 0
    talk = converse(CpuEngine(model, precision="int8"))
    assert talk.found().isfinite().all()
    assert (talk.found()[:, 3:5] == 0).all()


# ---- The best tokens


def make_lines() -> CpuLines:
    return ENGINE.open(2, 1, 4, 4)


def reference(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the best tokens by a stable sort: of equal ones the lower token first."""
    values, tokens = logits.double().log_softmax(-1).sort(descending=True, stable=True)
    return values[:, :k], tokens[:, :k]


@pytest.mark.parametrize("build", list(BUILDS))
@pytest.mark.parametrize("vocabulary", [1, 2, 19, 64, 65, 1000, 8011])
def test_the_best_are_the_best(vocabulary: int, build: str):
    lines = make_engine("paper", build=build).open(1, 1, 1, 1)
    torch.manual_seed(vocabulary)
    for scale in (0.01, 1.0, 30.0):
        logits = torch.randn(7, vocabulary) * scale
        for k in {1, min(8, vocabulary), min(300, vocabulary)}:
            values, tokens = lines.best(logits, k)
            expected_values, expected_tokens = reference(logits, k)
            assert torch.equal(tokens.long(), expected_tokens)
            assert (values - expected_values).abs().le(1e-6 * expected_values.abs() + 2e-6).all()
        normaliser = lines.normaliser(logits)
        torch.testing.assert_close(normaliser, logits.double().logsumexp(-1), rtol=0, atol=1e-6)


@given(
    rows=st.lists(
        st.lists(st.sampled_from([-torch.inf, -200.0, -1.0, 0.0, 1.0, 1.5]), min_size=70, max_size=70), min_size=1
    ),
    k=st.integers(1, 70),
    banned=st.lists(st.integers(0, 69), max_size=4),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_and_impossible_ones(rows: list[list[float]], k: int, banned: list[int]):
    logits = torch.tensor(rows)
    lines = make_lines()
    normaliser = lines.normaliser(logits)
    values, tokens = lines.best(logits, k, banned=banned)
    logits[:, banned] = -torch.inf
    shown, order = logits.sort(descending=True, stable=True)
    assert torch.equal(tokens.long(), order[:, :k])
    expected = torch.where(shown[:, :k].isneginf(), -torch.inf, (shown[:, :k] - normaliser[:, None]).float())
    assert torch.equal(values, expected)
    for result in (lines.best(logits, k, normaliser), lines.best(logits, k, normaliser, banned)):
        assert torch.equal(result[0], expected)
        assert torch.equal(result[1], tokens)


def test_changes_of_the_logits_are_seen():
    model = MODELS["gelu, d_model 96"]
    lines = make_engine("gelu, d_model 96").open(2, 2, 9, 9)
    lines.admit([0, 1], make_sources(model, [9, 4]))
    nothing = np.zeros((2, 2), np.int32)
    for _ in range(2):
        logits = lines.advance(np.array([0, 1]), nothing, nothing)
        kept = logits.clone()
        for k in (1, 5):
            for found, expected in zip(lines.best(logits, k), lines.best(kept, k)):
                assert torch.equal(found, expected)
        best = lines.best(logits[:1], 1)[1]
        assert torch.equal(best, lines.best(kept[:1], 1)[1])
        normaliser = lines.normaliser(logits)
        assert torch.equal(normaliser, lines.normaliser(kept))
        logits[:, int(lines.best(logits, 1)[1][0])] = -torch.inf
        assert torch.equal(lines.best(logits, 3)[0], lines.best(logits.clone(), 3)[0])
        assert torch.equal(lines.best(logits, 3, normaliser)[1], lines.best(logits.clone(), 3)[1])
        logits[:, 7] = 1e3
        assert lines.best(logits, 1)[1].eq(7).all()


# ---- What cannot be


def test_what_is_supported():
    assert CpuEngine.supports(ModelConfig())
    assert not CpuEngine.supports(ModelConfig(attention="additive"))
    assert not CpuEngine.supports(ModelConfig(d_ff=1 << 17))
    with pytest.raises(ValueError, match="does not support"):
        CpuEngine(make_model(attention="additive"))
    with pytest.raises(ValueError, match="threads = 0"):
        CpuEngine(MODELS["paper"], threads=0)


def test_what_does_not_fit_is_refused():
    learned = make_engine("learned, pre-norm")
    for changes in ({"slots": 0}, {"beam": 0}, {"source": 0}, {"target": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            ENGINE.open(**{"slots": 1, "beam": 1, "source": 1, "target": 1, **changes})
    with pytest.raises(ValueError, match="learned positions for only 40"):
        learned.open(1, 1, 40, 41)
    lines = ENGINE.open(2, 2, 4, 2)
    one, word = np.zeros((1, 2), np.int32), np.array([5, 1], np.int32)
    with pytest.raises(ValueError, match="slot 1 holds no sentence"):
        lines.advance(np.array([1]), one, one)
    for slots, sources, message in (
        ([2], [word], "2 to 2; wanted 0 to 1"),
        ([-1], [word], "-1 to -1"),
        ([0, 0], [word, word], "named twice"),
        ([0, 1], [word], "2 slots for 1"),
        ([0], [np.arange(5)], "room for 1 to 4"),
        ([0], [np.arange(0)], "room for 1 to 4"),
        ([0], [np.array([5, 19])], "5 to 19; wanted 0 to 18"),
        ([0], [np.array([-1])], "-1 to -1"),
    ):
        with pytest.raises(ValueError, match=message):
            lines.admit(slots, sources)
    lines.admit([], [])
    lines.admit([0], [word])
    assert lines.advance(np.array([], np.int32), one[:0], one[:0]).shape == (0, 19)
    for slots, tokens, parents, message in (
        ([0, 1], one, one, "for \\(2, 2\\)"),
        ([0], one[:, :1], one, "for \\(1, 2\\)"),
        ([0], one + 19, one, "19 to 19"),
        ([0], one - 1, one, "-1 to -1"),
        ([0], one, one + 2, "2 to 2; wanted 0 to 1"),
        ([2], one, one, "2 to 2"),
        ([0, 0], np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int32), "named twice"),
        ([1], one, one, "slot 1 holds no sentence"),
    ):
        with pytest.raises(ValueError, match=message):
            lines.advance(np.array(slots), tokens, parents)
    lines.advance(np.array([0]), one, one)
    logits = lines.advance(np.array([0]), one, one)
    with pytest.raises(ValueError, match="slot 0 is full: it has room for 2"):
        lines.advance(np.array([0]), one, one)
    for k in (0, 20):
        with pytest.raises(ValueError, match=f"k = {k} is out of range for 19 tokens"):
            lines.best(logits, k)
    with pytest.raises(ValueError, match="float64"):
        lines.best(logits.double(), 1)
    with pytest.raises(ValueError, match="1 normalisers for 2"):
        lines.best(logits, 1, torch.zeros(1))
    with pytest.raises(ValueError, match="wanted 0 to 18"):
        lines.best(logits, 1, banned=[19])
    lines.close()
    lines.close()
    with pytest.raises(AssertionError, match="closed"):
        lines.advance(np.array([0]), one, one)


def test_memory_that_cannot_be_had_is_said():
    with pytest.raises(MemoryError, match="not enough memory for 1000000 sentences"):
        ENGINE.open(1_000_000, 1_000, 1_000_000, 1_000_000)


# ---- Memory and threads


def resident() -> int:
    """Return the bytes of memory this process occupies."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_closing_gives_all_back():
    sources = make_sources(MODELS["paper"], [20] * 16)
    zeros = np.zeros((16, 4), np.int32)

    def use(times: int) -> int:
        for number in range(times):
            engine = CpuEngine(MODELS["paper"], precision="int8", threads=2)
            lines = engine.open(16, 4, 20, 200)
            lines.admit(range(16), sources)
            lines.best(lines.advance(np.arange(16), zeros, zeros), 3)
            if number % 2:
                lines.close()
        return resident()

    before = use(20)
    assert use(200) - before < 4e6
    assert threading.active_count() < 20


def test_room_that_is_not_used_costs_nothing():
    before = resident()
    lines = ENGINE.open(64, 8, 1000, 4000)  # more than a gigabyte
    lines.admit([3], make_sources(MODELS["paper"], [5]))
    zeros = np.zeros((1, 8), np.int32)
    lines.advance(np.array([3]), zeros, zeros)
    assert resident() - before < 2e7


def test_several_threads_of_python_each_with_their_lines():
    sources = make_sources(MODELS["paper"], LENGTHS)  # torch's random numbers are not for several threads
    expected = [converse(ENGINE, seed, sources).found() for seed in range(4)]
    found: dict[int, Tensor] = {}

    def run(seed: int) -> None:
        with torch.inference_mode():
            for _ in range(3):
                found[seed] = converse(ENGINE, seed, sources).found()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed], result) for seed, result in enumerate(expected))
