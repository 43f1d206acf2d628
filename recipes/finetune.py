"""Fine-tune a general English-German model on software documentation: what it gains there, and what it forgets of news.

    python recipes/finetune.py DATA --out runs/finetune --from runs/general     a model that has seen no documentation
    python recipes/finetune.py DATA --out runs/finetune                         trains one first
    python recipes/finetune.py DATA --out runs/finetune --from en-de --domain ddtp debian-guide --every 20
                                    on a CPU: the model in the box, and documentation that it has not seen
    python recipes/finetune.py DATA --out runs/finetune --size tiny --every 40  on a CPU, to see that it runs

DATA is laid out as for en-de.py. The documentation is LibreOffice's help (`--domain`). Its dev and test sets are blocks
of consecutive lines, because neighbouring lines resemble each other. General text is everything that is not about
software. The model is tuned four times: on documentation alone and with as much general text, each with its own
subwords and with new ones. Each model tuned on documentation alone is also averaged half and half with the old one.
newstest2013 is scored during training.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from news import DEV, TEST, checkpoint_every
from recipe import Arguments, Found, Recipe, count, find_text, read_lines, run, write_lines

from transduce.config import Config
from transduce.errors import DataError
from transduce.model.device import choose_device
from transduce.model.saved import find_model, read_config, read_manifest
from transduce.presets import PRESETS, modernise, tune
from transduce.text.subwords import SubwordsConfig
from transduce.training.averaging import average
from transduce.training.hardware import steps_take_long
from transduce.training.warm import Start

LANGUAGES = ("en", "de")
# Corpora about software, which are not part of general text.
SOFTWARE = {
    *("docs", "docs-mt", "mdn-mt", "libreoffice", "apps", "ddtp", "debian-guide", "debian-web", "learnosm", "tails"),
    *("mozilla-web", "mozilla-legal", "opensource-guide"),
}
BLOCK = 100  # consecutive lines that are held out together
GENERAL_STEPS, STEPS = 6000, 600
Pair = tuple[Path, Path]


def read_pair(recipe: Recipe, data: Path, name: str) -> list[tuple[str, str]]:
    """Read a corpus as pairs of lines."""
    paths = [find_text(data, f"{name}.{language}") for language in LANGUAGES]
    recipe.read(*paths)
    return list(zip(*map(read_lines, paths), strict=True))


def write_pair(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write pairs of lines as two files."""
    for side, language in enumerate(LANGUAGES):
        write_lines(folder / f"{name}.{language}", [pair[side] for pair in pairs])


