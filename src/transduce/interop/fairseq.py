"""Read Transformers of fairseq: a .pt checkpoint, its dictionaries (dict.en.txt) and SentencePiece models.

For the names of parameters and what is computed with them see fairseq/models/transformer and fairseq/modules.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.checkpoint import StandIn, as_tensors, read_checkpoint
from transduce.interop.rewrite import (
    POSITIONS,
    Draft,
    Embeddings,
    Imported,
    Tensors,
    find_activation,
    make_config,
    timed_positions,
)
from transduce.interop.vocabulary import Foreign, check_rows, number_sides, read_entries, read_models
from transduce.text.shards import SIDES

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
BEGIN, PAD, END, UNKNOWN = range(4)
FIRST = PAD + 1  # positions are counted from here
Setting = Callable[..., Any]


def read_fairseq(path: Path, dictionaries: Sequence[Path] = (), pieces: Sequence[Path] = ()) -> Imported:
    """Read a checkpoint, with the dictionaries given or those beside it that its languages name."""
    found = read_checkpoint(path)
    setting = _settings(path, found)
    _refuse_others(path, setting)
    activation = find_activation(setting("activation_fn", "relu"), str(path))
    languages = tuple(setting(f"{side}_lang") for side in SIDES)
    files = list(dictionaries) or [path.with_name(f"dict.{language}.txt") for language in languages]
    if not pieces:
        raise DataError(f"{path}: a checkpoint contains no SentencePiece models; name them: --pieces SOURCE TARGET")
    foreign = {side: _read_dictionary(file) for side, file in zip(SIDES, (files[0], files[-1]))}
    numberings, subwords = number_sides(foreign, read_models(pieces))
    tensors = Tensors(as_tensors(found["model"], path), str(path))
    for stack in ("encoder", "decoder"):  # not needed: a version number and computed positions
        tensors.find(f"{stack}.version")
        tensors.find(f"{stack}.embed_positions._float_tensor", f"{stack}.embed_positions.weights")

    draft = Draft()
    embeddings = _embeddings(tensors, bool(setting("no_scale_embedding", False)))
    check_rows(str(path), embeddings.source, embeddings.target, numberings)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    pre = bool(setting("encoder_normalize_before", False))
    layers = {stack: tensors.count(stack + ".layers.{}.fc1.weight") for stack in ("encoder", "decoder")}
    for stack, count in layers.items():
        for number in range(count):
            draft.layer(tensors, "", stack, number)
        if pre:
            draft.linear(f"{stack}_norm", tensors.linear(f"{stack}.layer_norm"))
    width = embeddings.source.shape[1]
    tables = [_positions(tensors.find(f"{stack}.embed_positions.weight"), width) for stack in layers]
    known = min(map(len, tables))
    draft.positions(*(table[:known] for table in tables))
    tensors.refuse_unused()
    model = ModelConfig(
        **sizes,
        layers=layers["encoder"],
        decoder_layers=None if layers["encoder"] == layers["decoder"] else layers["decoder"],
        d_model=width,
        d_ff=len(draft.weights["encoder.0.feed_forward.inner.weight"]),
        heads=int(setting("encoder_attention_heads")),
        positions="learned",
        max_positions=known,
        norm="pre" if pre else "post",
        activation=activation,
        biases=True,
        dropout=float(setting("dropout", 0.1)),
        attention_dropout=float(setting("attention_dropout", 0.0)),
        feed_forward_dropout=float(setting("activation_dropout", 0.0) or setting("relu_dropout", 0.0)),
    )
    pair = (str(languages[0]), str(languages[1])) if all(languages) else None
    return Imported(make_config(model, alpha=1.0), draft.finish(model, "turns", str(path)), subwords, pair)


def _embeddings(tensors: Tensors, unscaled: bool) -> Embeddings:
    source, target = tensors("encoder.embed_tokens.weight"), tensors("decoder.embed_tokens.weight")
    output = tensors.find("decoder.output_projection.weight", "decoder.embed_out")
    return Embeddings(source, target, target if output is None else output, None, not unscaled)


def _positions(learned: Tensor | None, width: int) -> Tensor:
    """Return the learned table, or else the one that fairseq computes, from the first position in use."""
    return timed_positions(POSITIONS, width, FIRST) if learned is None else learned[FIRST:]


def _settings(path: Path, found: Any) -> Setting:
    """Return a function that looks up a setting; older checkpoints hold one pickled object, newer ones several."""
    if not isinstance(found, Mapping) or "model" not in found:
        raise DataError(f"{path}: contains no model; it is not a fairseq checkpoint")
    places: list[Any] = [found.get("args")]
    if isinstance(whole := found.get("cfg"), Mapping | StandIn):
        places += [whole.get("model"), whole.get("task")]
    kept = [place for place in places if isinstance(place, Mapping | StandIn)]
    if not kept:
        raise DataError(f"{path}: contains no settings (args or cfg); it is not a fairseq checkpoint")

    def setting(name: str, otherwise: Any = None) -> Any:
        values = (place.get(name) for place in kept)
        return next((value for value in values if value is not None), otherwise)

    return setting


def _refuse_others(path: Path, setting: Setting) -> None:
    unknown = [
        f"{path}: {name} is set, which our model does not support"
        for name in ("layernorm_embedding", "no_token_positional_embeddings", "adaptive_input", "cross_self_attention")
        if setting(name, False)
    ]
    unknown += [
        f"{path}: encoder_{name} is {setting(f'encoder_{name}')} and decoder_{name} {setting(f'decoder_{name}')}"
        for name in ("attention_heads", "ffn_embed_dim", "normalize_before", "embed_dim", "learned_pos")
        if setting(f"encoder_{name}") != setting(f"decoder_{name}")
    ]
    if setting("encoder_attention_heads") is None:
        unknown.append(f"{path}: its settings have no encoder_attention_heads; it is not a fairseq Transformer")
    if unknown:
        raise DataError("\n".join(unknown))


def _read_dictionary(path: Path) -> Foreign:
    """Read a dictionary of fairseq: a token and its count on each line, after four special tokens not listed."""
    lines = read_entries(path, "dictionary")
    tokens = list(SPECIAL)
    for number, line in enumerate(lines, 1):
        if line:
            token, space, rest = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
            if not space or not rest.isdigit():
                raise DataError(f"{path}:{number}: wanted a token and its count, found {line[:60]!r}")
            tokens.append(token)
    # The decoder's first input is the end token.
    return Foreign(tokens, unknown=UNKNOWN, end=END, pad=PAD, begin=END)
