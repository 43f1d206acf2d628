"""Validation: the loss on the dev set, smoothed and plain, and the BLEU of greedy translations, or the F1 of trees."""

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from transduce.config import BatchConfig, Config
from transduce.decoding.engine import TorchEngine
from transduce.decoding.search import Task, greedy_all, search_all
from transduce.model.transformer import Transformer
from transduce.scoring.bleu import Bleu, corpus_bleu
from transduce.scoring.parseval import Parseval, count_brackets
from transduce.text.batches import Batches
from transduce.text.shards import SIDES, DataSet
from transduce.text.subwords import SPACE
from transduce.text.trees import Tree, TreeError, escape_word, from_sequence
from transduce.training.loss import Objective

LOGITS = 1 << 27  # logits that may be in memory at once


@dataclass(frozen=True)
class DevScores:
    """Scores of a model on the dev set: losses in nats a token, BLEU with its signature or F1."""

    loss: float
    plain: float
    bleu: float | None = None
    signature: str | None = None
    f1: float | None = None  # of trees, in BLEU's place


def validate(
    model: Transformer, data: DataSet, config: Config, autocast: AbstractContextManager[object]
) -> DevScores | None:
    """Score a model on the dev set; nothing if the data set has none."""
    if "dev" not in data.splits or data.dev.pairs == 0:
        return None
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast:
            loss, plain = _losses(model, data, config)
            scores = DevScores(loss, plain)
            if config.training.bleu_sentences and data.manifest["config"].get("task") == "parsing":
                scores = replace(scores, f1=_f1(model, data, config))
            elif config.training.bleu_sentences:
                bleu, signature = _bleu(model, data, config)
                scores = replace(scores, bleu=bleu, signature=signature)
    finally:
        model.train(was_training)
    return scores


def _losses(model: Transformer, data: DataSet, config: Config) -> tuple[float, float]:
    objective = Objective(model, config.training.label_smoothing)
    sums, tokens = torch.zeros(2, dtype=torch.float64), 0
    for batch in Batches(data, _whole_batches(data, config.batch), split="dev"):
        for piece in batch.split(-(-batch.target_tokens * config.model.vocabulary // LOGITS)):
            sums += objective.measure(piece.to(model.device)).double().cpu()
            tokens += piece.target_tokens
    smoothed, plain = (sums / tokens).tolist()
    return smoothed, plain


def _whole_batches(data: DataSet, config: BatchConfig) -> BatchConfig:
    """Batches in one part, and large enough for the longest sentence: the loss does not depend on how it is batched."""
    longest = {side: int(data.dev.lengths(side).max()) for side in SIDES}
    return replace(
        config,
        source_tokens=max(config.source_tokens, longest["source"]),
        target_tokens=max(config.target_tokens, longest["target"]),
        parts=1,
    )


def _f1(model: Transformer, data: DataSet, config: Config) -> float:
    """The labelled F1 of the greedy trees; where tags are not in the data set, words tell what is punctuation."""
    pieces = data.subwords["target"].pieces(range(len(data.subwords["target"])))
    symbols = [piece.removeprefix(SPACE) for piece in pieces]
    gold: list[Tree] = []
    tasks: list[Task] = []
    for pair in range(min(data.dev.pairs, config.training.bleu_sentences)):
        words = [escape_word(word) for word in data.text("dev", "source", pair).split()]
        with suppress(TreeError):  # a label that no training tree has
            gold.append(from_sequence([symbols[token] for token in data.dev.tokens("target", pair)[:-1]], words))
            tasks.append(Task(data.dev.tokens("source", pair), words=len(words)))
    greedy = replace(config.search, beam=1, n_best=1, sample=False)
    found = search_all(TorchEngine(model), tasks, greedy, pieces)
    counts = [
        count_brackets(from_sequence([symbols[token] for token in some[0].tokens], tree.words()), tree)
        for some, tree in zip(found, gold)
    ]
    return Parseval().compute("f1", np.sum(counts, axis=0).tolist()) if counts else 0.0


def _bleu(model: Transformer, data: DataSet, config: Config) -> Bleu:
    pairs = range(min(data.dev.pairs, config.training.bleu_sentences))
    sources = [data.dev.tokens("source", pair) for pair in pairs]
    outputs = greedy_all(TorchEngine(model), sources, config.search)
    translations = [data.subwords["target"].decode(output) for output in outputs]
    return corpus_bleu(translations, [data.text("dev", "target", pair) for pair in pairs])
