"""Translate with an exported model, without transduce: needs numpy, sentencepiece, and onnxruntime or torch.

    python translate.py < IN > OUT
    python translate.py --beam 1 --threads 4 --folder MODEL < IN > OUT

The search is transduce's: hypotheses are ranked by log P / ((5 + tokens) / 6) ** alpha, and by default it ends when no
open one can still win.
"""

import argparse
import codecs
import json
import sys
import unicodedata
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import sentencepiece

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
HIDDEN = "\ufdd0"  # marks subwords that no text is split into
BATCH = 16  # sentences translated at a time
WINDOW = 8 * BATCH  # lines that are read, sorted by length and translated before more are read
LONGEST = 256  # tokens; longer lines get a warning, as training has hardly seen any
Array = np.ndarray
Part = Callable[..., Any]  # the encoder, or a step of the decoder


class Translator:
    """An exported model: an encoder and a decoder step, with their settings and subwords."""

    def __init__(self, folder: Path | str, threads: int | None = None):
        folder = Path(folder)
        self.settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        open_parts = open_onnx if self.settings["kind"] == "onnx" else open_program
        self.encode, self.step = open_parts(folder, threads)
        models = {side: str(folder / name) for side, name in self.settings["subwords"].items()}
        self.source, self.target = (sentencepiece.SentencePieceProcessor(models[side]) for side in ("source", "target"))
        names = (self.source.id_to_piece(token) for token in range(self.settings["vocabulary"]["source"]))
        self.numbers = {name.replace(HIDDEN, ""): number for number, name in enumerate(names)}

    def translate(self, lines: Sequence[str], **settings: Any) -> list[str]:
        """Translate lines; `settings` overrides beam, alpha, extra_tokens, max_tokens or stop."""
        settings = self.settings | settings
        sources = [self.tokens(line) for line in lines]
        found = [""] * len(lines)
        order = sorted(range(len(lines)), key=lambda number: len(sources[number]))
        for first in range(0, len(order), BATCH):
            some = order[first : first + BATCH]
            for number, tokens in zip(some, self.search([sources[number] for number in some], settings)):
                found[number] = self.target.decode(tokens).replace(HIDDEN, "")
        return found

    def tokens(self, line: str) -> list[int]:
        """Return a line's tokens, with the end token if sources have one; other pieces become the unknown token."""
        text = " ".join(line.split())
        form = self.settings["unicode"]
        text = text if form == "off" else unicodedata.normalize(form, text)
        tokens = [self.numbers.get(piece, UNKNOWN) for piece in self.source.encode(text, out_type=str)]
        return [*tokens, END] if self.source.eos_id() == END else tokens or [UNKNOWN]

    def search(self, sources: list[list[int]], settings: dict[str, Any]) -> list[list[int]]:
        """Return the tokens of each sentence's best translation."""
        beam, alpha = settings["beam"], settings["alpha"]
        exact = beam > 1 and settings["stop"] == "exact"
        most = [settings["max_tokens"], settings["max_positions"]]
        limits = np.array([min([len(s) + settings["extra_tokens"], *(m for m in most if m)]) for s in sources])
        longest = int(limits.max())
        penalty = (((5 + np.arange(longest + 1)) / 6) ** alpha).astype(np.float32)
        lengths = np.array([len(source) for source in sources])
        padded = np.full((len(sources), lengths.max()), PAD)
        for row, source in zip(padded, sources):
            row[: len(source)] = source
        memory = self.encode(padded, lengths)
        shape = (self.settings["layers"], len(sources), beam, self.settings["heads"], 0)
        kept = [np.zeros((*shape, self.settings[width]), np.float32) for width in ("d_k", "d_v")]
        scores = np.full((len(sources), beam), -np.inf, np.float32)
        scores[:, 0] = 0
        tokens = np.full((len(sources), beam), BEGIN)
        said = np.zeros((len(sources), beam, 0), np.int64)
        best = np.full(len(sources), -np.inf)  # score of the best ended hypothesis; below, how many have ended
        ended = np.zeros(len(sources), np.int64)
        found: list[list[int]] = [[] for _ in sources]
        numbers = np.arange(len(sources))  # of the sentences still open
        for length in range(1, longest + 1):
            logits, *kept = self.step(tokens, lengths, *memory, *kept)
            totals = log_softmax(logits) + scores[..., None]
            totals[..., [PAD, BEGIN]] = -np.inf
            top, places = largest(totals.reshape(len(totals), -1), 2 * beam)
            parents, tokens = np.divmod(places, totals.shape[-1])
            ends = tokens == END
            for row, column in zip(*np.nonzero(ends[:, :beam] & (top[:, :beam] > -np.inf))):
                score, number = top[row, column] / penalty[length], numbers[row]
                ended[row] += 1
                if score > best[row]:
                    best[row], found[number] = score, said[row, parents[row, column]].tolist()
            scores, going = largest(np.where(ends, -np.inf, top), beam)
            parents, tokens = (np.take_along_axis(part, going, 1) for part in (parents, tokens))
            rows = np.arange(len(said))[:, None]
            said = np.concatenate((said[rows, parents], tokens[..., None]), 2)
            bound = scores.max(1) / penalty[limits]
            done = (best >= bound if exact else ended >= beam) | (length >= limits) | (scores.max(1) == -np.inf)
            for row in np.flatnonzero(done & (best == -np.inf)):  # none has ended: cut at the length limit
                found[numbers[row]] = said[row, scores[row].argmax()].tolist()
            open_ = np.flatnonzero(~done)
            if not len(open_):
                break
            memory, kept = ([part[:, open_] for part in parts] for parts in (memory, kept))
            kept = [part[:, np.arange(len(open_))[:, None], parents[open_]] for part in kept]
            state = (scores, tokens, said, best, ended, numbers, limits, lengths)
            scores, tokens, said, best, ended, numbers, limits, lengths = (part[open_] for part in state)
        return found


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def largest(values: Array, many: int) -> tuple[Array, Array]:
    """Return the `many` largest values of each row, in descending order, and their places."""
    places = np.argpartition(-values, min(many, values.shape[1]) - 1, 1)[:, :many]
    order = np.argsort(-np.take_along_axis(values, places, 1), 1, kind="stable")
    places = np.take_along_axis(places, order, 1)
    return np.take_along_axis(values, places, 1), places


