"""The plain engine: one token of each line at a time gives the same as whole sentences, whoever joins and leaves."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch
from sentences import KINDS, make_model, make_row, random_sentences
from threads import always_one_thread as always_one_thread
from torch import Tensor
from toys import Said, assert_alike, assert_same, plain_beam

from transduce.config import SearchConfig
from transduce.decoding.engine import Ensemble, Lines, TorchEngine, TorchLines
from transduce.decoding.search import Task, search_all
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN

MODELS = {name: make_model(**changes) for name, changes in KINDS.items()}
SLOTS, BEAM, STEPS = 5, 3, 20
both = pytest.mark.parametrize("beam", [1, BEAM])
each_kind = pytest.mark.parametrize("name", list(MODELS))


@torch.no_grad()
def whole(model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """Return the logits after each target, from whole sentences at once."""
    source, source_offsets = make_row(sources)
    target, target_offsets = make_row(targets)
    return model(source, source_offsets, target, target_offsets)[target_offsets[1:].long() - 1]


def sources_for(model: Transformer, lengths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    vocabulary = model.config.source_vocabulary or model.config.vocabulary
    return [np.array(source, np.int32) for source in random_sentences(lengths, vocabulary, seed)]


def same(beam: int, many: int) -> np.ndarray:
    """Return parents with which each line continues from itself."""
    return np.tile(np.arange(beam), (many, 1))


def assert_near(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-6, atol=1e-6)


class Story:
    """Sentences that join, continue and leave at random, with a record of all that every line was fed."""

    def __init__(self, model: Transformer, lines: Lines, beam: int, target: int, seed: int):
        self.model, self.lines, self.beam, self.target = model, lines, beam, target
        self.random = np.random.default_rng(seed)
        self.sources: dict[int, np.ndarray] = {}
        self.given: dict[int, list[list[int]]] = {}

    def admit(self, slots: Sequence[int]) -> None:
        lengths = self.random.integers(1, 12, len(slots)).tolist()
        sources = sources_for(self.model, lengths, int(self.random.integers(1000)))
        self.lines.admit(slots, sources)
        for slot, source in zip(slots, sources):
            self.sources[slot], self.given[slot] = source, [[] for _ in range(self.beam)]

    def leave(self, slots: Sequence[int]) -> None:
        for slot in slots:
            del self.given[slot]

    def step(self) -> tuple[Tensor, list[list[int]], list[list[int]]]:
        """Feed random tokens after random lines; return the logits, and the source and target of each line."""
        slots = self.random.permutation(list(self.given))
        tokens = self.random.integers(0, self.model.config.vocabulary, (len(slots), self.beam))
        parents = self.random.integers(0, self.beam, (len(slots), self.beam))
        if self.random.random() < 0.3:
            parents = same(self.beam, len(slots))
        for slot, new, origins in zip(slots.tolist(), tokens.tolist(), parents.tolist()):
            self.given[slot] = [[*self.given[slot][parent], token] for parent, token in zip(origins, new)]
        logits = self.lines.advance(slots, tokens, parents)
        sources = [self.sources[slot].tolist() for slot in slots for _ in range(self.beam)]
        return logits, sources, [given for slot in slots for given in self.given[slot]]

    def room(self) -> None:
        """Let the finished sentences and some others leave, and new ones join."""
        full = [slot for slot, given in self.given.items() if len(given[0]) == self.target]
        bored = [slot for slot in self.given if slot not in full and self.random.random() < 0.15]
        self.leave(full + bored)
        free = [slot for slot in range(SLOTS) if slot not in self.given and self.random.random() < 0.4]
        if free or not self.given:
            self.admit(self.random.permutation(free or [0]).tolist())


@both
@each_kind
def test_token_by_token_is_whole_sentences_at_once(name: str, beam: int):
    model, target = MODELS[name], 9
    lines = TorchEngine(model).open(SLOTS, beam, 12, target)
    story = Story(model, lines, beam, target, seed=beam)
    places: set[int] = set()
    mixed = 0
    for _ in range(STEPS):
        story.room()
        logits, sources, given = story.step()
        assert_near(logits, whole(model, sources, given))
        now = set(map(len, given))
        places |= now
        mixed += len(now) > 1
    assert places == set(range(1, target + 1))
    assert mixed > STEPS / 3


@each_kind
@torch.inference_mode()
def test_what_lies_in_unused_memory_does_not_matter(name: str):
    model = MODELS[name]
    sources = sources_for(model, [5, 1, 8])
    first, second = (TorchEngine(model).open(3, BEAM, 8, target) for target in (6, 20))
    random = np.random.default_rng(0)
    for lines in (first, second):
        lines.admit([0, 1], sources[:2])
    for step in range(6):
        if step == 2:  # from here on slots are at different positions
            for lines in (first, second):
                lines.admit([2], sources[2:])
        for kept in second.layers:
            for rows in (kept.key, kept.value):
                rows[:, :, :, step + 1 :] = torch.nan  # positions not reached yet
                for place, at in enumerate(second.at.tolist()):
                    rows[place, :, :, at : step + 1] = 1e3  # those that only other slots have reached
        slots = np.arange(len(first.held))
        tokens, parents = random.integers(0, 19, (len(slots), BEAM)), random.integers(0, BEAM, (len(slots), BEAM))
        assert_near(first.advance(slots, tokens, parents), second.advance(slots, tokens, parents))


@each_kind
def test_neighbours_do_not_matter(name: str):
    model = MODELS[name]
    sources = sources_for(model, [5, 1, 11, 2])
    tokens = np.random.default_rng(0).integers(0, 19, (4, 7, 2))
    together = TorchEngine(model).open(4, 2, 11, 7)
    together.admit(range(4), sources)
    found = [together.advance(np.arange(4), tokens[:, step], same(2, 4)).unflatten(0, (4, 2)) for step in range(7)]
    for number, source in enumerate(sources):
        alone = TorchEngine(model).open(1, 2, len(source), 7)
        alone.admit([0], [source])
        for step in range(7):
            logits = alone.advance(np.arange(1), tokens[number : number + 1, step], same(2, 1))
            assert_near(found[step][number], logits)


def test_a_sentence_may_come_into_the_slot_of_one_that_is_still_asked_for():
    model = MODELS["paper"]
    first, second, third = sources_for(model, [4, 6, 3])
    lines = TorchEngine(model).open(2, 1, 6, 5)
    lines.admit([0, 1], [first, second])
    tokens, parents = np.array([[5], [6]]), same(1, 2)
    lines.advance(np.arange(2), tokens, parents)
    lines.admit([0], [third])
    found = lines.advance(np.arange(2), tokens, parents)
    assert_near(found, whole(model, [third.tolist(), second.tolist()], [[5], [6, 6]]))


def test_two_may_join_one_after_the_other():
    model = MODELS["paper"]
    sources = sources_for(model, [4, 6, 3])
    lines = TorchEngine(model).open(3, 1, 6, 5)
    for slot in (2, 0, 1):
        lines.admit([slot], [sources[slot]])
    found = lines.advance(np.arange(3), np.array([[5], [6], [7]]), same(1, 3))
    assert_near(found, whole(model, [source.tolist() for source in sources], [[5], [6], [7]]))


def test_what_has_left_costs_nothing_more():
    model = MODELS["paper"]
    lines = TorchEngine(model).open(8, 2, 5, 9)
    lines.admit(range(8), sources_for(model, [5] * 8))
    sizes: list[int] = []
    for many in (8, 7, 6, 5, 4, 3, 1):
        lines.advance(np.arange(many), np.full((many, 2), 5), same(2, many))
        sizes.append(lines.layers[0].key.shape[0])
        assert len(lines.held) == len(lines.at) == len(lines.mask) == sizes[-1]
        assert sizes[-1] <= many / (1 - TorchLines.CLOSED)
    assert sizes[-1] == 1
    assert len(set(sizes)) < len(sizes)  # it does not shrink whenever one leaves, since that copies the others
    lines.admit([1, 2, 3, 4], sources_for(model, [5] * 4))
    lines.advance(np.arange(4), np.full((4, 2), 5), same(2, 4))
    assert lines.held.tolist() == [0, 1, 2, 3, 4]  # one of five may stay though it has left
    lines.admit([6], sources_for(model, [5]))
    assert lines.held.tolist() == [0, 1, 2, 3, 6]  # but where all are copied anyway
    lines.close()
    assert not lines.layers


def test_tokens_of_any_width_and_no_gradients():
    model = MODELS["paper"]
    source = sources_for(model, [6])[0]
    found: list[Tensor] = []
    for kind in (np.uint16, np.int32, np.int64):
        lines = TorchEngine(model).open(1, 2, 6, 4)
        lines.admit([0], [source.astype(kind)])
        found.append(lines.advance(np.array([0]), np.array([[BEGIN, BEGIN]], kind), np.array([[1, 0]], kind)))
        assert not found[-1].requires_grad
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("k", [1, 4, 19])
def test_the_best_are_the_largest_log_probabilities(k: int):
    lines = TorchEngine(MODELS["paper"]).open(1, 1, 1, 1)
    logits = 3 * torch.randn(6, 19)
    values, tokens = lines.best(logits, k)
    expected = logits.log_softmax(-1).sort(descending=True)
    torch.testing.assert_close(values, expected.values[:, :k])
    assert torch.equal(tokens.long(), expected.indices[:, :k])
    torch.testing.assert_close(lines.normaliser(logits), logits.exp().sum(-1).log())
    # What is forbidden afterwards leaves the others as probable as they were.
    before = lines.normaliser(logits)
    logits[:, expected.indices[0, 0]] = -torch.inf
    values, tokens = lines.best(logits, k, before)
    torch.testing.assert_close(values, (logits - before[:, None]).topk(k).values)


@each_kind
def test_half_precision_is_near(name: str):
    model, single = MODELS[name], make_model(**KINDS[name]).float()
    story = Story(model, TorchEngine(model).open(SLOTS, BEAM, 12, 9), BEAM, 9, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        other = Story(single, TorchEngine(single).open(SLOTS, BEAM, 12, 9), BEAM, 9, seed=1)
    parts: list[tuple[Tensor, Tensor]] = []
    for _ in range(12):
        story.room()
        expected = story.step()[0]
        with torch.autocast("cpu", torch.bfloat16):
            other.room()
            found = other.step()[0]
        assert found.dtype == torch.float32
        parts.append((expected.double().flatten(), found.double().flatten()))
    expected, found = (torch.cat(side) for side in zip(*parts))
    assert torch.cosine_similarity(expected, found, dim=0) > 0.999
    assert not torch.equal(expected, found)


# Several models as one


def mean_of(models: Sequence[Transformer], sources: list[list[int]], given: list[list[int]]) -> Tensor:
    return torch.stack([whole(model, sources, given).softmax(-1) for model in models]).mean(0)


@pytest.mark.parametrize("names", [["paper", "learned, pre-norm"], list(MODELS)], ids=len)
def test_an_ensemble_is_the_mean_of_probabilities(names: list[str]):
    models = [MODELS[name] for name in names]
    lines = Ensemble([TorchEngine(model) for model in models]).open(SLOTS, BEAM, 12, 9)
    story = Story(models[0], lines, BEAM, 9, seed=len(names))
    for _ in range(12):
        story.room()
        logits, sources, given = story.step()
        expected = mean_of(models, sources, given)
        assert_near(logits.exp(), expected)
        assert_near(lines.normaliser(logits), torch.zeros(len(given)))
        values, tokens = lines.best(logits, 3)
        assert_near(values.exp(), expected.topk(3).values)
        assert torch.equal(tokens.long(), expected.topk(3).indices)
        half = lines.normaliser(logits) + np.log(2)
        assert_near(lines.best(logits, 3, half)[0].exp(), expected.topk(3).values / 2)
    lines.close()
    assert not any(isinstance(part, TorchLines) and part.layers for part in lines.lines)


def test_a_model_twice_is_the_model():
    engine = TorchEngine(MODELS["paper"])
    tasks = [Task(source) for source in sources_for(engine.model, [4, 9, 1, 6])]
    config = SearchConfig(beam=3, n_best=3, extra_tokens=4)
    once, twice = (search_all(part, tasks, config) for part in (engine, Ensemble([engine, engine])))
    for first, second in zip(once, twice):
        assert_alike(first, second)


def test_an_ensemble_is_searched_with_its_own_probabilities():
    models = [make_model(seed=seed) for seed in (1, 2, 3)]
    tasks = [Task(source) for source in sources_for(models[0], [4, 1])]
    found = search_all(Ensemble(list(map(TorchEngine, models))), tasks, SearchConfig(beam=3, n_best=2, extra_tokens=3))
    for task, hypotheses in zip(tasks, found):
        source = task.source.tolist()

        @cache
        def tell(said: Said, source: list[int] = source) -> np.ndarray:
            return mean_of(models, [source], [[BEGIN, *said]])[0].log().numpy()

        assert_same(hypotheses, plain_beam(tell, beam=3, alpha=0.6, limit=len(source) + 3, n_best=2)[0])


def test_an_ensemble_takes_what_all_of_its_models_can():
    long, short, free = (
        TorchEngine(make_model(positions=positions, max_positions=known, d_k=4))
        for positions, known in (("learned", 30), ("learned", 20), ("rotary", 10))
    )
    short.rows, long.tokens = 7, 600
    for engines in ([long, short, free], [free, long, short], [short, free, long]):
        ensemble = Ensemble(engines)
        assert ensemble.config is short.config
        assert (ensemble.rows, ensemble.tokens) == (7, 200)
    assert Ensemble([free]).config is free.config
