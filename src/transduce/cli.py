"""The command line: each verb reads its arguments, calls, and prints.

Results go to stdout, all else to stderr. Heavy imports stay inside the verbs, so that help answers at once.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from transduce.errors import TransduceError, UsageError, suggest
from transduce.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from transduce.flags import Parser
    from transduce.presets import Preset
    from transduce.strict import Settings

S = TypeVar("S", bound="Settings")

VERBS = {
    "prepare": "Clean a corpus, learn its subwords and write it as a data set.",
    "inspect": "Show what a data set holds, and what was dropped from its corpus and why.",
    "train": "Train a model on a data set; stop and resume at any time.",
    "average": "Average the weights of checkpoints into one model.",
    "import": "Turn a pretrained model of another toolkit into one of ours.",
    "translate": "Translate a file, a pipe, or what you type.",
    "score": "Score translations against references, and tell whether systems differ by more than chance.",
    "presets": "List the paper's models, or print the settings of one as TOML.",
    "doctor": "Show what this machine has and can do, as a bug report needs it.",
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code: 1 for a user's mistake, 2 for a wrong command line, 130 when stopped."""
    # Before torch is imported: its threads sleep while they wait for one another. By default they spin, which made
    # training ten times slower where another program wanted the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ≤ shows ? instead
    try:
        try:
            return run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is still caught
    except SystemExit as leaving:  # argparse, once it has printed a verb's help
        return int(leaving.code or 0)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone, as with `| head`. Python flushes stdout once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (TransduceError, OSError) as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return error.exit_code if isinstance(error, TransduceError) else 1


def run(argv: list[str]) -> int:
    """Find the verb and run it."""
    match argv:
        case []:
            print(_help(), file=sys.stderr)
            return 2
        case ["-h" | "--help", *_]:
            print(_help())
        case ["--version", *_]:
            print(f"transduce {__version__}")
        case ["prepare", *rest]:
            prepare(rest)
        case ["inspect", *rest]:
            inspect(rest)
        case ["train", *rest]:
            return train(rest)
        case ["average", *rest]:
            from transduce.doors.average import average

            average(_parser("average", "RUN … [flags]", "runs/base --last 5"), rest)
        case ["import", *rest]:
            from transduce.doors.import_ import import_

            import_(_parser("import", "SOURCE --out MODEL [flags]", "opus-mt-en-de --out models/en-de"), rest)
        case ["translate", *rest]:
            translate(rest)
        case ["score", *rest]:
            score(rest)
        case ["presets", *rest]:
            presets(rest)
        case ["doctor", *rest]:
            doctor(rest)
        case [wrong, *_]:
            kind, known = ("flag", ["--help", "--version"]) if wrong.startswith("-") else ("verb", list(VERBS))
            raise UsageError(f"unknown {kind} {wrong}{suggest(wrong, known) or '; see transduce --help'}")
    return 0


def prepare(argv: list[str]) -> None:
    """Resolve the settings, prepare the data set and show what became of the corpus."""
    from transduce import strict
    from transduce.flags import add_settings
    from transduce.text.inputs import BUILTIN, PrepareConfig

    example = "data/en-de --source train.en --target train.de --dev-split 2000 --subwords 16000"
    parser = _parser("prepare", "OUT [flags]", example)
    parser.add_argument("out", metavar="OUT", help="folder the data set is written to")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings; flags override it")
    add_settings(parser, PrepareConfig)
    given, flags = parser.parse(argv)
    file = strict.read_toml(_path(given.config)) if given.config else {}
    builtin = str(flags.get("builtin") or file.get("builtin"))
    config = _resolve(BUILTIN.get(builtin, PrepareConfig()), given.config, flags)

    from transduce.text import prepare as text  # after the arguments are read, so that help and mistakes answer sooner
    from transduce.text.report import show_report

    data, made = text.prepare(_path(given.out), config)
    if made:
        show_report(data.report(), sys.stderr)


def inspect(argv: list[str]) -> None:
    """Show a data set, or check its files."""
    parser = _parser("inspect", "DATA [flags]", "data/en-de --examples 5")
    parser.add_argument("data", metavar="DATA", help="folder written by transduce prepare")
    parser.add_argument("--examples", metavar="N", type=int, default=3, help="sentence pairs to show (default 3)")
    parser.add_argument("--report", action="store_true", help="show what prepare changed and dropped, with examples")
    parser.add_argument("--verify", action="store_true", help="read every file and compare its checksum")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)

    from transduce.errors import DataError
    from transduce.text import inspect as text
    from transduce.text.report import show_report
    from transduce.text.shards import DataSet

    data = DataSet.open(_path(given.data))
    if given.verify:
        if problems := list(data.verify()):
            raise DataError("\n".join([*problems, "run prepare again with the same settings to mend the data set"]))
        print(f"{given.data}: all {len(data.files())} files are as they were written", file=sys.stderr)
    if given.report:
        _print_json(data.report()) if given.json else show_report(data.report(), sys.stdout)
    else:
        found = text.inspect(data, given.examples)
        _print_json(found) if given.json else text.show_inspection(found)


