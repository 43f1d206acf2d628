"""Read models that Marian itself trained: an .npz file with its settings inside, and vocabularies beside it.

For the names of parameters and what is computed with them see src/models/transformer.h and src/layers of marian-dev.
"""

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.rewrite import (
    POSITIONS,
    Draft,
    Embeddings,
    Imported,
    Linear,
    Tensors,
    make_config,
    timed_positions,
)
from transduce.interop.vocabulary import Foreign, Numbering, check_rows, number_sides, read_models
from transduce.text.pieces import PieceModel
from transduce.text.shards import SIDES
from transduce.text.subwords import Subwords

SETTINGS = "special:model.yml"


def read_npz(path: Path, vocabularies: Sequence[Path] = (), pieces: Sequence[Path] = ()) -> Imported:
    """Read a model, with the vocabularies and SentencePiece models given or those its decoder.yml names."""
    found = _read_arrays(path)
    settings = _read_settings(path, found.pop(SETTINGS, None))
    _refuse_others(path, settings)
    tensors = Tensors(found, str(path))
    numberings, subwords = _vocabularies(path, vocabularies or _named(path), pieces)
    draft = Draft()
    embeddings = _embeddings(tensors)
    check_rows(str(path), embeddings.source, embeddings.target, numberings)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    pre = "n" in settings["transformer-preprocess"]
    layers = {stack: int(settings[f"{stack[:3]}-depth"]) for stack in ("encoder", "decoder")}
    for stack, count in layers.items():
        for number in range(count):
            _layer(draft, tensors, stack, number, pre)
        if pre:
            draft.linear(f"{stack}_norm", _norm(tensors, f"{stack}_top_ln", ""))
    width = int(settings["dim-emb"])
    table = timed_positions(POSITIONS, width)
    draft.positions(table, table.clone())
    tensors.refuse_unused()
    inner = draft.weights["encoder.0.feed_forward.inner.weight"]
    model = ModelConfig(
        **sizes,
        layers=layers["encoder"],
        decoder_layers=None if layers["encoder"] == layers["decoder"] else layers["decoder"],
        d_model=width,
        d_ff=len(inner),
        heads=int(settings["transformer-heads"]),
        positions="learned",
        max_positions=POSITIONS,
        norm="pre" if pre else "post",
        norm_epsilon=1e-6,
        activation="silu" if settings["transformer-ffn-activation"] == "swish" else "relu",
        biases=True,
    )
    return Imported(make_config(model, alpha=1.0), draft.finish(model, "turns", str(path)), subwords, None)


def _layer(draft: Draft, tensors: Tensors, stack: str, number: int, pre: bool) -> None:
    theirs, ours, when = f"{stack}_l{number + 1}", f"{stack}.{number}", "_pre" if pre else ""
    for kind, name in {"self": "self", "cross": "context"}.items():
        if kind == "cross" and stack == "encoder":
            continue
        parts = (_linear(tensors, f"{theirs}_{name}", part) for part in "qkvo")
        draft.attention(f"{ours}.{kind}_attention", *parts)
        draft.linear(f"{ours}.{kind}_residual.norm", _norm(tensors, f"{theirs}_{name}_Wo_ln", when))
    draft.feed_forward(f"{ours}.feed_forward", *(_linear(tensors, f"{theirs}_ffn", part) for part in ("1", "2")))
    draft.linear(f"{ours}.feed_forward_residual.norm", _norm(tensors, f"{theirs}_ffn_ffn_ln", when))


def _linear(tensors: Tensors, name: str, part: str) -> Linear:
    """Read a product, whose matrix Marian stores transposed."""
    return Linear(tensors(f"{name}_W{part}").T, tensors(f"{name}_b{part}").flatten())


def _norm(tensors: Tensors, name: str, when: str) -> Linear:
    return Linear(tensors(f"{name}_scale{when}").flatten(), tensors(f"{name}_bias{when}").flatten())


def _embeddings(tensors: Tensors) -> Embeddings:
    shared = tensors.find("Wemb")
    source = shared if shared is not None else tensors("encoder_Wemb")
    target = shared if shared is not None else tensors("decoder_Wemb")
    output = tensors.find("decoder_ff_logit_out_Wt")
    if output is None and (turned := tensors.find("decoder_ff_logit_out_W")) is not None:
        output = turned.T
    return Embeddings(source, target, target if output is None else output, tensors.find("decoder_ff_logit_out_b"))


def _vocabularies(
    path: Path, files: Sequence[Path], pieces: Sequence[Path]
) -> tuple[dict[str, Numbering], dict[str, Subwords]]:
    """Return the numberings and the subwords of both sides."""
    if len(files) not in (1, 2):
        raise DataError(f"{path}: names no vocabularies; give them: --vocabularies SOURCE TARGET")
    for file in pieces or files:
        if file.suffix not in (".spm", ".model"):
            raise DataError(f"{file}: is not a SentencePiece model; name those of both sides: --pieces SOURCE TARGET")
    models = read_models(pieces or files)
    foreign = {side: _foreign(file, models[side]) for side, file in zip(SIDES, (files[0], files[-1]))}
    return number_sides(foreign, models)


