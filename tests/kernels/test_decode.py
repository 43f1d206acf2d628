"""The kernels of a decoding step equal plain torch: interpreted by Triton, or on a GPU with TRITON_INTERPRET=0."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from random_batches import DEVICE
from torch import Tensor
from triton.runtime import interpreter

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding import engines
from transduce.decoding.beams import Hypothesis
from transduce.decoding.brackets import Brackets
from transduce.decoding.engine import Ensemble, TorchEngine
from transduce.decoding.gpu import GraphEngine, GraphLines
from transduce.decoding.search import Task, search_all
from transduce.kernels import beams as choice
from transduce.kernels import decode
from transduce.model.layers import DecoderLayer
from transduce.model.transformer import Transformer
from transduce.text.subwords import END, UNKNOWN


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def loops_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter uses arrays of one number as loop counters, which NumPy no longer accepts since 2.4."""
    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)


def tiny(**changes: Any) -> Transformer:
    model = Transformer(ModelConfig(vocabulary=11, layers=1, d_model=8, d_ff=8, heads=2, **changes)).eval().to(DEVICE)
    with torch.no_grad():
        model.embedding.weight.mul_(4)
        for name, weight in model.named_parameters():
            if name.endswith(("query_bias", "output_bias")):  # zeros at first
                weight.normal_()
    return model


def sentence(length: int) -> np.ndarray:
    return np.array([*range(4, 3 + length), END], np.int32)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for ours, plain in zip(found, expected, strict=True):
        for one, other in zip(ours, plain, strict=True):
            assert (one.tokens.tolist(), one.ended) == (other.tokens.tolist(), other.ended)
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=1e-4)


def assert_near(found: Tensor, expected: Tensor) -> None:
    near = None if found.dtype == torch.float32 else 0.005
    torch.testing.assert_close(found, expected, atol=near, rtol=near)


