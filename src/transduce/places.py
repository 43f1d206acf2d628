"""Where models given by name are found: the user's folder, and the box that comes with transduce."""

import os
import sys
from pathlib import Path

BOX = Path(__file__).parent / "box"
VARIABLE = "TRANSDUCE_MODELS"


def user_folder() -> Path:
    """Return the user's folder of models: TRANSDUCE_MODELS, or the system's folder for application data."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "transduce" / "models"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "transduce" / "models"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "transduce" / "models"


def places_of(path: Path) -> tuple[Path, ...]:
    """Return the places a path may mean: itself; for a bare name not found here, also the user's folder and the box."""
    is_name = not os.path.exists(path) and path.name == str(path)
    return (path, user_folder() / path, BOX / path) if is_name else (path,)


def names() -> list[str]:
    """Return the names in the user's folder and in the box."""
    return [path.name for folder in (user_folder(), BOX) if folder.is_dir() for path in sorted(folder.iterdir())]
