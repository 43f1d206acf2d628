"""The arguments of `transduce average`."""

from pathlib import Path

from transduce.errors import UsageError
from transduce.flags import Parser


def average(parser: Parser, argv: list[str]) -> None:
    """Find the checkpoints and write their mean."""
    parser.add_argument("models", metavar="RUN", nargs="+", help="a run, or two or more checkpoints or models")
    parser.add_argument("--last", metavar="N", type=int, help="average the last N checkpoints of the run (default 5)")
    parser.add_argument(
        "--best", metavar="N", type=int, help="average the N best checkpoints of the run on the dev set"
    )
    parser.add_argument(
        "--by", choices=["loss", "bleu", "f1"], default="loss", help="dev score for --best (default loss)"
    )
    parser.add_argument(
        "--shares",
        metavar="X",
        nargs="+",
        action="extend",
        type=float,
        help="weight of each model, as in 1 3 (default: all equal)",
    )
    parser.add_argument("--out", metavar="MODEL", help="folder for the new model (default: replace RUN/model)")
    given, _ = parser.parse(argv)

    from contextlib import nullcontext

    from transduce.disk import lock, refuse_taken
    from transduce.training.averaging import average as average_checkpoints
    from transduce.training.averaging import choose_checkpoints

    paths = [Path(model) for model in given.models]
    if len(paths) == 1 and given.shares:
        raise UsageError("--shares needs several models; name them, or leave --shares out")
    if len(paths) == 1:
        folders = choose_checkpoints(paths[0], last=given.last, best=given.best, by=given.by)
        out = Path(given.out) if given.out else paths[0] / "model"
    elif given.last or given.best:
        raise UsageError("--last and --best choose among the checkpoints of one run; name one run, or leave them out")
    elif not given.out:
        raise UsageError("the mean of several models needs a folder; give --out MODEL")
    else:
        folders, out = paths, Path(given.out)
    if len(paths) > 1 or out.resolve() != (paths[0] / "model").resolve():  # the run's own model is replaced
        refuse_taken(out)
    with (
        lock(paths[0], "transduce train is writing this run; wait for it to end") if len(paths) == 1 else nullcontext()
    ):
        average_checkpoints(folders, out, given.shares or ())
    print(f"{out}: the mean of {', '.join(folder.name for folder in folders)}")