def _foreign(file: Path, model: PieceModel) -> Foreign:
    """Return a file's vocabulary: the pieces of a SentencePiece model, or a list of tokens and numbers."""
    listed = file.suffix not in (".spm", ".model")
    tokens = read_tokens(file) if listed else [piece.text for piece in model.pieces]
    missing = [name for name in ("</s>", "<unk>") if name not in tokens]
    if missing:
        raise DataError(f"{file}: has no {' and no '.join(missing)}; it is not a Marian vocabulary")
    # The decoder starts from zeros, and there is no padding token.
    return Foreign(tokens, unknown=tokens.index("<unk>"), end=tokens.index("</s>"))


_ENTRY = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|(\S.*?)):\s+(\d+)\s*""")

_BYTE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def read_tokens(file: Path) -> list[str]:
    """Read a vocabulary in YAML, an entry on each line, or in JSON; return the tokens in order of their numbers."""
    numbers: dict[int, str] = {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: not a readable vocabulary ({error})") from error
    if text.lstrip().startswith("{"):
        return [token for token, _ in sorted(json.loads(text).items(), key=lambda entry: entry[1])]
    for place, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        entry = _ENTRY.fullmatch(line)
        if not entry:
            raise DataError(f"{file}:{place}: wanted a token and its number, found {line[:60]!r}")
        double, single, plain, number = entry.groups()
        if double is not None:  # \xHH is an escape in YAML, but not in JSON
            plain = json.loads('"' + _BYTE.sub(r"\\u00\1", double) + '"')
        numbers[int(number)] = plain if single is None else single.replace("''", "'")
    if sorted(numbers) != list(range(len(numbers))):
        raise DataError(f"{file}: its token numbers are not 0 to {len(numbers) - 1}, each once")
    return [numbers[number] for number in range(len(numbers))]


def _named(path: Path) -> list[Path]:
    """Return the vocabularies that the .decoder.yml beside the model names."""
    beside = path.with_name(f"{path.name}.decoder.yml")
    if not beside.exists():
        return []
    lines = beside.read_text(encoding="utf-8").split("\n")
    if "vocabs:" not in lines:
        return []
    names: list[str] = []
    for line in lines[lines.index("vocabs:") + 1 :]:
        if not line.startswith("  - "):
            break
        names.append(line.removeprefix("  - ").strip("\"'"))
    # These paths date from training; for those that do not exist, look beside the model.
    return [Path(name) if Path(name).exists() else path.parent / Path(name).name for name in names]


def _read_arrays(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: torch.from_numpy(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable .npz file ({error})") from error


def _read_settings(path: Path, raw: Tensor | None) -> dict[str, str]:
    """Return the settings inside the model as text; of this YAML only lines of a name and a value are needed."""
    if raw is None:
        raise DataError(f"{path}: contains no {SETTINGS}; it is not a Marian model")
    text = bytes(raw.numpy().view(np.uint8).tobytes()).decode("utf-8", "replace").rstrip("\0")
    found = re.findall(r"^([\w-]+):[ ]*(.*?)\s*$", text, re.MULTILINE)
    return {name: value.strip("\"'") for name, value in found}


# Settings for which our model knows only these values.
_WANTED = {
    "type": ("transformer",),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-no-projection": ("false",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-disable-position-embeddings": ("false",),
    "transformer-postprocess-emb": ("d", ""),
    "lemma-dim-emb": ("0",),
    "right-left": ("false",),
}
_NORMS = {("", "dan", ""), ("n", "da", "n")}  # before each sub-layer, after it, at the top


def _refuse_others(path: Path, settings: dict[str, str]) -> None:
    problems = [
        f"{path}: {name} is {settings[name]!r}; only {' and '.join(map(repr, known))} can be imported"
        for name, known in _WANTED.items()
        if name in settings and settings[name] not in known
    ]
    missing = [
        name for name in ("type", "dim-emb", "enc-depth", "dec-depth", "transformer-heads") if name not in settings
    ]
    problems += [f"{path}: its settings have no {name}" for name in missing]
    norms = tuple(settings.get(f"transformer-{when}", "") for when in ("preprocess", "postprocess", "postprocess-top"))
    plain = tuple(norm.replace("d", "") if when == 0 else norm for when, norm in enumerate(norms))
    if plain not in _NORMS:
        shown = "/".join(map(repr, norms))
        problems.append(f"{path}: norms are placed as {shown}; only ''/'dan'/'' and 'n'/'da'/'n' can be imported")
    if problems:
        raise DataError("\n".join(problems))
