"""The demo: translate held-out sentences of the built-in corpus with a run, beside the truth.

transduce prepare demo/numbers --builtin numbers
transduce train demo/numbers --preset tiny --out demo/run
python recipes/demo.py demo/run
"""

import argparse
import sys

from transduce.decoding.search import greedy_all
from transduce.model.saved import load_model
from transduce.text import numbers
from transduce.text.subwords import END

SENTENCES, SHOWN = 1000, 8
BAR = 0.97


def main() -> int:
    """Translate the test split greedily, show some of it and the share that is right to the letter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run made by transduce train, or a model")
    loaded = load_model(parser.parse_args().run)
    pairs = numbers.corpus("test", SENTENCES)
    sources = [[*loaded.subwords["source"].encode(source), END] for source, _ in pairs]
    outputs = greedy_all(loaded.model, sources, loaded.config.search.extra_tokens)
    translations = [loaded.subwords["target"].decode(output) for output in outputs]
    for (source, target), translation in list(zip(pairs, translations))[:SHOWN]:
        print(f"source       {source}\ntruth        {target}\ntranslation  {translation}\n")
    right = sum(target == translation for (_, target), translation in zip(pairs, translations)) / len(pairs)
    print(f"{right:.1%} of {len(pairs):,} held-out sentences are translated right to the letter")
    if right < BAR:
        print(f"error: that is below {BAR:.0%}; train longer", file=sys.stderr)
    return int(right < BAR)


if __name__ == "__main__":
    sys.exit(main())