def train(argv: list[str]) -> int:
    """Resolve the settings, train, and print how it ended."""
    from transduce.config import Config
    from transduce.flags import add_settings
    from transduce.presets import get

    parser = _parser("train", "DATA --out RUN [flags]", "data/en-de --preset base --out runs/base --for 25m")
    parser.add_argument("data", metavar="DATA", help="data set made by transduce prepare")
    parser.add_argument("--out", metavar="RUN", required=True, help="folder of the run: its checkpoints, log and model")
    parser.add_argument("--preset", metavar="NAME", default="base", help="settings to begin with (default base)")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings laid over them; flags override it")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in RUN, if there is one")
    parser.add_argument("--from", metavar="RUN", dest="start", help="begin with the weights of another run or model")
    parser.add_argument("--for", metavar="TIME", dest="time", help="stop after so long: 90s, 25m, 1h30m")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    parser.add_argument("--threads", metavar="N", type=int, help="threads on a CPU (default: as many as help)")
    add_settings(parser, Config)
    given, flags = parser.parse(argv)
    _positive(given.threads, "--threads")
    if {"vocabulary", "source_vocabulary"} & flags.get("model", {}).keys():
        raise UsageError("the vocabulary is that of the data set; choose its size with: transduce prepare --subwords N")
    config = _resolve(get(given.preset).config, given.config, flags)

    from transduce.training.run import Request, run_training
    from transduce.training.stopping import parse_duration

    outcome = run_training(
        Request(
            data=_path(given.data),
            out=_path(given.out),
            config=config,
            resume=given.resume,
            start=_path(given.start) if given.start else None,
            seconds=parse_duration(given.time) if given.time else None,
            device=given.device,
            threads=given.threads,
        )
    )
    for name, text in outcome.summary:
        print(f"{name}: {text}")
    return outcome.exit_code


def translate(argv: list[str]) -> None:
    """Load the model and translate lines, or answer a person at a terminal."""
    from transduce.config import SearchConfig
    from transduce.decoding.options import Options
    from transduce.flags import add_settings

    parser = _parser("translate", "RUN … [flags] < IN > OUT", "runs/base --precision int8 < news.en > news.de")
    parser.add_argument("models", metavar="RUN", nargs="+", help="a run, a checkpoint or a model; several: an ensemble")
    parser.add_argument("--input", metavar="FILE", help="text to translate (default standard input)")
    parser.add_argument(
        "--out", metavar="FILE", help="file of translations; if the job is killed, the same command goes on"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: scores, alternatives, tokens")
    parser.add_argument(
        "--json-input",
        action="store_true",
        help="lines are JSON objects: text, and prefix, require, forbid for it alone",
    )
    parser.add_argument("--prefix", metavar="TEXT", default="", help="translations begin with this")
    parser.add_argument(
        "--require", metavar="TEXT", nargs="+", action="extend", default=[], help="translations contain these phrases"
    )
    parser.add_argument(
        "--forbid",
        metavar="TEXT",
        nargs="+",
        action="extend",
        default=[],
        help="translations do not contain these phrases",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "float32", "bf16", "int8"],
        default="auto",
        help="arithmetic; int8 is the fastest on a CPU (default: float32 on a CPU, bf16 on a GPU that has it)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads on a CPU (default: as many as help)")
    parser.add_argument(
        "--engine",
        choices=["auto", "native", "torch"],
        default="auto",
        help="what computes on a CPU: our own code, compiled once, or torch (default: our own where it can be)",
    )
    add_settings(parser, SearchConfig)
    add_settings(parser, Options)
    given, flags = parser.parse(argv)
    _positive(given.threads, "--threads")

    from transduce.decoding.run import Job, run_job

    run_job(
        Job(
            models=[_path(model) for model in given.models],
            input=_path(given.input) if given.input not in (None, "-") else None,
            out=_path(given.out) if given.out not in (None, "-") else None,
            json=given.json,
            json_input=given.json_input,
            prefix=given.prefix,
            require=tuple(given.require),
            forbid=tuple(given.forbid),
            device=given.device,
            precision=given.precision,
            threads=given.threads,
            engine=given.engine,
            settings=flags,
        )
    )