# Kernels


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize(("beam", "d_k", "d_v"), [(1, 8, 8), (3, 5, 3), (4, 16, 16), (17, 4, 4)])
def test_attention_to_what_a_line_has_said(beam: int, d_k: int, d_v: int, kind: torch.dtype):
    slots, target, heads = 3, 20, 2
    query, key, value = (random(slots * beam, heads, width).to(kind) for width in (d_k, d_k, d_v))
    keys, values = (random(slots, target, beam, heads, width).to(kind) for width in (d_k, d_v))
    ancestry = torch.randint(0, beam, (slots, beam, target), dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([0, 19, 7], device=DEVICE)  # the first, the last; more and fewer than are read at a time
    plain_keys, plain_values = keys.clone(), values.clone()
    found = decode.attend_own(query, key, value, keys, values, ancestry, positions, 0.4)
    expected = decode.plain_attend_own(query, key, value, plain_keys, plain_values, ancestry, positions, 0.4)
    assert_near(found, expected)
    assert torch.equal(keys, plain_keys)
    assert torch.equal(values, plain_values)


@pytest.mark.parametrize("beam", [1, 3])
def test_queries_keys_and_values_may_be_parts_of_one_row(beam: int):
    slots, target, heads, width = 2, 4, 2, 4
    whole = random(slots * beam, 3 * heads * width)
    query, key, value = (part.unflatten(-1, (heads, width)) for part in whole.split(heads * width, -1))
    keys, values = (random(slots, target, beam, heads, width) for _ in range(2))
    ancestry = torch.randint(0, beam, (slots, beam, target), dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([3, 1], device=DEVICE)
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
    for place, line in ((0, 0), (1, 1), (2, 0), (4, 0), (5, 1)):  # not in the ancestry of line 0
        for part in (keys, values):
            part[0, place, line] = torch.nan if place > 3 else 100.0
    after = decode.attend_own(query, key, value, keys, values, ancestry, positions, 1.0)
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize(("beam", "d_k", "d_v"), [(1, 8, 8), (2, 3, 6), (4, 16, 16)])
def test_attention_to_the_source(beam: int, d_k: int, d_v: int, kind: torch.dtype):
    query = random(5 * beam, 2, d_k).to(kind)
    keys, values = random(6, 40, 2, d_k).to(kind), random(6, 40, 2, d_v).to(kind)
    lengths = torch.tensor([40, 0, 3, 32, 33], device=DEVICE)
    for part in (keys, values):  # after the end of a sentence, and the last slot, which is unused
        part[2, 3:], part[5] = torch.nan, torch.nan
    found = decode.attend_source(query, keys[:5], values[:5], lengths, 0.4)
    for part in (keys, values):
        part.nan_to_num_()
    expected = decode.plain_attend_source(query, keys[:5], values[:5], lengths, 0.4)
    assert_near(found, expected)
    assert torch.equal(found[beam : 2 * beam], torch.zeros_like(found[beam : 2 * beam]))


@pytest.mark.parametrize("width", [(64, 64), (512, 64), (256, 256), (500, 512)])
@pytest.mark.parametrize("beam", [1, 4, 16, 21])
def test_what_a_program_holds_fits_into_a_small_gpu(beam: int, width: tuple[int, int]):
    """Keys, values, queries and sums; for heads up to 256 wide, a block stays at 64 keys."""
    keys, values = (torch.empty(1, 1, beam, 1, size, dtype=torch.bfloat16, device=DEVICE) for size in width)
    block = decode._launch(keys, values, beam, 64)["block"]
    assert block in (16, 32, 64)
    assert block == 64 or max(width) > 256
    assert (block + (16 if beam <= 16 else 32)) * 2 * 2 * max(width) <= 96 * 1024


@pytest.mark.parametrize("beam", [1, 3, 4])
def test_a_line_inherits_the_ancestors_of_its_parent(beam: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "STEPS", 4)  # so that several programs share a slot
    positions = torch.tensor([0, 1, 4, 5, 8, 9], device=DEVICE)
    ancestry = torch.randint(0, beam, (len(positions), beam, 10), dtype=torch.int32, device=DEVICE)
    parents = torch.randint(0, beam, (len(positions), beam), device=DEVICE)
    expected = ancestry.clone()
    decode.plain_inherit(expected, parents, positions)
    assert beam == 1 or not torch.equal(ancestry, expected)
    decode.inherit(ancestry, parents, positions)
    assert torch.equal(ancestry, expected)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("placed", [True, False])
def test_embeddings(kind: torch.dtype, placed: bool):
    tokens = torch.tensor([[0, 8], [3, 3], [1, 2]], dtype=kind, device=DEVICE)
    table, places = random(9, 12), random(7, 12) if placed else None
    positions = torch.tensor([0, 6, 3], device=DEVICE)
    found = decode.embed(tokens, table, places, positions, 2.5)
    torch.testing.assert_close(found, decode.plain_embed(tokens, table, places, positions, 2.5))


@torch.no_grad()
def test_residual_and_norm():
    norm = torch.nn.LayerNorm(12, device=DEVICE)
    norm.weight.normal_()
    norm.bias.normal_()
    x, y = random(5, 12), random(5, 12)
    for found, expected in zip(decode.add_norm(x, y, norm), decode.plain_add_norm(x, y, norm)):
        torch.testing.assert_close(found, expected)


# The engine


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "positions": "rotary", "activation": "gelu", "tie": "none"},
        {"biases": True, "activation": "silu", "positions": "learned", "max_positions": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "config", [SearchConfig(beam=2, n_best=2, max_tokens=3), SearchConfig(beam=1, no_repeat=1, max_tokens=3)]
)
def test_a_search_is_that_of_the_plain_engine(changes: dict[str, Any], config: SearchConfig):
    """With the engine's own choice of beams, and with rules that the search applies; sentences leave and join."""
    model = tiny(**changes)
    tasks = [Task(sentence(length)) for length in (4, 3, 3)]
    engine = GraphEngine(model)
    engine.rows = 2 * config.beam
    found, expected = search_all(engine, tasks, config), search_all(TorchEngine(model), tasks, config)
    assert_same(found, expected)


@pytest.mark.parametrize(
    "config", [SearchConfig(beam=2, n_best=2, max_tokens=3), SearchConfig(beam=1, no_repeat=1, max_tokens=3)]
)
def test_several_models_are_searched_as_the_plain_ensemble(config: SearchConfig):
    """Of different sizes and positions; with the engine's own choice of beams, and a step at a time."""
    models = tiny(), tiny(encoder_layers=2, norm="pre", positions="learned", max_positions=8), tiny(d_k=8, d_v=2)
    tasks = [Task(sentence(length)) for length in (4, 3, 3)]
    engine = GraphEngine(*models)
    engine.rows = 2 * config.beam
    assert engine.config is models[1].config  # which knows the fewest positions
    plain = Ensemble([TorchEngine(model) for model in models])
    found = search_all(engine, tasks, config)
    assert_same(found, search_all(plain, tasks, config))
    with pytest.raises(AssertionError):
        assert_same(found, search_all(TorchEngine(models[0]), tasks, config))


def test_engines_whose_steps_are_captured_become_one(monkeypatch: pytest.MonkeyPatch):
    """Only if all of them are such engines, and only where our own kernels run."""
    graphs = [GraphEngine(tiny()), GraphEngine(tiny())]
    with_plain = [*graphs, TorchEngine(tiny())]
    monkeypatch.setattr(engines, "has_kernels", lambda place: True)
    united = engines.unite(graphs)
    assert isinstance(united, GraphEngine)
    assert united.models == (*graphs[0].models, *graphs[1].models)
    assert isinstance(engines.unite(with_plain), Ensemble)
    monkeypatch.setattr(engines, "has_kernels", lambda place: False)
    assert isinstance(engines.unite(graphs), Ensemble)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("several", [False, True])
def test_trees_are_those_of_the_plain_engine(several: bool, beam: int, monkeypatch: pytest.MonkeyPatch):
    """The lines apply the rule for trees themselves, again when they are reused."""
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "▁NN", "▁(A", "▁)A", "▁(B", "▁)B", "▁=(dog", "▁=(cat"]
    words = Brackets.find(pieces).find_words(["dog", "bird", "cat"])
    tasks = [Task(sentence(length), words=words[: length - 1], max_tokens=12) for length in (4, 3, 2)]
    models = [tiny() for _ in range(1 + several)]
    engine, config = GraphEngine(*models), SearchConfig(beam=beam, n_best=beam, max_tokens=12, word_share=0.4)
    engine.rows = 2 * beam
    expected = search_all(Ensemble([TorchEngine(model) for model in models]), tasks, config, pieces)
    monkeypatch.setattr(GraphLines, "advance", None)  # which takes a step at a time
    for _ in range(2):
        found = search_all(engine, tasks, config, pieces)
        assert_same(found, expected)
    for task, best in zip(tasks, expected):
        said = [pieces[token].removeprefix("▁") for token in best[0].tokens]
        assert [symbol for symbol in said if symbol.startswith("=")] == [
            pieces[token].removeprefix("▁") for token in task.words or () if token != UNKNOWN
        ]


