"""The heads of a model over a test set: what each attends to, and how the model does without it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from transduce.decoding.alignment import Links
from transduce.decoding.engine import Engine
from transduce.decoding.force import Pair, score_pairs
from transduce.decoding.shelf import read_languages
from transduce.decoding.translator import Translator
from transduce.scoring.bleu import Bleu, choose_tokenizer, corpus_bleu
from transduce.seeing.attention import look
from transduce.seeing.kinds import KINDS
from transduce.seeing.roles import MEASURES, Frequencies, Profile, Sides, Tally, mask_cross, mask_self
from transduce.seeing.switching import Head, all_heads, switched_off

FORMAT = 1


@dataclass(frozen=True)
class Without:
    """The model's quality with one head switched off."""

    loss: float
    """in nats per target token"""
    bleu: float | None
    """of its translations, if requested"""


@dataclass(frozen=True)
class Findings:
    """The measurements of a model's heads over a test set."""

    model: str
    sentences: int
    tokens: int
    """target tokens, end marks included"""
    reference: str
    """what the heads' alignments were compared with"""
    loss: float
    """of the whole model, in nats per target token"""
    bleu: Bleu | None
    heads: dict[Head, Profile]
    without: dict[Head, Without]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; layers and heads are counted from 1, as on the command line."""
        return {
            "format": FORMAT,
            "model": self.model,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "alignment_reference": self.reference,
            "loss": self.loss,
            "bleu": self.bleu.score if self.bleu else None,
            "bleu_signature": self.bleu.signature if self.bleu else None,
            "measures": MEASURES,
            "heads": [
                {
                    "kind": head.kind,
                    "layer": head.layer + 1,
                    "head": head.head + 1,
                    "role": profile.role,
                    **asdict(profile),
                    "loss_without": self.without[head].loss if head in self.without else None,
                    "bleu_without": self.without[head].bleu if head in self.without else None,
                }
                for head, profile in self.heads.items()
            ],
        }


def measure_profiles(
    translator: Translator, pairs: Sequence[Pair], links: Sequence[Links], done: Callable[[int], None] = lambda _: None
) -> dict[Head, Profile]:
    """Return what each head of the model attends to; its alignments are compared with `links`."""
    model, names = translator.loaded[0].model, translator.subwords
    sides = [
        Sides(
            names["source"].pieces(names["source"].open(source)),
            names["target"].pieces(target[:-1]),
            own,
            ended=names["source"].ends,
        )
        for (source, target), own in zip(pairs, links)
    ]
    of_source = Frequencies([one.source for one in sides])
    of_target = Frequencies([one.target for one in sides])
    stacks = dict(zip(KINDS, (len(model.encoder), len(model.decoder), len(model.decoder))))
    tallies = {kind: [Tally(model.config.heads) for _ in range(layers)] for kind, layers in stacks.items()}
    for count, (number, looked) in enumerate(look(model, pairs), 1):
        own = sides[number]
        masks = {
            "encoder": mask_self(own.source, of_source, "encoder", ended=own.ended),
            "decoder": mask_self(own.target, of_target, "decoder"),
            "cross": mask_cross(own, of_source),
        }
        for kind in KINDS:
            for tally, weights in zip(tallies[kind], looked.attention.of(kind)):
                tally.add(weights, masks[kind], causal=kind == "decoder")
                if kind == "cross":
                    tally.add_alignment(weights, own)
        done(count)
    return {head: tallies[head.kind][head.layer].profile(head.head) for head in all_heads(model)}


def measure_loss(translator: Translator, pairs: Sequence[Pair]) -> float:
    """Return the mean of -log P over the target tokens."""
    scores = score_pairs(translator.loaded[0].model, pairs)
    return -float(np.concatenate(scores).sum(dtype=np.float64)) / sum(map(len, scores))


def measure_without(
    translator: Translator,
    pairs: Sequence[Pair],
    texts: tuple[Sequence[str], Sequence[str]],
    make_engine: Callable[[], Engine] | None,
    heads: Sequence[Head],
    done: Callable[[int], None] = lambda _: None,
) -> dict[Head, Without]:
    """Return the loss without each of the heads, and BLEU if `make_engine` can make an engine of the changed model."""
    model = translator.loaded[0].model
    found: dict[Head, Without] = {}
    for count, head in enumerate(heads, 1):
        with switched_off(model, [head]):
            bleu = measure_bleu(translator, make_engine(), texts).score if make_engine else None
            found[head] = Without(measure_loss(translator, pairs), bleu)
        done(count)
    return found


def measure_bleu(translator: Translator, engine: Engine, texts: tuple[Sequence[str], Sequence[str]]) -> Bleu:
    """Return the BLEU of an engine's translations."""
    sources, references = texts
    translations = Translator(translator.loaded, engine).translate(list(sources))
    _, language = read_languages(translator.loaded[0].about) or ("", "")
    tokenize = choose_tokenizer(language, references)
    return corpus_bleu([found.text for found in translations], references, tokenize=tokenize)