def score(argv: list[str]) -> None:
    """Score systems, print the scores and write what was asked for."""
    example = "out.de --reference newstest2014.de.xz --source newstest2014.en.xz --report scores.html"
    parser = _parser("score", "HYP [HYP …] --reference REF [flags]", example)

    def several(flag: str, name: str, text: str, **more: Any) -> None:
        parser.add_argument(flag, metavar=name, nargs="+", action="extend", help=text, **more)

    parser.add_argument(
        "systems",
        metavar="HYP",
        nargs="+",
        help="translations, one to a line; the others are compared with the first; - is standard input",
    )
    several("--reference", "REF", "references, one file or several", required=True)
    parser.add_argument("--source", metavar="SRC", help="what was translated, for the report, --comet and --model")
    several("--metrics", "NAME", "bleu chrf chrf++ ter exact paper (default all but chrf++)", default=[])
    parser.add_argument(
        "--language", metavar="CODE", help="of the references, for the paper's BLEU (default: by REF's name)"
    )
    parser.add_argument("--tokenize", metavar="NAME", help="sacreBLEU's tokenizer (default 13a, or that of zh, ja, ko)")
    parser.add_argument("--lowercase", action="store_true", help="compare lower case")
    parser.add_argument(
        "--sentences", metavar="FILE", help="write each sentence's scores as JSON lines; - is standard output"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page with the best and worst sentences")
    parser.add_argument("--examples", metavar="N", type=int, default=20, help="sentences in its lists (default 20)")
    parser.add_argument("--samples", metavar="N", type=int, default=1000, help="resamples for p-values (default 1000)")
    parser.add_argument(
        "--seed", metavar="N", type=int, default=12345, help="of the resamples (default sacreBLEU's 12345)"
    )
    parser.add_argument("--comet", metavar="MODEL", help="a COMET model, such as Unbabel/wmt22-comet-da")
    parser.add_argument("--model", metavar="RUN", help="a run or model, for the perplexity of the references")
    parser.add_argument("--workers", metavar="N", type=int, help="processes (default: as many as help)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)
    _positive(given.workers, "--workers")

    from transduce.scoring.score import ScoreRequest, publish, score

    measure = None
    if given.model:
        from transduce.scoring.perplexity import measure_with

        measure = measure_with(_path(given.model))
    request = ScoreRequest(
        systems=tuple(map(_path, given.systems)),
        references=tuple(map(_path, given.reference)),
        source=_path(given.source) if given.source else None,
        metrics=tuple(given.metrics),
        language=given.language,
        tokenize=given.tokenize,
        lowercase=given.lowercase,
        samples=given.samples,
        seed=given.seed,
        comet=given.comet,
        sentences=_path(given.sentences) if given.sentences else None,
        report=_path(given.report) if given.report else None,
        examples=given.examples,
        workers=given.workers,
        json=given.json,
    )
    publish(score(request, measure))


def presets(argv: list[str]) -> None:
    """List the presets, or print one with a file and flags laid over it."""
    from transduce import strict
    from transduce.config import Config
    from transduce.flags import add_settings
    from transduce.presets import PRESETS, get
    from transduce.tables import print_table

    parser = _parser("presets", "[NAME] [flags]", "big --model.layers 4 > mine.toml")
    parser.add_argument("name", metavar="NAME", nargs="?", help="preset to print; without it, all are listed")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings laid over the preset; flags override it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, Config)
    given, flags = parser.parse(argv)
    if given.name:
        config = _resolve(get(given.name).config, given.config, flags)
        _print_json(strict.to_dict(config)) if given.json else print(strict.to_toml(config), end="")
    elif given.config or flags:
        raise UsageError("settings need a preset to be laid over; name one, as in `transduce presets base …`")
    elif given.json:
        _print_json([_preset_as_dict(preset) for preset in PRESETS.values()])
    else:
        header = ("name", "layers", "d_model", "d_ff", "heads", "d_k", "dropout", "parameters", "paper's", "summary")
        print_table(header, [_preset_row(preset) for preset in PRESETS.values()])


def doctor(argv: list[str]) -> None:
    """Print what the machine has and can do."""
    from transduce.doctor import examine, lines

    parser = _parser("doctor", "[flags]", "--json")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given, _ = parser.parse(argv)
    found = examine()
    _print_json(found) if given.json else print("\n".join(lines(found)))


def _help() -> str:
    width = max(map(len, VERBS))
    return "\n".join(
        [
            "usage: transduce VERB [arguments]",
            "",
            "The Transformer of 'Attention Is All You Need' as a complete translation system.\n",
            *(f"  {verb:{width}}  {summary}" for verb, summary in VERBS.items()),
            "",
            "`transduce VERB --help` explains a verb; `transduce --version` prints the version.",
            "",
            "example: transduce prepare demo/numbers --builtin numbers",
        ]
    )


def _parser(verb: str, usage: str, example: str) -> "Parser":
    from transduce.flags import Parser

    return Parser(verb, summary=VERBS[verb], usage=usage, example=f"transduce {verb} {example}")


def _positive(number: int | None, flag: str) -> None:
    if number is not None and number < 1:
        raise UsageError(f"{flag} {number} is not positive")


def _path(text: str) -> "Path":
    from pathlib import Path

    return Path(text)


def _resolve(config: S, file: str | None, flags: dict[str, Any]) -> S:
    """Lay a TOML file's differences over the settings, then the flags'."""
    from transduce import strict

    layers = {file: strict.read_toml(_path(file))} if file else {}
    return strict.resolve(config, layers | {"command line": flags})


def _preset_as_dict(preset: "Preset") -> dict[str, Any]:
    from transduce.strict import to_dict

    return to_dict(preset) | {"parameters": preset.config.model.parameters()}


def _preset_row(preset: "Preset") -> tuple[str, ...]:
    model = preset.config.model
    sizes = (model.layers, model.d_model, model.d_ff, model.heads, model.head_widths()[0], model.dropout)
    paper = f"{preset.paper_millions} M" if preset.paper_millions else ""
    return (preset.name, *map(str, sizes), f"{model.parameters() / 1e6:.1f} M", paper, preset.summary)


def _print_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))
