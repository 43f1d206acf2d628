"""Models on disk."""

from pathlib import Path

import torch

from transduce.model.saved import write_tensors


def test_weights_may_be_read_by_whom_other_files_may(tmp_path: Path):
    path, other = tmp_path / "model.safetensors", tmp_path / "config.json"
    write_tensors(path, {"weight": torch.ones(2)})
    other.write_text("{}")
    assert path.stat().st_mode == other.stat().st_mode
