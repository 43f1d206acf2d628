"""The demo: translate held-out sentences of the built-in corpus with a run, and show the correct answers beside them.

transduce prepare demo/numbers --builtin numbers
transduce train demo/numbers --preset tiny --out demo/run
python recipes/demo.py demo/run
"""

import argparse
import sys

from transduce import Translator
from transduce.text import numbers

SENTENCES, SHOWN = 1000, 8
BAR = 0.97


def main() -> int:
    """Translate the test split; print some of it, and the share that is exactly right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run made by transduce train, or a model")
    translator = Translator.load(parser.parse_args().run)
    pairs = numbers.corpus("test", SENTENCES)
    translations = [found.text for found in translator.translate([source for source, _ in pairs])]
    for (source, target), translation in list(zip(pairs, translations))[:SHOWN]:
        print(f"source       {source}\ntruth        {target}\ntranslation  {translation}\n")
    right = sum(target == translation for (_, target), translation in zip(pairs, translations)) / len(pairs)
    print(f"{right:.1%} of {len(pairs):,} held-out sentences are translated exactly right")
    if right < BAR:
        print(f"error: that is below {BAR:.0%}; train longer", file=sys.stderr)
    return int(right < BAR)


if __name__ == "__main__":
    sys.exit(main())
