"""The site of docs/, built as by `make docs` but in another folder."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def build_site(folder: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Build the site strictly, into `site` of a folder; a keyword names a page, and its text is appended to it."""
    pages = folder / "docs"
    shutil.copytree(ROOT / "docs", pages)
    (folder / "src").symlink_to(ROOT / "src")
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8").replace("build/site", "site")
    (folder / "zensical.toml").write_text(settings, encoding="utf-8")
    for name, more in changes.items():
        with (pages / f"{name}.md").open("a", encoding="utf-8") as page:
            page.write(f"\n\n{more}\n")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
