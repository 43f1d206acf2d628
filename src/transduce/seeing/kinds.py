"""Names shared by the pages, the pictures and the command line; this module imports nothing heavy."""

from typing import Literal, get_args

Kind = Literal["encoder", "decoder", "cross"]
"""self-attention of the encoder, self-attention of the decoder, and the decoder's attention to the encoder"""
KINDS: tuple[Kind, ...] = get_args(Kind)
View = Literal["lines", "map"]
