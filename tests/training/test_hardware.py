"""The chosen device, the peak it is said to reach, and the work of a step against torch's own count."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from threads import one_thread
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transduce.config import ModelConfig, TrainingConfig
from transduce.errors import UsageError
from transduce.model import device as devices
from transduce.model.device import choose_device, choose_threads, has_bf16
from transduce.model.transformer import Transformer
from transduce.presets import PRESETS
from transduce.training import hardware
from transduce.training.distributed import Processes
from transduce.training.hardware import (
    captures,
    describe_long_steps,
    peak_rate,
    steps_take_long,
    training_work,
    uses_bf16,
)

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda", 0), torch.device("mps")
LARGE = ModelConfig()
Patch = pytest.MonkeyPatch


def pretend(patch: Patch, *, gpus: int = 0, mps: bool = False, name: str = "", capability: tuple[int, int] = (9, 0)):
    """Make torch see a machine with so many GPUs."""
    patch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    patch.setattr(torch.cuda, "device_count", lambda: gpus)
    patch.setattr(torch.cuda, "get_device_name", lambda device: name)
    patch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    patch.setattr(torch.backends.mps, "is_available", lambda: mps)


# ---- the device ----


@pytest.mark.parametrize(
    ("gpus", "mps", "expected"), [(0, False, "cpu"), (0, True, "mps"), (1, False, "cuda:0"), (2, True, "cuda:0")]
)
def test_the_best_device_there_is(monkeypatch: Patch, gpus: int, mps: bool, expected: str):
    pretend(monkeypatch, gpus=gpus, mps=mps)
    assert choose_device("auto") == torch.device(expected)
    assert choose_device("cpu") == CPU


def test_each_process_of_a_machine_has_its_own_gpu(monkeypatch: Patch):
    pretend(monkeypatch, gpus=4)
    assert [choose_device("auto", rank).index for rank in range(4)] == [0, 1, 2, 3]
    assert [choose_device("cuda", rank).index for rank in range(4)] == [0, 1, 2, 3]
    assert choose_device("cuda:2", 1) == torch.device("cuda:2")
    assert choose_device("cpu", 3) == CPU


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:-1", "cuda:one", "cuda:99999999999999999999"])
def test_an_unknown_device_is_refused(monkeypatch: Patch, name: str):
    pretend(monkeypatch, gpus=1)
    with pytest.raises(UsageError, match=f"^--device {name} is not known; use auto, cpu, cuda, cuda:1 or mps$"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "xpu", "meta"])
def test_an_absent_device_is_refused(monkeypatch: Patch, name: str):
    pretend(monkeypatch)
    with pytest.raises(UsageError, match=f"^--device {name} is not available; `transduce doctor` shows"):
        choose_device(name)


def test_too_many_processes_for_the_gpus_are_refused(monkeypatch: Patch):
    pretend(monkeypatch, gpus=2)
    for name, rank, shown in (("auto", 2, "cuda:2"), ("cuda", 5, "cuda:5"), ("cuda:3", 0, "cuda:3")):
        with pytest.raises(UsageError, match=f"^--device {shown} is not available; this machine has 2 GPUs$"):
            choose_device(name, rank)


# ---- its arithmetic ----


@pytest.mark.parametrize(("capability", "there"), [((7, 0), False), ((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_gpus_have_bf16_from_ampere_on(monkeypatch: Patch, capability: tuple[int, int], there: bool):
    pretend(monkeypatch, gpus=1, capability=capability)
    assert has_bf16(CUDA) is there
    assert uses_bf16(TrainingConfig(), LARGE, CUDA) is there
    assert uses_bf16(TrainingConfig(), replace(LARGE, d_model=128), CUDA) is there
    assert uses_bf16(TrainingConfig(precision="bf16"), LARGE, CUDA)
    assert not uses_bf16(TrainingConfig(precision="float32"), LARGE, CUDA)


@pytest.mark.parametrize(
    ("instructions", "there"),
    [
        ({"avx512_f": True, "avx2": True}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True, "avx512_bf16": False}, True),
        ({"bf16": True}, True),
        ({"bf16": False, "sve_bf16": False}, False),
        ({}, False),
    ],
)
def test_cpus_have_bf16_where_they_have_its_instructions(monkeypatch: Patch, instructions: Any, there: bool):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    devices._cpu_has_bf16.cache_clear()
    try:
        assert uses_bf16(TrainingConfig(), LARGE, CPU) is there
        assert not uses_bf16(TrainingConfig(), replace(LARGE, d_model=128), CPU)  # casting takes longer than it saves
    finally:
        devices._cpu_has_bf16.cache_clear()
    assert uses_bf16(TrainingConfig(precision="bf16"), LARGE, CPU)
    assert not uses_bf16(TrainingConfig(precision="float32"), LARGE, CPU)
    assert not uses_bf16(TrainingConfig(), LARGE, MPS)


def test_steps_are_captured_alone_on_a_gpu_where_our_kernels_compute_all(monkeypatch: Patch):
    model, training, gpu = ModelConfig(), TrainingConfig(), Processes(CUDA)
    pretend(monkeypatch, gpus=1)
    monkeypatch.setattr(devices, "find_spec", lambda name: name)
    assert captures(training, model, gpu)
    assert captures(replace(training, precision="float32"), replace(model, positions="learned"), gpu)
    assert not captures(training, model, Processes(CPU))
    assert not captures(training, model, Processes(MPS))
    assert not captures(training, model, Processes(CUDA, rank=0, world=2))
    assert not captures(replace(training, sharded=True), model, gpu)
    assert not captures(replace(training, accumulate=2), model, gpu)
    assert not captures(training, replace(model, attention="additive"), gpu)
    assert captures(training, replace(model, biases=True), gpu)
    assert captures(training, replace(model, positions="rotary"), gpu)
    assert captures(training, replace(model, heads=1), gpu)
    pretend(monkeypatch, gpus=1, capability=(7, 5))
    assert not captures(training, model, gpu)
    pretend(monkeypatch, gpus=1)
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name == "triton" else name)
    assert not captures(training, model, gpu)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("A100-SXM4-40GB", 312),  # an old driver says no more
        ("NVIDIA A40", 150),
        ("NVIDIA A30", 165),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA L40", 181),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 5090", 210),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA GeForce RTX 3090", 71),
        # Others, whose names only begin or go on like these, or that are a part of one.
        ("NVIDIA RTX A1000", None),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA RTX A400", None),
        ("NVIDIA H20", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("Tesla V100-SXM2-16GB", None),
        ("AMD Instinct MI300X", None),
        ("", None),
    ],
)
def test_the_peak_of_a_gpu_is_known_by_its_whole_name(monkeypatch: Patch, name: str, tera: float | None):
    pretend(monkeypatch, gpus=1, name=name)
    assert peak_rate(CUDA, bf16=True) == (tera and tera * 1e12)
    assert peak_rate(CUDA, bf16=False) is None  # only that of bf16 is known
    assert peak_rate(CPU, bf16=True) is None


def test_every_peak_can_be_reached(monkeypatch: Patch):
    """No name comes before a longer one that begins with it."""
    for name, peak in hardware.PEAKS.items():
        pretend(monkeypatch, gpus=1, name=f"NVIDIA {name}")
        assert peak_rate(CUDA, bf16=True) == peak * 1e12, name


# ---- the work of a step ----

SENTENCES, SOURCE, TARGET = 3, 7, 5  # of one length, so that no padding is computed


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "gelu", "norm": "pre"},
        {"activation": "swiglu", "tie": "none"},
        {"d_k": 6, "d_v": 2, "positions": "rotary"},
        {"encoder_layers": 3, "decoder_layers": 1, "attention": "unscaled"},
        {"encoder_layers": 1, "decoder_layers": 2, "attention": "additive", "positions": "learned"},
        {"source_vocabulary": 50, "tie": "output"},
    ],
    ids=str,
)
def test_the_work_is_what_torch_counts(changes: dict[str, Any]):
    sizes = {"vocabulary": 23, "layers": 2, "d_model": 12, "d_ff": 20, "heads": 3}
    config = ModelConfig(**{**sizes, **changes})
    model = Transformer(config)
    rows = [
        row
        for length in (SOURCE, TARGET)
        for row in (torch.full((SENTENCES * length,), 4), torch.arange(SENTENCES + 1) * length)
    ]
    # The counter does not know the CPU's fused attention, but it knows the products it is made of.
    with one_thread(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            logits = model(*rows)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    # There the half of the products that is masked away is computed too: so all of them are asked for here.
    squares = (SENTENCES * SOURCE**2, 2 * SENTENCES * TARGET**2, SENTENCES * SOURCE * TARGET)
    work = training_work(config, SENTENCES * SOURCE, SENTENCES * TARGET, squares)
    assert forward.get_total_flops() == work / 3
    assert backward.get_total_flops() == 2 * work / 3


def test_half_of_the_products_among_targets_is_masked_away():
    config = ModelConfig()
    nothing, some = (training_work(config, 0, 0, (0, square, 0)) for square in (0, 400.0))
    assert nothing == 0
    # Six layers of eight heads with two products of 64 · 20² each, half of them; forward, and twice that backward.
    assert some == 3 * 2 * 6 * 8 * (2 * 64 * 400) / 2


def test_the_base_model_needs_about_six_operations_a_weight_and_token():
    """A rule of thumb: a pair of tokens passes the encoder's weights once and the decoder's once."""
    config = ModelConfig()
    work = training_work(config, 1, 1, (0, 0, 0))
    assert work / (6 * config.parameters()) == pytest.approx(1, rel=0.05)


def test_small_models_are_computed_on_one_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 12)
    small, large = ModelConfig(d_model=255, heads=1, positions="learned"), ModelConfig(d_model=256)
    assert [choose_threads(model, None) for model in (small, large)] == [1, 12]
    assert [choose_threads(model, 3) for model in (small, large)] == [3, 3]


def test_long_steps_on_a_cpu_are_known():
    base, tiny = PRESETS["base"].config, PRESETS["tiny"].config
    assert steps_take_long(base, CPU)
    assert not steps_take_long(base, CUDA)
    assert not steps_take_long(replace(base, batch=replace(base.batch, source_tokens=2048, target_tokens=2048)), CPU)
    assert not steps_take_long(tiny, CPU)


@pytest.mark.parametrize("preset", ["base", "big", "C-layers-2", "C-d_model-1024", "parsing"])
def test_what_is_said_of_long_steps_makes_them_short(preset: str):
    config = PRESETS[preset].config
    flags = dict(re.findall(r"--([\w.-]+) (\S+)", describe_long_steps(config)))
    small = int(flags["batch.source-tokens"])
    assert int(flags["batch.target-tokens"]) == small
    assert steps_take_long(config, CPU)
    assert not steps_take_long(
        replace(config, batch=replace(config.batch, source_tokens=small, target_tokens=small)), CPU
    )
    assert 512 <= small <= 8192
    assert config.batch.parts * 64 <= small  # room for usual sentences
    peak = (config.model.d_model * config.training.warmup_steps) ** -0.5
    assert peak / 6 < float(flags["training.peak-rate"]) < peak / 1.5
