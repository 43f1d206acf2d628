"""The pages people read (README.md and docs/), and a reader who types every command in them, at toy size.

A block's language says how it is checked: `sh` is run; `console` is run and must print what is shown; `python` is run;
`source` names code of ours, filled in when the site is built; `text` is something's output and has no commands.
"""

import argparse
import http.client
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import quote_plus, urlsplit

from documents import make_docx, run
from interop.marians import save_marian
from torch.distributed.run import get_args_parser
from treebank import make_trees

from transduce.cli import main
from transduce.serving import run as serving
from transduce.text import numbers

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The tests need no good model: they replace a GPU, a large corpus and hours by a CPU, a small one and moments.
SHORTER = [
    *("--training.steps", "4", "--training.checkpoint-steps", "2", "--training.warmup-steps", "2"),
    *("--training.bleu-sentences", "2", "--model.layers", "1", "--model.d-model", "32", "--model.d-ff", "32"),
    *("--model.heads", "2", "--batch.source-tokens", "2048", "--batch.target-tokens", "2048"),
    *("--batch.parts", "8", "--device", "cpu", "--training.precision", "float32"),
]
SMALLER = {
    "--subwords 16000": "--subwords 500",
    "--subwords 8000": "--subwords 300",
    "--dev-split 1000": "--dev-split 100",
    "--subwords.extend 2000": "--subwords.extend 20",
}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


class Command(NamedTuple):
    """A line to type, and what is shown under it."""

    line: str
    shown: list[str]


