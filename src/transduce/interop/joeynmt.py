"""Read Transformers of JoeyNMT: a .ckpt checkpoint with config.yaml and the vocabularies beside it.

For the names of parameters and what is computed with them see its transformer_layers.py, encoders.py and decoders.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from transduce.config import ModelConfig
from transduce.errors import DataError
from transduce.interop.checkpoint import as_tensors, read_checkpoint
from transduce.interop.rewrite import Draft, Embeddings, Imported, Tensors, find_activation, make_config
from transduce.interop.vocabulary import Foreign, check_rows, number_sides, read_entries, read_models
from transduce.text.shards import SIDES

SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
UNKNOWN, PAD, BEGIN, END = range(4)
# The names of each stack's kinds of attention and of their norms.
KINDS = {
    "encoder": {"self": ("src_src_att", "layer_norm")},
    "decoder": {"self": ("trg_trg_att", "x_layer_norm"), "cross": ("src_trg_att", "dec_layer_norm")},
}


def read_joeynmt(path: Path, vocabularies: Sequence[Path] = (), pieces: Sequence[Path] = ()) -> Imported:
    """Read a checkpoint with the config.yaml beside it, and the vocabularies given or those beside it."""
    found = read_checkpoint(path)
    if not isinstance(found, Mapping) or "model_state" not in found:
        raise DataError(f"{path}: contains no model_state; it is not a JoeyNMT checkpoint")
    if not pieces:
        raise DataError(f"{path}: a checkpoint contains no SentencePiece models; name them: --pieces SOURCE TARGET")
    setting = _settings(path.with_name("config.yaml"))
    files = list(vocabularies) or [path.with_name("src_vocab.txt"), path.with_name("trg_vocab.txt")]
    foreign = {side: _read_vocabulary(file) for side, file in zip(SIDES, (files[0], files[-1]))}
    numberings, subwords = number_sides(foreign, read_models(pieces))
    tensors = Tensors(as_tensors(found["model_state"], path), str(path))
    draft = Draft()
    source, target = tensors("src_embed.lut.weight"), tensors("trg_embed.lut.weight")
    check_rows(str(path), source, target, numberings)
    scaled = setting("scale", "False").lower() in ("true", "yes", "on")
    embeddings = Embeddings(source, target, tensors("decoder.output_layer.weight"), None, scaled)
    sizes = draft.embeddings(embeddings, numberings["source"], numberings["target"])
    pre = setting("layer_norm", "") == "pre"
    layers = {stack: tensors.count(stack + ".layers.{}.feed_forward.layer_norm.weight") for stack in KINDS}
    for stack, count in layers.items():
        tensors.find(f"{stack}.pe.pe")  # the paper's sinusoids, which are ours too
        for number in range(count):
            _layer(draft, tensors, stack, number)
        if pre:
            draft.linear(f"{stack}_norm", tensors.linear(f"{stack}.layer_norm"))
    tensors.refuse_unused()
    model = ModelConfig(
        **sizes,
        layers=layers["encoder"],
        decoder_layers=None if layers["encoder"] == layers["decoder"] else layers["decoder"],
        d_model=source.shape[1],
        d_ff=len(draft.weights["encoder.0.feed_forward.inner.weight"]),
        heads=int(setting("num_heads", "8")),
        norm="pre" if pre else "post",
        norm_epsilon=1e-6,
        activation=find_activation(setting("activation", "relu"), str(path)),
        biases=True,
    )
    return Imported(make_config(model, alpha=1.0), draft.finish(model, "turns", str(path)), subwords, None)


def _layer(draft: Draft, tensors: Tensors, stack: str, number: int) -> None:
    theirs, ours = f"{stack}.layers.{number}", f"{stack}.{number}"
    for kind, (name, norm) in KINDS[stack].items():
        parts = (tensors.linear(f"{theirs}.{name}.{part}_layer") for part in ("q", "k", "v", "output"))
        draft.attention(f"{ours}.{kind}_attention", *parts)
        draft.linear(f"{ours}.{kind}_residual.norm", tensors.linear(f"{theirs}.{norm}"))
    inner, outer = (tensors.linear(f"{theirs}.feed_forward.pwff_layer.{place}") for place in (0, 3))
    draft.feed_forward(f"{ours}.feed_forward", inner, outer)
    draft.linear(f"{ours}.feed_forward_residual.norm", tensors.linear(f"{theirs}.feed_forward.layer_norm"))


def _settings(path: Path) -> Callable[[str, str], str]:
    """Return a function that looks up a setting: only lines `name: value` of the YAML are read, wherever they stand."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error

    def setting(name: str, otherwise: str) -> str:
        lines = re.findall(rf"^\s*{name}:[ \t]*([^#\n]*)", text, re.MULTILINE)
        values = {line.strip().strip("\"'") for line in lines}
        if len(values) > 1:
            raise DataError(f"{path}: {name} is {' and '.join(sorted(values))}; our model has one for both stacks")
        return values.pop() if values else otherwise

    if setting("layer_norm", "") not in ("pre", "post"):
        raise DataError(f"{path}: has no layer_norm: pre or post, and the default depends on the version; add it")
    if float(setting("alpha", "1.0")) != 1:
        raise DataError(f"{path}: alpha is {setting('alpha', '')}; our residual connections have no such factor")
    return setting


def _read_vocabulary(path: Path) -> Foreign:
    """Read a vocabulary of JoeyNMT: a token on each line; the special ones come first, listed or not."""
    lines = read_entries(path, "vocabulary")
    tokens = list(dict.fromkeys([*SPECIAL, *(line for line in lines if line)]))
    return Foreign(tokens, unknown=UNKNOWN, end=END, pad=PAD, begin=BEGIN)
