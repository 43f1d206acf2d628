"""A real model and a real file on a CPU: this project against CTranslate2, from lines of text to lines of text.

The model is exported to CTranslate2. Both translate in int8 with the same beam, in turns, and batch as they choose:
CTranslate2 sorts by length and takes batches of --tokens tokens; the fastest of these is shown.

    pip install ctranslate2
    python benchmarks/decode_file.py en-de newstest2014.en --reference newstest2014.de
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from transduce import Translator
from transduce.interop.exporting import ExportJob, export_model
from transduce.scoring.bleu import corpus_bleu

Decode = Callable[[list[str]], list[str]]


def ours(model: Path, threads: int, beam: int) -> Decode:
    """Return this project's translator, as `transduce translate` uses it."""
    translator = Translator.load(model, device="cpu", precision="int8", threads=threads)
    return lambda lines: [found.text for found in translator.translate(lines, beam=beam)]


def ctranslate2(folder: Path, threads: int, beam: int, tokens: int) -> Decode:
    """Return CTranslate2 with SentencePiece before and after."""
    import ctranslate2  # pyright: ignore[reportMissingImports]

    translator: Any = ctranslate2.Translator(
        str(folder), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
    )
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    )

    def decode(lines: list[str]) -> list[str]:
        pieces: Any = source.encode(lines, out_type=str)
        found = translator.translate_batch(pieces, beam_size=beam, max_batch_size=tokens, batch_type="tokens")
        return target.decode([one.hypotheses[0] for one in found])

    return decode


def main() -> None:
    """Print lines a second and BLEU of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="run, model, or name of a model")
    parser.add_argument("file", type=Path, help="lines to translate")
    parser.add_argument("--reference", type=Path, help="their translations")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096])
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    torch.set_num_threads(given.threads)
    lines = given.file.read_text(encoding="utf-8").splitlines()[: given.lines]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "ctranslate2"
        export_model(ExportJob(model=given.model, out=folder, kind="ctranslate2", precision="int8", sentences=0))
        engines = {"transduce": ours(given.model, given.threads, given.beam)}
        for tokens in given.tokens:
            engines[f"CTranslate2, {tokens} tokens"] = ctranslate2(folder, given.threads, given.beam, tokens)
        rates: dict[str, list[float]] = {name: [] for name in engines}
        said: dict[str, list[str]] = {}
        for decode in engines.values():
            decode(lines[:20])
        for number in range(given.rounds):
            turn = list(engines.items())
            for name, decode in turn[number % len(turn) :] + turn[: number % len(turn)]:
                begin = time.perf_counter()
                said[name] = decode(lines)
                rates[name].append(len(lines) / (time.perf_counter() - begin))
    best = max((name for name in engines if name != "transduce"), key=lambda name: statistics.median(rates[name]))
    ratios = [mine / theirs for mine, theirs in zip(rates["transduce"], rates[best])]
    for name, some in rates.items():
        print(f"{name:<26} {statistics.median(some):6.1f} lines/s [{min(some):.1f}–{max(some):.1f}]", end="")
        if given.reference:
            reference = given.reference.read_text(encoding="utf-8").splitlines()[: given.lines]
            print(f"  BLEU {corpus_bleu(said[name], reference).score:.2f}", end="")
        print()
    print(f"ours is {statistics.median(ratios):.2f} × [{min(ratios):.2f}–{max(ratios):.2f}] the faster of theirs")


if __name__ == "__main__":
    main()