def test_sentences_join_beside_others_that_stay():
    """Rows are rounded up; what lies after the last sentence is written where nothing reads it."""
    model = tiny()
    lines = GraphEngine(model).open(3, 2, 70, 10)
    layer = model.decoder[0]
    assert isinstance(layer, DecoderLayer)
    held: dict[int, np.ndarray] = {}
    for slots, lengths in (([2, 0], [5, 1]), ([3], [7]), ([1, 2], [3, 6])):
        joining = {slot: sentence(length) for slot, length in zip(slots, lengths)}
        held |= joining
        lines.admit(slots, list(joining.values()))
        for slot, source in held.items():
            assert lines.lengths[slot] == len(source)
            row = torch.from_numpy(source).to(DEVICE)
            with torch.inference_mode():
                memory = model.encode(row, torch.tensor([0, len(source)], dtype=torch.int32, device=DEVICE))
                expected = layer.cross_attention.project_memory(memory)
            for kept, new in zip(lines.models[0].memory[0], expected):
                torch.testing.assert_close(kept[slot, : len(source)], new, atol=1e-4, rtol=1e-4)


def test_a_slot_that_is_not_asked_for_stays_where_it_is():
    """Its lines later continue from where they were."""
    engine = GraphEngine(tiny())
    steps = [([4, 5], [0, 0]), ([6, 7], [1, 0]), ([8, 9], [1, 1])]
    found: list[Tensor] = []
    for waits in (False, True):
        lines = engine.open(2, 2, 10, 10)  # the first is not put back
        lines.admit([0, 1], [sentence(5), sentence(3)])
        logits = torch.empty(0)
        for tokens, parents in steps:
            if waits:
                lines.advance(np.array([0]), np.array([[10, 4]]), np.array([[1, 0]]))
            slots = np.array([1]) if waits else np.array([0, 1])
            both = np.array([tokens] * len(slots)), np.array([parents] * len(slots))
            logits = lines.advance(slots, *both)[-2:].clone()
        found.append(logits)
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


