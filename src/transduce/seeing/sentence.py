"""What a model does with one sentence: attention, probabilities, the beam, which word comes from which.

`Seen.to_dict` is the JSON for programs and for the page; docs/seeing.md describes it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from transduce.config import SearchConfig
from transduce.decoding.alignment import Links, number_words
from transduce.decoding.beams import Record
from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.seeing.attention import Attention, look
from transduce.seeing.kinds import KINDS, Kind
from transduce.seeing.page import SENTENCE_SCRIPTS, make_frame, make_page
from transduce.seeing.tree import Node, make_tree
from transduce.text.subwords import BEGIN, END

FORMAT = 1
LONGEST = 256  # tokens on either side; the tables grow with its square
RIVALS = 5
DECIMALS = 4  # of weights on a page
FRAME = 700  # height of a page in a notebook, in pixels
NAMES = {BEGIN: "⟨begin⟩", END: "⟨end⟩"}


@dataclass(frozen=True)
class Rival:
    """Another token that the model could have chosen."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Step:
    """A token of the translation, and the others that the model could have chosen."""

    piece: str
    probability: float
    rank: int | None
    """1 for the most probable; None if it is not among the first RIVALS + 1"""
    rivals: tuple[Rival, ...]
    """the most probable other tokens"""


@dataclass(frozen=True)
class Seen:
    """What a model does with a sentence and its translation."""

    model: str
    """the name of its run or folder"""
    source: str
    target: str
    given: bool
    """whether the translation was given rather than found by the search"""
    complete: bool
    """false if the search cut it off at the maximum length"""
    log_probability: float
    """log P(target | source), in nats"""
    source_pieces: tuple[str, ...]
    """the source's subwords, with its end mark if it has one"""
    taken_pieces: tuple[str, ...]
    """the decoder's input: the begin mark, then the target's subwords"""
    said_pieces: tuple[str, ...]
    """the decoder's output at each of these steps: the target's subwords, then the end mark"""
    attention: Attention
    steps: tuple[Step, ...]
    links: Links
    """(source word, target word), counted from 0"""
    tree: tuple[Node, ...]
    """the beam; empty if the translation was given"""
    tree_pieces: tuple[str, ...]
    """the subword of each node"""

    def labels(self, kind: Kind) -> tuple[Sequence[str], Sequence[str]]:
        """Return the subwords that attend and those attended to."""
        match kind:
            case "encoder":
                return self.source_pieces, self.source_pieces
            case "decoder":
                return self.taken_pieces, self.taken_pieces
            case "cross":
                return self.said_pieces, self.source_pieces

    def page(self, roles: dict[str, list[list[str]]] | None = None) -> str:
        """Return a page that shows all of it, with the heads' roles if they are known."""
        data = self.to_dict(DECIMALS) | ({"roles": roles} if roles else {})
        return make_page(self.source, data, SENTENCE_SCRIPTS, "showSentence")

    def _repr_html_(self) -> str:
        """Show the page in a notebook."""
        return make_frame(self.source, self.page(), FRAME)

    def _open_source(self) -> Sequence[str]:
        """Return the source's subwords without its end mark."""
        return self.source_pieces[:-1] if self.source_pieces[-1] == NAMES[END] else self.source_pieces

    def to_dict(self, digits: int = 6) -> dict[str, Any]:
        """Return the JSON form, with weights and probabilities rounded to `digits` decimals."""
        return {
            "format": FORMAT,
            "model": self.model,
            "source": {"text": self.source, "pieces": self.source_pieces, "words": _words(self._open_source())},
            "target": {
                "text": self.target,
                "given": self.given,
                "complete": self.complete,
                "log_probability": round(self.log_probability, digits),
                "taken": self.taken_pieces,
                "said": self.said_pieces,
                "words": _words(self.taken_pieces[1:]),
            },
            "attention": {kind: [_rounded(layer, digits) for layer in self.attention.of(kind)] for kind in KINDS},
            "steps": [
                {
                    "piece": step.piece,
                    "probability": round(step.probability, digits),
                    "rank": step.rank,
                    "rivals": [[rival.piece, round(rival.probability, digits)] for rival in step.rivals],
                }
                for step in self.steps
            ],
            "alignment": self.links,
            "tree": [
                {"piece": piece, **{key: _short(value, digits) for key, value in asdict(node).items()}}
                for piece, node in zip(self.tree_pieces, self.tree)
            ],
        }


