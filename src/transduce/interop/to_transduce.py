"""Export models in our own format: one folder without the rest of its run, in int8 a quarter as large."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transduce.decoding.force import score_pairs
from transduce.decoding.translator import Translator
from transduce.interop.check import Pair, Said
from transduce.model.saved import Loaded, Precision, load_model, write_model

PRECISIONS: tuple[str, ...] = ("float32", "int8")
WRITTEN_WITH: tuple[str, ...] = ()
CHECKED_WITH: tuple[str, ...] = ()
ALIKE: bool = True
UNSAID: tuple[int, ...] = ()
USE: str = """\
```sh
transduce translate FOLDER --text "EXAMPLE"
```

```python
from transduce import Translator

print(Translator.load("FOLDER").translate("EXAMPLE"))
```

In the folder that `transduce models` names, it is found by its language: `transduce translate --to TARGET "…"`."""

USE_OF_PARSERS = """\
```sh
transduce parse FOLDER < SENTENCES
```

```python
from transduce import Parser

print(Parser.load("FOLDER").parse("EXAMPLE"))
```"""


def find_problems(loaded: Loaded) -> list[str]:
    """Return nothing: every model can be exported."""
    return []


def write(loaded: Loaded, folder: Path, precision: Precision) -> None:
    """Write the export into a folder."""
    write_model(folder, loaded.config, loaded.model.state_dict(), loaded.subwords, loaded.about, precision=precision)


def translate(folder: Path, lines: Sequence[str], beam: int, most: int | None) -> list[Said]:
    """Translate with the exported model."""
    limits = {} if most is None else {"alpha": 0.0, "max_tokens": most}
    translator = Translator.load(folder, device="cpu")
    return [
        Said(one.text)
        for one in translator.translate(
            list(lines), split="never", capitals=False, copy_unknown=False, beam=beam, n_best=1, **limits
        )
    ]


def score(loaded: Loaded, folder: Path, pairs: Sequence[Pair]) -> list[float]:
    """Return the log-probabilities that the exported model gives to translations."""
    rows = [(np.array(source), np.array(target)) for source, target in pairs]
    return [float(scores.sum()) for scores in score_pairs(load_model(folder).model, rows)]
