"""The translators that come with transduce: small enough to ship with it, trained on text whose licences allow that.

    python recipes/box.py DATA --out runs/box-en-de --captions MULTI30K
    python recipes/box.py DATA --out runs/box-de-en --captions MULTI30K --reverse

DATA is laid out as for en-de.py, and MULTI30K as for multi30k.py; its test set is translated too. Corpora without a
stated licence are left out, including the news sets of earlier years, and so are those whose licence might bind the
weights (GPL, share-alike). Every eightieth sentence of Tatoeba goes into a test set, and no sentence in it is trained
on; it is also translated in the forms that people type. The last steps use some of the text, partly in such forms, and
sentences with numbers, times and made-up names (numerals.py), of which the text has too few; these are tested at the
end. The result is OUT/model: two parts of the weights after these steps and one part from before, 27 million weights in
int8. With `--from`, a model goes through the last steps only; on a CPU there are fewer and smaller ones, which change
the weights less, so eight parts are of those after them.

    python recipes/box.py DATA --out runs/box-en-de --captions MULTI30K --from en-de
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numerals
from news import DEV, TEST, Last, Pair, Way, find_pair, find_pool, learn, make_modern
from recipe import Arguments, Found, Recipe, read_lines, run, write_lines

from transduce import Translator
from transduce.interop.exporting import ExportJob, export_model
from transduce.model.device import choose_device
from transduce.model.saved import find_model, read_config
from transduce.presets import BASE, tune
from transduce.text.subwords import SubwordsConfig
from transduce.text.vary import Varier, VaryConfig

# How often an epoch shows each corpus: everyday sentences are few, and documentation repeats itself.
CORPORA = {
    "tatoeba": 2.0,
    "europarl*": 1.0,
    **dict.fromkeys(("mozilla-web", "opensource-guide", "learnosm"), 2.0),
    **dict.fromkeys(("docs", "libreoffice"), 0.5),
}
EVERY = 80
# A small decoder, because it takes most of the time of translating.
SIZES = replace(BASE, model=replace(BASE.model, encoder_layers=6, decoder_layers=2, d_ff=1024))
LONG = make_modern(SIZES, steps=42_000, share=1 / 12).config
SHORT = replace(LONG.training, steps=3000, warmup_steps=100, peak_rate=0.001, checkpoint_steps=500, best_by="bleu")
LAST = Last(
    {
        **dict.fromkeys(("tatoeba", "europarl.5", "europarl.9", "mozilla-web", "opensource-guide", "learnosm"), 1.0),
        **dict.fromkeys(("docs", "libreoffice"), 0.25),
        "numerals": 6.0,
    },
    replace(LONG, training=SHORT),
    VaryConfig(capitals=0.1, small=0.1, symbols=0.15, typos=0.1, names=1.0),
)
WAY = Way(LONG, LAST, CORPORA)
NUMERALS = 60_000
# Of the weights before and after the last steps: numbers stay right, and news and the rest lose less.
SHARES, LIGHT_SHARES = (1, 2), (1, 8)
# Everyday test sentences are also typed in each of these forms, one at a time.
FORMS = {form: VaryConfig(**{form: 1.0}) for form in ("capitals", "small", "symbols", "typos")}
NAME = re.compile(r"\b[^\W\d_]{4,}\b")


def make_light(start: str) -> Way:
    """Return the last steps for a CPU: fewer, on smaller batches."""
    config = tune(read_config(find_model(Path(start))), light=True)
    batch = replace(config.batch, source_tokens=4000, target_tokens=4000)
    limits = {"steps": 1000, "checkpoint_steps": 250, "patience": None}
    training = replace(config.training, schedule="linear", **limits)
    return replace(WAY, last=replace(LAST, config=replace(config, batch=batch, training=training)))


def write_numerals(recipe: Recipe, languages: tuple[str, str]) -> Pair:
    """Write sentences with numbers, times, dates and prices."""
    pairs = numerals.make_pairs(NUMERALS)
    source, target = (
        write_lines(recipe.out / "text" / f"numerals.{name}", [pair[("en", "de").index(name)] for pair in pairs])
        for name in languages
    )
    return source, target


def ask(recipe: Recipe, model: Path, languages: tuple[str, str]) -> None:
    """Count how many numbers and times a model gets right, in sentences that are in no training text."""

    def work() -> Found:
        translator = Translator.load(model)
        source, target = (("en", "de").index(name) for name in languages)
        found: Found = {}
        for frame in numerals.QUIZ:
            questions = numerals.make_quiz(frame, source, target)
            said = [one.text for one in translator.translate([question for question, _ in questions])]
            right = [bool(answer.search(text)) for text, (_, answer) in zip(said, questions, strict=True)]
            print(f"{frame[source]}: {sum(right)} of {len(right)} right", file=sys.stderr)
            wrong = [(asked[0], text) for asked, text, good in zip(questions, said, right, strict=True) if not good]
            found[frame[source]] = {"right": sum(right), "of": len(right), "wrong": wrong}
        return found

    recipe.step("numbers in words", work)


def count_names(recipe: Recipe, name: str, texts: Sequence[Path]) -> None:
    """Count the names of a test set that source and reference spell alike, and those that are so in the translation."""

    def work() -> Found:
        wrong: list[str] = []
        names = 0
        for source, reference, said in zip(*map(read_lines, texts), strict=True):
            words = set(NAME.findall(source)) & set(NAME.findall(reference))
            for word in sorted(word for word in words if word[0].isupper()):
                names += 1
                if word not in said:
                    wrong.append(word)
        print(f"names of {name}: {names - len(wrong):,} of {names:,} right", file=sys.stderr)
        return {"right": names - len(wrong), "of": names, "wrong": wrong}

    recipe.step(f"names {name}", work)


def hold_out(recipe: Recipe, tatoeba: Pair, languages: tuple[str, str]) -> Pair:
    """Hold out a test set of everyday sentences, none of them twice."""
    source, target = (recipe.out / "text" / f"everyday.{language}" for language in languages)

    def work() -> Found:
        lines = zip(*map(read_lines, tatoeba), strict=True)
        pairs = list({source.casefold(): (source, target) for source, target in lines}.values())[::EVERY]
        for side, path in enumerate((source, target)):
            write_lines(path, [pair[side] for pair in pairs])
        return {"pairs": len(pairs)}

    recipe.step("everyday", work)
    return source, target


def write_forms(recipe: Recipe, everyday: Pair, languages: tuple[str, str]) -> dict[str, Pair]:
    """Write the same sentences in other forms, with the translations that these call for."""
    pairs = list(zip(*map(read_lines, everyday), strict=True))
    found: dict[str, Pair] = {}
    for form, config in FORMS.items():
        vary = Varier(config, seed=2)  # not the same symbols as in training
        varied = [next((other.pair for other in vary(*pair)), pair) for pair in pairs]
        source, target = (
            write_lines(recipe.out / "text" / f"everyday-{form}.{language}", [pair[side] for pair in varied])
            for side, language in enumerate(languages)
        )
        found[f"everyday-{form}"] = (source, target)
    return found


def main() -> None:
    """Train a small model from raw files, and score it."""
    arguments = Arguments(__doc__, subwords=16_000)
    arguments.add_argument("--reverse", action="store_true", help="German to English")
    arguments.add_argument(
        "--from", dest="start", metavar="MODEL", help="run only the last steps, starting from this model"
    )
    arguments.add_argument(
        "--captions", type=Path, metavar="MULTI30K", help="also translate the test set of this folder"
    )
    given = arguments.parse_args()
    languages = ("de", "en") if given.reverse else ("en", "de")
    captions = given.captions
    given.captions = captions is not None  # the result does not depend on where they lie
    recipe = Recipe(given)
    train, dev, test = find_pool(given.data, languages)
    tests = {TEST: test, "everyday": hold_out(recipe, find_pair(given.data, "tatoeba", languages), languages)}
    if captions:
        tests["test_2016_flickr"] = find_pair(captions, "test_2016_flickr", languages)
    train["numerals"] = write_numerals(recipe, languages)
    light = given.start and choose_device("auto").type == "cpu"
    way = make_light(given.start) if light else WAY
    subwords = SubwordsConfig(size=given.subwords)
    trained = learn(recipe, train, dev, list(tests.values()), subwords, way, given.start)
    before = Path(given.start) if given.start else recipe.out / "run"
    tests |= write_forms(recipe, tests["everyday"], languages)
    model = shrink(recipe, recipe.blend("blend", [before, trained], LIGHT_SHARES if light else SHARES), dev)
    for name, (source, reference) in {DEV: dev, **tests}.items():
        said = recipe.translate(f"{name}.{languages[1]}", model, source)
        recipe.score(name, said, reference, language=languages[1])
        if name in (DEV, TEST):
            count_names(recipe, name, (source, reference, said))
    ask(recipe, model, languages)
    recipe.finish()


def shrink(recipe: Recipe, trained: Path, dev: Pair) -> Path:
    """Convert the model to int8, and compare it with the original on the dev set."""
    out = recipe.out / "model"

    def work() -> Found:
        job = ExportJob(
            model=trained,
            out=out,
            kind="transduce",
            precision="int8",
            text=dev[0],
            reference=dev[1],
            sentences=3000,
        )
        report = export_model(job)
        return {"bytes": report.bytes, "check": report.check.found if report.check else ()}

    recipe.step("shrink", work)
    return out


if __name__ == "__main__":
    run(main)
