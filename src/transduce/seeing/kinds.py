"""The names that the pages, the pictures and the command line share; nothing heavy is imported for them."""

from typing import Literal, get_args

Kind = Literal["encoder", "decoder", "cross"]
"""the encoder's attention to its own sentence, the decoder's to what was said, and the decoder's to the encoder"""
KINDS: tuple[Kind, ...] = get_args(Kind)
View = Literal["lines", "map"]
