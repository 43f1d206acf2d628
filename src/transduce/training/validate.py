"""Validation: the loss on the dev set, smoothed and plain, and the BLEU of greedy translations."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from transduce.config import BatchConfig, Config
from transduce.decoding.engine import TorchEngine
from transduce.decoding.search import greedy_all
from transduce.model.transformer import Transformer
from transduce.scoring.bleu import Bleu, corpus_bleu
from transduce.text.batches import Batches
from transduce.text.shards import SIDES, DataSet
from transduce.training.loss import Objective

LOGITS = 1 << 27  # logits that may be in memory at once


@dataclass(frozen=True)
class DevScores:
    """Scores of a model on the dev set: losses in nats a token, BLEU with its signature."""

    loss: float
    plain: float
    bleu: float | None = None
    signature: str | None = None


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
            bleu = _bleu(model, data, config) if config.training.bleu_sentences else None
    finally:
        model.train(was_training)
    return DevScores(loss, plain, *(bleu or (None, None)))


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


def _bleu(model: Transformer, data: DataSet, config: Config) -> Bleu:
    pairs = range(min(data.dev.pairs, config.training.bleu_sentences))
    sources = [data.dev.tokens("source", pair) for pair in pairs]
    outputs = greedy_all(TorchEngine(model), sources, config.search)
    translations = [data.subwords["target"].decode(output) for output in outputs]
    return corpus_bleu(translations, [data.text("dev", "target", pair) for pair in pairs])
