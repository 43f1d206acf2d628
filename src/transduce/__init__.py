"""The Transformer of *Attention Is All You Need* as a complete translation system.

    from transduce import Translator

    print(Translator.load("runs/en-de").translate("Hello, world!"))

Names are imported when first asked for, so that `import transduce` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from transduce.version import __version__

if TYPE_CHECKING:
    from transduce.config import Config
    from transduce.decoding.options import Options, ParseOptions, Request
    from transduce.decoding.parser import Candidate, Parse, Parser
    from transduce.decoding.translation import Alternative, Sentence, Translation
    from transduce.decoding.translator import Translator
    from transduce.errors import ConfigError, DataError, TransduceError, UsageError
    from transduce.model.saved import load_model
    from transduce.model.transformer import Transformer
    from transduce.presets import PRESETS
    from transduce.seeing.sentence import Seen, see
    from transduce.text.batches import Batch, Batches, Loader
    from transduce.text.inputs import PrepareConfig
    from transduce.text.prepare import prepare
    from transduce.text.shards import DataSet
    from transduce.text.subwords import Subwords
    from transduce.text.trees import Tree

__all__ = [
    "PRESETS",
    "Alternative",
    "Batch",
    "Batches",
    "Candidate",
    "Config",
    "ConfigError",
    "DataError",
    "DataSet",
    "Loader",
    "Options",
    "Parse",
    "ParseOptions",
    "Parser",
    "PrepareConfig",
    "Request",
    "Seen",
    "Sentence",
    "Subwords",
    "TransduceError",
    "Transformer",
    "Translation",
    "Translator",
    "Tree",
    "UsageError",
    "__version__",
    "load_model",
    "prepare",
    "see",
]

_HOMES = {
    "transduce.config": ("Config",),
    "transduce.decoding.options": ("Options", "ParseOptions", "Request"),
    "transduce.decoding.parser": ("Candidate", "Parse", "Parser"),
    "transduce.decoding.translation": ("Alternative", "Sentence", "Translation"),
    "transduce.decoding.translator": ("Translator",),
    "transduce.errors": ("ConfigError", "DataError", "TransduceError", "UsageError"),
    "transduce.model.saved": ("load_model",),
    "transduce.model.transformer": ("Transformer",),
    "transduce.presets": ("PRESETS",),
    "transduce.seeing.sentence": ("Seen", "see"),
    "transduce.text.batches": ("Batch", "Batches", "Loader"),
    "transduce.text.inputs": ("PrepareConfig",),
    "transduce.text.prepare": ("prepare",),
    "transduce.text.shards": ("DataSet",),
    "transduce.text.subwords": ("Subwords",),
    "transduce.text.trees": ("Tree",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'transduce' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
