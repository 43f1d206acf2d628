"""Every row of the paper's Table 3, on the same text for the same number of steps, and so of tokens.

    python recipes/table3.py DATA --out runs/table3
    python recipes/table3.py DATA --out runs/table3 --rows A-heads-1 A-heads-4      only these, the others later

DATA is laid out as for en-de.py; `--every 6` uses every sixth pair of each corpus. The rows differ only as they do in
the paper. Compare their order by perplexity on newstest2013 with the paper's, not the numbers: the text and the number
of steps are different. Here, big is trained like the other rows, with its dropout of 0.3. As in the paper, translations
come from the last checkpoint, with beam 4.

Each row has its own folder and results.json. So rows can be trained in parallel, or on other machines, after a first
call without rows (`--rows` alone) has prepared the text; use the same `--set` and `--subwords`. table3.json collects
all finished rows and their times.
"""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from news import DEV, TEST, checkpoint_every, find_pair
from recipe import Arguments, Recipe, count, find_text, read_lines, run, write_lines

from transduce.config import Config
from transduce.disk import write_json
from transduce.model.saved import find_model, read_config
from transduce.presets import PRESETS
from transduce.text.subwords import SubwordsConfig

# Perplexity and BLEU on newstest2013 (Table 3).
PAPER = {
    "base": (4.92, 25.8),
    "A-heads-1": (5.29, 24.9),
    "A-heads-4": (5.00, 25.5),
    "A-heads-16": (4.91, 25.8),
    "A-heads-32": (5.01, 25.4),
    "B-d_k-16": (5.16, 25.1),
    "B-d_k-32": (5.01, 25.4),
    "C-layers-2": (6.11, 23.7),
    "C-layers-4": (5.19, 25.3),
    "C-layers-8": (4.88, 25.5),
    "C-d_model-256": (5.75, 24.5),
    "C-d_model-1024": (4.66, 26.0),
    "C-d_ff-1024": (5.12, 25.4),
    "C-d_ff-4096": (4.75, 26.2),
    "D-dropout-0.0": (5.77, 24.6),
    "D-dropout-0.2": (4.95, 25.5),
    "D-smoothing-0.0": (4.67, 25.3),
    "D-smoothing-0.2": (5.47, 25.7),
    "E-learned": (4.92, 25.7),
    "big": (4.33, 26.4),
}
STEPS, TOKENS = 4000, 12_500  # half of the paper's batch: in so short a training, twice as many steps get further


def make_config(row: str) -> Config:
    """Return a row's settings for our length: the rate rises to equation 3's peak, then falls linearly to zero."""
    config = PRESETS[row].config
    training = replace(
        config.training,
        steps=STEPS,
        schedule="linear",
        warmup_steps=1000,
        peak_rate=(config.model.d_model * 4000) ** -0.5,
        clip=1.0,
        average_checkpoints=1,
        bleu_sentences=0,
    )
    batch = replace(config.batch, source_tokens=TOKENS, target_tokens=TOKENS, parts=4)
    return checkpoint_every(replace(config, batch=batch, training=training), 1 / 4)


def take_every(recipe: Recipe, folder: Path, every: int) -> tuple[Path, Path]:
    """Write every Nth pair of all corpora to one file per language."""
    sides: dict[str, list[str]] = {"en": [], "de": []}
    names = sorted({path.name.split(".en")[0] for path in folder.glob("*.en*")} - {DEV, TEST})
    for name in names:
        for language, lines in sides.items():
            path = find_text(folder, f"{name}.{language}")
            recipe.read(path)
            lines += read_lines(path)[::every]
    english, german = (write_lines(recipe.out / "text" / f"train.{side}", lines) for side, lines in sides.items())
    return english, german


def rank_correlation(first: list[float], second: list[float]) -> float | None:
    """Return Spearman's correlation of ranks, which equal values share; None if all values of one list are equal."""
    if min(len(set(first)), len(set(second))) < 2:
        return None

    def ranks(values: list[float]) -> np.ndarray:
        array = np.array(values)
        return (array[:, None] > array).sum(1) + (array[:, None] == array).sum(1) / 2

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def main() -> None:
    """Train the requested rows, and print all finished ones beside the paper's."""
    arguments = Arguments(__doc__, subwords=37_000)
    arguments.add_argument("--every", type=count, default=1, help="use one in this many pairs (default: all)")
    arguments.add_argument("--rows", nargs="*", action="extend", choices=PAPER, metavar="ROW", help="(default: all)")
    given = arguments.parse_args()
    rows = vars(given).pop("rows")  # not recorded: the order of training does not matter
    rows = PAPER if rows is None else rows
    recipe = Recipe(given)
    dev, test = (find_pair(given.data, name, ("en", "de")) for name in (DEV, TEST))
    data = recipe.out / "data"
    if "prepare data" not in recipe.found["steps"]:
        source, target = take_every(recipe, given.data, given.every)
        recipe.prepare(
            "data",
            source=(source,),
            target=(target,),
            dev_source=dev[:1],
            dev_target=dev[1:],
            test_source=test[:1],
            test_target=test[1:],
            subwords=SubwordsConfig(size=given.subwords),
        )
    for row in rows:
        own = Recipe(Namespace(**{**vars(given), "out": recipe.out / row}))
        model = own.train("run", data, make_config(row))
        own.step("parameters", lambda: {"parameters": read_config(find_model(model)).model.parameters()})  # noqa: B023
        own.score(DEV, own.translate(f"{DEV}.de", model, dev[0]), dev[1], language="de")
    show(recipe)
    recipe.finish()


def show(recipe: Recipe) -> None:
    """Print the table, and write it with all that is recorded of each row."""
    table: list[dict[str, Any]] = []
    for row, (perplexity, bleu) in PAPER.items():
        results = recipe.out / row / "results.json"
        found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {"steps": {}}
        if f"score {DEV}" in found["steps"]:
            training, scores = found["steps"]["train run"], found["steps"][f"score {DEV}"]
            ours = {
                "row": row,
                "parameters": found["steps"]["parameters"]["parameters"],
                "perplexity": training["dev"][-1]["perplexity"],
                "bleu": scores["bleu"]["value"],
            }
            known = {name: found[name] for name in ("commit", "machine")}
            paper = {"paper_perplexity": perplexity, "paper_bleu": bleu}
            table.append(ours | paper | known | {"training": training, "scores": scores})
    print(f"{'row':17}{'millions':>9}{'perplexity':>11}{'paper':>7}{'BLEU':>7}{'paper':>7}")
    for each in table:
        print(
            f"{each['row']:17}{each['parameters'] / 1e6:9.1f}{each['perplexity']:11.2f}"
            f"{each['paper_perplexity']:7.2f}{each['bleu']:7.1f}{each['paper_bleu']:7.1f}"
        )
    correlation: dict[str, float | None] = {}
    for name in ("perplexity", "bleu"):
        columns = [[each[column] for each in table] for column in (name, f"paper_{name}")]
        correlation[name] = found = rank_correlation(*columns)
        if found is not None:
            print(f"rank correlation of {len(table)} rows by {name} (Spearman): {found:.3f}")
    write_json(recipe.out / "table3.json", {**recipe.found, "rows": table, "rank_correlation": correlation})


if __name__ == "__main__":
    run(main)
