"""The served models, and which of them translates a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from transduce.errors import TransduceError
from transduce.serving.desk import Desk
from transduce.text.detect import (
    CLEARLY,
    FEWEST_WORDS,
    KNOWN,
    NAMES,
    SAME,
    detect,
    drop_region,
    name_language,
    plain_code,
    plain_language,
)

AUTO = "auto"
SHARPNESS = 3  # confidences are shares to this power, so that clear texts have 90 % and more
# A text is in no language of ours from these confidences on: of all others together, and of the likeliest of them.
NONE_HERE, LIKELIEST = 0.9, 0.4
SURE = 2  # a text is left as it is if the target language is this many times likelier than any other


class NotServedError(TransduceError):
    """A language or a model that is not served."""


@dataclass(frozen=True)
class Served:
    """A model and its desk."""

    name: str
    source: str
    target: str
    desk: Desk

    @property
    def parameters(self) -> int:
        """The number of its parameters; of the first network, if it is an ensemble."""
        return self.desk.translator.loaded[0].config.model.parameters()


class Models:
    """All served models; of several for the same pair, the first is used unless another is named."""

    def __init__(self, served: Sequence[Served]):
        self.served = list(served)

    @property
    def sources(self) -> list[str]:
        """The languages that can be translated from."""
        return list(dict.fromkeys(model.source for model in self.served))

    def languages(self) -> list[tuple[str, str, list[str]]]:
        """Return each language's code, its name, and its target languages; one of them is itself, left as it is."""
        codes = dict.fromkeys([*self.sources, *(model.target for model in self.served)])
        return [
            (
                code,
                name_language(code),
                sorted({code, *(model.target for model in self.served if model.source == code)}),
            )
            for code in codes
        ]

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Return the languages that a text may be in, served or not, likeliest first, with confidences."""
        return measure_languages(text, self.sources)

    def choose(
        self, text: str, source: str | None = None, target: str | None = None, name: str | None = None
    ) -> tuple[Served, float | None]:
        """Return the model for a text, and the confidence in its source language if that was detected."""
        codes = [code for model in self.served for code in (model.source, model.target)]
        forms = ((code, code and drop_region(code, codes)) for code in (target, source))
        found = next(filter(None, (self._matching(name, own, into) for into, own in product(*forms))), [])
        if not found:
            raise NotServedError(self._missing(source, target, name))
        if source not in (None, AUTO):
            return found[0], None
        there = [language for model in found for language in (model.source, model.target)]
        if source == AUTO and (other := find_unread(text, there)):
            raise NotServedError(
                f"the text looks like {name_language(other)} ({other}), but {self._missing(other, target, name)}; "
                "if it is in another language, give that as its source"
            )
        confidences = dict(measure_languages(text, there))
        best = max(found, key=lambda model: confidences[model.source])  # the first of equals
        return best, confidences[best.source]

    def find(self, text: str, source: str, target: str) -> tuple[Served | None, tuple[str, float] | None]:
        """Return the model for a text, or None if it is in the target language; and its language, if detected."""
        if _is(source, target):
            return None, None
        served, confidence = self.choose(text, source, target)
        if confidence is None:
            return served, None
        shares = dict(detect(text, [*self.sources, served.target]))
        own = shares.pop(served.target)
        if own > SURE * max(shares.values(), default=own):
            return None, (served.target, dict(measure_languages(text, [served.target]))[served.target])
        return served, (served.source, confidence)

    def _matching(self, name: str | None, source: str | None, target: str | None) -> list[Served]:
        return [
            model
            for model in self.served
            if (name in (None, model.name))
            and _is(target, model.target)
            and (source in (None, AUTO) or _is(source, model.source))
        ]

    def _missing(self, source: str | None, target: str | None, name: str | None) -> str:
        there = ", ".join(f"{model.name} ({model.source}-{model.target})" for model in self.served)
        parts = [
            f"model {name}" if name else "",
            f"from {source}" if source else "",
            f"into {target}" if target else "",
        ]
        return f"no model here matches: {', '.join(filter(None, parts))}; available: {there}"


def measure_languages(text: str, served: Sequence[str]) -> list[tuple[str, float]]:
    """Return the languages that a text may be in, with confidences that sum to 1; served ones keep their codes."""
    codes = {plain_language(code): code for code in NAMES if code not in SAME} | {
        plain_language(code): code for code in reversed(served)
    }
    ordered = [*served, *(code for code in codes.values() if code not in served)]  # ties keep this order
    strengths = {code: share**SHARPNESS for code, share in detect(text, ordered)}
    total = sum(strengths[code] for code in codes.values())
    return [(code, strength / total if total else 0.0) for code, strength in strengths.items()]


def find_unread(text: str, there: Sequence[str]) -> str | None:
    """Return the language that a text is clearly in, if it is none of those in `there`; short texts tell nothing."""
    if not {*map(plain_language, there)} <= KNOWN:
        return None  # one of them cannot be detected, and the text may be in it
    found = measure_languages(text, there)
    best, confidence = found[0]
    unread = sum(share for code, share in found if code not in there)
    shares = dict(detect(text, [*there, best]))
    nearest = max(shares[code] for code in there)
    # A text in another script needs no words to be told from the languages there.
    long = len(text.split()) >= FEWEST_WORDS or (nearest == 0 and sum(map(str.isalpha, text)) >= FEWEST_WORDS)
    sure = unread >= NONE_HERE and confidence >= LIKELIEST and shares[best] > CLEARLY * nearest
    return best if best not in there and long and sure else None


def _is(wanted: str | None, there: str) -> bool:
    return wanted is None or plain_code(wanted) == plain_code(there)
