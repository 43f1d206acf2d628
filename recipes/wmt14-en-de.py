"""The paper's English-German results (Table 2) from the WMT14 files as they are distributed.

    python recipes/wmt14-en-de.py DATA --out runs/wmt14-en-de
    python recipes/wmt14-en-de.py DATA --out runs/wmt14-en-de-big --size big

DATA holds, in any folders, europarl-v7.de-en, commoncrawl.de-en and news-commentary-v9.de-en with the endings .en and
.de, newstest2013 and newstest2014 (plain, or newstest2014-deen-src.en.sgm and -ref.de.sgm). A step takes 24 ms (base)
or 62 ms (big) on an H200: 40 minutes and five hours in all.
"""

from news import checkpoint_every, learn_wmt14
from recipe import run

from transduce.presets import BASE, BIG

CORPORA = ("europarl-v7.de-en", "commoncrawl.de-en", "news-commentary-v9.de-en")
# As many checkpoints as in the paper: one every ten minutes for 12 hours, or for 3.5 days (sections 5.2 and 6.1).
SIZES = {"base": checkpoint_every(BASE, 1 / 72), "big": checkpoint_every(BIG, 1 / 504)}

if __name__ == "__main__":
    run(lambda: learn_wmt14(__doc__, "de", corpora=CORPORA, subwords=37_000, sizes=SIZES))