def see(
    translator: Translator, request: Request | str, config: SearchConfig | None = None, target: str | None = None
) -> Seen:
    """Translate a sentence, or take the given translation, and return what the first model does with it."""
    request = Request(request) if isinstance(request, str) else request
    config = config or translator.search
    translator.check(request, "the sentence")
    task = translator.task(request)
    if list(task.source) == translator.subwords["source"].close([]):
        raise DataError("there is nothing to show: the sentence is empty; give some words")
    _refuse_long(len(task.source), "sentence")
    record: Record | None = None
    if target is None:
        records: dict[int, Record] = {}
        _, ((best, *_),) = translator.find([request.text], [task], config, records=records)
        record = records[0]
        tokens, complete = np.append(best.tokens, END).astype(np.int32), best.ended
    else:
        translator.check(Request(target), "the translation")
        tokens, complete = translator.tokens(target, "target"), True
    _refuse_long(len(tokens), "translation")
    source, sides = np.asarray(task.source), translator.subwords
    ((_, looked),) = look(translator.loaded[0].model, [(source, tokens)], RIVALS + 1)
    source_pieces, said = _pieces(translator, source, "source"), _pieces(translator, tokens, "target")
    tree = make_tree(record) if record else []
    return Seen(
        model=name_of(translator),
        source=sides["source"].decode(sides["source"].open(source)),
        target=sides["target"].decode(tokens[:-1]),
        given=target is not None,
        complete=complete,
        log_probability=float(looked.log_probabilities[: len(tokens) if complete else -1].sum(dtype=np.float64)),
        source_pieces=source_pieces,
        taken_pieces=(NAMES[BEGIN], *said[:-1]),
        said_pieces=said,
        attention=looked.attention,
        steps=tuple(
            _step(translator, *each)
            for each in zip(tokens.tolist(), looked.log_probabilities, looked.rivals, looked.rival_scores)
        ),
        links=translator.align([(source, tokens)])[0],
        tree=tuple(tree),
        tree_pieces=_pieces(translator, [node.token for node in tree], "target"),
    )


def name_of(translator: Translator) -> str:
    """Return the name of the first model's run, or of its own folder."""
    return translator.loaded[0].name


def _refuse_long(tokens: int, what: str) -> None:
    if tokens > LONGEST:
        raise DataError(f"the {what} has {tokens:,} tokens, and at most {LONGEST} are shown; give one sentence of it")


def _pieces(translator: Translator, tokens: Sequence[int] | np.ndarray, side: str) -> tuple[str, ...]:
    return tuple(
        NAMES.get(int(token)) or piece for token, piece in zip(tokens, translator.subwords[side].pieces(tokens))
    )


def _step(
    translator: Translator, token: int, score: float, rivals: np.ndarray, scores: Float[np.ndarray, " rivals"]
) -> Step:
    ranked = rivals.tolist()
    others = [(rival, float(np.exp(own))) for rival, own in zip(ranked, scores) if rival != token][:RIVALS]
    names = _pieces(translator, [token, *(rival for rival, _ in others)], "target")
    return Step(
        names[0],
        float(np.exp(score)),
        ranked.index(token) + 1 if token in ranked else None,
        tuple(Rival(name, share) for name, (_, share) in zip(names[1:], others)),
    )


def _words(pieces: Sequence[str]) -> list[int]:
    """Return the number of each subword's word; the pieces have no begin or end marks."""
    return number_words(pieces).tolist()


def _rounded(weights: np.ndarray, digits: int) -> list[Any]:
    return np.round(weights.astype(np.float64), digits).tolist()


def _short(value: Any, digits: int) -> Any:
    return round(value, digits) if isinstance(value, float) else value
