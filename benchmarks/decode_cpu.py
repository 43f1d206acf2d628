"""Decoding on one CPU: this project's engine against CTranslate2 and Hugging Face generate, side by side.

Each engine has the same model: the paper's base model (or other sizes) with random weights. Sources have 24 tokens, and
targets exactly 32, because no engine may end earlier. Engines take turns in every round, so that other load on the
machine affects all of them. A cell is the median of the rounds' ratios to CTranslate2 int8, with the smallest and the
largest. All engines use our sinusoidal positions; Marian's biases, which the paper's attention lacks, are zero.

    pip install ctranslate2 transformers
    python benchmarks/decode_cpu.py
    python benchmarks/decode_cpu.py --cells 1x1,64x4 --engines ours-int8,ctranslate2-int8 --rounds 9
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from marian import make_marian

from transduce.config import ModelConfig, SearchConfig
from transduce.decoding.cpu import CpuEngine
from transduce.decoding.search import Task, search_all
from transduce.model.layers import DecoderLayer, EncoderLayer
from transduce.model.positions import sinusoids
from transduce.model.transformer import Transformer
from transduce.text.subwords import BEGIN, END

SOURCE, TARGET = 24, 32
REFERENCE = "ctranslate2-int8"
Decode = Callable[[list[np.ndarray], int], int]  # takes sentences and the beam; returns how many tokens were output


def ours(model: Transformer, precision: Any, threads: int) -> Decode:
    """Return this project's engine, with the search that `transduce translate` uses."""
    engine = CpuEngine(model, precision=precision, threads=threads)

    def decode(sources: list[np.ndarray], beam: int) -> int:
        config = SearchConfig(beam=beam, max_tokens=TARGET)
        found = search_all(engine, [Task(source) for source in sources], config)
        assert all(len(best[0].tokens) == TARGET for best in found), "a translation has ended: try another --seed"
        return TARGET * len(found)

    return decode


def ctranslate2(model: Transformer, precision: str, threads: int, folder: Path) -> Decode:
    """Return CTranslate2, from a specification filled with our weights."""
    import ctranslate2  # pyright: ignore[reportMissingImports]

    converted = folder / precision
    save_for_ctranslate2(model, converted, None if precision == "float32" else precision)
    translator = ctranslate2.Translator(
        str(converted), device="cpu", compute_type=precision, inter_threads=1, intra_threads=threads
    )

    def decode(sources: list[np.ndarray], beam: int) -> int:
        results = translator.translate_batch(
            [[str(token) for token in source] for source in sources],
            beam_size=beam,
            max_decoding_length=TARGET,
            min_decoding_length=TARGET,
            length_penalty=0.6,
            return_scores=True,
        )
        assert all(len(result.hypotheses[0]) == TARGET for result in results)
        return TARGET * len(results)

    return decode


