"""How training uses its device: its precision, whether steps are captured, how much of the peak rate is used."""

import math
import re

import torch

from transduce.config import Config, ModelConfig, TrainingConfig
from transduce.model.device import has_bf16, has_kernels
from transduce.training.distributed import Processes
from transduce.training.schedule import learning_rate

SMALLEST_BF16 = 256  # d_model from which a CPU with bf16 trains faster in it (docs/log.md)
MOST_ON_CPU = 5e11  # parameters times tokens of a step; 7e11 took 49 s on one core in bf16
# NVIDIA's figures for dense bf16 products summed in float32, in TFLOP/s; the first name found as whole words in the
# device's name counts.
PEAKS = {
    "GB200": 2500,
    "B200": 2250,
    "GH200": 989,
    "H200 NVL": 835,
    "H200": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "H100": 989,
    "A100": 312,
    "A40": 150,
    "A30": 165,
    "A10": 125,
    "A10G": 70,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX 5090": 210,
    "RTX 4090": 165,
    "RTX 3090": 71,
}
# Words that mark another device than the name alone, or a slice of one.
_OTHER = re.compile(r"\b(D|Laptop|MIG|SUPER|Ti)\b")


def uses_bf16(config: TrainingConfig, model: ModelConfig, device: torch.device) -> bool:
    """Return whether training computes in bf16: if asked to, or by default where that is faster."""
    large = device.type != "cpu" or model.d_model >= SMALLEST_BF16
    return config.precision == "bf16" or (config.precision == "auto" and large and has_bf16(device))


def steps_take_long(config: Config, device: torch.device) -> bool:
    """Return whether the device is a CPU and a step is too much work to wait for."""
    tokens = config.batch.source_tokens + config.batch.target_tokens
    return device.type == "cpu" and config.model.parameters() * tokens > MOST_ON_CPU


def describe_long_steps(config: Config) -> str:
    """Return a note with batches small enough for a CPU and a learning rate to go with them.

    As usual with Adam, the rate falls with the square root of the batch.
    """
    training = config.training
    tokens = 1 << max(0, int(math.log2(MOST_ON_CPU / config.model.parameters() / 2)))
    peak = learning_rate(training.warmup_steps, training, config.model.d_model)
    rate = peak * min(1.0, tokens / config.batch.source_tokens) ** 0.5
    return (
        f"a step on so many tokens is slow on a CPU; try --batch.source-tokens {tokens} --batch.target-tokens "
        f"{tokens} --training.peak-rate {rate:.1g}"
    )


def captures(config: TrainingConfig, model: ModelConfig, processes: Processes) -> bool:
    """Return whether a step is one captured graph: alone on a GPU, where our own kernels compute all attention."""
    alone = processes.world == 1 and not config.sharded and config.accumulate == 1
    return alone and model.attention != "additive" and has_kernels(processes.device)


def peak_rate(device: torch.device, bf16: bool) -> float | None:
    """Return the device's peak in operations per second, or None if it is unknown."""
    if device.type != "cuda" or not bf16:
        return None
    name = torch.cuda.get_device_name(device)
    if _OTHER.search(name):
        return None
    return next((1e12 * peak for known, peak in PEAKS.items() if re.search(rf"\b{known}\b", name)), None)


def training_work(config: ModelConfig, source: int, target: int, squares: tuple[float, float, float]) -> float:
    """Return the operations of one step; `squares` are the sums of s², t² and s·t over pairs with s and t tokens.

    The product of an m×n and an n×k matrix counts 2·m·n·k, the backward pass twice the forward pass.
    """
    d_k, d_v = config.head_widths()
    encoder_layers, decoder_layers = config.stacks()
    width = config.heads * (d_k + d_v)
    query_and_output, key_and_value = config.d_model * width, config.d_model * width
    feed_forward = config.d_model * config.d_ff * (3 if config.activation == "swiglu" else 2)
    within_source, within_target, across = squares
    encoder = source * (query_and_output + key_and_value + feed_forward) + within_source * width
    decoder = (
        target * (2 * query_and_output + key_and_value + feed_forward)
        + source * key_and_value
        + (within_target / 2 + across) * width  # the masked half is never computed
    )
    output = target * config.d_model * config.vocabulary
    return 3 * 2 * (encoder_layers * encoder + decoder_layers * decoder + output)
