"""Validation: the smoothed and plain loss on the dev set, and the BLEU of greedy translations or F1 of greedy trees."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from transduce.config import BatchConfig, Config
from transduce.decoding.brackets import Brackets, find_brackets, trees_of
from transduce.decoding.engine import Engine, TorchEngine
from transduce.decoding.search import Task, greedy_all, most_tokens
from transduce.errors import ConfigError
from transduce.kernels.products import compute_dtype
from transduce.model.device import has_kernels
from transduce.model.transformer import Transformer
from transduce.scoring.bleu import choose_tokenizer, corpus_bleu
from transduce.scoring.parseval import Parseval, count_brackets
from transduce.text.batches import Batches
from transduce.text.shards import SIDES, DataSet, Split
from transduce.text.trees import Tree, from_sequence
from transduce.training.loss import Objective

LOGITS = 1 << 27  # most logits in memory at once
EXTRA_TOKENS = 300  # section 6.3: how many more tokens than its sentence a tree may have


@dataclass(frozen=True)
class DevScores:
    """Scores of a model on a dev set: losses in nats per target token, and BLEU with its signature, or F1."""

    loss: float
    plain: float
    bleu: float | None = None
    signature: str | None = None
    f1: float | None = None  # of trees, in place of BLEU


class Validator:
    """Scores models of a run on its dev sets. On a GPU, graphs captured for one search are kept for the next."""

    def __init__(self, data: DataSet, config: Config, autocast: AbstractContextManager[object]):
        self.data, self.config, self.autocast = data, config, autocast
        self._own: Transformer | None = None
        self._engine: Engine | None = None

    def __call__(self, model: Transformer, split: str = "dev") -> DevScores | None:
        """Score a model on a dev set; return None if there is no such set or it is empty."""
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
        """Free the memory that is kept for the next search."""
        self._own = self._engine = None

    def _losses(self, model: Transformer, split: str) -> DevScores:
        objective = Objective(model, self.config.training.label_smoothing)
        sums, tokens = torch.zeros(2, dtype=torch.float64), 0
        whole = _whole_batches(self.data.splits[split], self.config.batch)
        for batch in Batches(self.data, whole, split=split):
            for piece in batch.split(-(-batch.target_tokens * self.config.model.vocabulary // LOGITS)):
                sums += objective.measure(piece.to(model.device)).cpu().double()  # some devices lack float64
                tokens += piece.target_tokens
        return DevScores(*(sums / tokens).tolist())

    def _bleu(self, model: Transformer, split: str, scores: DevScores) -> DevScores:
        data, held = self.data, self.data.splits[split]
        pairs = held.spread(self.config.training.bleu_sentences)
        outputs = self._search(model, [Task(held.tokens("source", pair)) for pair in pairs])
        translations = [data.subwords["target"].decode(output) for output in outputs]
        references = [data.text(split, "target", pair) for pair in pairs]
        _, language = data.describe().get("languages", ("", ""))
        bleu, signature = corpus_bleu(translations, references, tokenize=choose_tokenizer(language, references))
        return replace(scores, bleu=bleu, signature=signature)

    def _f1(self, model: Transformer, split: str, scores: DevScores) -> DevScores:
        """Add the labelled F1 of greedy trees; without tags in the data set, words tell what is punctuation."""
        pieces, brackets = _pieces(self.data)
        measured = list(_tasks(self.data, split, self.config))
        counts = [
            count_brackets(from_sequence([brackets.symbols[token] for token in found], tree.words()), tree)
            for found, (_, tree, _) in zip(self._search(model, [task for task, _, _ in measured], pieces), measured)
        ]
        return replace(scores, f1=Parseval().compute("f1", np.sum(counts, axis=0).tolist()) if counts else 0.0)

    def _search(self, model: Transformer, tasks: Sequence[Task], pieces: Sequence[str] = ()) -> list[np.ndarray]:
        """Return the tokens that greedy search outputs."""
        engine = self._engine_for(model)
        # The captured engine's weights are in low precision already; autocast would compute some of it in float32.
        with torch.autocast(model.device.type, enabled=False) if engine is self._engine else nullcontext():
            return greedy_all(engine, tasks, self.config.search, pieces)

    def _engine_for(self, model: Transformer) -> Engine:
        """Return an engine; on a GPU, one serves all models of the run: weights are copied to where its graphs look."""
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


def check_trees_fit(data: DataSet, config: Config) -> list[str]:
    """Refuse a search too short for the words of some dev tree, which would end the run at its first validation;
    return notes on trees that are longer than the output may be."""
    if not config.training.bleu_sentences or data.manifest["config"].get("task") != "parsing":
        return []
    notes: list[str] = []
    to_a_word = _pieces(data)[1].to_a_word
    for split in (name for name in ("dev", *data.watched) if name in data.splits):
        cut, more = 0, EXTRA_TOKENS
        measured = list(_tasks(data, split, config))
        for task, _, tokens in measured:
            cut += tokens > most_tokens(task, config.search, config.model)
            more = max(more, tokens - len(task.source))
        remedy = f"use --search.extra-tokens {more}"
        if config.search.max_tokens is not None:
            remedy += " and --search.max-tokens off"
        for task, tree, _ in measured:
            room, words = most_tokens(task, config.search, config.model), to_a_word * len(tree.words())
            if words >= room:
                raise ConfigError(
                    f"{data.folder}: the words of a tree of {split} alone are {words:,} tokens, but the search may "
                    f"produce only {room:,}, the end included; {remedy}"
                )
        if cut:
            notes.append(
                f"{split}: {cut:,} of {len(measured):,} trees are longer than the search may produce; {remedy}"
            )
    return notes


def _tasks(data: DataSet, split: str, config: Config) -> Iterator[tuple[Task, Tree, int]]:
    """Yield the sentences of a dev set to parse, their trees, and how many tokens these have with the end."""
    held, brackets = data.splits[split], _pieces(data)[1]
    for pair, tree in trees_of(data, split, config.training.bleu_sentences):
        task = Task(held.tokens("source", pair), words=brackets.find_words(tree.words()))
        yield task, tree, len(held.tokens("target", pair))


def _pieces(data: DataSet) -> tuple[list[str], Brackets]:
    """Return the symbols that a parser outputs, and which of them are brackets."""
    pieces = data.subwords["target"].pieces(range(len(data.subwords["target"])))
    return pieces, find_brackets(tuple(pieces))


def _whole_batches(split: Split, config: BatchConfig) -> BatchConfig:
    """Return settings for batches of one part that hold the longest sentence; batching does not affect the loss."""
    longest = {side: int(split.lengths(side).max()) for side in SIDES}
    return replace(
        config,
        source_tokens=max(config.source_tokens, longest["source"]),
        target_tokens=max(config.target_tokens, longest["target"]),
        parts=1,
    )
