"""Dev losses are those of the sentences one by one, and BLEU is sacreBLEU's of the greedy translations."""

from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from threads import one_thread

from transduce.config import BatchConfig, Config, ModelConfig, SearchConfig, TrainingConfig
from transduce.model.transformer import Transformer
from transduce.scoring.bleu import choose_tokenizer
from transduce.text.batches import Batches
from transduce.text.shards import DataSet
from transduce.text.subwords import BEGIN, END, PAD
from transduce.training import validate as validation
from transduce.training.loss import Objective
from transduce.training.validate import DevScores, Validator

EXTRA, SMOOTHING = 7, 0.2


@pytest.fixture(scope="module", autouse=True)
def few_threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def held(data: Path) -> DataSet:
    return DataSet.open(data)


@pytest.fixture(scope="module")
def config(held: DataSet) -> Config:
    return Config(
        model=ModelConfig(
            vocabulary=len(held.subwords["target"]), layers=1, d_model=32, d_ff=64, heads=2, dropout=0.3, norm="pre"
        ),
        training=TrainingConfig(label_smoothing=SMOOTHING),
        search=SearchConfig(extra_tokens=EXTRA),
    )


def pairs_of(held: DataSet) -> list[tuple[torch.Tensor, torch.Tensor]]:
    sides = [
        [torch.from_numpy(held.dev.tokens(side, i)) for i in range(held.dev.pairs)] for side in ("source", "target")
    ]
    return list(zip(*sides))


