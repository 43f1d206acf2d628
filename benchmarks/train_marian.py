"""Train Hugging Face's Marian on one of our data sets: same pairs, vocabulary, sizes, loader and minutes as ours.

Our loader makes its batches, with as many tokens as ours, sentences of similar length together, padded in a thread
beside the training. Its learning rate is that of the given settings; with --peak-rate it rises during the warm-up and
falls to zero at the time limit, as ours does. Then it translates with `generate`. If another job uses the same
GPU, a minute trains it less than it would alone; then --steps sets how many steps it would have made alone.

    pip install transformers
    python benchmarks/train_marian.py RUN --data DATA --minutes 10 --source newstest2013.en --reference newstest2013.de

RUN is one of our runs, whose settings are used, or a preset. The state is saved every two minutes, and the same command
resumes from it.
"""

import argparse
import json
import os
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# No two batches have the same shape; without this setting, much memory is allocated and freed in every step.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import sacrebleu
import torch
from marian import make_sized
from torch import Tensor, nn
from torch.nn import functional
from train_speed import autocast, rectangles

from transduce.config import Config
from transduce.model.device import choose_device
from transduce.model.saved import find_model, read_config
from transduce.presets import PRESETS
from transduce.scoring.texts import read_lines
from transduce.text.batches import START, Batch, Batches, Loader, Position
from transduce.text.shards import DataSet
from transduce.text.subwords import BEGIN, END, PAD
from transduce.training.run import fit_to_data
from transduce.training.schedule import learning_rate

# cuDNN's attention would build a plan for each shape, which takes three times as long as the step.
torch.backends.cuda.enable_cudnn_sdp(False)

LONGEST = 1024
SAVED = 120.0  # seconds between saves of the state


