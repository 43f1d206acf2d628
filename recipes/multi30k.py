"""Multi30k: captions of photographs, 29,000 pairs, English to German or French, in lower case.

    python recipes/multi30k.py DATA --out runs/multi30k-de
    python recipes/multi30k.py DATA --out runs/multi30k-fr --to fr
    python recipes/multi30k.py DATA --out runs/multi30k-de-best --teachers 3

DATA holds train, val and test_2016_flickr with the endings .en, .de and .fr, packed or not. CONFIG was chosen on val
(docs/log.md) and trains in 21 s on an H200 once its kernels are compiled. With `--teachers` models of both directions
translate the training set, each differently, and the final model learns from all of it (data diversification, Nguyen
et al. 2020); its settings are not tuned yet.
"""

from dataclasses import replace
from pathlib import Path

from recipe import Arguments, Recipe, find_text, read_lines, run, write_lines

from transduce.config import BatchConfig, Config, ModelConfig, SearchConfig, TrainingConfig
from transduce.text.subwords import SubwordsConfig

CONFIG = Config(
    model=ModelConfig(layers=4, d_model=256, d_ff=1024, heads=4, dropout=0.35, feed_forward_dropout=0.1),
    batch=BatchConfig(source_tokens=4096, target_tokens=4096),
    training=TrainingConfig(
        steps=5000,
        schedule="linear",
        warmup_steps=500,
        peak_rate=0.002,
        label_smoothing=0.2,
        checkpoint_steps=1000,
        average_checkpoints=1,
        best_by="bleu",
    ),
    search=SearchConfig(beam=5, alpha=1.0),
)
DIVERSE = replace(
    CONFIG,
    model=replace(CONFIG.model, dropout=0.3),
    batch=replace(CONFIG.batch, source_tokens=8192, target_tokens=8192),
    training=replace(CONFIG.training, steps=12_000, checkpoint_steps=2000),
)


def main() -> None:
    """From raw files to scores."""
    arguments = Arguments(__doc__, subwords=8000)
    arguments.add_argument("--to", choices=["de", "fr"], default="de")
    arguments.add_argument("--teachers", type=int, default=0, help="models of each direction that teach the final one")
    given = arguments.parse_args()
    recipe = Recipe(given)

    text: dict[str, Path] = {}
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("en", given.to):
            path = find_text(given.data, f"{name}.{language}")
            recipe.read(path)
            lines = [line.lower() for line in read_lines(path)]
            text[f"{name}.{language}"] = write_lines(given.out / "text" / f"{name}.{language}", lines)

    def prepare(name: str, source: str, target: str, train: str = "train", reuse: Path | None = None) -> Path:
        return recipe.prepare(
            name,
            source=(text[f"{train}.{source}"],),
            target=(text[f"{train}.{target}"],),
            dev_source=(text[f"val.{source}"],),
            dev_target=(text[f"val.{target}"],),
            test_source=(text[f"test_2016_flickr.{source}"],),
            test_target=(text[f"test_2016_flickr.{target}"],),
            subwords=SubwordsConfig(size=given.subwords, reuse=reuse),
        )

    data = prepare("data", "en", given.to)
    if given.teachers:
        back = prepare("back", given.to, "en", reuse=data)
        lines = {language: read_lines(text[f"train.{language}"]) for language in ("en", given.to)}
        taught = {language: list(known) for language, known in lines.items()}
        for seed in range(1, given.teachers + 1):
            config = replace(CONFIG, training=replace(CONFIG.training, seed=seed))
            for source, target, folder in (("en", given.to, data), (given.to, "en", back)):
                teacher = recipe.train(f"teacher-{target}-{seed}", folder, config)
                said = recipe.translate(f"train-{seed}.{target}", teacher, text[f"train.{source}"])
                taught[source] += lines[source]
                taught[target] += read_lines(said)
        for language, all_lines in taught.items():
            text[f"diverse.{language}"] = write_lines(given.out / "text" / f"diverse.{language}", all_lines)
        data = prepare("diverse", "en", given.to, "diverse", reuse=data)
    trained = recipe.train("run", data, DIVERSE if given.teachers else CONFIG)
    for name in ("val", "test_2016_flickr"):
        said = recipe.translate(f"{name}.{given.to}", trained, text[f"{name}.en"])
        recipe.score(name, said, find_text(given.data, f"{name}.{given.to}"), language=given.to, lowercase=True)
    recipe.finish()


if __name__ == "__main__":
    run(main)