def listed(nav: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages of the site, in the order of its contents."""
    for entry in nav:
        for value in entry.values():
            yield from [f"docs/{value}"] if isinstance(value, str) else listed(value)


SITE = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
PAGES = ["README.md", *listed(SITE["nav"])]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```([\w-]*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in found]


def commands(page: str) -> list[Command]:
    """Return a page's commands, without comments; a backslash at the end of a line continues it."""
    found: list[Command] = []
    for language, text in blocks(page):
        for line in text.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                found[-1].shown.append(line)
            elif language in ("sh", "bash", "console") and line and not line.startswith(("#", "host0=")):
                found.append(Command(re.sub(r"\s{2,}# .*$", "", line.removeprefix("$ ")), []))
    return found


@dataclass
class Reader:
    """A reader with a folder of text who goes through the pages in order and types what they say."""

    folder: Path
    typed: dict[str, list[str]] = field(default_factory=dict)
    """each line, and what it printed"""
    server: "subprocess.Popen[str] | None" = None
    port: int = 0

    def settle(self) -> None:
        """Make the folder as readers have it: text in two languages in all forms, a treebank, models of others."""
        train, test = numbers.corpus("train", 6620), numbers.corpus("test", 450)
        pairs = {"train": train[:6000], "dev": numbers.corpus("dev", 50), "test": test[:50], "general": train[:2000]}
        pairs |= {"manuals": test[50:], "manuals-dev": test[:20], "manuals-test": test[20:50], "news-dev": train[6600:]}
        for name, some in pairs.items():
            for side, language in enumerate(("en", "de")):
                self.write(f"{name}.{language}", "".join(f"{pair[side]}\n" for pair in some))
        self.write("corpus.tsv", "".join(f"{source}\t{target}\n" for source, target in train[6000:6300]))
        side = "<tuv xml:lang='{}'><seg>{}</seg></tuv>".format
        units = "".join(f"<tu>{side('en', source)}{side('de', target)}</tu>" for source, target in train[6300:6600])
        self.write("memory.tmx", f"<tmx version='1.4'><header/><body>{units}</body></tmx>")
        self.write("train.mrg", "".join(f"{tree}\n" for tree in make_trees(200, 1)))
        self.write("dev.mrg", "".join(f"{tree}\n" for tree in make_trees(5, 2)))
        self.write("terms.tsv", "contract\tVereinbarung\n")
        self.write("letter.txt", "forty-two\n")
        self.write("mono.de", "".join(f"{target}\n" for _, target in train[5900:6000]))
        self.write("film.srt", "1\n00:00:01,000 --> 00:00:02,000\nforty-two\n<i>euros</i>\n")
        self.write("page.html", "<p>forty-two <b>euros</b></p>\n")
        runs = run("it is ") + run("already", "<w:b/>") + run(" twelve")
        (self.folder / "letter.docx").write_bytes(make_docx(f"<w:p>{runs}</w:p>"))
        save_marian(self.folder / "marian").folder.rename(self.folder / "opus-mt-en-de")
        opennmt = Path(__file__).parent / "interop" / "fixtures" / "opennmt-shared"
        shutil.copy(opennmt / "model.pt", self.folder / "openmt.model_step_100000.pt")
        shutil.copy(opennmt / "joint.model", self.folder / "sentencepiece.model")

    def write(self, name: str, text: str) -> None:
        """Write a file into the folder."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def type(self, line: str) -> int:
        """Run a line of shell; return its exit code."""
        for large, small in SMALLER.items():
            line = line.replace(large, small)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
        lexer.whitespace_split = True
        words = list(lexer)
        while re.fullmatch(r"[A-Z_]+=\S*|srun", words[0]):
            words.pop(0)
        if words[:1] == ["echo"]:
            assert words[2] == "|", line
            self.write("typed.txt", f"{words[1]}\n")
            words = [*words[3:], "<", "typed.txt"]
        with self.redirected(words) as words:
            match words:
                case ["transduce", "serve", *rest]:
                    return self.serve(rest)
                case ["transduce", "train", *rest]:
                    return main(["train", *rest, *SHORTER])
                case ["transduce", "export", *rest]:
                    return main(["export", *rest, "--sentences", "10"])
                case ["transduce", *rest]:
                    return main(rest)
                case ["torchrun", *rest]:
                    # Its own parser says whether torchrun would take this; the run itself is one process here.
                    given = get_args_parser().parse_args(rest)
                    assert given.module
                    assert given.training_script == "transduce"
                    return main([*given.training_script_args, *SHORTER])
                case ["python", file, *rest] if file.startswith(("recipes/", "benchmarks/")):
                    return parses(file, *rest)
                case ["python", file, *rest]:
                    command = [sys.executable, file, *rest]
                    done = subprocess.run(command, stdin=sys.stdin, capture_output=True, text=True, check=False)
                    print(done.stdout, end="")
                    print(done.stderr, end="", file=sys.stderr)
                    return done.returncode
                case ["curl", *rest]:
                    return self.ask(rest)
                case ["pip", "install", *rest]:
                    extras = [re.fullmatch(r"transduce\[(\w+)\]", name) for name in rest]
                    wrong = [extra[1] for extra in extras if extra and extra[1] not in PROJECT["optional-dependencies"]]
                    return len(wrong)
                case ["make", target]:
                    return 0 if re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) else 2
                case ["git", "clone", *_]:
                    return 0
        raise AssertionError(f"the tests do not know how to run: {line}")

    @contextmanager
    def redirected(self, words: list[str]) -> Iterator[list[str]]:
        """Take < and > with their files out of the words, and open them."""
        kept: list[str] = []
        files = {"<": Path(os.devnull)}
        rest = iter(words)
        for word in rest:
            if word in ("<", ">"):
                files[word] = self.folder / next(rest)
            else:
                kept.append(word)
        with ExitStack() as opened:
            stdin = opened.enter_context(files["<"].open(encoding="utf-8"))
            opened.enter_context(patch.object(sys, "stdin", stdin))
            if ">" in files:
                stdout = opened.enter_context(files[">"].open("w", encoding="utf-8"))
                opened.enter_context(patch.object(sys, "stdout", stdout))
            yield kept
        assert ">" not in files or files[">"].stat().st_size, f"{files['>']} is empty"

    def serve(self, arguments: list[str]) -> int:
        """Start a server and leave it running; for further ones, only parse and check the command line."""
        if self.server is not None:
            with patch.object(serving, "serve"):
                return main(["serve", *arguments])
        command = [sys.executable, "-m", "transduce", "serve", *arguments, "--port", "0", "--engine", "torch"]
        self.server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        assert self.server.stderr
        for line in self.server.stderr:
            print(line)
            if found := re.search(r"serving at http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                return 0
        return self.server.wait()

    def ask(self, arguments: list[str]) -> int:
        """Do what curl does, with the few flags that pages use; print the answer."""
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("url")
        parser.add_argument("-N", action="store_true")
        parser.add_argument("-d", action="append", default=[])
        parser.add_argument("-F", action="append", default=[])
        parser.add_argument("-H", action="append", default=[])
        given = parser.parse_args(arguments)
        headers = dict(header.split(": ", 1) for header in given.H)
        body = None
        if given.F:
            headers["Content-Type"] = "multipart/form-data; boundary=parted"
            body = b"".join(self.part(*field.split("=", 1)) for field in given.F) + b"--parted--\r\n"
        elif given.d:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
            # Like curl, send the text unencoded, but encode spaces, which curl leaves as they are.
            texts = [text if text.startswith("{") else text.replace(" ", quote_plus(" ")) for text in given.d]
            body = "&".join(texts).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET" if body is None else "POST", urlsplit(f"http://{given.url}").path, body, headers)
        answer = connection.getresponse()
        print(answer.read().decode())
        connection.close()
        return 0 if answer.status == 200 else 1

    def part(self, name: str, value: str) -> bytes:
        """Return a field of a form with files."""
        kind, content = f'--parted\r\nContent-Disposition: form-data; name="{name}"', value.encode()
        if value.startswith("@"):
            kind = f'{kind}; filename="{value[1:]}"\r\nContent-Type: application/octet-stream'
            content = (self.folder / value[1:]).read_bytes()
        return f"{kind}\r\n\r\n".encode() + content + b"\r\n"

    def leave(self) -> None:
        """Stop the server."""
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=30)


class Parsed(Exception):  # noqa: N818
    """A script has read its arguments."""


def parses(file: str, *arguments: str) -> int:
    """Return 0 if a script of ours accepts these arguments; it is stopped then, for it needs data and hours."""
    take = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *given: Any) -> None:
        take(parser, *given)
        raise Parsed

    argv = patch.object(sys, "argv", [file, *arguments])
    folder = patch.object(sys, "path", [str((ROOT / file).parent), *sys.path])
    try:
        with argv, folder, patch.object(argparse.ArgumentParser, "parse_args", parse_args):
            runpy.run_path(str(ROOT / file), run_name="__main__")
    except Parsed:
        return 0
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 1


def alike(shown: str, printed: str) -> bool:
    """Whether two lines are equal, or are JSON objects with the same keys."""
    if shown.startswith("{") and printed.startswith("{"):
        return json.loads(shown).keys() == json.loads(printed).keys()
    return shown.rstrip() == printed.rstrip()
