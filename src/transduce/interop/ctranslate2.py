"""Read models of CTranslate2, and so packages of Argos Translate: model.bin, config.json and vocabularies.

Quantised weights are read as the numbers that they stand for. The format is the one that `to_ctranslate2.py` writes, or
an earlier version. For the names of variables see python/ctranslate2/specs of CTranslate2.
"""

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.rewrite import (
    POSITIONS,
    Activation,
    Draft,
    Embeddings,
    Imported,
    Linear,
    SineOrder,
    Tensors,
    below,
    make_config,
    refuse_turned_bias,
    timed_positions,
)
from transduce.interop.vocabulary import Foreign, check_rows, number_sides, read_models
from transduce.model.positions import sinusoids
from transduce.text.pieces import PieceModel, read_pieces
from transduce.text.shards import SIDES

BINARY = "model.bin"
PACKAGE, PIECES, ENDING = "metadata.json", "sentencepiece.model", ".argosmodel"  # of Argos Translate
OLDEST, NEWEST = 4, 6  # versions of the format
STACKS = ("encoder", "decoder")
PADDING = ("<pad>", "<blank>")
Kind = TypeVar("Kind", list[Any], dict[str, Any])
_TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
_ACTIVATIONS: dict[int, Activation] = {0: "relu", 2: "silu", 3: "gelu"}
_NOT_KNOWN = ("layernorm_embedding", "with_relative_position", "alibi", "multi_query_attention")
# Settings that our model does not need.
_NOT_USED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")


class Files:
    """The files, by name, of a folder or of a zipped package, which holds all of them in one folder."""

    def __init__(self, source: Path):
        self.source = source
        self._archive: dict[str, bytes] | None = None
        if source.is_file():
            try:
                with zipfile.ZipFile(source) as archive:
                    files = [name for name in archive.namelist() if not name.endswith("/")]
                    about = [name for name in files if name.rpartition("/")[2] == PACKAGE]
                    root = min(about, key=len, default=PACKAGE).removesuffix(PACKAGE)
                    wanted = (root + PACKAGE, root + PIECES, f"{root}model/")  # the rest splits texts into sentences
                    self._archive = {
                        name.removeprefix(root): archive.read(name) for name in files if name.startswith(wanted)
                    }
            except (OSError, zipfile.BadZipFile, KeyError, RuntimeError) as error:
                raise DataError(f"{source}: not a readable package ({error})") from error

    def find(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        if self._archive is not None:
            return self._archive.get(name)
        try:
            return (self.source / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"{self.source / name}: cannot be read ({error.strerror})") from error

    def find_json(self, name: str, kind: type[Kind]) -> Kind | None:
        """Return what a JSON file holds, or None if there is no such file."""
        data = self.find(name)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except ValueError as error:
            raise DataError(f"{self.source / name}: not readable ({error})") from error
        if not isinstance(found, kind):
            raise DataError(
                f"{self.source / name}: contains a {type(found).__name__}, where a {kind.__name__} is wanted"
            )
        return found


def read_ctranslate2(source: Path, pieces: Sequence[Path] = ()) -> Imported:
    """Read a folder of CTranslate2, or a package of Argos Translate, zipped or not."""
    files = Files(source)
    package = files.find_json(PACKAGE, dict)
    inner = "" if package is None else "model/"
    data = files.find(inner + BINARY)
    if data is None:
        raise DataError(f"{source}: has no {inner}{BINARY}; it is not a CTranslate2 model")
    version, variables = read_binary(data, f"{source / inner / BINARY}")
    config = files.find_json(f"{inner}config.json", dict) or {}
    if version < NEWEST:
        config |= _old_settings(variables)
    _refuse_others(source, config)
    # Marian's decoders start from zeros, and its sources have an end token, whoever adds it.
    zeros = bool(variables.get("decoder/start_from_zero_embedding", False))
    foreign = {side: _read_vocabulary(files, inner, side, config, zeros) for side in SIDES}
    models = read_models(pieces) if pieces else _find_pieces(files)
    numberings, subwords = number_sides(foreign, models, source_ends=zeros or bool(config.get("add_source_eos")))

    tensors = Tensors(_in_floats(variables), str(source))
    stacks = {stack: _Stack(tensors, variables, stack) for stack in STACKS}
    encoder, decoder = stacks.values()
    encoder.refuse_other(decoder)
    draft = Draft()
    embeddings = _embeddings(tensors, encoder.scaled)
    check_rows(str(source), embeddings.source, embeddings.target, numberings)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    for stack in stacks.values():
        stack.draw(draft)
    tensors.find("decoder/start_from_zero_embedding")
    order = _positions(draft, encoder, decoder)
    tensors.refuse_unused()
    d_model = embeddings.source.shape[1]
    width = encoder.head_width or d_model // encoder.heads
    own_width = width if width * encoder.heads != d_model else None
    learned = draft.weights.get("source_positions.weight")
    epsilon = config.get("layer_norm_epsilon")
    model = ModelConfig(
        **sizes,
        layers=encoder.layers,
        decoder_layers=None if encoder.layers == decoder.layers else decoder.layers,
        d_model=d_model,
        d_ff=draft.weights["encoder.0.feed_forward.outer.weight"].shape[1],
        heads=encoder.heads,
        d_k=own_width,
        d_v=own_width,
        positions="rotary" if encoder.rotary else "sinusoidal" if learned is None else "learned",
        max_positions=POSITIONS if learned is None else len(learned),
        norm="pre" if encoder.pre else "post",
        norm_epsilon=1e-5 if epsilon is None else float(epsilon),
        activation="swiglu" if encoder.gated else encoder.activation,
        biases=True,
    )
    languages = (package or {}).get("from_code"), (package or {}).get("to_code")
    pair = (str(languages[0]), str(languages[1])) if all(languages) else None
    return Imported(make_config(model), draft.finish(model, order, str(source)), subwords, pair)


def read_binary(data: bytes, origin: str) -> tuple[int, dict[str, Tensor]]:
    """Return the version of the format and the variables by name; aliases are the same object."""
    at = 0

    def take(form: str) -> tuple[Any, ...]:
        nonlocal at
        found = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return found

    def take_text() -> str:
        nonlocal at
        (size,) = take("H")
        at += size
        if not size or at > len(data):
            raise ValueError("it ends too early")
        return data[at - size : at - 1].decode()

    try:
        (version,) = take("I")
        if not OLDEST <= version <= NEWEST:
            raise DataError(f"{origin}: has version {version} of the format; {OLDEST} to {NEWEST} are supported")
        kind = take_text()
        if kind != "TransformerSpec":
            raise DataError(f"{origin}: is a {kind}, not a Transformer for translation")
        _, many = take("II")
        variables: dict[str, Tensor] = {}
        for _ in range(many):
            name = take_text()
            (rank,) = take("B")
            shape = take(f"{rank}I")
            code, size = take("BI")
            dtype = _TYPES[code]
            if size != prod(shape) * dtype.itemsize or at + size > len(data):
                raise ValueError(f"{name} has {size} bytes for {shape}")
            numbers = torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype) if size else torch.empty(0)
            variables[name] = numbers.reshape(shape)
            at += size
        for _ in range(take("I")[0]):
            alias, name = take_text(), take_text()
            for part in ("", "_scale"):
                if name + part in variables:
                    variables[alias + part] = variables[name + part]
    except (struct.error, ValueError, IndexError) as error:
        raise DataError(f"{origin}: not a readable CTranslate2 model ({error})") from error
    return version, variables