@dataclass(frozen=True)
class Until:
    """When training ends: after some time or some steps."""

    seconds: float | None
    steps: int | None

    def share(self, seconds: float, steps: int) -> float:
        """Return how much of it is done."""
        return seconds / self.seconds if self.seconds else steps / (self.steps or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="one of our runs or models, or a preset")
    parser.add_argument("--data", type=Path, required=True)
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--minutes", type=float, help="minutes to train, not counting start-up")
    limit.add_argument("--steps", type=int, help="steps to train, instead of minutes")
    parser.add_argument("--peak-rate", type=float, help="peak of a learning rate that falls to zero at the limit")
    parser.add_argument(
        "--warmup-steps", type=int, help="steps over which the rate rises (default: as in the settings)"
    )
    parser.add_argument("--source", type=Path, nargs="+", default=[], help="files to translate afterwards")
    parser.add_argument("--reference", type=Path, nargs="+", default=[])
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("marian"), help="folder for translations and results")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    device = choose_device(given.device)
    data = DataSet.open(given.data)
    known = PRESETS[given.run].config if given.run in PRESETS else read_config(find_model(Path(given.run)))
    config = fit_to_data(known, data)
    if given.warmup_steps:
        config = replace(config, training=replace(config.training, warmup_steps=given.warmup_steps))
    torch.manual_seed(config.training.seed)
    model = make_sized(config.model, LONGEST, config.model.dropout).to(device)
    given.out.mkdir(parents=True, exist_ok=True)
    until = Until(seconds=given.minutes and 60 * given.minutes, steps=given.steps)
    found = train(model, data, config, device, until, given.peak_rate, given.out / "state.pt")
    for source, reference in zip(given.source, given.reference, strict=True):
        begin = time.monotonic()
        said = translate(model, data, read_lines(source), config, device)
        (given.out / source.name).with_suffix(".marian").write_text("".join(f"{line}\n" for line in said))
        metric = sacrebleu.BLEU(lowercase=given.lowercase)
        score = metric.corpus_score(said, [read_lines(reference)]).score
        found[source.name] = {
            "bleu": score,
            "signature": str(metric.get_signature()),
            "seconds": round(time.monotonic() - begin, 1),
        }
        print(f"{source.name}: BLEU {score:.2f}", flush=True)
    (given.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")


def prefetched(batches: Batches, first: Position, pin: bool) -> Generator[tuple[Batch, tuple[Tensor, ...]]]:
    """Yield batches, each with its padded rows, made while earlier ones are trained on."""

    def make(batch: Batch) -> tuple[Batch, tuple[Tensor, ...]]:
        return batch, tuple(row.pin_memory() if pin else row for row in rectangles(batch))

    with Loader(batches, first) as loader, ThreadPoolExecutor(1) as pool:
        endless = iter(loader)
        waiting = [pool.submit(make, next(endless)) for _ in range(4)]
        while True:
            yield waiting.pop(0).result()
            waiting.append(pool.submit(make, next(endless)))


def train(
    model: Any, data: DataSet, config: Config, device: torch.device, until: Until, peak: float | None, state: Path
) -> dict[str, Any]:
    """Train until the limit; the first three steps after each start warm the device up, and are not timed."""
    training = config.training
    batches = Batches(data, replace(config.batch, parts=1, similar_lengths=True), seed=training.seed)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    adam = torch.optim.Adam(
        weights, betas=(training.beta1, training.beta2), eps=training.epsilon, fused=device.type == "cuda"
    )
    before, step, tokens, lost, position = 0.0, 0, 0, torch.zeros((), device=device), START
    if state.exists():
        kept = torch.load(state, map_location=device)
        model.load_state_dict(kept["model"])
        adam.load_state_dict(kept["adam"])
        before, step, tokens, position = kept["seconds"], kept["step"], kept["tokens"], Position(*kept["position"])
        print(f"goes on from step {step:,}", flush=True)
    model.train()
    first, shown, begin, saved, waited = step, step, time.monotonic() - before, before, 0.0
    made = prefetched(batches, position, device.type == "cuda")
    while True:
        asked = time.monotonic()
        batch, rows = next(made)
        waited += time.monotonic() - asked
        step += 1
        source, target, target_input = (row.to(device, non_blocking=True) for row in rows)
        for group in adam.param_groups:
            left = 1 - until.share(time.monotonic() - begin, step)
            falling = (peak or 0.0) * max(0.0, min(step / training.warmup_steps, left))
            group["lr"] = learning_rate(step, training, config.model.d_model) if peak is None else falling
        with autocast(device):
            inputs = {"input_ids": source, "attention_mask": source != PAD, "decoder_input_ids": target_input}
            logits = model(**inputs, use_cache=False).logits
            loss = functional.cross_entropy(
                logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=training.label_smoothing
            )
        loss.backward()
        if training.clip:
            nn.utils.clip_grad_norm_(weights, training.clip)
        adam.step()
        adam.zero_grad(set_to_none=True)
        tokens, lost = tokens + batch.source_tokens + batch.target_tokens, lost + loss.detach()
        if step == first + 3:
            begin, waited = time.monotonic() - before, 0.0
        if step % 200 == 0:
            mean = float(lost) / (step - shown)
            spent = time.monotonic() - begin
            print(f"step {step:,}: loss {mean:.3f}, {spent:.0f} s, {waited:.1f} of them for batches", flush=True)
            lost.zero_()
            shown = step
        spent = time.monotonic() - begin
        over = until.share(spent, step) >= 1 or (peak is None and step >= training.steps)
        if over or spent >= saved + SAVED:
            if device.type == "cuda":
                torch.cuda.synchronize()
            spent = time.monotonic() - begin
            kept = {"seconds": spent, "step": step, "tokens": tokens, "position": tuple(batch.next_position)}
            torch.save({"model": model.state_dict(), "adam": adam.state_dict(), **kept}, state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)
            begin, saved = time.monotonic() - spent, spent
        if over:
            made.close()
            return {"steps": step, "tokens": tokens, "seconds": round(spent, 1), "waited": round(waited, 1)}


@torch.inference_mode()
def translate(model: Any, data: DataSet, lines: list[str], config: Config, device: torch.device) -> list[str]:
    """Translate with `generate` and our search settings, sentences of similar length together."""
    model.eval()
    model.generation_config.update(bos_token_id=BEGIN, forced_eos_token_id=None)
    sources = [torch.tensor([*data.subwords["source"].encode(line), END]) for line in lines]
    order = sorted(range(len(lines)), key=lambda line: -len(sources[line]))
    said = [""] * len(lines)
    for first in range(0, len(order), 64):
        some = order[first : first + 64]
        rows = nn.utils.rnn.pad_sequence([sources[line] for line in some], batch_first=True, padding_value=PAD)
        rows = rows.to(device)
        with autocast(device):
            found = model.generate(
                rows,
                attention_mask=rows != PAD,
                num_beams=config.search.beam,
                length_penalty=config.search.alpha,
                max_new_tokens=min(LONGEST - 1, rows.shape[1] + config.search.extra_tokens),
                bad_words_ids=[[PAD]],
            )
        for line, tokens in zip(some, found.tolist()):
            kept = tokens[1:]
            kept = kept[: kept.index(END)] if END in kept else kept
            said[line] = data.subwords["target"].decode([token for token in kept if token != PAD])
    return said


if __name__ == "__main__":
    main()
