"""Validation: the loss on the dev set, smoothed and plain, and the BLEU of greedy translations, or the F1 of trees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from transduce.config import BatchConfig, Config
from transduce.decoding.brackets import find_brackets, trees_of
from transduce.decoding.engine import Engine, TorchEngine
from transduce.decoding.search import Task, greedy_all
from transduce.kernels.products import compute_dtype
from transduce.model.device import has_kernels
from transduce.model.transformer import Transformer
from transduce.scoring.bleu import corpus_bleu
from transduce.scoring.parseval import Parseval, count_brackets
from transduce.text.batches import Batches
from transduce.text.shards import SIDES, DataSet, Split
from transduce.text.trees import Tree, from_sequence
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


class Validator:
    """Scores models of a run on its dev sets. On a GPU what was captured for one search is kept for the next."""

    def __init__(self, data: DataSet, config: Config, autocast: AbstractContextManager[object]):
        self.data, self.config, self.autocast = data, config, autocast
        self._own: Transformer | None = None
        self._engine: Engine | None = None

    def __call__(self, model: Transformer, split: str = "dev") -> DevScores | None:
        """Score a model on a dev set; nothing if the data set has no such set."""
        if split not in self.data.splits or self.data.splits[split].pairs == 0:
            return None
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), self.autocast:
                scores = self._losses(model, split)
                if self.config.training.bleu_sentences:
                    parses = self.data.manifest["config"].get("task") == "parsing"
                    scores = self._f1(model, split, scores) if parses else self._bleu(model, split, scores)
        finally:
            model.train(was_training)
        return scores

    def forget(self) -> None:
        """Give back the memory that is kept for the next search."""
        self._own = self._engine = None

    def _losses(self, model: Transformer, split: str) -> DevScores:
        objective = Objective(model, self.config.training.label_smoothing)
        sums, tokens = torch.zeros(2, dtype=torch.float64), 0
        whole = _whole_batches(self.data.splits[split], self.config.batch)
        for batch in Batches(self.data, whole, split=split):
            for piece in batch.split(-(-batch.target_tokens * self.config.model.vocabulary // LOGITS)):
                sums += objective.measure(piece.to(model.device)).cpu().double()  # a device need not have float64
                tokens += piece.target_tokens
        return DevScores(*(sums / tokens).tolist())

    def _bleu(self, model: Transformer, split: str, scores: DevScores) -> DevScores:
        data, held = self.data, self.data.splits[split]
        pairs = held.spread(self.config.training.bleu_sentences)
        outputs = self._search(model, [Task(held.tokens("source", pair)) for pair in pairs])
        translations = [data.subwords["target"].decode(output) for output in outputs]
        bleu, signature = corpus_bleu(translations, [data.text(split, "target", pair) for pair in pairs])
        return replace(scores, bleu=bleu, signature=signature)

    def _f1(self, model: Transformer, split: str, scores: DevScores) -> DevScores:
        """The labelled F1 of the greedy trees; where tags are not in the data set, words tell what is punctuation."""
        data, held = self.data, self.data.splits[split]
        pieces = data.subwords["target"].pieces(range(len(data.subwords["target"])))
        brackets = find_brackets(tuple(pieces))
        gold: list[Tree] = []
        tasks: list[Task] = []
        for pair, tree in trees_of(data, split, self.config.training.bleu_sentences):
            gold.append(tree)
            tasks.append(Task(held.tokens("source", pair), words=brackets.find_words(tree.words())))
        counts = [
            count_brackets(from_sequence([brackets.symbols[token] for token in found], tree.words()), tree)
            for found, tree in zip(self._search(model, tasks, pieces), gold)
        ]
        return replace(scores, f1=Parseval().compute("f1", np.sum(counts, axis=0).tolist()) if counts else 0.0)

    def _search(self, model: Transformer, tasks: Sequence[Task], pieces: Sequence[str] = ()) -> list[np.ndarray]:
        """The tokens of the greedy search's outputs."""
        engine = self._engine_for(model)
        # What was captured is rounded already: autocast would compute some of it in float32.
        with torch.autocast(model.device.type, enabled=False) if engine is self._engine else nullcontext():
            return greedy_all(engine, tasks, self.config.search, pieces)

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


def _whole_batches(split: Split, config: BatchConfig) -> BatchConfig:
    """Batches in one part, and large enough for the longest sentence: the loss does not depend on how it is batched."""
    longest = {side: int(split.lengths(side).max()) for side in SIDES}
    return replace(
        config,
        source_tokens=max(config.source_tokens, longest["source"]),
        target_tokens=max(config.target_tokens, longest["target"]),
        parts=1,
    )
