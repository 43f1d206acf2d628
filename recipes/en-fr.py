"""English to French, or back, from 0.4 million pairs of many kinds of text; tested on newstest2014.

    python recipes/en-fr.py DATA --out runs/en-fr                                     the paper's training
    python recipes/en-fr.py DATA --out runs/en-fr-modern --training modern            as for German, with more dropout

DATA holds NAME.en and NAME.fr for each corpus, newstest2013 and newstest2014, compressed or not. The text is a
hundredth of WMT14's and from other domains, so do not compare the scores with the paper's.
"""

from dataclasses import replace

from news import Way, checkpoint_every, learn_pool, make_modern
from recipe import run

from transduce.presets import BASE

STEPS = 8000
PAPER = Way(checkpoint_every(replace(BASE, training=replace(BASE.training, steps=STEPS)), 1 / 72))
MODERN = make_modern(replace(BASE, model=replace(BASE.model, dropout=0.3)), steps=STEPS, share=1 / 12)

if __name__ == "__main__":
    run(lambda: learn_pool(__doc__, "fr", subwords=16_000, ways={"paper": PAPER, "modern": MODERN}))
