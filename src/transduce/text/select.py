"""The cleaning rules that need the whole corpus, in NumPy over one row of facts per pair."""

from dataclasses import dataclass

import numpy as np

from transduce.text.clean import LEAK_CHARACTERS, RULES, SCRIPTS, CleanConfig, join_hashes
from transduce.text.shards import SIDES

KEPT, DEV = 0, 255
CODES = {name: code for code, name in enumerate(RULES, start=1)}
# Short lines vary freely ("Yes." - "Ja, natürlich."); this many characters are added to both sides before the ratio.
RATIO_SLACK = 15
# A script is usual on a side if it is the main script of at least this share of its lines.
SCRIPT_SHARE = 0.05


@dataclass(frozen=True)
class Selection:
    """The verdict on each pair (kept, dev, or the code of the rule that dropped it), and what is usual."""

    verdicts: np.ndarray
    ratio: float
    source_scripts: tuple[str, ...]
    target_scripts: tuple[str, ...]


def select(rows: np.ndarray, config: CleanConfig, dev_pairs: int, seed: int) -> Selection:
    """Judge all pairs; hold out `dev_pairs` of the kept ones as a dev set, and drop training pairs that it shares."""
    verdicts = np.zeros(len(rows), np.uint8)
    ratios = (rows["target_length"] + np.float32(RATIO_SLACK)) / (rows["source_length"] + np.float32(RATIO_SLACK))
    usual = float(np.median(ratios)) if len(rows) else 1.0
    scripts = [_usual_scripts(rows[f"{side}_script"]) for side in SIDES]
    if config.script:
        for side, usual_scripts in zip(SIDES, scripts, strict=True):
            _drop(verdicts, ~np.isin(rows[f"{side}_script"], usual_scripts), "script")
    if config.ratio:
        off = np.maximum(ratios / usual, usual / ratios) > config.ratio
        _drop(verdicts, off, "ratio")
    near = join_hashes(rows["source"], rows["target"])
    if config.duplicate:
        # `near` is the same for pairs equal but for case and punctuation; the lines' checksums tell exact repeats.
        _drop_repeats(verdicts, join_hashes(near, rows["check"].astype(np.uint64)), "duplicate")
    if config.near_duplicate:
        _drop_repeats(verdicts, near, "near_duplicate")
    if dev_pairs:
        kept = np.flatnonzero(verdicts == KEPT)
        chosen = np.random.default_rng(seed).choice(kept, min(dev_pairs, len(kept)), replace=False, shuffle=False)
        verdicts[chosen] = DEV
        if config.leak != "off":
            whole = rows["source"] if config.leak == "source" else near
            leaks = np.isin(whole, whole[chosen])
            for side in SIDES if config.leak == "side" else ():
                long = chosen[rows[f"{side}_length"][chosen] >= LEAK_CHARACTERS]
                leaks |= np.isin(rows[side], rows[side][long])
            _drop(verdicts, leaks, "leak")
    names = [tuple(SCRIPTS[code].capitalize().replace("Cjk", "CJK") for code in found if code) for found in scripts]
    return Selection(verdicts, usual, names[0], names[1])


def _usual_scripts(scripts: np.ndarray) -> np.ndarray:
    counts = np.bincount(scripts, minlength=len(SCRIPTS))
    counts[0] = len(scripts)  # a line without letters is never in a wrong script
    usual = counts >= max(1.0, SCRIPT_SHARE * len(scripts))
    if usual[SCRIPTS.index("HIRAGANA")]:  # Japanese is written in three scripts, one of them seldom the main one
        usual[[SCRIPTS.index("CJK"), SCRIPTS.index("KATAKANA")]] = True
    return np.flatnonzero(usual)


def _drop(verdicts: np.ndarray, where: np.ndarray, rule: str) -> None:
    verdicts[where & (verdicts == KEPT)] = CODES[rule]


def _drop_repeats(verdicts: np.ndarray, keys: np.ndarray, rule: str) -> None:
    kept = np.flatnonzero(verdicts == KEPT)
    _, first = np.unique(keys[kept], return_index=True)
    repeated = np.ones(len(kept), bool)
    repeated[first] = False
    verdicts[kept[repeated]] = CODES[rule]
