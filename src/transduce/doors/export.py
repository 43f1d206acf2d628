"""The arguments of `transduce export`."""

import sys
from pathlib import Path

from transduce.errors import UsageError
from transduce.flags import Parser

KINDS = ("transduce", "ctranslate2", "argos", "huggingface", "onnx", "program")
NOT_CHECKED = 3  # the exit code if the export is written, but the runtime to check it with is not installed


def export(parser: Parser, argv: list[str]) -> int:
    """Read the arguments, export, and print what the check found."""
    parser.add_argument("model", metavar="RUN", help="run, checkpoint or model")
    parser.add_argument(
        "--to",
        choices=KINDS,
        required=True,
        help="runtime to convert for; transduce writes a standalone model, argos a package, the others a folder",
    )
    parser.add_argument("--out", metavar="PATH", help="folder or package to write (default RUN-KIND)")
    parser.add_argument(
        "--precision",
        choices=["float32", "int8"],
        default="float32",
        help="int8 is smaller and faster (default float32)",
    )
    parser.add_argument(
        "--languages", metavar="CODE", nargs=2, help="source and target, as in en de (default: as the model says)"
    )
    parser.add_argument(
        "--check", metavar="FILE", help="sentences to check with (default: the dev set's, if it is there)"
    )
    parser.add_argument("--reference", metavar="FILE", help="translations of the --check sentences, to judge int8 by")
    parser.add_argument(
        "--sentences",
        metavar="N",
        type=int,
        help="most sentences to check with; 0: no check (default 100; 1000 for int8)",
    )
    given, _ = parser.parse(argv)
    if given.reference and not given.check:
        raise UsageError("--reference holds translations of the --check sentences; give --check FILE too")
    many = (1000 if given.precision == "int8" else 100) if given.sentences is None else given.sentences
    if many < 0:
        raise UsageError(f"--sentences {many} is negative")

    from transduce.interop.exporting import ExportJob, export_model

    run = Path(given.model)
    ending = ".argosmodel" if given.to == "argos" else f"-{given.to}"
    beside = run if run.name not in ("", "..") else run.resolve()
    out = Path(given.out) if given.out else beside.with_name(beside.name + ending)
    job = ExportJob(
        model=run,
        out=out,
        kind=given.to,
        precision=given.precision,
        languages=tuple(given.languages) if given.languages else None,
        text=Path(given.check) if given.check else None,
        reference=Path(given.reference) if given.reference else None,
        sentences=many,
    )
    report = export_model(job)
    print(f"{out}: {report.bytes / 1e6:,.1f} MB")
    for line in report.check.found if report.check else ():
        print(f"  {line}")
    if report.missing:
        names = " ".join(report.missing)
        print(f"note: NOT checked: {names} is not installed; pip install {names}, and export again", file=sys.stderr)
        return NOT_CHECKED
    return 0