def logits_of(model: Transformer, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the logits of one sentence pair alone."""
    target_input = torch.cat((torch.tensor([BEGIN]), target[:-1]))
    return model(source, torch.tensor([0, len(source)]), target_input, torch.tensor([0, len(target)]))


@pytest.fixture(scope="module")
def model(held: DataSet, config: Config) -> Transformer:
    """A model that knows some of the dev set by heart, so that its translations score something."""
    torch.manual_seed(0)
    model = Transformer(config.model)
    model.eval()  # without dropout it learns sooner
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    some = Batches(held, BatchConfig(), split="dev").batch(0, 0).split(2)[0]
    for _ in range(50):
        Objective(model, 0.0).measure(some)[0].backward()
        adam.step()
        adam.zero_grad()
    return model.double()  # so that no two tokens are nearly as probable


def score(model: Transformer, held: DataSet, config: Config) -> DevScores:
    scores = Validator(held, config, nullcontext())(model)
    assert scores is not None
    return scores


def losses(scores: DevScores) -> Any:
    """Return both losses, to compare with sums in another order."""
    return pytest.approx((scores.loss, scores.plain), rel=1e-5)


@torch.no_grad()
def plain_translation(model: Transformer, source: torch.Tensor) -> list[int]:
    said: list[int] = []
    while len(said) < len(source) + EXTRA:
        logits = logits_of(model, source, torch.tensor([*said, END]))[-1]
        logits[[PAD, BEGIN]] = -torch.inf
        said.append(int(logits.argmax()))
        if said[-1] == END:
            return said[:-1]
    return said


@torch.no_grad()
def test_losses_are_those_of_the_sentences_one_by_one(model: Transformer, held: DataSet, config: Config):
    model.eval()
    smoothed, plain, tokens = 0.0, 0.0, 0
    for source, target in pairs_of(held):
        shares = logits_of(model, source, target).double().log_softmax(-1)
        said = shares[torch.arange(len(target)), target.long()]
        plain -= said.sum().item()
        smoothed -= ((1 - SMOOTHING) * said + SMOOTHING * shares.mean(-1)).sum().item()
        tokens += len(target)
    found = score(model, held, config)
    assert found.loss == pytest.approx(smoothed / tokens, rel=1e-5)
    assert found.plain == pytest.approx(plain / tokens, rel=1e-5)
    assert abs(found.loss - found.plain) > 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"source_tokens": 40, "target_tokens": 60, "parts": 1},
        {"source_tokens": 24, "target_tokens": 24, "parts": 8},  # a part of which holds no sentence
        {"sentences": 1, "parts": 1},
        {"similar_lengths": False, "subword_dropout": 0.5},
    ],
    ids=str,
)
def test_losses_do_not_depend_on_batches(model: Transformer, held: DataSet, config: Config, changes: dict[str, Any]):
    config = replace(config, training=replace(config.training, bleu_sentences=0))
    other = replace(config, batch=replace(BatchConfig(), **changes))
    found = score(model, held, other)
    assert (found.loss, found.plain) == losses(score(model, held, config))


def test_losses_do_not_depend_on_how_much_memory_there_is(
    monkeypatch: pytest.MonkeyPatch, model: Transformer, held: DataSet, config: Config
):
    config = replace(config, training=replace(config.training, bleu_sentences=0))
    expected = score(model, held, config)
    for most in (20 * config.model.vocabulary, 1):
        monkeypatch.setattr(validation, "LOGITS", most)
        found = score(model, held, config)
        assert (found.loss, found.plain) == losses(expected)


def replace_config(held: DataSet, **changes: Any) -> DataSet:
    """The same data set, prepared with other settings."""
    return DataSet(held.folder, held.manifest | {"config": held.manifest["config"] | changes})


def test_bleu_is_sacrebleus_of_greedy_translations(model: Transformer, held: DataSet, config: Config):
    model.eval()
    subwords = held.subwords["target"]
    translations = [subwords.decode(plain_translation(model, source)) for source, _ in pairs_of(held)]
    references = [held.text("dev", "target", pair) for pair in range(held.dev.pairs)]
    metric = sacrebleu.BLEU()
    expected = metric.corpus_score(translations, [references]).score
    assert 10 < expected < 95
    found = score(model, held, config)
    assert found.bleu == expected
    assert found.signature == str(metric.get_signature())
    # Where words have no spaces between them, 13a would count sentences.
    for languages, tokenize in ((["en", "zh-TW"], "zh"), (["en", "th"], "char"), (["zh", "en"], "13a")):
        assert choose_tokenizer(languages[1]) == tokenize  # as `transduce score` does
        told = replace_config(held, languages=languages)
        expected_so = sacrebleu.BLEU(tokenize=tokenize).corpus_score(translations, [references]).score
        assert score(model, told, config).bleu == expected_so
        assert f"tok:{tokenize}|" in (score(model, told, config).signature or "")
    few = score(model, held, replace(config, training=replace(config.training, bleu_sentences=5)))
    spread = held.dev.spread(5)
    some = [[texts[pair] for pair in spread] for texts in (translations, references)]
    assert few.bleu == sacrebleu.corpus_bleu(some[0], [some[1]]).score != expected
    none = score(model, held, replace(config, training=replace(config.training, bleu_sentences=0)))
    assert (none.bleu, none.signature) == (None, None)
    assert (none.loss, none.plain) == losses(found)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, model: Transformer, held: DataSet, config: Config, training: bool
):
    expected = score(model.eval(), held, config)
    weights = [weight.detach().clone() for weight in model.parameters()]
    model.train(training)
    assert score(model, held, config) == expected  # without dropout, twice the same
    assert all(module.training is training for module in model.modules())

    def fail(*_: Any) -> None:
        assert not model.training
        raise KeyboardInterrupt

    monkeypatch.setattr(validation, "greedy_all", fail)
    with pytest.raises(KeyboardInterrupt):
        score(model, held, config)
    assert all(module.training is training for module in model.modules())
    assert all(map(torch.equal, weights, model.parameters()))
    assert all(weight.grad is None for weight in model.parameters())
    # What was computed for validation can be trained with afterwards.
    logits_of(model, *pairs_of(held)[0]).sum().backward()
    model.zero_grad()


def test_half_precision_is_near(model: Transformer, held: DataSet, config: Config):
    expected = score(model, held, config)
    found = Validator(held, config, torch.autocast("cpu", torch.bfloat16))(deepcopy(model).float())
    assert found is not None
    assert found.plain != pytest.approx(expected.plain, rel=1e-6)
    assert found.plain == pytest.approx(expected.plain, rel=0.02)
    assert found.bleu is not None
    assert found.bleu > 10


def test_without_a_dev_set_there_are_no_scores(model: Transformer, held: DataSet, config: Config):
    splits = held.manifest["splits"]
    for changed in ({"train": splits["train"]}, {**splits, "dev": {**splits["dev"], "pairs": 0, "shards": []}}):
        bare = DataSet(held.folder, {**held.manifest, "splits": changed})
        assert Validator(bare, config, nullcontext())(model) is None
