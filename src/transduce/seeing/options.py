"""What may be asked of pictures and of the measures of heads."""

from collections.abc import Iterator
from dataclasses import dataclass

from transduce.seeing.kinds import Kind, View
from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class PictureConfig(Settings):
    """What --svg draws."""

    kind: Kind = "encoder"
    """self-attention of the encoder or the decoder, or the decoder's attention to the encoder (cross)"""
    layer: int | None = None
    """layer, counted from 1; off: the last"""
    head: tuple[int, ...] = ()
    """heads, counted from 1; all if none is named"""
    view: View = "lines"
    """lines between words as in the paper's figures, or one heat map for each head"""
    word: str = ""
    """draw only what this word attends to"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "layer")
        yield from (f"head = {head} is out of range; use 1 or more" for head in self.head if head < 1)


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Settings):
    """What to measure."""

    sentences: int = 500
    """measure over the first N sentences of the files"""
    switch: bool = True
    """also measure the loss with each head switched off"""
    bleu: bool = False
    """also measure BLEU with each head switched off; translates all these sentences once for each head"""
    only: tuple[str, ...] = ()
    """switch off only these heads, such as cross.1.2 (layer 1, head 2); if none is named, each in turn"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "sentences")
        for name in ("bleu", "only"):
            if getattr(self, name) and not self.switch:
                yield f"{name} needs heads to be switched off, but switch = false; use one of them"
