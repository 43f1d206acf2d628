"""The paper's own BLEU (Table 2): Moses tokens, German compounds split at hyphens, no smoothing.

The steps are those of tensor2tensor's get_ende_bleu.sh: replace-unicode-punctuation.perl, tokenizer.perl, a
substitution that makes three words of a hyphenated compound, multi-bleu.perl. There, punctuation was replaced only in
the translations, since the references came ready; here, it is replaced in both.
"""

import re
from importlib.metadata import version
from typing import TYPE_CHECKING

from transduce.errors import UsageError, suggest

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

# Those whose abbreviations Moses knows; in others it would take abbreviations for ends of sentences.
LANGUAGES = frozenset(
    """as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk sl sv ta tdt te yue
    zh""".split()
)
SPLIT_COMPOUNDS = frozenset({"de"})

_COMPOUND = re.compile(r"(\S)-(\S)")


class MosesTokens:
    """Turns a sentence into the tokens, between single spaces, that the paper's BLEU counts."""

    def __init__(self, language: str):
        if language not in LANGUAGES:
            remedy = suggest(language, LANGUAGES) or f"; choose among {' '.join(sorted(LANGUAGES))}"
            raise UsageError(f"the paper's BLEU cannot tokenise the language {language}{remedy}")
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        self.language = language
        self.punctuation, self.tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)

    def __call__(self, sentence: str) -> str:
        """Return the tokens of a sentence."""
        plain = self.punctuation.replace_unicode_punct(sentence)
        tokens = str(self.tokenizer.tokenize(plain, return_str=True))
        return split_compounds(tokens) if self.language in SPLIT_COMPOUNDS else tokens

    def signature(self) -> str:
        """Return the name of these tokens in a signature."""
        compounds = "-compounds" if self.language in SPLIT_COMPOUNDS else ""
        return f"moses-{self.language}{compounds}-{version('sacremoses')}"


def split_compounds(tokens: str) -> str:
    """Make three words of a hyphenated one; between single letters (a-b-c), split at every other hyphen only."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def make_paper_bleu(language: str, *, lowercase: bool) -> "BLEU":
    """Return sacreBLEU's metric set to compute what multi-bleu.perl computes on the paper's tokens."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", lowercase=lowercase, force=True)
    tokens = MosesTokens(language)
    metric.tokenizer = tokens  # pyright: ignore[reportAttributeAccessIssue]
    metric.tokenizer_signature = tokens.signature()
    return metric
