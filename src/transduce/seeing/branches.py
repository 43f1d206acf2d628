"""How a translation might go on from a word of it: the best translation for each of the likeliest next words."""

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

LOOKED_AT = 256  # next subwords, of which those are taken that begin a word


def find_branches(translator: Translator, request: Request, config: SearchConfig, many: int) -> list[Alternative]:
    """Translations that begin with the request's prefix and go on in different ways, the best first.

    The translations of an n-best list mostly differ near their ends. These differ in the subword behind the prefix, and
    each is the best that the search finds from there on.
    """
    translator.check(request, "the sentence")
    task = translator.task(request)
    if len(task.source) == 1:
        raise DataError("there is nothing to translate: the sentence is empty; give some words")
    prefix, target = list(task.prefix), translator.subwords["target"]
    # The last step of this pass comes behind the prefix: its rivals are what might be said next.
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
        for hypothesis in reversed(ranked)  # of equal texts the best stays
    }
    return sorted(alternatives.values(), key=lambda alternative: -alternative.score)


def _begins_word(prefix: str, piece: str) -> bool:
    """Whether a subword leaves the prefix's last word as it is; it does where words have no spaces between them."""
    return piece.startswith(SPACE) or not is_one_word(prefix, piece)
