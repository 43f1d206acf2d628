"""The paper's models as values: base, big, every row of Table 3, the parser; what came later; how to fine-tune."""

from dataclasses import dataclass, replace
from typing import Any

from transduce.config import Config, TrainingConfig
from transduce.errors import ConfigError
from transduce.strict import nearest


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named configuration, with the parameter count the paper prints for it."""

    name: str
    config: Config
    summary: str
    paper_millions: int | None = None


BASE = Config()
BIG = replace(
    BASE,
    model=replace(BASE.model, d_model=1024, d_ff=4096, heads=16, dropout=0.3),
    training=replace(BASE.training, steps=300_000, average_checkpoints=20),
)


def modernise(config: Config) -> Config:
    """Return the same sizes with what won on newstest2013 (docs/log.md): pre-norm, Muon, a rate that falls to zero."""
    training = replace(
        config.training,
        steps=42_000,
        optimiser="muon",
        schedule="linear",
        warmup_steps=1000,
        peak_rate=0.004,
        clip=1.0,
        average_checkpoints=1,
    )
    return replace(config, model=replace(config.model, norm="pre"), training=training)


def _model(**changes: Any) -> Config:
    return replace(BASE, model=replace(BASE.model, **changes))


def _smoothing(label_smoothing: float) -> Config:
    return replace(BASE, training=replace(BASE.training, label_smoothing=label_smoothing))


_BIG_EN_FR = replace(BIG, model=replace(BIG.model, dropout=0.1, vocabulary=32_000))
# Words on one side, brackets on the other: their subwords are not shared, and there are few of the second kind.
_PARSING = replace(
    _model(layers=4, d_model=1024, vocabulary=64, source_vocabulary=16_000, tie="output"),
    search=replace(BASE.search, beam=21, alpha=0.3, extra_tokens=300),
)
_PARSING_SMALL = replace(
    _PARSING,
    model=replace(_PARSING.model, d_model=512, d_ff=2048, source_vocabulary=8_000, dropout=0.3, attention_dropout=0.1),
    # Few parts, because the sequence of a long tree is long.
    batch=replace(BASE.batch, source_tokens=8192, target_tokens=8192, parts=4),
    training=replace(
        BASE.training,
        steps=12_000,
        schedule="linear",
        warmup_steps=1000,
        peak_rate=0.001,
        agreement=2.0,
        checkpoint_steps=1000,
        checkpoint_minutes=None,
        best_by="f1",
        bleu_sentences=250,
    ),
    search=replace(_PARSING.search, word_share=0.5),
)
# Muon, mixed lengths, more heads, a rate that falls to zero: each learns a toy corpus without errors sooner (docs/log).
_TINY = replace(
    _model(layers=2, d_model=96, d_ff=384, heads=6, vocabulary=8_000, dropout=0.0),
    batch=replace(BASE.batch, source_tokens=1024, target_tokens=1024, parts=2, similar_lengths=False),
    training=replace(
        BASE.training,
        steps=700,
        optimiser="muon",
        schedule="linear",
        warmup_steps=70,
        peak_rate=0.007,
        clip=1.0,
        average_checkpoints=1,
        checkpoint_minutes=None,
        checkpoint_steps=350,
        bleu_sentences=200,
    ),
)

# Row B lowers d_k alone: with d_v left at 64 the counts fall by the paper's 7 M and 5 M.
_PRESETS = (
    Preset(name="base", config=BASE, summary="the base model", paper_millions=65),
    Preset(name="big", config=BIG, summary="the big model, English-German", paper_millions=213),
    Preset(name="big-en-fr", config=_BIG_EN_FR, summary="the big model, English-French"),
    Preset(name="modern", config=modernise(BASE), summary="the base model, trained as we would today"),
    Preset(name="A-heads-1", config=_model(heads=1), summary="Table 3 (A): 1 head"),
    Preset(name="A-heads-4", config=_model(heads=4), summary="Table 3 (A): 4 heads"),
    Preset(name="A-heads-16", config=_model(heads=16), summary="Table 3 (A): 16 heads"),
    Preset(name="A-heads-32", config=_model(heads=32), summary="Table 3 (A): 32 heads"),
    Preset(name="B-d_k-16", config=_model(d_k=16), summary="Table 3 (B): keys of width 16", paper_millions=58),
    Preset(name="B-d_k-32", config=_model(d_k=32), summary="Table 3 (B): keys of width 32", paper_millions=60),
    Preset(name="C-layers-2", config=_model(layers=2), summary="Table 3 (C): 2 layers", paper_millions=36),
    Preset(name="C-layers-4", config=_model(layers=4), summary="Table 3 (C): 4 layers", paper_millions=50),
    Preset(name="C-layers-8", config=_model(layers=8), summary="Table 3 (C): 8 layers", paper_millions=80),
    Preset(name="C-d_model-256", config=_model(d_model=256), summary="Table 3 (C): narrower", paper_millions=28),
    Preset(name="C-d_model-1024", config=_model(d_model=1024), summary="Table 3 (C): wider", paper_millions=168),
    Preset(name="C-d_ff-1024", config=_model(d_ff=1024), summary="Table 3 (C): half the d_ff", paper_millions=53),
    Preset(name="C-d_ff-4096", config=_model(d_ff=4096), summary="Table 3 (C): twice the d_ff", paper_millions=90),
    Preset(name="D-dropout-0.0", config=_model(dropout=0.0), summary="Table 3 (D): no dropout"),
    Preset(name="D-dropout-0.2", config=_model(dropout=0.2), summary="Table 3 (D): more dropout"),
    Preset(name="D-smoothing-0.0", config=_smoothing(0.0), summary="Table 3 (D): no label smoothing"),
    Preset(name="D-smoothing-0.2", config=_smoothing(0.2), summary="Table 3 (D): more label smoothing"),
    Preset(name="E-learned", config=_model(positions="learned"), summary="Table 3 (E): learned positions"),
    Preset(name="parsing", config=_PARSING, summary="constituency parsing, WSJ only (section 6.3)"),
    Preset(name="parsing-small", config=_PARSING_SMALL, summary="constituency parsing, 15,000 to 20,000 trees"),
    Preset(name="tiny", config=_TINY, summary="learns a toy corpus on a laptop"),
    Preset(
        name="small",
        config=_model(d_model=256, heads=4, vocabulary=16_000),
        summary="for small corpora or one small GPU",
    ),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}


def fit_to_encoder(config: Config, known: Config) -> Config:
    """Return the settings of a model that starts with the encoder of `known`: the encoder's sizes are from there."""
    layers = config.model.stacks()[1]
    return replace(config, model=replace(config.model, decoder_layers=layers, **known.model.encoder_settings()))


