"""Which engine decodes: by the device, the precision and what the machine can compile; and what is refused."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from models import save_tiny

from transduce.decoding import engines
from transduce.decoding.cpu import CpuEngine
from transduce.decoding.engine import Ensemble, TorchEngine
from transduce.decoding.engines import make_engine
from transduce.decoding.translator import Translator
from transduce.errors import UsageError
from transduce.kernels import native
from transduce.kernels.native import NativeError
from transduce.model.saved import load_model, save_model
from transduce.model.transformer import Transformer


@pytest.fixture
def model(tiny: Path) -> Transformer:
    return load_model(tiny).model


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads afterwards."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["auto", "float32", "bf16", "int8"])
@pytest.mark.parametrize("name", ["auto", "native", "torch"])
def test_what_is_asked_for_decodes(tiny: Path, model: Transformer, precision: Any, name: Any):
    if (precision, name) == ("int8", "torch"):
        with pytest.raises(
            UsageError, match=r"^--engine torch does not support --precision int8 on a CPU; use float32, or --engine"
        ):
            make_engine(model, "cpu", precision, name=name)
        return
    engine = make_engine(model, "cpu", precision, threads=1, name=name)
    assert isinstance(engine, TorchEngine if name == "torch" else CpuEngine)
    if isinstance(engine, TorchEngine):
        kinds = {weight.dtype for weight in engine.model.parameters()}
        assert kinds == {torch.bfloat16 if precision == "bf16" else torch.float32}
    else:
        assert engine.precision == ("float32" if precision == "auto" else precision)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}  # for scores and alignments
    translated = Translator(Translator.load(tiny).loaded, engine).translate(["two euros", "nine dollars"])
    assert len(translated) == 2


def test_weights_stored_as_integers_stay_integers(tiny: Path, tmp_path: Path):
    whole = load_model(tiny)
    folder = tmp_path / "small"
    save_model(folder, whole.config, whole.model.state_dict(), whole.subwords, whole.about, precision="int8")
    assert (whole.precision, load_model(folder).precision) == ("float32", "int8")
    for asked, expected in (("auto", "int8"), ("float32", "float32"), ("bf16", "bf16")):
        engine = Translator.load(folder, device="cpu", precision=asked).engine  # pyright: ignore[reportArgumentType]
        assert isinstance(engine, CpuEngine)
        assert engine.precision == expected
    assert isinstance(Translator.load(folder, device="cpu", engine="torch").engine, TorchEngine)


def test_the_model_itself_stays_for_scores(tiny: Path):
    half, exact = (Translator.load(tiny, device="cpu", engine="torch", precision=each) for each in ("bf16", "float32"))
    pairs = [("two euros", "zwei Euro")]
    assert (half.score(pairs)[0] == exact.score(pairs)[0]).all()
    ours, theirs = (one.translate("two euros", alignments=True, beam=4) for one in (half, exact))
    assert ours.score != theirs.score


def test_threads_are_those_asked_for(model: Transformer):
    make_engine(model, "cpu", threads=2, name="torch")
    assert torch.get_num_threads() == 2
    make_engine(model, "cpu", name="torch")  # a model this small is fastest on one
    assert torch.get_num_threads() == 1
    engine = make_engine(model, "cpu", threads=2, name="native")
    assert isinstance(engine, CpuEngine)
    assert engine.threads == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"device": "tpu"}, "--device tpu is not known; use auto, cpu, cuda, cuda:1 or mps"),
        ({"device": "cuda:99"}, "--device cuda:99 is not available; "),
        ({"precision": "fp16"}, "--precision fp16 is not known; use auto, float32, bf16, int8"),
        ({"name": "Native"}, "--engine Native is not known; use auto, native, torch"),
    ],
)
def test_what_is_not_there_is_refused(model: Transformer, flags: dict[str, Any], message: str):
    with pytest.raises(UsageError) as error:
        make_engine(model, **flags)
    assert str(error.value).startswith(message)


def test_on_other_devices_torch_decodes(model: Transformer, monkeypatch: pytest.MonkeyPatch):
    meta = torch.device("meta")
    monkeypatch.setattr(engines, "choose_device", lambda name: meta)
    for precision, half, fast in (
        ("auto", True, True),
        ("auto", False, False),
        ("bf16", True, False),
        ("float32", False, True),
    ):
        monkeypatch.setattr(engines, "has_bf16", lambda place, fast=fast: fast)
        engine = make_engine(model, precision=precision)  # pyright: ignore[reportArgumentType]
        assert isinstance(engine, TorchEngine)
        assert engine.device == meta
        assert {weight.dtype for weight in engine.model.parameters()} == {torch.bfloat16 if half else torch.float32}
    with pytest.raises(UsageError, match=r"^--precision int8 is for CPUs; use bf16 or float32 on meta"):
        make_engine(model, precision="int8")
    with pytest.raises(UsageError, match=r"^--engine native is for CPUs; add --device cpu"):
        make_engine(model, name="native")


def test_without_a_compiler_torch_decodes_and_says_so_once(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    native.load.cache_clear()
    engines._say_once.cache_clear()
    with monkeypatch.context() as patch:
        patch.setenv("CXX", "/nonexistent/c++")
        patch.setenv("TRANSDUCE_CACHE", str(tmp_path))
        ensemble = Translator.load(tiny, tiny, device="cpu")
        assert isinstance(ensemble.engine, Ensemble)
        assert all(isinstance(engine, TorchEngine) for engine in ensemble.engine.engines)
        note, slower = capsys.readouterr().err.splitlines()
        assert note.startswith("note: CXX = /nonexistent/c++ is not a program; unset it, or install a C++ compiler")
        assert slower == "note: translating with torch instead, which is slower"
        for flags in ({"engine": "native"}, {"precision": "int8"}, {"precision": "bf16"}):
            with pytest.raises(UsageError) as error:
                Translator.load(tiny, device="cpu", **flags)  # pyright: ignore[reportArgumentType]
            assert str(error.value).startswith("CXX = /nonexistent/c++ is not a program")
            assert str(error.value).endswith("\nwithout it, only --engine torch with --precision float32 works")
        assert Translator.load(tiny, device="cpu", engine="torch").translate("nine").sentences
        assert capsys.readouterr().err == ""
    native.load.cache_clear()


def test_what_our_engine_does_not_know_torch_decodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    engines._say_once.cache_clear()
    odd = save_tiny(tmp_path / "odd", attention="additive")
    assert isinstance(Translator.load(odd, device="cpu").engine, TorchEngine)
    assert "--engine native does not support models with model.attention = 'additive'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="does not support models with"):
        Translator.load(odd, device="cpu", engine="native")


def test_an_error_of_the_build_is_not_hidden(model: Transformer, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise NativeError("no luck")

    monkeypatch.setattr(CpuEngine, "__init__", fail)
    with pytest.raises(UsageError, match=r"^no luck\n"):
        make_engine(model, "cpu", name="native")


def test_the_command_line_without_a_compiler(tiny: Path, tmp_path: Path):
    environment = os.environ | {"CXX": "/nonexistent", "TRANSDUCE_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "transduce", "translate", str(tiny), "--device", "cpu", "--min-tokens", "1"]
    done = subprocess.run(command, input="one\ntwo", capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stdout.count("\n") == 2
    assert done.stderr.count("note: ") == 2
