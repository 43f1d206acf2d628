"""COMET, a learned metric; optional, as it brings large dependencies and models of its own."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.errors import TransduceError
from transduce.scoring.metrics import Measured, mean_of

if TYPE_CHECKING:
    from transduce.scoring.texts import Texts

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
BATCH = 16


def import_comet() -> Any:
    """Return the package, or say how to install it."""
    try:
        import comet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise TransduceError(
            f"COMET cannot be imported ({error}); pip install 'transduce[comet]', best in an environment of its own, "
            f"as it needs older packages. Its model ({DEFAULT_MODEL}, 2.3 GB) is downloaded once"
        ) from error
    return comet


def measure_comet(texts: "Texts", model: str) -> list[Measured]:
    """Score each system with a COMET model: a name on the Hugging Face hub, a checkpoint or its folder."""
    comet = import_comet()
    assert texts.source is not None
    with redirect_stdout(sys.stderr):  # results alone go to stdout
        loaded = _load(comet, model)
        references = texts.first_references()
        return [
            mean_of("comet", _signature(model), _predict(loaded, texts.source, system.lines, references))
            for system in texts.systems
        ]


def _load(comet: Any, model: str) -> Any:
    path = Path(model)
    checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
    if not checkpoint.is_file():
        if path.is_dir() or path.suffix == ".ckpt":
            raise TransduceError(
                f"{checkpoint}: no such file; a COMET model is a folder with checkpoints/model.ckpt in it"
            )
        try:
            checkpoint = comet.download_model(model)
        except (KeyError, OSError) as error:
            raise TransduceError(
                f"the COMET model {model} cannot be downloaded ({error}); check its name on huggingface.co, "
                f"log in there if it asks for consent, or give the path of its checkpoint"
            ) from error
    return comet.load_from_checkpoint(str(checkpoint))


def _predict(model: Any, source: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    import torch

    data = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in zip(source, hypotheses, references)]
    gpus = 1 if torch.cuda.is_available() else 0
    found = model.predict(data, batch_size=BATCH, gpus=gpus, progress_bar=sys.stderr.isatty())
    return [float(score) for score in found.scores]


def _signature(model: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("unbabel-comet")
    except PackageNotFoundError:
        number = "unknown"
    return f"nrefs:1|model:{model}|version:{number}"
