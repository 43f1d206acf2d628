"""Imported models are fine-tuned like our own: with their settings and subwords, and new ones on both sides."""

from pathlib import Path
from typing import Any

import pytest
import torch
from marians import save_marian, texts
from safetensors.torch import load_file

from transduce.cli import main
from transduce.model.saved import load_model
from transduce.text.shards import DataSet
from transduce.text.subwords import END, UNKNOWN, Subwords

KINDS: dict[str, dict[str, Any]] = {
    "OPUS-MT": {},
    "BPE": {"kind": "bpe"},
    "separate BPE, untied": {"kind": "bpe", "separate": True, "tie_word_embeddings": False},
}
FLAGS = [*("--training.steps", "1", "--training.peak-rate", "1e-9", "--training.bleu-sentences", "0")]


def expected_row(token: int, sides: list[tuple[Subwords, Subwords]], rows: torch.Tensor) -> torch.Tensor:
    """Return the mean of the rows that a token was written with, by the side whose texts have it, or the unknown's."""
    for new, old in sides:
        piece = new.processor.id_to_piece(token)
        if not new.processor.is_unused(token) and "\ufdd0" not in piece:
            parts = [part for part in old.encode_piece(piece) if part > END]
            return rows[parts].mean(0) if parts else rows[UNKNOWN]
    raise AssertionError(f"no side is split into {token}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_model_is_tuned_with_more_subwords(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]):
    model, data, run = (tmp_path / name for name in ("model", "data", "run"))
    assert main(["import", str(save_marian(tmp_path, **KINDS[kind]).folder), "--out", str(model)]) == 0
    lines = texts("train", 120)
    with (tmp_path / "docs.tsv").open("w", encoding="utf-8") as file:
        for source, target in zip(lines["source"], lines["target"]):
            file.write(f"the kubernetes → {source}\tder installierte ¶ {target}\n")
    files = ["--pairs", str(tmp_path / "docs.tsv"), "--dev-split", "10"]
    extended = ["--subwords.reuse", str(model), "--subwords.extend", "30", "--workers", "1"]
    assert main(["prepare", str(data), *files, *extended]) == 0
    assert main(["train", str(data), "--from", str(model), "--out", str(run), "--device", "cpu", *FLAGS]) == 0
    old, new = load_model(model), DataSet.open(data).subwords
    sides = {str(side): (new[side], old.subwords[side]) for side in new}
    assert all(more.extends(known) and len(more) > len(known) for more, known in sides.values())
    assert "▁kubernetes" in new["source"].processor.encode("kubernetes", out_type=str)
    assert UNKNOWN not in new["source"].encode("→")
    begun = load_file(run / "checkpoints" / "step-00000001" / "model.safetensors")
    weights = dict(old.model.named_parameters())
    assert begun.keys() == weights.keys()
    shared = new["source"].numbers_like(new["target"])
    assert shared == (kind != "separate BPE, untied")
    rows = {"embedding.weight": "target", "source_embedding.weight": "source", "output.weight": "target"}
    for name in begun.keys() & {*rows, "output_bias"}:
        side = rows.get(name, "target")
        ways = [sides["target"], sides["source"]] if shared else [sides[side]]
        known, before = len(old.subwords[side]), weights[name].detach()
        wanted = [expected_row(token, ways, before) for token in range(known, len(ways[0][0]))]
        torch.testing.assert_close(begun[name], torch.cat([before, torch.stack(wanted)]), rtol=0, atol=1e-6)
    capsys.readouterr()
    assert main(["translate", str(run), "--text", "the kubernetes → two", "--engine", "torch"]) == 0
