"""Transformers that OpenNMT-py has trained, in its versions 2 and 3: a .pt checkpoint and its SentencePiece models.

Names of parameters and what is computed with them: onmt/encoders, onmt/decoders and onmt/modules of OpenNMT-py. Its
sources have no end token, so the subwords that are made of them give a text none (`Subwords.ends`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.checkpoint import StandIn, as_tensors, read_checkpoint
from transduce.interop.rewrite import (
    Draft,
    Embeddings,
    Imported,
    Linear,
    Tensors,
    below,
    find_activation,
    make_config,
    refuse_turned_bias,
    timed_positions,
)
from transduce.interop.vocabulary import Foreign, check_rows, number_sides, read_models

SIDES = {"source": "src", "target": "tgt"}
POSITIONS = 1024
ROTARY = -1  # as max_relative_positions
# Each kind of attention in each stack, and its norm.
KINDS = {
    "encoder": {"self": ("self_attn", "layer_norm")},
    "decoder": {"self": ("self_attn", "layer_norm_1"), "cross": ("context_attn", "layer_norm_2")},
}
LAYERS = {"encoder": "encoder.transformer.", "decoder": "decoder.transformer_layers."}
# Settings of which our model has one value only, and that value; checkpoints of older versions do not have them all.
ONLY = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "model_type": "text",
    "model_task": "seq2seq",
    "layer_norm": "standard",
    "parallel_residual": False,
    "relative_positions_buckets": 0,
    "sliding_window": 0,
    "num_experts": 0,
    "copy_attn": False,
    "generator_function": "softmax",
    "lora_layers": [],
    "lora_embedding": False,
    "quant_layers": [],
    "rotary_theta": 10_000,
}
Setting = Callable[..., Any]


def is_opennmt(found: Any) -> bool:
    """Whether a checkpoint is one of OpenNMT-py."""
    return isinstance(found, Mapping) and {"opt", "vocab"} <= found.keys()


def read_opennmt(path: Path, pieces: Sequence[Path] = ()) -> Imported:
    """Read a checkpoint; its vocabularies are in it."""
    found = read_checkpoint(path)
    if not is_opennmt(found) or not isinstance(found["opt"], Mapping | StandIn):
        raise DataError(f"{path}: holds no opt and vocab; it is no checkpoint of OpenNMT-py")
    setting: Setting = found["opt"].get
    positions = _find_positions(path, setting)
    if not pieces:
        raise DataError(f"{path}: a checkpoint holds no SentencePiece models; name them: --pieces SOURCE TARGET")
    foreign = {side: _read_vocabulary(path, found["vocab"], side) for side in SIDES}
    numberings, subwords = number_sides(foreign, read_models(pieces), source_ends=False)
    tensors = Tensors(_read_tensors(path, found), str(path))

    draft = Draft()
    names = (f"{stack}.embeddings.make_embedding.emb_luts.0.weight" for stack in LAYERS)
    source, target = map(tensors, names)
    check_rows(str(path), source, target, numberings)
    scaled = positions != "rotary"  # only where sinusoids are added
    output = tensors.linear("generator")
    embeddings = Embeddings(source, target, output.weight, output.bias, scaled)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    heads, groups = int(setting("heads", 8)), int(setting("num_kv", 0) or 0)
    turned = None if positions != "rotary" else bool(setting("rotary_interleave", True))
    layers = {stack: tensors.count(prefix + "{}.feed_forward.w_1.weight") for stack, prefix in LAYERS.items()}
    for stack, count in layers.items():
        tensors.find(f"{stack}.embeddings.make_embedding.pe.pe")  # made anew
        for number in range(count):
            _layer(draft, tensors, stack, number, heads, groups, turned)
        draft.linear(f"{stack}_norm", tensors.linear(f"{stack}.layer_norm"))
    width = source.shape[1]
    if positions == "learned":
        table = timed_positions(POSITIONS, width)
        draft.positions(table, table.clone())
    tensors.refuse_unused()
    outer = draft.weights["encoder.0.feed_forward.outer.weight"]
    dropout, attention_dropout = (_first(setting(name), 0.1) for name in ("dropout", "attention_dropout"))
    model = ModelConfig(
        **sizes,
        layers=layers["encoder"],
        decoder_layers=None if layers["encoder"] == layers["decoder"] else layers["decoder"],
        d_model=width,
        d_ff=outer.shape[1],
        heads=heads,
        positions=positions,
        norm="pre",
        norm_epsilon=float(setting("norm_eps", None) or 1e-6),
        activation=_find_activation(path, setting),
        biases=True,
        dropout=dropout,
        attention_dropout=attention_dropout,
        feed_forward_dropout=dropout,
    )
    config = make_config(model, beam=5, alpha=1.0)
    return Imported(config, draft.finish(model, "turns", str(path)), subwords, _find_languages(setting))


def _find_positions(path: Path, setting: Setting) -> Literal["sinusoidal", "learned", "rotary"]:
    """The kind of positions, where all settings are such that our model can have them."""
    wrong = [
        f"{path}: {name} is {setting(name)!r}, and only {value!r} can be imported"
        for name, value in ONLY.items()
        if setting(name, value) not in (value, None)
    ]
    relative, added = setting("max_relative_positions", 0), bool(setting("position_encoding", False))
    kind = setting("position_encoding_type", None) or "SinusoidalInterleaved"
    if relative not in (0, ROTARY):
        wrong.append(f"{path}: max_relative_positions is {relative}, and our model knows no relative positions")
    elif added == (relative == ROTARY):
        wrong.append(f"{path}: has {'two kinds of' if added else 'no'} positions, and our model has one")
    elif added and kind not in ("SinusoidalInterleaved", "SinusoidalConcat"):
        wrong.append(f"{path}: position_encoding_type is {kind!r}, which is not known")
    if setting("rotary_dim", 0) and relative == ROTARY:
        wrong.append(f"{path}: rotary_dim is {setting('rotary_dim')}; only whole heads can be turned")
    if wrong:
        raise DataError("\n".join(wrong))
    if relative == ROTARY:
        return "rotary"
    return "sinusoidal" if kind == "SinusoidalInterleaved" else "learned"


def _find_activation(path: Path, setting: Setting) -> Literal["relu", "gelu", "silu", "swiglu"]:
    """Our name of an activation: silu has a second matrix there."""
    name = setting("pos_ffn_activation_fn", None) or "relu"
    return "swiglu" if name == "silu" else find_activation(name, str(path))


def _find_languages(setting: Setting) -> tuple[str, str] | None:
    """The languages, where the tokenizers were told them."""
    found = [re.search(r"'lang': '(\w+)'", str(setting(f"{side}_onmttok_kwargs"))) for side in SIDES.values()]
    source, target = (one and one[1] for one in found)
    return (source, target) if source and target else None


def _first(value: Any, otherwise: float) -> float:
    """A setting that may be a list, of which the first part is in force when a training begins."""
    value = value[0] if isinstance(value, list) else value
    return otherwise if value is None else float(value)


def _read_tensors(path: Path, found: Mapping[str, Any]) -> dict[str, Tensor]:
    """The model's weights: in the checkpoint, or in safetensors beside it."""
    if "model" not in found:
        # It is saved by the first name and read by the second.
        files = [file for name in ("", ".*") for file in sorted(path.parent.glob(f"{path.stem}{name}.safetensors"))]
        if not files:
            raise DataError(f"{path}: holds no weights, and {path.stem}.safetensors is not beside it")
        try:
            return {name: tensor for file in files for name, tensor in load_file(file).items()}
        except (OSError, SafetensorError) as error:
            raise DataError(f"{files[0]}: cannot be read ({error})") from error
    tensors = as_tensors(found["model"], path)
    # In version 2 the generator is a product followed by the softmax.
    generator = as_tensors(found.get("generator"), path)
    return tensors | {f"generator.{name.removeprefix('0.')}": tensor for name, tensor in generator.items()}


