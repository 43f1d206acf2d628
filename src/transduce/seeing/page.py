"""Single-file pages: styles, scripts and data are inside, and nothing else may run or be loaded.

The data are in the page as JSON, apart from the scripts; the functions in `pages/*.js` get nothing else.
"""

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from transduce.disk import replace_file

SENTENCE_SCRIPTS = ("draw.js", "attention.js", "beam.js", "sentence.js")
HEADS_SCRIPTS = ("draw.js", "heads.js")


def make_page(title: str, data: Any, scripts: tuple[str, ...], show: str) -> str:
    """Return a page that shows the data; `show` names the script function that draws them."""
    style = _read("look.css")
    script = "\n".join(
        [
            '"use strict";',
            *map(_read, scripts),
            f'{show}(document.querySelector("main"), JSON.parse(document.getElementById("data").textContent));\n',
        ]
    )
    # Only the style and script below may run, by their checksums; the only images are those the page makes for saving.
    policy = (
        f"default-src 'none'; script-src '{_checksum(script)}'; style-src '{_checksum(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main><noscript>This page needs JavaScript, which is switched off here.</noscript></main>
<script type="application/json" id="data">{as_data(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def make_frame(title: str, page: str, height: int) -> str:
    """Return a frame that holds a page, for a notebook say; its scripts run but reach nothing outside it."""
    look = f"width: 100%; height: {height}px; border: 0"
    return (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts allow-downloads" style="{look}" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def as_data(value: Any) -> str:
    """Return JSON that no HTML parser takes for markup."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step; the text may contain a path that is not Unicode."""
    replace_file(path, text.encode("utf-8", "replace"))


def _read(name: str) -> str:
    return (files("transduce.seeing") / "pages" / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
