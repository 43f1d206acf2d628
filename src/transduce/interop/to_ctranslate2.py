"""Export models for CTranslate2: model.bin, config.json and the vocabularies, as its own converters write them.

The format is small and implemented here, so that nothing need be installed: the number of its version, the name of the
kind of model, then each variable's name, shape, type and bytes, then aliases of these variables. For the names of
variables see python/ctranslate2/specs of CTranslate2.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from transduce.config import ModelConfig
from transduce.disk import sync_file, write_json, write_synced
from transduce.interop.check import Pair, Said
from transduce.interop.parts import AttentionParts, Layer, position_tables, take_apart
from transduce.interop.rewrite import Linear, below
from transduce.interop.vocabulary import NEVER
from transduce.model.saved import Loaded, Precision
from transduce.text.shards import SIDES
from transduce.text.subwords import BEGIN, END, PAD, SPACE, UNKNOWN

_BINARY, _KIND, _REVISION = 6, "TransformerSpec", 7
_TYPES = ("float32", "int8", "int16", "int32")
_ACTIVATIONS = {"relu": 0, "silu": 2, "swiglu": 2, "gelu": 3}
_BATCH, LIMIT = 32, 256

PRECISIONS: tuple[str, ...] = ("float32", "int8")
WRITTEN_WITH: tuple[str, ...] = ()
CHECKED_WITH: tuple[str, ...] = ("ctranslate2",)
ALIKE: bool = False
UNSAID: tuple[int, ...] = (PAD, BEGIN)
USE: str = """\
```sh
pip install ctranslate2 sentencepiece
```

```python
import ctranslate2, sentencepiece

source, target = (sentencepiece.SentencePieceProcessor(f"FOLDER/{side}.spm") for side in ("source", "target"))
translator = ctranslate2.Translator("FOLDER")
tokens = source.encode("EXAMPLE", out_type=str)
found = translator.translate_batch([tokens], beam_size=BEAM, length_penalty=ALPHA, patience=2)
print(target.decode(found[0].hypotheses[0]))
```

CTranslate2's length penalty is tokens ** length_penalty; that of transduce is ((5 + tokens) / 6) ** length_penalty.
With a penalty, CTranslate2 stops once as many hypotheses have ended as the beam is wide, and loses longer ones that are
better; `patience=2` makes it wait for twice as many. It outputs at least one token unless you give
`min_decoding_length=0`."""


def find_problems(loaded: Loaded) -> list[str]:
    """Return what CTranslate2 cannot compute."""
    if loaded.config.model.attention == "additive":
        return ['model.attention = "additive", but CTranslate2 supports dot products only']
    return []


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder."""
    names = {side: token_names(loaded, side) for side in SIDES}
    write_binary(folder / "model.bin", _variables(loaded, precision))
    settings = {
        "unk_token": names["target"][UNKNOWN],
        "bos_token": names["target"][BEGIN],
        "eos_token": names["target"][END],
        "decoder_start_token": names["target"][BEGIN],
        "add_source_bos": False,
        "add_source_eos": loaded.subwords["source"].ends,
        "layer_norm_epsilon": loaded.config.model.norm_epsilon,
        "multi_query_attention": False,
    }
    write_json(folder / "config.json", settings)
    if names["source"] == names["target"]:
        write_json(folder / "shared_vocabulary.json", names["target"])
    else:
        for side, tokens in names.items():
            write_json(folder / f"{side}_vocabulary.json", tokens)
    for side in SIDES:
        write_synced(folder / f"{side}.spm", loaded.subwords[side].model)


def token_names(loaded: Loaded, side: str) -> list[str]:
    """Return the texts of all tokens by their numbers: other runtimes look pieces up by their text."""
    return loaded.subwords[side].pieces(range(len(loaded.subwords[side])))