def _read_vocabulary(path: Path, vocabularies: Any, side: str) -> Foreign:
    """A list of tokens; in version 2 inside the field of a library that is gone (torchtext)."""
    found = vocabularies.get(SIDES[side]) if isinstance(vocabularies, Mapping | StandIn) else None
    if isinstance(found, StandIn):
        try:
            (_, field), *features = found.get("fields")
            found = None if features else field.get("vocab").get("itos")
        except (AttributeError, TypeError, ValueError):
            found = None
    features = isinstance(vocabularies, Mapping) and vocabularies.get("src_feats")
    if features or not isinstance(found, list) or not all(isinstance(token, str) for token in found):
        raise DataError(f"{path}: its vocabulary of the {side} is no list of tokens without features")
    numbers = {token: number for number, token in enumerate(found)}
    if "<unk>" not in numbers or ("</s>" not in numbers and side == "target"):
        raise DataError(f"{path}: its vocabulary of the {side} has no <unk> or no </s>")
    begin = vocabularies.get("decoder_start_token") or "<s>"
    names = (numbers.get(name) for name in ("</s>", "<blank>", begin))
    return Foreign(found, numbers["<unk>"], *names)


def _layer(
    draft: Draft, tensors: Tensors, stack: str, number: int, heads: int, groups: int, turned: bool | None
) -> None:
    theirs, ours = f"{LAYERS[stack]}{number}", f"{stack}.{number}"
    for kind, (name, norm) in KINDS[stack].items():
        query, key, value, output = (
            tensors.linear(f"{theirs}.{name}.{part}")
            for part in ("linear_query", "linear_keys", "linear_values", "final_linear")
        )
        if groups:  # several heads have the same keys and values
            key, value = (_repeat(linear, groups, heads // groups) for linear in (key, value))
        if kind == "self" and turned is not None:
            refuse_turned_bias(key, tensors.origin)
            query, key = (query, key) if turned else (_pair_up(query, heads), _pair_up(key, heads))
        draft.attention(f"{ours}.{kind}_attention", query, key, value, output)
        draft.linear(f"{ours}.{kind}_residual.norm", tensors.linear(f"{theirs}.{norm}"))
    inner, outer = (tensors.linear(f"{theirs}.feed_forward.{part}") for part in ("w_1", "w_2"))
    if f"{theirs}.feed_forward.w_3.weight" in tensors:
        inner = below(inner, tensors.linear(f"{theirs}.feed_forward.w_3"))
    draft.feed_forward(f"{ours}.feed_forward", inner, outer)
    draft.linear(f"{ours}.feed_forward_residual.norm", tensors.linear(f"{theirs}.feed_forward.layer_norm"))


def _each(linear: Linear, change: Callable[[Tensor], Tensor]) -> Linear:
    """The same change of the outputs in the matrix and in its bias."""
    return Linear(change(linear.weight), None if linear.bias is None else change(linear.bias))


def _repeat(linear: Linear, groups: int, times: int) -> Linear:
    return _each(linear, lambda part: part.unflatten(0, (groups, -1)).repeat_interleave(times, 0).flatten(0, 1))


def _pair_up(linear: Linear, heads: int) -> Linear:
    """Heads whose first half is turned with the second, as heads whose neighbours are turned together."""
    return _each(linear, lambda part: part.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2))
