"""docs/format.md is true: its Python reads a model without transduce, and its names are those of the weights."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file

from transduce import Translator
from transduce.config import Config, ModelConfig
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.text.subwords import END, Subwords, SubwordsConfig, learn

DOC = (Path(__file__).parent.parent / "docs" / "format.md").read_text(encoding="utf-8")


def save(folder: Path, precision: Literal["float32", "int8"] = "float32", **changes: Any) -> None:
    lines = [line for pair in numbers.corpus("train", 300) for line in pair]
    subwords = Subwords(learn(lines, SubwordsConfig(size=320, coverage=1.0)))
    config = Config(model=ModelConfig(vocabulary=len(subwords), layers=2, d_model=32, d_ff=48, heads=4, **changes))
    torch.manual_seed(3)
    model = Transformer(config.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3)
        model.embedding.weight[[subwords.processor.is_byte(token) for token in range(len(subwords))]] = 0
        model.embedding.weight[END] *= 1.5
    save_model(folder, config, model.state_dict(), {"source": subwords, "target": subwords}, {}, precision=precision)


@pytest.mark.parametrize("like", ["the paper's", "those in the box"])
def test_the_shown_python_translates_without_transduce(like: str, tmp_path: Path):
    if like == "the paper's":
        save(tmp_path / "model")
    else:
        save(tmp_path / "model", "int8", norm="pre", decoder_layers=1)
    (code,) = re.findall(r"^```python\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)
    (tmp_path / "shown.py").write_text("import sys\nsys.modules['transduce'] = None\n" + code, encoding="utf-8")
    translator = Translator.load(tmp_path / "model", engine="torch", precision="float32")
    lines = [source for source, _ in numbers.corpus("dev", 3)]
    expected = [translation.text for translation in translator.translate(lines, beam=1, split="never")]
    assert len(set(expected)) > 1
    for line, text in zip(lines, expected):
        command = [sys.executable, str(tmp_path / "shown.py"), str(tmp_path / "model"), line]
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
        assert run.stdout.rstrip("\n") == text.rstrip("\n"), run.stderr


def test_the_names_are_those_of_the_weights_and_files(tmp_path: Path):
    save(tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        assert f"`{file.name}`" in DOC, file.name
    for name in load_file(tmp_path / "model" / "model.safetensors"):
        shown = (
            re.sub(r"\d+", "N", name).replace("decoder.N", "encoder.N").removesuffix(".bias").removesuffix(".weight")
        )
        assert shown in DOC or "cross_" in shown, name
