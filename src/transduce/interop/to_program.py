"""Export models as programs of torch.export: encoder.pt2 and step.pt2, which run without our code.

`transcribe` is also the first step towards ONNX.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export, save

from transduce.disk import sync_file, write_json, write_synced
from transduce.interop.check import Pair, Said
from transduce.interop.dense import DecoderStep, Encoder
from transduce.model.saved import Loaded, Precision
from transduce.text.subwords import BEGIN, save_sides

INPUTS = {
    "encoder": ("source", "lengths"),
    "step": ("tokens", "lengths", "memory_keys", "memory_values", "keys", "values"),
}
OUTPUTS = {"encoder": ("memory_keys", "memory_values"), "step": ("logits", "new_keys", "new_values")}

PRECISIONS: tuple[str, ...] = ("float32",)
WRITTEN_WITH: tuple[str, ...] = ()
CHECKED_WITH: tuple[str, ...] = ("torch",)
ALIKE: bool = True
UNSAID: tuple[int, ...] = ()
USE: str = """\
```sh
pip install torch sentencepiece numpy
python FOLDER/translate.py < IN > OUT
```

Besides these packages you need only `translate.py`: it reads the programs with `torch.export.load` and searches as
transduce does, in numpy, and you may change it."""


def find_problems(loaded: Loaded) -> list[str]:
    """Return nothing: the programs are made from the model's own code."""
    return []


def transcribe(loaded: Loaded) -> dict[str, ExportedProgram]:
    """Trace both parts as programs, for any number of sentences, hypotheses and tokens."""
    config, model = loaded.config.model, loaded.model.float().cpu().eval()
    (_, layers), (d_k, d_v) = config.stacks(), config.head_widths()
    sentences, beam, source, past = map(Dim, ("sentences", "beam", "source", "past"))
    tokens, lengths = torch.zeros(3, 7, dtype=torch.int64), torch.tensor([7, 5, 3])
    memory = tuple(torch.zeros(layers, 3, config.heads, 7, width) for width in (d_k, d_v))
    kept = tuple(torch.zeros(layers, 3, 2, config.heads, 5, width) for width in (d_k, d_v))
    parts: dict[str, tuple[nn.Module, tuple[Any, ...], tuple[Any, ...]]] = {
        "encoder": (Encoder(model), (tokens, lengths), ({0: sentences, 1: source}, {0: sentences})),
        "step": (
            DecoderStep(model),
            (tokens[:, :2].contiguous(), lengths, *memory, *kept),
            (
                {0: sentences, 1: beam},
                {0: sentences},
                *({1: sentences, 3: source},) * 2,
                *({1: sentences, 2: beam, 4: past},) * 2,
            ),
        ),
    }
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about its own workings
        return {name: export(part, given, dynamic_shapes=shapes) for name, (part, given, shapes) in parts.items()}


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder."""
    for name, program in transcribe(loaded).items():
        path = folder / f"{name}.pt2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(program, path)
        sync_file(path)
    write_beside(loaded, folder, "program")


def write_beside(loaded: Loaded, folder: Path, kind: str) -> None:
    """Write `translate.py`, and the settings and subwords that it needs beside the two parts."""
    config, subwords = loaded.config, loaded.subwords
    model, search = config.model, config.search
    names = save_sides(folder, subwords)
    d_k, d_v = model.head_widths()
    settings = {
        "kind": kind,
        "subwords": names,
        "unicode": loaded.about.get("unicode", "NFC"),
        "vocabulary": {side: len(subwords[side]) for side in names},
        "layers": model.stacks()[1],
        "heads": model.heads,
        **{"d_k": d_k, "d_v": d_v},
        "max_positions": model.max_positions if model.positions == "learned" else None,
        **{name: getattr(search, name) for name in ("beam", "alpha", "extra_tokens", "max_tokens", "stop")},
    }
    write_json(folder / "settings.json", settings)
    write_synced(folder / "translate.py", Path(__file__).with_name("alone.py").read_bytes())


def translate(folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
    """Translate with the code of `translate.py`."""
    from transduce.interop.alone import Translator

    limits = {} if most is None else {"alpha": 0.0, "max_tokens": most}
    return list(map(Said, Translator(folder).translate(list(lines), beam=beam, **limits)))


def score(loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
    """Return the log-probabilities of translations, computed token by token."""
    from transduce.interop.alone import Translator, log_softmax

    alone, config = Translator(folder), loaded.config.model
    found: list[float] = []
    for source, target in pairs:
        lengths = np.array([len(source)])
        memory = alone.encode(np.array([source]), lengths)
        shape = (config.stacks()[1], 1, 1, config.heads, 0)
        kept = [np.zeros((*shape, width), np.float32) for width in config.head_widths()]
        total = 0.0
        for before, token in zip([BEGIN, *target], target):
            logits, *kept = alone.step(np.array([[before]]), lengths, *memory, *kept)
            total += float(log_softmax(logits)[0, 0, token])
        found.append(total)
    return found