def save_for_ctranslate2(model: Transformer, folder: Path, quantisation: str | None) -> None:
    """Write the model in CTranslate2's format."""
    from ctranslate2.specs import common_spec, transformer_spec  # pyright: ignore[reportMissingImports]

    config = model.config
    spec: Any = transformer_spec.TransformerSpec.from_config(
        config.stacks(), config.heads, pre_norm=False, activation=common_spec.Activation.RELU
    )
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    table = sinusoids(torch.arange(256), config.d_model).numpy()

    def fill_linear(part: Any, weight: np.ndarray, bias: np.ndarray | None = None) -> None:
        part.weight, part.bias = weight, np.zeros(len(weight), np.float32) if bias is None else bias

    def fill_norm(part: Any, name: str) -> None:
        part.gamma, part.beta = weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"]

    def fill_layer(part: Any, name: str, cross: bool) -> None:
        fill_linear(part.self_attention.linear[0], weights[f"{name}.self_attention.projection"])
        fill_linear(part.self_attention.linear[1], weights[f"{name}.self_attention.output"])
        fill_norm(part.self_attention.layer_norm, f"{name}.self_residual")
        if cross:
            projection = weights[f"{name}.cross_attention.projection"]
            fill_linear(part.attention.linear[0], projection[: config.d_model])
            fill_linear(part.attention.linear[1], projection[config.d_model :])
            fill_linear(part.attention.linear[2], weights[f"{name}.cross_attention.output"])
            fill_norm(part.attention.layer_norm, f"{name}.cross_residual")
        for linear, ours in ((part.ffn.linear_0, "inner"), (part.ffn.linear_1, "outer")):
            both = (weights[f"{name}.feed_forward.{ours}.{kind}"] for kind in ("weight", "bias"))
            fill_linear(linear, *both)
        fill_norm(part.ffn.layer_norm, f"{name}.feed_forward_residual")

    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = weights["embedding.weight"]
    spec.decoder.projection.weight = weights["embedding.weight"]
    for name, stack, layers in (("encoder", spec.encoder, model.encoder), ("decoder", spec.decoder, model.decoder)):
        stack.scale_embeddings, stack.position_encodings.encodings = True, table
        for number, part in enumerate(stack.layer):
            assert isinstance(layers[number], EncoderLayer | DecoderLayer)
            fill_layer(part, f"{name}.{number}", cross=name == "decoder")
    names = [str(token) for token in range(config.vocabulary)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    settings: Any = spec.config
    settings.bos_token, settings.eos_token, settings.unk_token = str(BEGIN), str(END), names[-1]
    settings.decoder_start_token, settings.add_source_eos = str(BEGIN), False
    spec.validate()
    spec.optimize(quantization=quantisation)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def hugging_face(model: Transformer, threads: int) -> Decode:
    """Return Hugging Face's Marian in float32, with its `generate`."""
    marian = make_marian(model)

    def decode(sources: list[np.ndarray], beam: int) -> int:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            tokens = torch.from_numpy(np.stack(sources)).long()
            said: Any = marian.generate(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                num_beams=beam,
                do_sample=False,
                min_new_tokens=TARGET,
                max_new_tokens=TARGET,
                **({"length_penalty": 0.6} if beam > 1 else {}),
            )
        assert said.shape == (len(sources), TARGET + 1)
        return TARGET * len(sources)

    return decode


def make_engines(names: list[str], model: Transformer, threads: int, folder: Path) -> dict[str, Decode]:
    """Return the requested engines, ready to decode."""
    made: dict[str, Decode] = {}
    for name in names:
        kind, _, precision = name.partition("-")
        match kind:
            case "ours":
                made[name] = ours(model, precision, threads)
            case "ctranslate2":
                made[name] = ctranslate2(model, precision, threads, folder)
            case "huggingface":
                made[name] = hugging_face(model, threads)
            case _:
                sys.exit(f"error: no engine is named {name}")
    return made


def measure(engines: dict[str, Decode], sources: list[np.ndarray], beam: int, rounds: int, clock: Callable[[], float]):
    """Return the tokens/s of each engine in each round."""
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for decode in engines.values():
        decode(sources[:1], beam)
    for number in range(rounds):
        turn = list(engines.items())
        for name, decode in turn[number % len(turn) :] + turn[: number % len(turn)]:
            begin = clock()
            tokens = decode(sources, beam)
            rates[name].append(tokens / (clock() - begin))
    return rates


def main() -> None:
    """Print one table: rows are engines, columns are batch x beam."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="1x1,16x1,64x1,1x4,16x4,64x4", help="sentences x beam, separated by commas")
    parser.add_argument(
        "--engines",
        default="ours-int8,ours-bf16,ours-float32,ctranslate2-int8,ctranslate2-float32,huggingface-float32",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--d-model", type=int, default=512)
    parser.add_argument("--d-ff", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: processor time, for one thread on a machine with other load",
    )
    given = parser.parse_args()
    clock = time.process_time if given.clock == "cpu" else time.perf_counter
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    config = ModelConfig(
        vocabulary=given.vocabulary,
        layers=given.layers,
        d_model=given.d_model,
        d_ff=given.d_ff,
        heads=given.heads,
    )
    model = Transformer(config).eval()
    random = np.random.default_rng(given.seed)
    names = given.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        engines = make_engines(names, model, given.threads, Path(folder))
    shown = REFERENCE if REFERENCE in engines else names[0]
    print(f"tokens/s as a ratio to {shown}: median [smallest–largest] of {given.rounds} rounds, {given.clock} time")
    for cell in given.cells.split(","):
        many, beam = map(int, cell.split("x"))
        sources = [
            np.append(random.integers(4, given.vocabulary, SOURCE - 1), END).astype(np.int32) for _ in range(many)
        ]
        rates = measure(engines, sources, beam, given.rounds, clock)
        print(f"\nbatch {many}, beam {beam}")
        for name, some in rates.items():
            ratios = [rate / reference for rate, reference in zip(some, rates[shown])]
            shares = f"{statistics.median(ratios):5.2f} [{min(ratios):.2f}–{max(ratios):.2f}]"
            print(f"  {name:<20} {shares}  {statistics.median(some):7.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
