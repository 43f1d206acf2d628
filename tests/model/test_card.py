"""The card beside a model says what the model is, may be edited, and shows names as they are."""

from pathlib import Path

import torch

from transduce.config import Config, ModelConfig
from transduce.model.saved import load_model, save_model
from transduce.model.transformer import Transformer
from transduce.text import numbers
from transduce.text.subwords import Subwords, SubwordsConfig, learn


def save(folder: Path, about: dict[str, object]) -> str:
    lines = [line for pair in numbers.corpus("train", 300) for line in pair]
    subwords = Subwords(learn(lines, SubwordsConfig(size=320, coverage=1.0)))
    config = Config(model=ModelConfig(vocabulary=len(subwords), layers=1, decoder_layers=2, d_model=8, d_ff=8, heads=2))
    torch.manual_seed(1)
    both = {"source": subwords, "target": subwords}
    save_model(folder, config, Transformer(config.model).state_dict(), both, about)
    return (folder / "README.md").read_text(encoding="utf-8")


def test_a_card_says_what_the_model_is(tmp_path: Path):
    data = {"folder": "data", "fingerprint": "", "pairs": 40_000, "inputs": ["a|b.en", "<b>.de"]}
    dev = {"loss": 1.0, "plain": 0.5, "bleu": 27.34, "signature": "nrefs:1", "f1": None}
    about = {"languages": ["en", "de"], "trained_on": data, "dev": dev, "made_from": ["step-1"], "what": "the best"}
    card = save(tmp_path / "run" / "model", about)
    config = load_model(tmp_path / "run").config
    for part in (
        "language: [en, de]",
        "# en → de",
        f"| parameters | {config.model.parameters():,} |",
        "1 and 2 layers, d_model 8, d_ff 8, 2 heads",
        "40,000 pairs of a\\|b.en, &lt;b>.de",
        "perplexity 1.649, greedy BLEU 27.3 (nrefs:1)",
        "the best: step-1",
        'Translator.load("run")',
    ):
        assert part in card, part


def test_a_card_may_be_changed(tmp_path: Path):
    assert "A translation model" in save(tmp_path / "model", {})
    (tmp_path / "model" / "README.md").write_text("mine")
    assert load_model(tmp_path / "model").about == {}
