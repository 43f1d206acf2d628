"""Constituency parsing (section 6.3): from a treebank to F1.

    python recipes/parsing.py DATA --out runs/craft                        DATA holds train, dev and test.mrg
    python recipes/parsing.py DATA --out runs/craft-3 --models 3           and an ensemble of three
    python recipes/parsing.py DATA --out runs/craft-en --encoder en-de     begins with a translator's encoder
    python recipes/parsing.py DATA --out runs/wsj --preset parsing --wsj   DATA holds the sections 00 to 24

With `--wsj` the sections are those of the paper: 02 to 21 to train on, 22 as dev and 23 as test set, as in the folder
`parsed/mrg/wsj` of the Penn Treebank, which needs a licence. Scores are those of the last checkpoint, of the mean of
the last five and of an ensemble of such means, each with and without test sentences that also stand in training. Other
treebanks are other text: their scores are not to be compared with Table 4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from recipe import Arguments, Recipe, find_text, run, write_lines

from transduce.errors import DataError
from transduce.model.saved import find_model, read_config
from transduce.presets import PRESETS, borrow_encoder
from transduce.text.inputs import PARSING
from transduce.training.averaging import choose_checkpoints
from transduce.training.warm import Start

# How trees are written, and what more is learnt from: docs/log.md has what each brings.
WRITING = {
    "parsing": {"openings": "labelled", "slots": "tags"},
    "parsing-small": {"openings": "labelled", "slots": "words", "constituents": 4, "joined": 1},
}


def find_sections(recipe: Recipe, folder: Path, sections: Iterable[int], name: str) -> Path:
    """All trees of some sections of the WSJ in one file."""
    lines: list[str] = []
    for section in sections:
        files = sorted((folder / f"{section:02}").glob("*.mrg"))
        if not files:
            raise DataError(f"{folder}: has no {section:02}/*.mrg; give the folder that holds the sections 00 to 24")
        recipe.read(*files)
        for path in files:
            lines += path.read_text(encoding="utf-8").splitlines()
    return write_lines(recipe.out / "text" / name, lines)


def main() -> None:
    """From trees to scores."""
    arguments = Arguments(__doc__, subwords=8000)
    arguments.add_argument("--preset", choices=list(WRITING), default="parsing-small")
    arguments.add_argument("--models", type=int, default=1, help="as many models with other seeds, as an ensemble")
    arguments.add_argument("--encoder", metavar="MODEL", help="begin with the encoder of a model from English")
    arguments.add_argument("--wsj", action="store_true", help="the sections of the Wall Street Journal")
    given = arguments.parse_args()
    recipe = Recipe(given)
    if given.wsj:
        parts = {"train": range(2, 22), "dev": [22], "test": [23]}
        train, dev, test = (find_sections(recipe, given.data, of, f"{name}.mrg") for name, of in parts.items())
    else:
        train, dev, test = (find_text(given.data, f"{name}.mrg") for name in ("train", "dev", "test"))
        recipe.read(test)
    encoder = Path(given.encoder) if given.encoder else None
    subwords = replace(PARSING.subwords, size=given.subwords, reuse=encoder)
    settings = {"task": "parsing", "clean": PARSING.clean, "subwords": subwords, **WRITING[given.preset]}
    data = recipe.prepare("data", trees=(train,), dev_trees=(dev,), **settings)
    config = PRESETS[given.preset].config
    if encoder:
        config = borrow_encoder(config, read_config(find_model(encoder)))
    means: list[Path] = []
    for seed in range(1, given.models + 1):
        own = replace(config, training=replace(config.training, seed=seed))
        run = recipe.train(f"run-{seed}", data, own, Start(encoder, encoder=True) if encoder else None)
        means.append(recipe.average(f"mean-{seed}", run))

    def parse(name: str, models: Sequence[Path], gold: Path, **settings: bool) -> None:
        found = recipe.parse(f"{name}.trees", models, gold, **settings)
        recipe.score_trees(name, found, gold)
        recipe.score_trees(f"{name} without sentences of train", found, gold, leave_out=train)

    last = choose_checkpoints(recipe.out / "run-1", last=1)
    parse("dev last", last, dev)
    parse("dev mean", means[:1], dev)
    parse("dev not constrained", means[:1], dev, constrained=False)
    parse("test last", last, test)
    parse("test mean", means[:1], test)
    if len(means) > 1:
        parse(f"test {len(means)} models", means, test)
    recipe.finish()


if __name__ == "__main__":
    run(main)