def tune(known: Config, *, light: bool = False) -> Config:
    """Return settings for fine-tuning a model (`train --from`), from those it was trained with.

    How many steps a user's text is worth is not known in advance. So the rate is constant, a fifth of the one the model
    was trained with; training ends when the dev set has not improved for some time, and the mean of the last
    checkpoints does what a falling rate would have done. `light` is for a CPU, where steps on large batches take long.
    """
    peak = known.training.peak_rate or (known.model.d_model * known.training.warmup_steps) ** -0.5
    training = replace(
        TrainingConfig(),
        steps=5000,
        patience=5,
        schedule="constant",
        warmup_steps=100,
        peak_rate=float(f"{peak / 5:.1g}"),
        optimiser=known.training.optimiser,
        clip=1.0,
        label_smoothing=known.training.label_smoothing,
        checkpoint_minutes=None,
        checkpoint_steps=100,
        best_by=known.training.best_by,
        bleu_sentences=known.training.bleu_sentences,
    )
    return _lighten(replace(known, training=training)) if light else replace(known, training=training)


def _lighten(tuned: Config) -> Config:
    """Return settings whose steps and validations take seconds on a CPU, where Muon is slower than the gradient."""
    assert tuned.training.peak_rate
    training = replace(
        tuned.training,
        optimiser="adam",
        peak_rate=min(tuned.training.peak_rate, 0.0002),
        warmup_steps=20,
        best_by="loss" if tuned.training.best_by == "bleu" else tuned.training.best_by,  # BLEU of so few is noise
        bleu_sentences=min(tuned.training.bleu_sentences, 100),
    )
    # One part, so that a sentence may be as long as the batch.
    return replace(tuned, batch=replace(tuned.batch, source_tokens=512, target_tokens=512, parts=1), training=training)


def get(name: str) -> Preset:
    """Return a preset by name, or suggest the nearest."""
    if name not in PRESETS:
        remedy = nearest(name, PRESETS) or "; `transduce presets` lists them all"
        raise ConfigError(f"unknown preset {name}{remedy}")
    return PRESETS[name]