def hold_out(pairs: list[tuple[str, str]], share: float = 1 / 16) -> dict[str, list[tuple[str, str]]]:
    """Hold out evenly spread blocks of lines for test, and half as many for dev; neither has a sentence twice."""
    blocks = [pairs[first : first + BLOCK] for first in range(0, len(pairs), BLOCK)]
    every = round(1 / share)
    if len(blocks) < every:
        raise DataError(f"{len(pairs):,} pairs are too few to hold some out; {every * BLOCK:,} are wanted")
    roles = {0: "test", every // 2: "dev"}
    split: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for number, block in enumerate(blocks):
        role = roles.get(number % every, "train")
        second = role == "dev" and number // every % 2
        split["train" if second else role] += block
    for role in ("dev", "test"):
        split[role] = list({pair[0].casefold(): pair for pair in split[role]}.values())
    return split


def make_texts(recipe: Recipe, data: Path, domain: Sequence[str], every: int, whole: bool) -> dict[str, Pair]:
    """Write all texts as plain files, with as much general text as documentation and, if `whole`, all of it."""
    folder = recipe.out / "text"

    def work() -> Found:
        names = sorted({path.name.split(".en")[0] for path in data.glob("*.en*")} - {DEV, TEST} - SOFTWARE - {*domain})
        if not names:
            raise DataError(f"{data}: has no general corpus whose name ends in .en")
        less = max(1, every // 10)
        texts = {DEV: read_pair(recipe, data, DEV)[::less], TEST: read_pair(recipe, data, TEST)}
        special = hold_out([pair for name in domain for pair in read_pair(recipe, data, name)][::less])
        texts |= {f"docs-{role}": pairs for role, pairs in special.items()}
        general = [pair for name in names for pair in read_pair(recipe, data, name)[::every]]
        texts["general-some"] = general[:: max(1, len(general) // len(special["train"]))]
        if whole:
            texts["general"] = general
        for name, pairs in texts.items():
            write_pair(folder, name, pairs)
        return {"pairs": {name: len(pairs) for name, pairs in texts.items()}}

    names = recipe.step("texts", work)["pairs"]
    return {name: (folder / f"{name}.{LANGUAGES[0]}", folder / f"{name}.{LANGUAGES[1]}") for name in names}


def prepare(recipe: Recipe, name: str, texts: dict[str, Pair], train: Sequence[str], dev: str, **more: Any) -> Path:
    """Prepare a data set; in every one, no dev or test sentence is in the training text."""
    sets = {"dev": [dev], "test": [TEST, "docs-test"], "watch": [({DEV, "docs-dev"} - {dev}).pop()]}
    files = {
        f"{role}_{kind}": tuple(texts[each][side] for each in names)
        for role, names in sets.items()
        for side, kind in enumerate(("source", "target"))
    }
    source, target = (tuple(texts[each][side] for each in train) for side in (0, 1))
    return recipe.prepare(name, source=source, target=target, **files, **more)


def train_general(recipe: Recipe, texts: dict[str, Pair], size: str, subwords: int) -> Path:
    """Train the general model to start from."""
    config = PRESETS[size].config
    data = prepare(recipe, "data-general", texts, ["general"], DEV, subwords=SubwordsConfig(size=subwords))
    if size != "tiny":
        config = modernise(config)
        config = checkpoint_every(replace(config, training=replace(config.training, steps=GENERAL_STEPS)), 1 / 5)
    return recipe.train("general", data, config)


def tuned_config(model: Path) -> Config:
    """Return the usual settings for fine-tuning with a fixed number of steps; they differ on a CPU."""
    known = read_config(find_model(model))
    light = steps_take_long(known, choose_device("auto"))
    config = tune(known, light=light)
    sentences = config.training.bleu_sentences if light else 500
    return replace(config, training=replace(config.training, steps=STEPS, bleu_sentences=sentences))


def warn(model: Path, domain: Sequence[str]) -> list[str]:
    """Warn if the model to start from was trained on the documentation it will be tested on; return the file names."""
    about = read_manifest(find_model(model))["about"]
    texts = [*about.get("trained_before", ()), about.get("trained_on", {"inputs": ()})]
    seen = sorted({name for text in texts for name in text["inputs"] if name.split(".")[0] in domain})
    if seen:
        print(f"{model}: was trained on {', '.join(seen)}: the scores before are too good", file=sys.stderr)
    return seen


def main() -> None:
    """Tune in four ways, translate both test sets with each model, and print the table."""
    arguments = Arguments(__doc__, subwords=32_000)
    arguments.add_argument("--from", dest="start", metavar="MODEL", help="the general model (default: train one)")
    arguments.add_argument(
        "--domain",
        nargs="+",
        action="extend",
        help="names of the documentation corpora (default: libreoffice)",
    )
    arguments.add_argument(
        "--size", choices=PRESETS, default="base", metavar="PRESET", help="size of the general model that is trained"
    )
    arguments.add_argument("--extend", type=count, default=2000, help="new subwords to learn (default %(default)s)")
    arguments.add_argument(
        "--every",
        type=count,
        default=1,
        help="use one in this many pairs of general text, and ten times that share of the documentation",
    )
    given = arguments.parse_args()
    given.domain = given.domain or ["libreoffice"]
    recipe = Recipe(given)
    texts = make_texts(recipe, given.data, given.domain, given.every, whole=not given.start)
    base = Path(given.start) if given.start else train_general(recipe, texts, given.size, given.subwords)
    seen = warn(base, given.domain)
    models = {"before": base}
    for kind, extend in (("kept", 0), ("extended", given.extend)):
        subwords = SubwordsConfig(reuse=base, extend=extend)
        for way, train in (("alone", ["docs-train"]), ("mixed", ["docs-train", "general-some"])):
            name = f"{kind}-{way}"
            data = prepare(recipe, f"data-{name}", texts, train, "docs-dev", subwords=subwords)
            models[name] = recipe.train(name, data, tuned_config(base), Start(base))
        models[f"{kind}-half"] = mix(recipe, f"{kind}-half", [base, models[f"{kind}-alone"]])
    table: list[Found] = []
    for name, model in models.items():
        scores = {}
        for test in ("docs-test", TEST):
            said = recipe.translate(f"{name}.{test}.de", model, texts[test][0])
            scores[test] = recipe.score(f"{name} {test}", said, texts[test][1], language="de")
        table.append({"model": name, **scores})
    recipe.step("table", lambda: {"rows": table, "seen": seen})
    show(table)
    recipe.finish()


def mix(recipe: Recipe, name: str, models: list[Path]) -> Path:
    """Average two models."""
    out = recipe.out / name

    def work() -> Found:
        average(models, out)
        return {"models": [str(model) for model in models]}

    recipe.step(f"mix {name}", work)
    return out


def show(table: list[Found]) -> None:
    """Print the BLEU of all models, and what they have gained or lost."""
    first = table[0]
    tests = [name for name in first if name != "model"]
    print(f"{'model':18}" + "".join(f"{name:>22}" for name in tests))
    for row in table:
        print(f"{row['model']:18}" + "".join(f"{row[name]:14.1f} ({row[name] - first[name]:+.1f})" for name in tests))


if __name__ == "__main__":
    run(main)
