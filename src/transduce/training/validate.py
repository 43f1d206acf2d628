"""Validation: the loss on the dev set, smoothed and plain, and the BLEU of greedy translations."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from transduce.config import BatchConfig, Config
from transduce.decoding.engine import Engine, TorchEngine
from transduce.decoding.search import greedy_all
from transduce.kernels.products import compute_dtype
from transduce.model.device import has_kernels
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


class Validator:
    """Scores models of a run on its dev set. On a GPU what was captured for one search is kept for the next."""

    def __init__(self, data: DataSet, config: Config, autocast: AbstractContextManager[object]):
        self.data, self.config, self.autocast = data, config, autocast
        self._own: Transformer | None = None
        self._engine: Engine | None = None

    def __call__(self, model: Transformer) -> DevScores | None:
        """Score a model; nothing if the data set has no dev set."""
        if "dev" not in self.data.splits or self.data.dev.pairs == 0:
            return None
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), self.autocast:
                loss, plain = self._losses(model)
                bleu = self._bleu(model) if self.config.training.bleu_sentences else None
        finally:
            model.train(was_training)
        return DevScores(loss, plain, *(bleu or (None, None)))

    def forget(self) -> None:
        """Give back the memory that is kept for the next search."""
        self._own = self._engine = None

    def _losses(self, model: Transformer) -> tuple[float, float]:
        objective = Objective(model, self.config.training.label_smoothing)
        sums, tokens = torch.zeros(2, dtype=torch.float64), 0
        for batch in Batches(self.data, _whole_batches(self.data, self.config.batch), split="dev"):
            for piece in batch.split(-(-batch.target_tokens * self.config.model.vocabulary // LOGITS)):
                sums += objective.measure(piece.to(model.device)).double().cpu()
                tokens += piece.target_tokens
        smoothed, plain = (sums / tokens).tolist()
        return smoothed, plain

    def _bleu(self, model: Transformer) -> Bleu:
        data = self.data
        pairs = range(min(data.dev.pairs, self.config.training.bleu_sentences))
        sources = [data.dev.tokens("source", pair) for pair in pairs]
        engine = self._engine_for(model)
        # What was captured is rounded already: autocast would compute some of it in float32.
        with torch.autocast(model.device.type, enabled=False) if engine is self._engine else nullcontext():
            outputs = greedy_all(engine, sources, self.config.search)
        translations = [data.subwords["target"].decode(output) for output in outputs]
        return corpus_bleu(translations, [data.text("dev", "target", pair) for pair in pairs])

    def _engine_for(self, model: Transformer) -> Engine:
        """On a GPU one engine for all models of the run: the weights come to where its graphs look for them."""
        if not has_kernels(model.device):
            return TorchEngine(model)
        from transduce.decoding.gpu import GraphEngine

        if not GraphEngine.supports(model.config):
            return TorchEngine(model)
        if self._own is None or self._engine is None:
            self._own = Transformer(model.config).to(model.device, compute_dtype(model.embedding.weight)).eval()
            self._engine = GraphEngine(self._own)
        for own, weight in zip(self._own.parameters(), model.parameters(), strict=True):
            own.copy_(weight)
        return self._engine


def _whole_batches(data: DataSet, config: BatchConfig) -> BatchConfig:
    """Batches in one part, and large enough for the longest sentence: the loss does not depend on how it is batched."""
    longest = {side: int(data.dev.lengths(side).max()) for side in SIDES}
    return replace(
        config,
        source_tokens=max(config.source_tokens, longest["source"]),
        target_tokens=max(config.target_tokens, longest["target"]),
        parts=1,
    )
