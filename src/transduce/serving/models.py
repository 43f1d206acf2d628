"""The models that are served, and which of them translates what."""

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import TransduceError
from transduce.serving.desk import Desk
from transduce.text.detect import detect, drop_region, name_language

AUTO = "auto"
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
        """The languages served that a text may be in, the likeliest first, with their probabilities."""
        return detect(text, self.sources)

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
        shares = dict(detect(text, self.sources))
        best = max(found, key=lambda model: shares[model.source])  # the first of equals
        return best, shares[best.source]

    def find(self, text: str, source: str, target: str) -> tuple[Served | None, tuple[str, float] | None]:
        """The model for a text, none where it is in the language wanted; its language, where that was found out."""
        if source.lower() == target.lower():
            return None, None
        served, share = self.choose(text, source, target)
        if share is None:
            return served, None
        shares = dict(detect(text, [*self.sources, served.target]))
        own = shares.pop(served.target)
        if own > SURE * max(shares.values(), default=own):
            return None, (served.target, own)
        return served, (served.source, share)

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


def _is(wanted: str | None, there: str) -> bool:
    return wanted is None or wanted.lower() == there.lower()
