"""Ways to continue a translation from one of its words: the best translation for each of the likeliest next words."""

from dataclasses import replace

import numpy as np

from transduce.config import SearchConfig
from transduce.decoding.options import Request
from transduce.decoding.translation import Alternative
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.seeing.attention import look
from transduce.text.subwords import BEGIN, END, PAD, SPACE, UNKNOWN
from transduce.text.words import is_one_word

LOOKED_AT = 256  # likeliest next subwords, before those that continue a word are dropped


def find_branches(translator: Translator, request: Request, config: SearchConfig, many: int) -> list[Alternative]:
    """Return translations that begin with the request's prefix and continue in different ways, best first.

    The translations of an n-best list mostly differ near their ends. These differ in the subword after the prefix, and
    each is the best that the search finds from there.
    """
    translator.check(request, "the sentence")
    task = translator.task(request)
    if len(task.source) == 1:
        raise DataError("there is nothing to translate: the sentence is empty; give some words")
    prefix, target = list(task.prefix), translator.subwords["target"]
    # The last step of this pass follows the prefix: its rivals are the likeliest next subwords.
    pair = (np.asarray(task.source), np.array([*prefix, END], np.int32))
    ((_, looked),) = look(translator.loaded[0].model, [pair], LOOKED_AT)
    following = [
        token
        for token in looked.rivals[-1].tolist()
        if token not in (PAD, UNKNOWN, BEGIN, END) and _begins_word(request.prefix, target.pieces([token])[0])
    ][:many]
    tasks = [replace(task, prefix=[*prefix, token]) for token in following]
    _, found = translator.find([request.text] * len(tasks), tasks, replace(config, n_best=1))
    ranked = sorted((best for best, *_ in found), key=lambda hypothesis: -hypothesis.score)
    alternatives = {
        target.decode(hypothesis.tokens): Alternative.read(hypothesis, target)
        for hypothesis in reversed(ranked)  # worst first, so that of equal texts the best is kept
    }
    return sorted(alternatives.values(), key=lambda alternative: -alternative.score)


def _begins_word(prefix: str, piece: str) -> bool:
    """Return whether a subword leaves the prefix's last word as it is, as all do in scripts without spaces."""
    return piece.startswith(SPACE) or not is_one_word(prefix, piece)
