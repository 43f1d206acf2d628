"""A model saved in int8 is a quarter of the size, and is used like any other."""

from pathlib import Path

from models import save_tiny

from transduce import Translator
from transduce.model.saved import WEIGHTS, load_model, save_model
from transduce.training.averaging import average

TEXTS = ["twenty-three euros", "a quarter past nine", "on Friday the third of May", ""]


def test_a_model_in_int8(tmp_path: Path):
    big = load_model(save_tiny(tmp_path / "big", d_model=64, d_ff=256))
    arguments = big.config, big.model.state_dict(), big.subwords, big.about
    save_model(tmp_path / "small", *arguments, precision="int8")
    sizes = [(tmp_path / name / WEIGHTS).stat().st_size for name in ("big", "small")]
    assert sizes[1] < 0.3 * sizes[0]
    small = load_model(tmp_path / "small")
    for name, weight in small.model.state_dict().items():
        original = big.model.state_dict()[name]
        assert weight.dtype == original.dtype
        assert (weight - original).abs().max() <= original.abs().max() / 250
    # Saved in float32 again, it is the same model.
    save_model(tmp_path / "again", small.config, small.model.state_dict(), small.subwords, small.about)
    found, expected = (
        [each.text for each in Translator.load(tmp_path / name, precision="float32").translate(TEXTS)]
        for name in ("small", "again")
    )
    assert found == expected
    assert any(found)
    average([tmp_path / "small", tmp_path / "again"], tmp_path / "mean")
    mean = load_model(tmp_path / "mean").model.state_dict()
    assert all((mean[name] - weight).abs().max() < 1e-6 for name, weight in small.model.state_dict().items())
