"""Multi30k: captions of photographs, 29,000 pairs, English to German or French, in lower case.

    python recipes/multi30k.py DATA --out runs/multi30k-de
    python recipes/multi30k.py DATA --out runs/multi30k-fr --to fr
    python recipes/multi30k.py DATA --out runs/multi30k-quick --quick

DATA holds train, val and test_2016_flickr with the endings .en, .de and .fr, compressed or not. The settings were
chosen on val (docs/log.md). With so few pairs, R-Drop (`training.agreement`) matters most.
"""

from dataclasses import replace
from pathlib import Path

from recipe import Arguments, Recipe, find_text, read_lines, run, write_lines

from transduce.config import BatchConfig, Config, ModelConfig, SearchConfig, TrainingConfig
from transduce.text.subwords import SubwordsConfig

CONFIG = Config(
    model=ModelConfig(layers=4, d_model=256, d_ff=1024, heads=4, dropout=0.3, feed_forward_dropout=0.1),
    batch=BatchConfig(source_tokens=8192, target_tokens=8192),
    training=TrainingConfig(
        steps=10_000,
        schedule="linear",
        warmup_steps=500,
        peak_rate=0.002,
        label_smoothing=0.2,
        agreement=5.0,
        checkpoint_steps=1000,
        average_checkpoints=1,
        best_by="bleu",
    ),
    search=SearchConfig(beam=5, alpha=1.4),
)
QUICK = replace(
    CONFIG,
    batch=BatchConfig(source_tokens=4096, target_tokens=4096),
    training=replace(
        CONFIG.training,
        steps=2000,
        optimiser="muon",
        warmup_steps=200,
        peak_rate=0.004,
        agreement=3.0,
        checkpoint_steps=2000,
        best_by="loss",
        bleu_sentences=0,
    ),
)


def main() -> None:
    """Train on raw files and score the model."""
    arguments = Arguments(__doc__, subwords=8000)
    arguments.add_argument("--to", choices=["de", "fr"], default="de")
    arguments.add_argument("--quick", action="store_true", help="train fewer steps of half the size")
    given = arguments.parse_args()
    recipe = Recipe(given)

    text: dict[str, Path] = {}
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", given.to):
            path = find_text(given.data, f"{name}.{language}")
            recipe.read(path)
            lines = [line.lower() for line in read_lines(path)]
            text[f"{name}.{language}"] = write_lines(given.out / "text" / f"{name}.{language}", lines)

    data = recipe.prepare(
        "data",
        source=(text["train.en"],),
        target=(text[f"train.{given.to}"],),
        dev_source=(text["val.en"],),
        dev_target=(text[f"val.{given.to}"],),
        test_source=(text["test_2016_flickr.en"],),
        test_target=(text[f"test_2016_flickr.{given.to}"],),
        subwords=SubwordsConfig(size=given.subwords),
    )
    trained = recipe.train("run", data, QUICK if given.quick else CONFIG)
    for name in ("val", "test_2016_flickr"):
        said = recipe.translate(f"{name}.{given.to}", trained, text[f"{name}.en"])
        recipe.score(name, said, find_text(given.data, f"{name}.{given.to}"), language=given.to, lowercase=True)
    recipe.finish()


if __name__ == "__main__":
    run(main)
