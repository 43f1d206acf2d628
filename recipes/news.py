"""Shared by the news recipes: prepare, train, translate newstest2013 (dev) and newstest2014 (test), and score both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from recipe import Arguments, Recipe, find_text, read_sgm, write_lines

from transduce.config import Config
from transduce.errors import DataError
from transduce.presets import modernise
from transduce.text.subwords import SubwordsConfig
from transduce.text.vary import VaryConfig
from transduce.training.warm import Start

DEV, TEST = "newstest2013", "newstest2014"
Pair = tuple[Path, Path]


@dataclass(frozen=True)
class Last:
    """The last steps of a training, on the corpora that are most like what the model is for."""

    corpora: Mapping[str, float]
    """how often an epoch shows each of them"""
    config: Config
    vary: VaryConfig = field(default_factory=VaryConfig)
    """shares of their pairs that are also shown in other forms"""


@dataclass(frozen=True)
class Way:
    """How a model is trained."""

    config: Config
    last: Last | None = None
    corpora: Mapping[str, float] = field(default_factory=lambda: {"*": 1.0})
    """how often an epoch shows each corpus, by the first pattern that matches it; corpora without one are left out"""


# The test sets of earlier years, and what else is most like news.
NEWS = {"newstest2009-2012": 4.0, "pud": 4.0, "xquad": 2.0, "fsfe": 1.0, "tatoeba": 0.25}
NEWS |= {"europarl.9": 0.25, "europarl": 0.5}  # the newest sittings, or all of a small corpus


def make_modern(config: Config, *, steps: int, share: float) -> Way:
    """Return the modern training, which ends with news."""
    config = modernise(config)
    training = replace(config.training, steps=steps, bleu_sentences=3000)
    last = replace(training, steps=500, warmup_steps=50, peak_rate=0.0006, checkpoint_steps=100, best_by="bleu")
    return Way(checkpoint_every(replace(config, training=training), share), Last(NEWS, replace(config, training=last)))


def checkpoint_every(config: Config, share: float) -> Config:
    """Return the settings with a checkpoint after every `share` of the training."""
    return replace(config, training=replace(config.training, checkpoint_steps=round(share * config.training.steps)))


def choose(names: Sequence[str], corpora: Mapping[str, float]) -> dict[str, float]:
    """Return how often to show each corpus, leaving out those that no pattern matches."""
    found: dict[str, float] = {}
    for name in names:
        fitting = [often for pattern, often in corpora.items() if fnmatchcase(name, pattern)]
        if fitting:
            found[name] = fitting[0]
    if not found:
        raise DataError(f"of {', '.join(names)} none is called {' or '.join(corpora)}")
    return found


def learn_pool(text: str | None, target: str, *, subwords: int, ways: Mapping[str, Way]) -> None:
    """Run a recipe from English, or back, with all corpora of a folder, trained in one of several ways."""
    arguments = Arguments(text, subwords)
    arguments.add_argument("--training", choices=ways, default=next(iter(ways)))
    arguments.add_argument("--reverse", action="store_true", help="translate into English instead")
    given = arguments.parse_args()
    languages = (target, "en") if given.reverse else ("en", target)
    train, dev, test = find_pool(given.data, languages)
    _learn(Recipe(given), train, dev, test, languages[1], given.subwords, ways[given.training])


def find_pool(data: Path, languages: tuple[str, str]) -> tuple[dict[str, Pair], Pair, Pair]:
    """Return the corpora of a folder by their names, and its dev and test set."""
    names = sorted({path.name.split(".en")[0] for path in data.glob("*.en*")} - {DEV, TEST})
    if not names:
        raise DataError(f"{data}: has no file whose name ends in .en")
    corpora = {name: find_pair(data, name, languages) for name in names}
    return corpora, find_pair(data, DEV, languages), find_pair(data, TEST, languages)


def find_pair(data: Path, name: str, languages: tuple[str, str]) -> Pair:
    """Return the two files of a corpus."""
    source, target = (find_text(data, f"{name}.{language}") for language in languages)
    return source, target


def learn_wmt14(
    text: str | None, target: str, *, corpora: Sequence[str], subwords: int, sizes: Mapping[str, Config]
) -> None:
    """Run a recipe from English with the corpora of WMT14, wherever below the folder they were unpacked."""
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

    train = {name: (find(f"{name}.en"), find(f"{name}.{target}")) for name in corpora}
    dev, test = ((find_set(name, "src", "en"), find_set(name, "ref", target)) for name in (DEV, TEST))
    _learn(recipe, train, dev, test, target, given.subwords, Way(sizes[given.size]))


def _learn(
    recipe: Recipe, train: Mapping[str, Pair], dev: Pair, test: Pair, language: str, subwords: int, way: Way
) -> None:
    """Train a model, translate the dev and test sets, and score them."""
    trained = learn(recipe, train, dev, [test], SubwordsConfig(size=subwords), way)
    for name, (source, reference) in ((DEV, dev), (TEST, test)):
        said = recipe.translate(f"{name}.{language}", trained, source)
        recipe.score(name, said, reference, language=language)
    recipe.finish()


def learn(
    recipe: Recipe,
    train: Mapping[str, Pair],
    dev: Pair,
    tests: Sequence[Pair],
    subwords: SubwordsConfig,
    way: Way,
    start: str | None = None,
) -> Path:
    """Train a model from files, or run the last steps of a given one; no dev or test sentence is trained on."""

    def prepare(name: str, corpora: Mapping[str, float], subwords: SubwordsConfig, vary: VaryConfig) -> Path:
        chosen = choose(list(train), corpora)
        return recipe.prepare(
            name,
            source=tuple(train[each][0] for each in chosen),
            target=tuple(train[each][1] for each in chosen),
            weight=tuple(chosen.values()),
            dev_source=dev[:1],
            dev_target=dev[1:],
            test_source=tuple(test[0] for test in tests),
            test_target=tuple(test[1] for test in tests),
            subwords=subwords,
            vary=vary,
        )

    known = Path(start) if start else prepare("data", way.corpora, subwords, VaryConfig())
    trained = known if start else recipe.train("run", known, way.config)
    if way.last is None:
        return trained
    last = prepare("data-last", way.last.corpora, SubwordsConfig(reuse=known), way.last.vary)
    return recipe.train("run-last", last, way.last.config, Start(trained))
