"""The model card: a README.md beside the weights says what the model is, what it was made from and how to use it."""

from collections.abc import Iterator, Mapping
from typing import Any

from transduce.config import Config
from transduce.text.subwords import Subwords
from transduce.version import __version__

CARD = "README.md"


def make_card(config: Config, subwords: Mapping[str, Subwords], about: Mapping[str, Any], name: str) -> str:
    """Return the text of a model's card, in whose commands the model is called `name`."""
    parses = subwords["target"].kind == "word"
    languages = about.get("languages")
    title = f"{languages[0]} → {languages[1]}" if languages else "A parser" if parses else "A translation model"
    tags = [f"language: [{', '.join(languages)}]"] if languages else []
    tags += ["library_name: transduce", *([] if parses else ["pipeline_tag: translation"])]
    verb, kind = ("parse", "Parser") if parses else ("translate", "Translator")
    return "\n".join(
        [
            *("---", *tags, "---"),
            f"# {title}",
            "",
            f"A Transformer as in *Attention Is All You Need*, written by transduce {__version__}.",
            "",
            *describe_settings(config, subwords, about),
            "",
            "## Use",
            "",
            *("```sh", f'transduce {verb} {name} --text "…"' if not parses else f"transduce {verb} {name} < SENTENCES"),
            *("```", "", "```python", f"from transduce import {kind}", ""),
            f'print({kind}.load("{name}").{verb}("…"))',
            *("```", ""),
            "## Files",
            "",
            *_FILES,
            "",
        ]
    )


_FILES = (
    "- `config.json`: all settings",
    "- `model.safetensors`: the weights, which any safetensors reader opens",
    "- `subwords.model`, or `source.model` and `target.model`: the SentencePiece models",
    "- `manifest.json`: where the model comes from, and checksums of these files except this card",
)


def describe_settings(config: Config, subwords: Mapping[str, Subwords], about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown table of a model's main settings and its origin."""
    yield "| | |"
    yield "|---|---|"
    for name, value in _rows(config, subwords, about):
        yield f"| {name} | {_escape(value)} |"


def _rows(config: Config, subwords: Mapping[str, Subwords], about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    model, search = config.model, config.search
    if languages := about.get("languages"):
        yield "languages", f"{languages[0]} → {languages[1]}"
    layers, decoder_layers = model.stacks()
    depth = f"{layers}" if layers == decoder_layers else f"{layers} and {decoder_layers}"
    yield "parameters", f"{model.parameters():,}"
    yield "sizes", f"{depth} layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.heads} heads"
    yield "kind", f"{model.positions} positions, {model.norm}-norm, {model.activation}, tie {model.tie}"
    source, target = subwords["source"], subwords["target"]
    joint = source is target
    yield "subwords", f"{len(target):,} {target.kind}, joint" if joint else f"{len(source):,} and {len(target):,}"
    if began_with := about.get("began_with"):
        yield "started from", f"the weights of {began_with}"
    if encoder_of := about.get("encoder_of"):
        yield "started from", f"the encoder of {encoder_of}"
    for data in about.get("trained_before", ()):
        yield "which was trained on", f"{data['pairs']:,} pairs of {', '.join(data['inputs'])}"
    if data := about.get("trained_on"):
        yield "trained on", f"{data['pairs']:,} pairs of {', '.join(data['inputs'])}"
        yield "trained for", f"at most {config.training.steps:,} steps, seed {config.training.seed}"
    if origin := about.get("imported_from"):
        yield "imported from", f"{origin['name']} ({origin['kind']})"
    if made_from := about.get("made_from") or about.get("mean_of"):
        yield "weights", f"{about.get('what', 'the mean')}: {', '.join(made_from)}"
    if dev := about.get("dev"):
        yield "on the dev set", _describe_scores(dev)
    yield "search", f"beam {search.beam}, alpha {search.alpha}"
    yield "text", f"Unicode in the form {about.get('unicode', 'NFC')}"


def _describe_scores(dev: Mapping[str, Any]) -> str:
    from math import exp

    found = [f"perplexity {exp(dev['plain']):.3f}"]
    if dev.get("bleu") is not None:
        found.append(f"greedy BLEU {dev['bleu']:.1f} ({dev['signature']})")
    if dev.get("f1") is not None:
        found.append(f"greedy F1 {dev['f1']:.1f}")
    return ", ".join(found)


def _escape(text: str) -> str:
    """Escape what Markdown would interpret, because file names may hold anything."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