def _in_floats(variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the variables, with integers divided by their scale: one for the matrix, or one for each row."""
    found: dict[str, Tensor] = {}
    done: dict[int, Tensor] = {}
    for name, value in variables.items():
        scale = variables.get(f"{name}_scale")
        if scale is not None:
            if id(value) not in done:
                done[id(value)] = value.float() / scale.float().reshape(-1, *[1] * (value.ndim - 1))
            found[name] = done[id(value)]
        elif not name.endswith("_scale") or name.removesuffix("_scale") not in variables:
            found[name] = value
    return found


def _old_settings(variables: dict[str, Tensor]) -> dict[str, Any]:
    """Take from the variables the settings that config.json holds since version 6."""

    def text(name: str, otherwise: str) -> str:
        found = variables.pop(name, None)
        return otherwise if found is None else bytes(found.flatten().tolist()).decode()

    def flag(name: str, otherwise: bool) -> bool:
        found = variables.pop(name, None)
        return otherwise if found is None else bool(found)

    tokens = {name: text(name, usual) for name, usual in (("unk_token", "<unk>"), ("bos_token", "<s>"))}
    tokens["eos_token"] = text("eos_token", "</s>")
    begins = flag("with_target_bos", True)
    given = flag("user_decoder_start_tokens", False)
    return {
        **tokens,
        "add_source_bos": flag("with_source_bos", False),
        "add_source_eos": flag("with_source_eos", False),
        "decoder_start_token": None if given else tokens["bos_token" if begins else "eos_token"],
    }


def _refuse_others(source: Path, config: Mapping[str, Any]) -> None:
    wrong: list[str] = []
    if config.get("add_source_bos"):
        wrong.append(f"{source}: adds a begin token to sources, which our model does not support")
    if not config.get("decoder_start_token", "<s>"):
        wrong.append(f"{source}: takes each translation's first token from the user, but ours is always the same")
    if config.get("quantization_type") not in (None, "CT2", 0):
        wrong.append(f"{source}: quantization_type is {config['quantization_type']}, which is not supported")
    if wrong:
        raise DataError("\n".join(wrong))


def _read_vocabulary(files: Files, inner: str, side: str, config: Mapping[str, Any], zeros: bool) -> Foreign:
    """Read a side's tokens; `zeros` says that the decoder starts from zeros, not from a token."""
    for name in ("shared", side):
        tokens = files.find_json(f"{inner}{name}_vocabulary.json", list)
        if tokens is None and (data := files.find(f"{inner}{name}_vocabulary.txt")) is not None:
            tokens = data.decode(errors="replace").removesuffix("\n").split("\n")
            if all(token.endswith("\r") for token in tokens):
                tokens = [token[:-1] for token in tokens]
        if tokens is not None:
            break
    else:
        raise DataError(f"{files.source}: has no {inner}{side}_vocabulary.json and no shared one")
    numbers = {token: number for number, token in enumerate(tokens)}
    names = {part: config.get(f"{part}_token") or usual for part, usual in (("unk", "<unk>"), ("eos", "</s>"))}
    if names["unk"] not in numbers or (side == "target" and names["eos"] not in numbers):
        raise DataError(f"{files.source}: its {side} vocabulary lacks {names['unk']} or {names['eos']}")
    pad = next((numbers[name] for name in PADDING if name in numbers), None)
    start = config.get("decoder_start_token", "<s>")
    begin = None if zeros else numbers.get(start)
    if begin is None and side == "target" and not zeros:
        raise DataError(f"{files.source}: its vocabulary has no {start}, with which translations begin")
    return Foreign(tokens, numbers[names["unk"]], numbers.get(names["eos"]), pad, begin)


def _find_pieces(files: Files) -> dict[str, PieceModel]:
    """Find the SentencePiece models beside it: one for each side, or one for both, as in Argos Translate."""
    found: dict[str, PieceModel] = {}
    for side in SIDES:
        for name in (f"{side}.spm", PIECES):
            if side not in found and (data := files.find(name)) is not None:
                found[side] = read_pieces(data, str(files.source / name))
    if len(found) < len(SIDES):
        raise DataError(f"{files.source}: has no SentencePiece models; name them: --pieces SOURCE TARGET")
    return found


def _embeddings(tensors: Tensors, scaled: bool) -> Embeddings:
    names = ("encoder/embeddings_0/weight", "encoder/embeddings/weight")
    source = tensors(next((name for name in names if name in tensors), names[0]))
    output = _linear(tensors, "decoder/projection")
    return Embeddings(source, tensors("decoder/embeddings/weight"), output.weight, output.bias, scaled)


def _linear(tensors: Tensors, name: str) -> Linear:
    return Linear(tensors(f"{name}/weight"), tensors.find(f"{name}/bias"))


def _positions(draft: Draft, encoder: "_Stack", decoder: "_Stack") -> SineOrder:
    """Add positions that are not the paper's to the draft; return the order of sines and cosines of those that are."""
    if encoder.rotary:
        return "turns"
    tables = encoder.positions, decoder.positions
    if any(table is None for table in tables):
        # None were saved: CTranslate2 computes them as tensor2tensor does, counting from 1.
        table = timed_positions(POSITIONS, len(encoder.norm_weight), 1)
        draft.positions(table, table.clone())
        return "turns"
    source, target = (table.flatten(0, -2) for table in tables if table is not None)
    known = min(len(source), len(target))
    turns = sinusoids(torch.arange(known), source.shape[1])
    orders: dict[SineOrder, Tensor] = {"turns": turns, "halves": torch.cat((turns[:, 0::2], turns[:, 1::2]), 1)}
    for order, usual in orders.items():
        if all(torch.allclose(table[:known], usual, atol=1e-3) for table in (source, target)):
            return order
    draft.positions(source[:known].clone(), target[:known].clone())
    return "turns"


class _Stack:
    """The encoder or the decoder: its settings, and its layers as ours."""

    activation: Activation

    def __init__(self, tensors: Tensors, variables: Mapping[str, Tensor], name: str):
        self.tensors, self.name = tensors, name

        def number(setting: str, otherwise: float) -> float:
            # Before revision 5 both stacks shared their settings.
            found = tensors.find(f"{name}/{setting}", setting)
            return otherwise if found is None else float(found)

        for setting in _NOT_USED:
            number(setting, 0)
        for setting in _NOT_KNOWN:
            if number(setting, 0):
                raise DataError(f"{tensors.origin}: {setting} is set, which our model does not support")
        self.layers = tensors.count(f"{name}/layer_{{}}/ffn/linear_0/weight")
        self.heads = int(number("num_heads", 8))
        self.pre = bool(number("pre_norm", True))
        self.gated = f"{name}/layer_0/ffn/linear_0_noact/weight" in tensors
        self.norm_weight = tensors(f"{name}/layer_0/ffn/layer_norm/gamma")
        self.positions = tensors.find(f"{name}/position_encodings/encodings")
        self.activation = self._find_activation(int(number("activation", 0)))
        self.scaled = self._is_scaled(variables)
        first = f"{name}/layer_0/self_attention"
        self.rotary = f"{first}/rotary_dim" in tensors
        width = tensors.find(f"{first}/head_dim")
        self.head_width = None if width is None else int(width)

    def _find_activation(self, code: int) -> Activation:
        if code not in _ACTIVATIONS or (self.gated and code != 2):
            raise DataError(f"{self.tensors.origin}: the activation {code} is not supported; relu, silu and gelu are")
        return _ACTIVATIONS[code]

    def _is_scaled(self, variables: Mapping[str, Tensor]) -> bool:
        """Return whether embeddings are multiplied by sqrt(d_model), from a flag or from the factor itself."""
        names = [f"{self.name}/scale_embeddings"]
        names += [f"{self.name}/embeddings{end}/multiply_by_sqrt_depth" for end in ("", "_0")]
        self.tensors.find(*names)
        found = next((variables[name] for name in names if name in variables), None)
        if found is None or found.dtype == torch.int8:
            return found is None or bool(found)
        usual = sqrt(len(self.norm_weight))
        if float(found) != 1.0 and abs(float(found) - usual) > 1e-2:
            raise DataError(
                f"{self.tensors.origin}: embeddings are multiplied by {float(found)}; only {usual:.2f} is supported"
            )
        return float(found) != 1.0

    def refuse_other(self, other: "_Stack") -> None:
        """Refuse stacks that differ in a setting that our model has once for both."""
        for setting in ("heads", "pre", "gated", "activation", "scaled", "rotary", "head_width"):
            own, theirs = getattr(self, setting), getattr(other, setting)
            if own != theirs:
                raise DataError(f"{self.tensors.origin}: {setting} is {own} in the encoder and {theirs} in the decoder")

    def draw(self, draft: Draft) -> None:
        """Add the layers, and the norm after them, to the draft."""
        for number in range(self.layers):
            there, here = f"{self.name}/layer_{number}", f"{self.name}.{number}"
            parts = self._parts(f"{there}/self_attention", (3, 1))
            self._attention(draft, f"{there}/self_attention", f"{here}.self", parts)
            self._refuse_turns(f"{there}/self_attention")
            if self.name == "decoder":
                parts = self._parts(f"{there}/attention", (1, 2, 1))
                self._attention(draft, f"{there}/attention", f"{here}.cross", parts)
            inner = _linear(self.tensors, f"{there}/ffn/linear_0")
            if self.gated:
                inner = below(inner, _linear(self.tensors, f"{there}/ffn/linear_0_noact"))
            draft.feed_forward(f"{here}.feed_forward", inner, _linear(self.tensors, f"{there}/ffn/linear_1"))
            self._norm(draft, f"{there}/ffn", f"{here}.feed_forward_residual.norm")
        if self.pre:
            self._norm(draft, self.name, f"{self.name}_norm")

    def _parts(self, name: str, many: Sequence[int]) -> list[Linear]:
        """Return the products for queries, keys, values and output, some of which are stored as one."""
        found: list[Linear] = []
        for number, count in enumerate(many):
            whole = _linear(self.tensors, f"{name}/linear_{number}")
            biases = [None] * count if whole.bias is None else whole.bias.chunk(count)
            found += [Linear(weight, bias) for weight, bias in zip(whole.weight.chunk(count), biases)]
        return found

    def _attention(self, draft: Draft, there: str, here: str, parts: Sequence[Linear]) -> None:
        query, key, value, output = parts
        if self.rotary and here.endswith("self"):
            refuse_turned_bias(key, self.tensors.origin)
        draft.attention(f"{here}_attention", query, key, value, output)
        self._norm(draft, there, f"{here}_residual.norm")
        self.tensors.find(f"{there}/head_dim")

    def _norm(self, draft: Draft, there: str, here: str) -> None:
        norm = f"{there}/layer_norm"
        draft.linear(here, Linear(self.tensors(f"{norm}/gamma"), self.tensors(f"{norm}/beta")))

    def _refuse_turns(self, name: str) -> None:
        """Refuse rotary positions unlike ours: pairs of neighbours, over the whole head, with base 10,000."""
        if not self.rotary:
            return
        width = self.head_width or len(self.norm_weight) // self.heads
        usual = {"rotary_dim": (0, width), "rotary_interleave": (1,), "rotary_base": (10_000,)}
        for setting, values in usual.items():
            found = self.tensors.find(f"{name}/{setting}")
            if found is not None and float(found) not in values:
                raise DataError(
                    f"{self.tensors.origin}: {setting} is {float(found):g}, but only {values[-1]} is supported"
                )
