"""The paper's English-French results (Table 2) from the WMT14 files as they are distributed: 36 million pairs.

    python recipes/wmt14-en-fr.py DATA --out runs/wmt14-en-fr
    python recipes/wmt14-en-fr.py DATA --out runs/wmt14-en-fr-big --size big

DATA holds, in any folders, europarl-v7.fr-en, commoncrawl.fr-en, news-commentary-v9.fr-en, undoc.2000.fr-en and
giga-fren.release2.fixed with the endings .en and .fr, newstest2013 and newstest2014 (plain, or
newstest2014-fren-src.en.sgm and -ref.fr.sgm). A step takes 24 ms (base) or 62 ms (big) on an H200.
"""

from news import checkpoint_every, learn_wmt14
from recipe import run

from transduce.presets import BASE, PRESETS

CORPORA = (
    *("europarl-v7.fr-en", "commoncrawl.fr-en", "news-commentary-v9.fr-en"),
    *("undoc.2000.fr-en", "giga-fren.release2.fixed"),
)
# As many checkpoints as in the paper: one every ten minutes for 12 hours, or for 3.5 days (sections 5.2 and 6.1).
SIZES = {"base": checkpoint_every(BASE, 1 / 72), "big": checkpoint_every(PRESETS["big-en-fr"].config, 1 / 504)}

if __name__ == "__main__":
    run(lambda: learn_wmt14(__doc__, "fr", corpora=CORPORA, subwords=32_000, sizes=SIZES))
