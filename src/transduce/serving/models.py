"""The models that are served, and which of them translates what."""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import TransduceError
from transduce.serving.desk import Desk
from transduce.text.detect import CLEARLY, FEWEST_WORDS, KNOWN, NAMES, SAME, detect, drop_region, name_language

AUTO = "auto"
SHARPNESS = 3  # the power of a share that a confidence goes by, so that clear texts have 90 % and more
# From these confidences on a text is in no language read here: of all others together, and of the likeliest of them.
NONE_HERE, LIKELIEST = 0.9, 0.4
SURE = 2  # so much likelier than any other must the language wanted be for a text to be left as it is


class NotServedError(TransduceError):
    """A language or a model that is not here."""


@dataclass(frozen=True)
class Served:
    """A model with its desk."""

    name: str
    source: str
    target: str
    desk: Desk

    @property
    def parameters(self) -> int:
        """Of its first network, if it is an ensemble."""
        return self.desk.translator.loaded[0].config.model.parameters()


class Models:
    """All that are served; where two translate the same pair, the first one does unless the other is asked for."""

    def __init__(self, served: Sequence[Served]):
        self.served = list(served)

    @property
    def sources(self) -> list[str]:
        """The languages that can be translated from."""
        return list(dict.fromkeys(model.source for model in self.served))

    def languages(self) -> list[tuple[str, str, list[str]]]:
        """Each language's code, its name, and those it can be translated into; itself counts, as it is."""
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
        """The languages that a text may be in, served or not, the likeliest first, each with its confidence."""
        return measure_languages(text, self.sources)

    def choose(
        self, text: str, source: str | None = None, target: str | None = None, name: str | None = None
    ) -> tuple[Served, float | None]:
        """The model for a text, and how sure its language is where it was not said but found out."""
        codes = [code for model in self.served for code in (model.source, model.target)]
        languages = (code and drop_region(code, codes) for code in (source, target))
        found = self._matching(name, source, target) or self._matching(name, *languages)
        if not found:
            raise NotServedError(self._missing(source, target, name))
        if source not in (None, AUTO):
            return found[0], None
        there = [language for model in found for language in (model.source, model.target)]
        if source == AUTO and (other := find_unread(text, there)):
            raise NotServedError(
                f"the text looks like {name_language(other)} ({other}), and {self._missing(other, target, name)}; "
                "if it is in another language, give that as its source"
            )
        confidences = dict(measure_languages(text, there))
        best = max(found, key=lambda model: confidences[model.source])  # the first of equals
        return best, confidences[best.source]

    def find(self, text: str, source: str, target: str) -> tuple[Served | None, tuple[str, float] | None]:
        """The model for a text, none where it is in the language wanted; its language, where that was found out."""
        if source.lower() == target.lower():
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
        return f"nothing here translates: {', '.join(filter(None, parts))}; there are {there}"


def measure_languages(text: str, served: Sequence[str]) -> list[tuple[str, float]]:
    """The languages that a text may be in, with confidences of 1 in all; those served have the names they have here."""
    codes = {_main(code): code for code in NAMES if code not in SAME} | {_main(code): code for code in reversed(served)}
    ordered = [*served, *(code for code in codes.values() if code not in served)]  # where nothing is known, as served
    strengths = {code: share**SHARPNESS for code, share in detect(text, ordered)}
    total = sum(strengths[code] for code in codes.values())
    return [(code, strength / total if total else 0.0) for code, strength in strengths.items()]


def find_unread(text: str, there: Sequence[str]) -> str | None:
    """The language that a text is clearly in, if it is none of those there; short texts tell nothing."""
    if not {*map(_main, there)} <= KNOWN:
        return None  # it may be in one that cannot be told from others
    found = measure_languages(text, there)
    best, confidence = found[0]
    unread = sum(share for code, share in found if code not in there)
    shares = dict(detect(text, [*there, best]))
    nearest = max(shares[code] for code in there)
    # A text in letters of another kind needs no words to be told from all that is there.
    long = len(text.split()) >= FEWEST_WORDS or (nearest == 0 and sum(map(str.isalpha, text)) >= FEWEST_WORDS)
    sure = unread >= NONE_HERE and confidence >= LIKELIEST and shares[best] > CLEARLY * nearest
    return best if best not in there and long and sure else None


def _main(code: str) -> str:
    """A language without its region; those that are told apart by nothing are one."""
    main = code.partition("-")[0].lower()
    return SAME.get(main, main)


def _is(wanted: str | None, there: str) -> bool:
    return wanted is None or wanted.lower() == there.lower()
