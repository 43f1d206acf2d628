"""BLEU by sacreBLEU, with the signature that says which BLEU it is."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.errors import DataError, TransduceError, UsageError, suggest
from transduce.text.clean import SCRIPTS, find_script
from transduce.text.detect import drop_region

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

DEFAULT_TOKENIZER = "13a"
# Languages written without spaces, for whose lines 13a would find one word each.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "dz"})
# What sacreBLEU chooses for a language, and characters for those that it has nothing for.
TOKENIZER_OF = dict.fromkeys(UNSPACED, "char") | {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
WITHOUT = {"ja-mecab": "char", "ko-mecab": DEFAULT_TOKENIZER}  # where their packages are not installed
# The language that a text in a script is taken for. Kana are in every Japanese text, beside Chinese characters.
_SCRIPTS = {
    **{"CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "THAI": "th", "LAO": "lo", "KHMER": "km"},
    **{"MYANMAR": "my", "TIBETAN": "bo"},
}
_KANA = 0.05  # least share of kana among a text's lines in such scripts, by each line's most frequent one


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


def choose_tokenizer(language: str, references: Sequence[str] = ()) -> str:
    """Return the tokenizer for a language, or for the script of references: wherever BLEU is computed, this decides.

    A tokenizer whose package is not installed is replaced by one that is built in; the signature says which it was.
    """
    wanted = TOKENIZER_OF.get(find_special(language, references) or "", DEFAULT_TOKENIZER)
    return wanted if wanted not in WITHOUT or _is_installed(wanted) else WITHOUT[wanted]


def find_special(language: str, references: Sequence[str] = ()) -> str | None:
    """Return the language without its region if it has a tokenizer of its own, or else that of the references' script.

    None: it has none, and half of the references or more are in scripts with spaces.
    """
    main = drop_region(language, ())
    if main in TOKENIZER_OF:
        return main
    counts = Counter(SCRIPTS[find_script(line)] for line in references)
    lines = sum(many for script, many in counts.items() if script != "NONE")
    found = Counter[str]()
    for script in counts.keys() & _SCRIPTS.keys():
        found[_SCRIPTS[script]] += counts[script]
    if 2 * found.total() <= lines:
        return None
    return "ja" if found["ja"] > _KANA * found.total() else found.most_common(1)[0][0]


def _is_installed(tokenize: str) -> bool:
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=tokenize)
    except (RuntimeError, ImportError):
        return False
    return True


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
