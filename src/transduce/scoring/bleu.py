"""BLEU by sacreBLEU, with the signature that says which BLEU it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.errors import DataError, TransduceError, UsageError, suggest

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

DEFAULT_TOKENIZER = "13a"
# What sacreBLEU chooses for these languages.
TOKENIZER_OF = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
# Languages without spaces, whose sentences 13a takes for words, and the tokenizer built into sacreBLEU for each.
BUILT_IN = {"zh": "zh", **dict.fromkeys(("ja", "th", "lo", "km", "my", "bo"), "char")}
PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


class Bleu(NamedTuple):
    """A score with its signature."""

    score: float
    signature: str


def corpus_bleu(
    translations: Sequence[str],
    *references: Sequence[str],
    tokenize: str = DEFAULT_TOKENIZER,
    lowercase: bool = False,
) -> Bleu:
    """Score translations of a whole set against one or more references each."""
    # sacreBLEU would score only as many sentences as both have.
    for some in references or ([],):
        if len(translations) != len(some):
            raise DataError(
                f"there are {len(translations):,} translations and {len(some):,} references; "
                "BLEU needs one reference for each translation"
            )
    if not translations:
        raise DataError("there are no translations to score; BLEU needs one or more")
    metric = make_bleu(tokenize, lowercase=lowercase)
    score = metric.corpus_score(list(translations), [list(some) for some in references]).score
    return Bleu(score, str(metric.get_signature()))


def find_built_in(language: str) -> str:
    """Return the tokenizer for a language that needs nothing but sacreBLEU, so that it is the same on every machine."""
    return BUILT_IN.get(language.replace("_", "-").partition("-")[0].lower(), DEFAULT_TOKENIZER)


def make_bleu(tokenize: str, *, lowercase: bool, effective_order: bool = False) -> "BLEU":
    """Return sacreBLEU's metric with one of its tokenizers, or say what that tokenizer needs."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        known = sorted(BLEU.TOKENIZERS)
        remedy = suggest(tokenize, known) or f"; choose among {', '.join(known)}"
        raise UsageError(f"unknown tokenizer {tokenize}{remedy}")
    try:
        # `force` silences a guess about tokenised text that sacreBLEU would repeat for each part of a set.
        return BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=effective_order, force=True)
    except OSError as error:
        raise TransduceError(
            f"the tokenizer {tokenize} needs a subword model that sacreBLEU could not download ({error}); "
            f"connect to the network, or choose a built-in tokenizer: 13a, intl, zh, char"
        ) from error
    except (RuntimeError, ImportError) as error:
        package = PACKAGES.get(tokenize, "sentencepiece")
        raise TransduceError(
            f"the tokenizer {tokenize} needs a package that is not installed; pip install '{package}', "
            f"or choose a built-in tokenizer: 13a, intl, zh, char"
        ) from error
