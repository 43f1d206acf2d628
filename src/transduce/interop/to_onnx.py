"""Export models for onnxruntime: encoder.onnx and step.onnx, in float32 or with int8 weights."""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from transduce.disk import move, sync_file
from transduce.errors import UsageError
from transduce.interop.to_program import INPUTS, OUTPUTS, transcribe, write_beside
from transduce.interop.to_program import find_problems as find_problems
from transduce.interop.to_program import score as score
from transduce.interop.to_program import translate as translate
from transduce.model.saved import Loaded, Precision

PRECISIONS: tuple[str, ...] = ("float32", "int8")
WRITTEN_WITH: tuple[str, ...] = ("onnx", "onnxscript")
CHECKED_WITH: tuple[str, ...] = ("onnxruntime",)
ALIKE: bool = True
UNSAID: tuple[int, ...] = ()
USE: str = """\
```sh
pip install onnxruntime sentencepiece numpy
python FOLDER/translate.py < IN > OUT
```

Besides these packages you need only `translate.py`: it searches as transduce does, in numpy, and you may change it."""


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder."""
    for name, program in transcribe(loaded).items():
        path = folder / f"{name}.onnx"
        with _quietly():
            torch.onnx.export(
                program,
                f=path,
                input_names=list(INPUTS[name]),
                output_names=list(OUTPUTS[name]),
                external_data=False,
                verbose=False,
            )
        if precision == "int8":
            round_weights(path)
        sync_file(path)
    write_beside(loaded, folder, "onnx")


def round_weights(path: Path) -> None:
    """Round the weights of products to int8 with a scale for each column; activations are rounded at run time."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise UsageError("--precision int8 needs onnxruntime; pip install onnxruntime") from None

    whole = path.with_suffix(".whole.onnx")
    move(path, whole)
    with _quietly():
        quantize_dynamic(whole, path, per_channel=True, weight_type=QuantType.QInt8)
    whole.unlink()


@contextlib.contextmanager
def _quietly() -> Any:
    """Suppress what these libraries print, warn and log about their own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
