"""What recipes for news share: prepare, train, translate newstest2013 (dev) and newstest2014 (test), and score both."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recipe import Arguments, Recipe, find_text, read_sgm, write_lines

from transduce.config import Config
from transduce.errors import DataError
from transduce.text.subwords import SubwordsConfig

DEV, TEST = "newstest2013", "newstest2014"
Pair = tuple[Path, Path]


def checkpoint_every(config: Config, share: float) -> Config:
    """The same settings with checkpoints so large a share of the training apart."""
    return replace(config, training=replace(config.training, checkpoint_steps=round(share * config.training.steps)))


def learn_pool(text: str | None, target: str, *, subwords: int, ways: Mapping[str, Config]) -> None:
    """A recipe from English, or back, with all corpora of a folder, trained in one of several ways."""
    arguments = Arguments(text, subwords)
    arguments.add_argument("--training", choices=ways, default=next(iter(ways)))
    arguments.add_argument("--reverse", action="store_true", help="to English")
    given = arguments.parse_args()
    languages = (target, "en") if given.reverse else ("en", target)
    names = sorted({path.name.split(".en")[0] for path in given.data.glob("*.en*")} - {DEV, TEST})
    if not names:
        raise DataError(f"{given.data}: has no file whose name ends in .en")

    def pair(name: str) -> Pair:
        source, target = (find_text(given.data, f"{name}.{language}") for language in languages)
        return source, target

    recipe = Recipe(given)
    _learn(
        recipe,
        [pair(name) for name in names],
        pair(DEV),
        pair(TEST),
        languages[1],
        given.subwords,
        ways[given.training],
    )


def learn_wmt14(
    text: str | None, target: str, *, corpora: Sequence[str], subwords: int, sizes: Mapping[str, Config]
) -> None:
    """A recipe from English with the corpora of WMT14, wherever below the folder they were unpacked."""
    arguments = Arguments(text, subwords)
    arguments.add_argument("--size", choices=sizes, default=next(iter(sizes)))
    given = arguments.parse_args()
    recipe = Recipe(given)

    def find(*among: str) -> Path:
        for name in among:
            for path in sorted(given.data.rglob(f"{name}*")):
                if path.name.removeprefix(name) in ("", ".gz", ".xz", ".bz2", ".zst"):
                    return path
        raise DataError(f"{given.data}: neither it nor a folder in it has {' or '.join(among)}")

    def find_set(name: str, role: str, language: str) -> Path:
        path = find(f"{name}.{language}", f"{name}-{target}en-{role}.{language}.sgm", f"{name}-{role}.{language}.sgm")
        if path.suffix != ".sgm":
            return path
        recipe.read(path)
        return write_lines(recipe.out / "text" / f"{name}.{language}", read_sgm(path))

    train = [(find(f"{name}.en"), find(f"{name}.{target}")) for name in corpora]
    dev, test = ((find_set(name, "src", "en"), find_set(name, "ref", target)) for name in (DEV, TEST))
    _learn(recipe, train, dev, test, target, given.subwords, sizes[given.size])


def _learn(
    recipe: Recipe, train: Sequence[Pair], dev: Pair, test: Pair, language: str, subwords: int, config: Config
) -> None:
    """From files to scores; sentences of dev and test set are kept out of the training set."""
    data = recipe.prepare(
        "data",
        source=tuple(pair[0] for pair in train),
        target=tuple(pair[1] for pair in train),
        dev_source=dev[:1],
        dev_target=dev[1:],
        test_source=test[:1],
        test_target=test[1:],
        subwords=SubwordsConfig(size=subwords),
    )
    trained = recipe.train("run", data, config)
    for name, (source, reference) in ((DEV, dev), (TEST, test)):
        said = recipe.translate(f"{name}.{language}", trained, source)
        recipe.score(name, said, reference, language=language)
    recipe.finish()