def test_logits_come_in_the_order_asked_for():
    engine = GraphEngine(tiny())
    tokens, parents = np.array([[4, 5], [6, 7]]), np.zeros((2, 2), np.int64)
    found: list[Tensor] = []
    for turned in (False, True):
        lines = engine.open(2, 2, 10, 10)
        lines.admit([0, 1], [sentence(5), sentence(3)])
        order = np.array([1, 0] if turned else [0, 1])
        found.append(lines.advance(order, tokens[order], parents).clone().unflatten(0, (2, 2)))
    assert torch.equal(found[0], found[1].flip(0))


def test_room_is_used_again():
    engine = GraphEngine(tiny())
    lines = engine.open(3, 2, 70, 10)
    assert (lines.slots, lines.beam, lines.source, lines.target) == (4, 2, 128, 64)
    lines.close()
    assert engine.open(4, 2, 100, 64) is lines
    other = engine.open(4, 2, 100, 64)
    assert other is not lines  # it is in use
    small = engine.open(1, 1, 1, 1)
    for each in (lines, small, other):
        each.close()
    assert engine.open(1, 1, 64, 64) is small
    assert engine.open(4, 2, 128, 64) in (lines, other)


def test_room_that_was_not_used_for_longest_is_forgotten():
    engine = GraphEngine(tiny())
    engine.tokens = 400
    first, second, third = (engine.open(1, beam, 1, 1) for beam in (1, 2, 3))  # 128, 192 and 256 tokens
    for lines in (first, second, third):
        lines.close()
    assert engine.open(1, 3, 1, 1) is third
    assert engine.open(1, 1, 1, 1) is not first
    large = engine.open(4, 3, 1, 1)  # it is kept although it alone exceeds the limit
    large.close()
    assert engine.open(4, 3, 1, 1) is large


def test_nothing_is_left_of_an_engine_that_nobody_uses(monkeypatch: pytest.MonkeyPatch):
    """Neither weights nor keys and values wait for Python's collector, which does not know their size."""

    def capture(lines: GraphLines, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        result = work()  # a recording refers to its tensors' memory, not to the object that made it
        return lambda: result

    monkeypatch.setattr(GraphLines, "_capture", capture)
    engine = GraphEngine(tiny())
    gc.collect()
    gc.disable()
    try:
        lines = engine.open(2, 2, 10, 10)
        lines.beams_for(SearchConfig(beam=2))
        lines.admit([0, 1], [sentence(5), sentence(3)])
        lines.advance(np.arange(2), np.array([[4, 5], [6, 7]]), np.zeros((2, 2), np.int64))
        kept = lines.models[0]
        held = [weakref.ref(part) for part in (engine.models[0].embedding.weight, kept.memory[0][0], kept.own[0][0])]
        lines.close()
        del lines, kept
        assert all(part() is not None for part in held)
        del engine
        assert all(part() is None for part in held)
    finally:
        gc.enable()


def test_room_that_is_kept_is_forgotten_where_memory_does_not_suffice(monkeypatch: pytest.MonkeyPatch):
    engine = GraphEngine(tiny())
    engine.open(1, 1, 1, 1).close()
    zeros = torch.zeros
    full = True

    def take(*shape: Any, **how: Any) -> Tensor:
        if full or engine._idle:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return zeros(*shape, **how)

    monkeypatch.setattr(torch, "zeros", take)
    with pytest.raises(torch.OutOfMemoryError):
        engine.open(1, 2, 1, 1)
    full = False
    lines = engine.open(1, 2, 1, 1)
    lines.close()
    assert engine.open(1, 2, 1, 1) is lines
    lines.close()
    engine.open(1, 3, 1, 1).close()
    assert engine.open(1, 2, 1, 1) is not lines


def test_the_best_are_found_on_the_gpu_of_the_logits(monkeypatch: pytest.MonkeyPatch):
    """Triton launches on the current one."""
    chosen: list[Tensor] = []
    best = choice.best

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        chosen.append(tensor)
        yield
        chosen.pop()

    def check(logits: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        assert chosen == [logits]
        return best(logits, *args)

    lines = GraphEngine(tiny()).open(1, 1, 1, 1)
    logits = random(2, 11)
    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(choice, "best", check)
    assert torch.equal(lines.best(logits, 1)[1], logits.argmax(-1, keepdim=True).int())


def test_models_that_graphs_cannot_hold_are_refused():
    """Their attention is plain torch's, which reads lengths in the middle of a step."""
    assert GraphEngine.supports(ModelConfig())
    assert GraphEngine.supports(ModelConfig(heads=1))
    assert not GraphEngine.supports(ModelConfig(heads=1, d_model=1024))
    assert not GraphEngine.supports(ModelConfig(attention="additive"))
