"""Read Transformers of OpenNMT-py, versions 2 and 3: a .pt checkpoint and its SentencePiece models.

For the names of parameters and what is computed with them see onmt/encoders, onmt/decoders and onmt/modules. Sources
have no end token there, so the source's subwords are made not to add one (`Subwords.ends`).
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
    POSITIONS,
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

THEIR_SIDES = {"source": "src", "target": "tgt"}
ROTARY = -1  # this value of max_relative_positions
# The names of each stack's kinds of attention and of their norms.
KINDS = {
    "encoder": {"self": ("self_attn", "layer_norm")},
    "decoder": {"self": ("self_attn", "layer_norm_1"), "cross": ("context_attn", "layer_norm_2")},
}
LAYERS = {"encoder": "encoder.transformer.", "decoder": "decoder.transformer_layers."}
# Settings for which our model knows only this value; older checkpoints lack some of them.
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
    """Return whether a checkpoint is one of OpenNMT-py."""
    return isinstance(found, Mapping) and {"opt", "vocab"} <= found.keys()


def read_opennmt(path: Path, pieces: Sequence[Path] = ()) -> Imported:
    """Read a checkpoint, which holds its vocabularies."""
    found = read_checkpoint(path)
    if not is_opennmt(found) or not isinstance(found["opt"], Mapping | StandIn):
        raise DataError(f"{path}: contains no opt and vocab; it is not an OpenNMT-py checkpoint")
    setting: Setting = found["opt"].get
    positions = _find_positions(path, setting)
    if not pieces:
        raise DataError(f"{path}: a checkpoint contains no SentencePiece models; name them: --pieces SOURCE TARGET")
    foreign = {side: _read_vocabulary(path, found["vocab"], side) for side in THEIR_SIDES}
    numberings, subwords = number_sides(foreign, read_models(pieces), source_ends=False)
    tensors = Tensors(_read_tensors(path, found), str(path))

    draft = Draft()
    names = (f"{stack}.embeddings.make_embedding.emb_luts.0.weight" for stack in LAYERS)
    source, target = map(tensors, names)
    check_rows(str(path), source, target, numberings)
    scaled = positions != "rotary"  # only if sinusoids are added
    output = tensors.linear("generator")
    embeddings = Embeddings(source, target, output.weight, output.bias, scaled)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    heads, groups = int(setting("heads", 8)), int(setting("num_kv", 0) or 0)
    turned = None if positions != "rotary" else bool(setting("rotary_interleave", True))
    layers = {stack: tensors.count(prefix + "{}.feed_forward.w_1.weight") for stack, prefix in LAYERS.items()}
    for stack, count in layers.items():
        tensors.find(f"{stack}.embeddings.make_embedding.pe.pe")  # computed anew
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
    """Return the kind of positions; refuse settings that our model cannot have."""
    wrong = [
        f"{path}: {name} is {setting(name)!r}; only {value!r} can be imported"
        for name, value in ONLY.items()
        if setting(name, value) not in (value, None)
    ]
    relative, added = setting("max_relative_positions", 0), bool(setting("position_encoding", False))
    kind = setting("position_encoding_type", None) or "SinusoidalInterleaved"
    if relative not in (0, ROTARY):
        wrong.append(f"{path}: max_relative_positions is {relative}, but our model has no relative positions")
    elif added == (relative == ROTARY):
        wrong.append(f"{path}: has {'two kinds of' if added else 'no'} positions, but our model needs one kind")
    elif added and kind not in ("SinusoidalInterleaved", "SinusoidalConcat"):
        wrong.append(f"{path}: position_encoding_type is {kind!r}, which is not supported")
    if setting("rotary_dim", 0) and relative == ROTARY:
        wrong.append(f"{path}: rotary_dim is {setting('rotary_dim')}; only whole heads can be rotated")
    if wrong:
        raise DataError("\n".join(wrong))
    if relative == ROTARY:
        return "rotary"
    return "sinusoidal" if kind == "SinusoidalInterleaved" else "learned"


def _find_activation(path: Path, setting: Setting) -> Literal["relu", "gelu", "silu", "swiglu"]:
    """Return our name of an activation: silu is gated there, as our swiglu is."""
    name = setting("pos_ffn_activation_fn", None) or "relu"
    return "swiglu" if name == "silu" else find_activation(name, str(path))


def _find_languages(setting: Setting) -> tuple[str, str] | None:
    """Return the languages, if the tokenizers' options name them."""
    found = [re.search(r"'lang': '(\w+)'", str(setting(f"{side}_onmttok_kwargs"))) for side in THEIR_SIDES.values()]
    source, target = (one and one[1] for one in found)
    return (source, target) if source and target else None


def _first(value: Any, otherwise: float) -> float:
    """Return a setting that may be a list, of which the first value holds when training begins."""
    value = value[0] if isinstance(value, list) else value
    return otherwise if value is None else float(value)


def _read_tensors(path: Path, found: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the model's weights, from the checkpoint or from safetensors beside it."""
    if "model" not in found:
        # OpenNMT-py saves it under the first name and reads it under the second.
        files = [file for name in ("", ".*") for file in sorted(path.parent.glob(f"{path.stem}{name}.safetensors"))]
        if not files:
            raise DataError(f"{path}: contains no weights, and {path.stem}.safetensors is not beside it")
        try:
            return {name: tensor for file in files for name, tensor in load_file(file).items()}
        except (OSError, SafetensorError) as error:
            raise DataError(f"{files[0]}: cannot be read ({error})") from error
    tensors = as_tensors(found["model"], path)
    # In version 2 the generator is a sequence of a product and the softmax.
    generator = as_tensors(found.get("generator"), path)
    return tensors | {f"generator.{name.removeprefix('0.')}": tensor for name, tensor in generator.items()}


def _read_vocabulary(path: Path, vocabularies: Any, side: str) -> Foreign:
    """Read a side's list of tokens, which version 2 keeps inside a field of torchtext (discontinued)."""
    found = vocabularies.get(THEIR_SIDES[side]) if isinstance(vocabularies, Mapping | StandIn) else None
    if isinstance(found, StandIn):
        try:
            (_, field), *features = found.get("fields")
            found = None if features else field.get("vocab").get("itos")
        except (AttributeError, TypeError, ValueError):
            found = None
    features = isinstance(vocabularies, Mapping) and vocabularies.get("src_feats")
    if features or not isinstance(found, list) or not all(isinstance(token, str) for token in found):
        raise DataError(f"{path}: its {side} vocabulary is not a list of tokens without features")
    numbers = {token: number for number, token in enumerate(found)}
    if "<unk>" not in numbers or ("</s>" not in numbers and side == "target"):
        raise DataError(f"{path}: its {side} vocabulary lacks <unk> or </s>")
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
        if groups:  # several heads share keys and values
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
    """Apply the same change of the outputs to the matrix and to its bias."""
    return Linear(change(linear.weight), None if linear.bias is None else change(linear.bias))


def _repeat(linear: Linear, groups: int, times: int) -> Linear:
    return _each(linear, lambda part: part.unflatten(0, (groups, -1)).repeat_interleave(times, 0).flatten(0, 1))


def _pair_up(linear: Linear, heads: int) -> Linear:
    """Reorder heads that rotate their first half with the second into heads that rotate pairs of neighbours."""
    return _each(linear, lambda part: part.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2))
