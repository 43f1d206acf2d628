"""English to German, or back, from 2.8 million pairs of many kinds of text; tested on newstest2014.

    python recipes/en-de.py DATA --out runs/en-de                                     the paper's training
    python recipes/en-de.py DATA --out runs/en-de-modern --training modern            what won on newstest2013
    python recipes/en-de.py DATA --out runs/de-en-modern --training modern --reverse

DATA holds NAME.en and NAME.de for each corpus, newstest2013 and newstest2014, compressed or not. A step takes 24 ms on
an H200, and 30 ms with the modern training. The text is smaller than WMT14's and from other domains, so do not compare
the scores with the paper's.
"""

from dataclasses import replace

from news import Way, checkpoint_every, learn_pool, make_modern
from recipe import run

from transduce.presets import BASE

# 72 checkpoints, as the paper's base model has in twelve hours, one every ten minutes (sections 5.2 and 6.1).
PAPER = Way(checkpoint_every(replace(BASE, training=replace(BASE.training, steps=60_000)), 1 / 72))
MODERN = make_modern(BASE, steps=42_000, share=1 / 20)

if __name__ == "__main__":
    run(lambda: learn_pool(__doc__, "de", subwords=32_000, ways={"paper": PAPER, "modern": MODERN}))
