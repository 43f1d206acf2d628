"""Sentences in capitals: translated in lower case where a model could only spell them, then in capitals again."""

from collections.abc import Callable

from transduce.decoding.glossary import find_whole
from transduce.decoding.options import Request
from transduce.text.subwords import Subwords
from transduce.text.words import in_capitals

SPELLED = 1.25  # with over this many times the subwords of the lower-case text, a model does not know words in capitals

Normal = Callable[[str], str]  # writes a text as the model's training text was written


def to_small(sentence: str, request: Request, source: Subwords, normal: Normal) -> str:
    """Return a sentence in capitals as lower case, if the model could only spell it.

    Not with a prefix or a required phrase in capitals, as nobody knows which of its letters are small, nor with one
    that would be forbidden, as what is forbidden then is so in any case.
    """
    fixed = list(filter(None, (request.prefix, *request.require)))
    if not in_capitals(sentence) or source.find_tag(sentence) or any(map(in_capitals, fixed)):
        return sentence
    if any(find_whole(one.casefold(), phrase.casefold()) for one in request.forbid for phrase in fixed):
        return sentence
    small = sentence.lower()
    capitals, letters = (len(source.encode(normal(text))) for text in (sentence, small))
    return small if capitals > SPELLED * letters else sentence


def to_capitals(translation: str, request: Request, normal: Normal) -> str:
    """Return a translation in capitals, but for its prefix and what was required, which stay as they were asked."""
    prefix = normal(request.prefix)
    spans = [(0, len(prefix))] if translation.startswith(prefix) else []
    spans += [span for phrase in request.require for span in find_whole(normal(phrase), translation)]
    kept = {place for span in spans for place in range(*span)}
    return "".join(letter if place in kept else letter.upper() for place, letter in enumerate(translation))
