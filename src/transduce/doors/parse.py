"""The arguments of `transduce parse`."""

from pathlib import Path

from transduce.decoding.options import ParseOptions
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings
from transduce.presets import PRESETS


def parse(argv: list[str], summary: str) -> None:
    """Load the model and parse lines."""
    usage, example = "RUN … [flags] < SENTENCES > TREES", "transduce parse runs/craft --draw < sentences.txt"
    parser = Parser("parse", summary=summary, usage=usage, example=example)
    parser.add_argument("models", metavar="RUN", nargs="+", help="a run, a checkpoint or a model; several: an ensemble")
    parser.add_argument("--input", metavar="FILE", help="sentences, one to a line (default standard input)")
    parser.add_argument("--trees", metavar="FILE", help="parse the words of these trees instead, to be scored by them")
    parser.add_argument("--out", metavar="FILE", help="file of trees; if the job is killed, the same command goes on")
    parser.add_argument("--json", action="store_true", help="print JSON: words, tree, scores, alternatives")
    parser.add_argument("--draw", action="store_true", help="draw the trees in characters")
    parser.add_argument("--svg", metavar="FILE", help="also draw them, up to 200, as a picture")
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
    add_settings(parser, PRESETS["parsing"].config.search)
    add_settings(parser, ParseOptions)
    given, flags = parser.parse(argv)
    if given.threads is not None and given.threads < 1:
        raise UsageError(f"--threads {given.threads} is not positive")

    from transduce.decoding.parse import ParseJob, run_parse

    run_parse(
        ParseJob(
            models=[Path(model) for model in given.models],
            input=_file(given.input),
            trees=_file(given.trees),
            out=_file(given.out),
            json=given.json,
            draw=given.draw,
            svg=_file(given.svg),
            device=given.device,
            precision=given.precision,
            threads=given.threads,
            engine=given.engine,
            settings=flags,
        )
    )


def _file(name: str | None) -> Path | None:
    return None if name in (None, "-") else Path(name)
