"""Data for pages in tests: attention, steps, a beam and heads whose drawing is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
from playwright.sync_api import Page

from transduce.seeing.attention import Attention
from transduce.seeing.page import HEADS_SCRIPTS, SENTENCE_SCRIPTS, make_page
from transduce.seeing.roles import MEASURES
from transduce.seeing.sentence import Rival, Seen, Step
from transduce.seeing.tree import Node

Open = Callable[..., Page]  # opens a page from its text

LAYERS, HEADS = 2, 3


def make_seen(source: int = 5, target: int = 4) -> Seen:
    """Return a sentence of so many subwords; heads of layer 1 attend to their own place, the previous, everywhere."""
    pieces = tuple(f"▁word{n}" if n % 2 == 0 else f"on{n}" for n in range(source))
    words = tuple(f"▁wort{n}" if n % 2 == 0 else f"fort{n}" for n in range(target))

    def layers(queries: int, keys: int, *, causal: bool = False) -> list[np.ndarray]:
        places = np.arange(queries)
        seen = np.tril(np.ones((queries, keys))) if causal else np.ones((queries, keys))
        last = np.eye(keys)[np.zeros(queries, int)]
        same = np.eye(keys)[np.minimum(places, keys - 1)]
        before = np.eye(keys)[np.clip(places - 1, 0, keys - 1)]
        even = seen / seen.sum(1, keepdims=True)
        return [np.stack([same, before, even]), np.stack([even, 0.75 * last + 0.25 * same, last])]

    steps = [
        Step(word, 0.9, 1, tuple(Rival(f"▁r{n}", 0.02 - n / 1000) for n in range(5))) for word in (*words, "⟨end⟩")
    ]
    steps[1] = Step(words[1], 0.3, 2, (Rival("▁better", 0.5), Rival("▁worse", 0.1)))
    tree = [Node(place - 1, 9, -0.1, -0.1 * (place + 1), "on", None, True) for place in range(target)]
    tree.append(Node(target - 1, 3, -0.2, -1.0, "ended", -0.7, True))
    tree += [Node(-1, 8, -2.0, -2.0, "on"), Node(target + 1, 7, -1.0, -3.0, "dropped"), Node(0, 6, -4.0, -4.1, "open")]
    return Seen(
        model="sample",
        source="word0 <b>& " + "x" * 12,
        target="wort0 …",
        given=False,
        complete=True,
        log_probability=-1.25,
        source_pieces=(*pieces, "⟨end⟩"),
        taken_pieces=("⟨begin⟩", *words),
        said_pieces=(*words, "⟨end⟩"),
        attention=Attention(
            layers(source + 1, source + 1), layers(target + 1, target + 1, causal=True), layers(target + 1, source + 1)
        ),
        steps=tuple(steps),
        links=[(0, 0), (1, 0), (0, 1)] if target > 2 else [(0, 0)],
        tree=tuple(tree),
        tree_pieces=(*words, "⟨end⟩", "▁other", "way", "▁open"),
    )


ROLES = {kind: [["same", "previous", "broad"], ["broad", "mixed", "end"]] for kind in ("encoder", "decoder", "cross")}


def sentence_page(seen: Seen, *, roles: bool = False) -> str:
    """Return the page of `transduce show`."""
    data = seen.to_dict(4) | ({"roles": ROLES} if roles else {})
    return make_page(seen.source, data, SENTENCE_SCRIPTS, "showSentence")


def make_findings(layers: int = 2, heads: int = 3) -> dict[str, Any]:
    """Return the output of `transduce heads --json`; the model misses the encoder's last head most."""
    found: list[dict[str, Any]] = []
    for kind, names in (("encoder", ("previous", "end")), ("decoder", ("begin",)), ("cross", ("aligned", "rare"))):
        for layer in range(1, layers + 1):
            for head in range(1, heads + 1):
                share = len(found) / (3 * layers * heads)
                found.append(
                    {
                        "kind": kind,
                        "layer": layer,
                        "head": head,
                        "role": names[0] if head == 1 else "mixed",
                        "shares": dict.fromkeys(names, share),
                        "even": dict.fromkeys(names, 0.1),
                        "entropy": 1.0,
                        "evenness": 1 - share,
                        "distance": 10 * share,
                        "loss_without": 2 + (1 if (kind, layer, head) == ("encoder", layers, heads) else -0.01 * share),
                        "bleu_without": None,
                    }
                )
    about = {"format": 1, "model": "sample", "sentences": 3, "tokens": 1234, "alignment_reference": "gold"}
    return {**about, "loss": 2.0, "bleu": None, "bleu_signature": None, "measures": MEASURES, "heads": found}


def heads_page(found: dict[str, Any]) -> str:
    """Return the page of `transduce heads`."""
    return make_page("Heads", found, HEADS_SCRIPTS, "showHeads")
