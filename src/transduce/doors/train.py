"""The arguments of `transduce train`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce import strict
from transduce.config import Config
from transduce.doors.arguments import check_positive, read_layers, said_once
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings

if TYPE_CHECKING:
    from transduce.training.run import TrainJob

SIZES = {"source_tokens", "target_tokens", "parts", "sentences"}  # settings for the size of batches


def train(parser: Parser, argv: list[str]) -> int:
    """Resolve the settings, train, and print how it ended."""
    with said_once():
        job = _read(parser, argv)

    from transduce.training.run import run_training

    outcome = run_training(job)
    for name, text in outcome.summary:
        print(f"{name}: {text}")
    return outcome.exit_code


def _read(parser: Parser, argv: list[str]) -> "TrainJob":
    parser.add_argument("data", metavar="DATA", help="data set made by transduce prepare")
    parser.add_argument(
        "--out", metavar="RUN", required=True, help="folder for the run: its checkpoints, log and model"
    )
    parser.add_argument(
        "--preset", metavar="NAME", help="settings to start from (default base; with --from, settings for fine-tuning)"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings that override the preset's; flags override both"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume from the last checkpoint in RUN, if there is one; Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP save one",
    )
    parser.add_argument("--from", metavar="RUN", dest="start", help="start with the weights of another run or model")
    parser.add_argument(
        "--encoder-from",
        metavar="RUN",
        dest="encoder",
        help="start with the encoder of another run or model and a new decoder",
    )
    parser.add_argument("--for", metavar="TIME", dest="time", help="stop after this time, as in 90s, 25m or 1h30m")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default auto)")
    parser.add_argument("--threads", metavar="N", type=int, help="CPU threads (default: as many as are useful)")
    add_settings(parser, Config)
    given, flags = parser.parse(argv)
    check_positive(given.threads, "--threads")
    if {"vocabulary", "source_vocabulary"} & flags.get("model", {}).keys():
        raise UsageError("the vocabulary comes from the data set; choose its size with: transduce prepare --subwords N")
    if given.start and given.encoder:
        raise UsageError("--from takes a whole model and --encoder-from only its encoder; use one of them")
    start, encoder = (Path(path) if path else None for path in (given.start, given.encoder))
    layers = read_layers(given.config, flags)
    light = start is not None and not given.preset and not _chooses_batches(layers) and _is_slow(start, given.device)
    config = strict.resolve(_starting_config(given.preset, start, encoder, light), layers)
    if light:
        print(f"note: {_describe_light(config)}", file=sys.stderr)

    from transduce.training.run import TrainJob
    from transduce.training.stopping import parse_duration
    from transduce.training.warm import Start

    return TrainJob(
        data=Path(given.data),
        out=Path(given.out),
        config=config,
        resume=given.resume,
        start=Start(start) if start else Start(encoder, encoder=True) if encoder else None,
        seconds=parse_duration(given.time) if given.time else None,
        device=given.device,
        threads=given.threads,
    )


def _chooses_batches(layers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether sizes of batches are given; they count as given if several processes share the model's own."""
    batch = (layer.get("batch") for layer in layers.values())
    return "RANK" in os.environ or any(SIZES & own.keys() for own in batch if isinstance(own, Mapping))


def _is_slow(start: Path, device: str) -> bool:
    """Return whether a step on batches like those a model was trained with takes long here."""
    from transduce.model.device import choose_device
    from transduce.model.saved import find_model, read_config
    from transduce.training.hardware import steps_take_long

    return steps_take_long(read_config(find_model(start)), choose_device(device))


def _starting_config(preset: str | None, start: Path | None, encoder: Path | None, light: bool) -> Config:
    """Return the settings to lay others over: a preset's, or those for fine-tuning the model to begin with."""
    from transduce.presets import fit_to_encoder, get, tune

    config = get(preset or "base").config
    if encoder is None and (preset or start is None):
        return config

    from transduce.model.saved import find_model, read_config

    if encoder:
        return fit_to_encoder(config, read_config(find_model(encoder)))
    assert start
    return tune(read_config(find_model(start)), light=light)


def _describe_light(config: Config) -> str:
    batch, training = config.batch, config.training
    return (
        f"on a CPU, fine-tuning uses small batches of {batch.source_tokens:,} + {batch.target_tokens:,} tokens, and "
        f"{training.optimiser.capitalize()} at a rate of {training.peak_rate}; if you give batch sizes, as in "
        "--batch.source-tokens 25000 --batch.target-tokens 25000, all other settings are as on a GPU"
    )