def translate(folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
    """Translate with CTranslate2 itself, without a length penalty."""
    source, target = (folder / f"{side}.spm" for side in SIDES)
    return translate_with(folder, source, target, lines, beam, most)


def translate_with(
    model: Path, source: Path, target: Path, lines: Sequence[str], beam: int, most: int | None
) -> list[Said]:
    """Translate with CTranslate2 and SentencePiece models at any path."""
    import ctranslate2
    import sentencepiece

    limit = most or LIMIT
    into, out_of = (sentencepiece.SentencePieceProcessor(str(path)) for path in (source, target))
    translator = ctranslate2.Translator(str(model), device="cpu")
    found = translator.translate_batch(
        into.encode(list(lines), out_type=str),
        beam_size=beam,
        length_penalty=0.0,
        min_decoding_length=0,
        max_decoding_length=limit,
        max_batch_size=_BATCH,
    )
    best = [result.hypotheses[0] for result in found]
    return [Said(out_of.decode(tokens).replace(SPACE, " "), len(tokens) < limit) for tokens in best]


def score(loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
    """Return the log-probabilities that CTranslate2 gives to translations."""
    import ctranslate2

    names = [token_names(loaded, side) for side in SIDES]
    tokens = [[loaded.subwords[side].open(pair[place]) for pair in pairs] for place, side in enumerate(SIDES)]
    given = [[[own[token] for token in some] for some in sides] for own, sides in zip(names, tokens)]
    translator = ctranslate2.Translator(str(folder), device="cpu")
    return [sum(found.log_probs) for found in translator.score_batch(*given, max_batch_size=_BATCH)]


def write_binary(path: Path, variables: Mapping[str, np.ndarray]) -> None:
    """Write variables under their names; one that is the same object as an earlier one is written as an alias."""
    first: dict[int, str] = {}
    for name, value in variables.items():
        first.setdefault(id(value), name)
    with path.open("wb") as file:
        file.write(struct.pack("<I", _BINARY) + _string(_KIND) + struct.pack("<II", _REVISION, len(first)))
        for name in first.values():
            value = np.ascontiguousarray(variables[name])
            shape = struct.pack(f"<B{variables[name].ndim}I", variables[name].ndim, *variables[name].shape)
            kind = struct.pack("<BI", _TYPES.index(value.dtype.name), value.nbytes)
            file.write(_string(name) + shape + kind + value.tobytes())
        others = [name for name, value in variables.items() if first[id(value)] != name]
        file.write(struct.pack("<I", len(others)))
        for name in others:
            file.write(_string(name) + _string(first[id(variables[name])]))
    sync_file(path)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<H", len(data) + 1) + data + b"\0"


def _variables(loaded: Loaded, precision: Precision) -> dict[str, np.ndarray]:
    config = loaded.config.model
    width = max(config.head_widths())
    parts = take_apart(loaded.model, width)
    bias = parts.bias.clone()
    bias[[*UNSAID]] = NEVER
    drawer = _Drawer(precision)
    for (stack, layers, norm), positions in zip(parts.stacks(), position_tables(parts, config)):
        drawer.settings(stack, config)
        if config.positions != "rotary":
            drawer.put(f"{stack}/position_encodings/encodings", positions)
        for number, layer in enumerate(layers):
            _layer(drawer, f"{stack}/layer_{number}", layer, config, width)
        if norm:
            drawer.norm(f"{stack}/layer_norm", norm)
    drawer.matrix("encoder/embeddings_0", parts.source)
    drawer.matrix("decoder/embeddings", parts.target)
    drawer.linear("decoder/projection", Linear(parts.output, bias))
    return drawer.variables


def _layer(drawer: "_Drawer", name: str, layer: Layer, config: ModelConfig, width: int) -> None:
    _attention(drawer, f"{name}/self_attention", layer.self_attention, config, width, own=True)
    if layer.cross_attention:
        _attention(drawer, f"{name}/attention", layer.cross_attention, config, width, own=False)
    if config.activation == "swiglu":
        weights, biases = (part.chunk(2) for part in (layer.inner.weight, _bias(layer.inner)))
        drawer.linear(f"{name}/ffn/linear_0", Linear(weights[0], biases[0]))
        drawer.linear(f"{name}/ffn/linear_0_noact", Linear(weights[1], biases[1]))
    else:
        drawer.linear(f"{name}/ffn/linear_0", layer.inner)
    drawer.linear(f"{name}/ffn/linear_1", layer.outer)
    drawer.norm(f"{name}/ffn/layer_norm", layer.norm)


def _attention(
    drawer: "_Drawer", name: str, attention: AttentionParts, config: ModelConfig, width: int, *, own: bool
) -> None:
    # Self-attention joins queries, keys and values in one product; cross-attention joins keys and values.
    query, key, value = attention.query, attention.key, attention.value
    joined = [(query, key, value)] if own else [(query,), (key, value)]
    for number, products in enumerate((*joined, (attention.output,))):
        drawer.linear(f"{name}/linear_{number}", below(*products))
    drawer.norm(f"{name}/layer_norm", attention.norm)
    if width * config.heads != config.d_model:
        drawer.number(f"{name}/head_dim", width, "int32")
    if own and config.positions == "rotary":
        drawer.number(f"{name}/rotary_dim", config.head_widths()[0], "int32")
        drawer.number(f"{name}/rotary_interleave", True, "int8")
        drawer.number(f"{name}/rotary_base", 10_000, "float32")


def _bias(product: Linear) -> Tensor:
    return product.weight.new_zeros(len(product.weight)) if product.bias is None else product.bias


class _Drawer:
    """Collects variables by name, in the precision asked for."""

    def __init__(self, precision: Precision):
        self.precision = precision
        self.variables: dict[str, np.ndarray] = {}
        self._known: dict[int, tuple[Tensor, dict[str, np.ndarray]]] = {}

    def settings(self, stack: str, config: ModelConfig) -> None:
        """Add the settings of a stack."""
        numbers = {"activation": _ACTIVATIONS[config.activation], "pre_norm": config.norm == "pre"}
        for name, value in {**numbers, "scale_embeddings": True}.items():
            self.number(f"{stack}/{name}", value, "int8")
        self.number(f"{stack}/num_heads", config.heads, "int16")
        if stack == "decoder":
            self.number("decoder/alignment_layer", -1, "int16")
            self.number("decoder/alignment_heads", 1, "int16")
            self.number("decoder/start_from_zero_embedding", False, "int8")
        else:
            self.number("encoder/embeddings_merge", 0, "int8")

    def number(self, name: str, value: float, kind: str) -> None:
        """Add one number of a type."""
        self.variables[name] = np.array(value, kind)

    def put(self, name: str, values: Tensor) -> None:
        """Add numbers that are never rounded."""
        self._keep(name, values, lambda values: {"": values})

    def norm(self, name: str, norm: Linear) -> None:
        """Add a layer norm."""
        self.put(f"{name}/gamma", norm.weight)
        self.put(f"{name}/beta", _bias(norm))

    def linear(self, name: str, linear: Linear) -> None:
        """Add a product and its bias."""
        self.matrix(name, linear.weight)
        self.put(f"{name}/bias", _bias(linear))

    def matrix(self, name: str, weight: Tensor) -> None:
        """Add a matrix, for int8 as integers with a scale for each row."""
        self._keep(name, weight, self._rounded)

    def _keep(self, name: str, tensor: Tensor, draw: Callable[[np.ndarray], dict[str, np.ndarray]]) -> None:
        """Add a tensor; one kept under another name before is the same object here, so that it is written once."""
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor, draw(tensor.numpy())
        self.variables |= {name + part: values for part, values in self._known[id(tensor)][1].items()}

    def _rounded(self, weight: np.ndarray) -> dict[str, np.ndarray]:
        if self.precision != "int8":
            return {"/weight": weight}
        most = np.abs(weight).max(1)
        scale = 127 / np.where(most == 0, 127, np.maximum(most, 127 / np.finfo(np.float32).max))
        rounded = np.rint(weight * scale[:, None]).astype(np.int8)
        return {"/weight": rounded, "/weight_scale": scale.astype(np.float32)}
