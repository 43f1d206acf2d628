"""The command line: finds the verb, lets its door read the arguments, and reports mistakes.

Results go to stdout, everything else to stderr. Heavy imports stay inside the verbs, so that help appears at once.
"""

import _thread
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from types import FrameType
from typing import NamedTuple

from transduce.errors import GpuError, TransduceError, UsageError, suggest
from transduce.version import __version__

ASK_AGAIN = 0.05  # seconds until a Ctrl-C during an import is answered, if the import is over by then


class Verb(NamedTuple):
    """What the help says about a verb, and its module in `doors` if that does not have the verb's name."""

    summary: str
    usage: str
    example: str
    home: str = ""


VERBS = {
    "prepare": Verb(
        "Clean a corpus, learn its subwords and write it as a data set.",
        "OUT [flags]",
        "data/en-de --source train.en --target train.de --dev-split 2000 --subwords 16000",
    ),
    "inspect": Verb(
        "Show what a data set holds, and which pairs were dropped and why.",
        "DATA [flags]",
        "data/en-de --examples 5",
    ),
    "train": Verb(
        "Train a model on a data set; stop and resume at any time.",
        "DATA --out RUN [flags]",
        "data/en-de --preset base --out runs/base --for 25m",
    ),
    "average": Verb(
        "Average the weights of checkpoints into one model.",
        "RUN … [flags]",
        "runs/base --last 5",
    ),
    "import": Verb(
        "Convert a pretrained model from another toolkit.",
        "SOURCE --out MODEL [flags]",
        "opus-mt-en-de --out models/en-de",
    ),
    "export": Verb(
        "Convert a model for another runtime, and check that its output stays the same.",
        "RUN --to KIND [flags]",
        "runs/base --to ctranslate2 --precision int8",
    ),
    "translate": Verb(
        "Translate a text, a file, a pipe, or what you type.",
        "RUN … [flags] < IN > OUT | --to LANGUAGE [TEXT …] [flags]",
        '--to de "The animal was too tired."',
    ),
    "parse": Verb(
        "Parse sentences into constituency trees: in brackets, drawn as text, or as a picture.",
        "RUN … [flags] < SENTENCES > TREES",
        "runs/craft --draw < sentences.txt",
    ),
    "score": Verb(
        "Score translations against references, and test whether systems differ by more than chance.",
        "HYP [HYP …] --reference REF [flags]",
        "out.de --reference newstest2014.de.xz --source newstest2014.en.xz --report scores.html",
    ),
    "show": Verb(
        "Show a sentence's attention, probabilities, search and alignment, as a page or a picture.",
        "RUN SENTENCE [flags]",
        'runs/base "the animal was too tired" --out page.html',
    ),
    "heads": Verb(
        "Measure what each attention head attends to, and what the model loses without it.",
        "RUN --source FILE --target FILE [flags]",
        "runs/base --source dev.en --target dev.de",
        home="show",
    ),
    "serve": Verb(
        "Serve models over HTTP: a web page, LibreTranslate's API and transduce's own.",
        "RUN … [flags]",
        "runs/en-de runs/de-en --port 8080",
    ),
    "models": Verb(
        "List the models that `translate --to` can find.",
        "[FOLDER …] [flags]",
        "runs",
    ),
    "presets": Verb(
        "List the paper's models, or print the settings of one as TOML.",
        "[NAME] [flags]",
        "big --model.layers 4 > mine.toml",
    ),
    "doctor": Verb(
        "Show what this machine has and can do, for bug reports.",
        "[flags]",
        "--json",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code: 1 for a user's mistake, 2 for a wrong command line, 130 when stopped."""
    # Before torch is imported: let its threads sleep while they wait for one another. By default they spin, which made
    # training ten times slower when another program wanted the same cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Let the CPU do what torch cannot do on Apple's GPUs.
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ≤ shows ? instead
            if not _keeps_encoding(stream):  # Windows would write files in a legacy encoding and lose letters
                stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    try:
        try:
            with _interrupted_after_imports():
                return run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is still caught
    except SystemExit as leaving:  # argparse with a verb's help, or another process has said why
        return int(leaving.code or 0)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except (TransduceError, OSError) as error:
        if _reader_has_gone(error):  # as with `| head`. Python flushes stdout once more at exit: let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        for line in _describe(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        if isinstance(error, GpuError):  # torch would try to free its memory there, and be aborted
            sys.stderr.flush()
            os._exit(error.exit_code)
        return error.exit_code if isinstance(error, TransduceError) else 1


@contextmanager
def _interrupted_after_imports() -> Iterator[None]:
    """Let Ctrl-C wait for the end of an import.

    torch imports numpy from C++ and swallows a KeyboardInterrupt there, so that the command would go on, or fail later
    for want of half of numpy.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # as under nohup or in a program of another's, which decides about Ctrl-C itself
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    while frame and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    again = threading.Timer(ASK_AGAIN, _thread.interrupt_main)
    again.daemon = True
    again.start()


def _describe(error: Exception) -> str:
    """Say what went wrong; for an error of the system name the file and the reason, without the number."""
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _keeps_encoding(stream: io.TextIOWrapper) -> bool:
    """Return whether to keep a stream's encoding: it is a terminal's, or PYTHONIOENCODING sets it."""
    return stream.isatty() or "PYTHONIOENCODING" in os.environ


def _reader_has_gone(error: Exception) -> bool:
    """Return whether stdout is a pipe that nobody reads; Windows calls that an invalid argument, without a file."""
    if isinstance(error, OSError) and sys.platform == "win32" and error.errno == errno.EINVAL:
        return error.filename is None
    return isinstance(error, BrokenPipeError)


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
        case [name, *rest] if verb := VERBS.get(name):
            from transduce.flags import Parser

            function = f"{name}_" if iskeyword(name) else name
            door = getattr(import_module(f"transduce.doors.{verb.home or function}"), function)
            example = f"transduce {name} {verb.example}"
            return door(Parser(name, summary=verb.summary, usage=verb.usage, example=example), rest) or 0
        case [wrong, *_]:
            kind, known = ("flag", ["--help", "--version"]) if wrong.startswith("-") else ("verb", list(VERBS))
            raise UsageError(f"unknown {kind} {wrong}{suggest(wrong, known) or '; see transduce --help'}")
    return 0


def _help() -> str:
    width = max(map(len, VERBS))
    return "\n".join(
        [
            "usage: transduce VERB [arguments]",
            "",
            "The Transformer of 'Attention Is All You Need' as a complete translation system.\n",
            *(f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items()),
            "",
            "`transduce VERB --help` explains a verb; `transduce --version` prints the version.",
            "",
            'example: transduce translate --to de "The animal was too tired."',
        ]
    )