def open_onnx(folder: Path, threads: int | None) -> tuple[Part, Part]:
    """Return encoder and step as functions of arrays, run by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads:
        options.intra_op_num_threads = threads

    def open_one(name: str) -> Part:
        session = onnxruntime.InferenceSession(
            str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"]
        )
        inputs = [entry.name for entry in session.get_inputs()]
        return lambda *arrays: session.run(None, dict(zip(inputs, arrays)))

    return open_one("encoder"), open_one("step")


def open_program(folder: Path, threads: int | None) -> tuple[Part, Part]:
    """Return encoder and step as functions of arrays, run by torch."""
    import torch

    if threads:
        torch.set_num_threads(threads)

    def open_one(name: str) -> Part:
        program = torch.export.load(folder / f"{name}.pt2").module()

        def run(*arrays: Array) -> list[Array]:
            with torch.no_grad():
                return [part.numpy() for part in program(*map(torch.from_numpy, arrays))]

        return run

    return open_one("encoder"), open_one("step")


def translate_stream(translator: Translator, source: IO[bytes], target: IO[bytes], **settings: Any) -> str:
    """Translate lines of UTF-8 as they arrive; stop at one that is not UTF-8, and return what is wrong with it."""
    longest = min(LONGEST, translator.settings["max_positions"] or LONGEST)
    number, problem, more = 0, "", True
    while more and not problem:
        lines: list[str] = []
        for data in islice(source, WINDOW):
            number += 1
            data = data.removeprefix(codecs.BOM_UTF8) if number == 1 else data
            try:
                line = data.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                wrong = f"byte 0x{data[error.start]:02X} at position {error.start + 1}"
                problem = f"line {number}: not UTF-8 ({wrong}); convert the text with: iconv -f LATIN1 -t UTF-8"
                break
            if (tokens := len(translator.tokens(line))) > longest:
                say = f"has {tokens} tokens, and lines of more than {longest} translate badly; split it into sentences"
                print(f"note: line {number}: {say}", file=sys.stderr)
            lines.append(line)
        for translation in translator.translate(lines, **settings):
            target.write(f"{translation}\n".encode())
        target.flush()
        more = len(lines) == WINDOW
    return problem


def main() -> None:
    """Translate standard input, line by line."""
    parser = argparse.ArgumentParser(description="Translate lines of UTF-8 from standard input with an exported model.")
    parser.add_argument(
        "--folder", default=Path(__file__).parent, help="the exported model (default: beside this file)"
    )
    parser.add_argument("--beam", type=int, help="hypotheses kept at each step (default: the model's own)")
    parser.add_argument(
        "--threads", type=int, help="threads to compute with (default: one a core; fewer are faster on busy cores)"
    )
    given = parser.parse_args()
    for name in ("beam", "threads"):
        if (value := getattr(given, name)) is not None and value < 1:
            parser.error(f"--{name} is {value}; give 1 or more")
    translator = Translator(given.folder, given.threads)
    settings = {"beam": given.beam} if given.beam else {}
    if problem := translate_stream(translator, sys.stdin.buffer, sys.stdout.buffer, **settings):
        sys.exit(f"error: {problem}")


if __name__ == "__main__":
    main()
