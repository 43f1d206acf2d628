"""The wheel holds the whole package, including what is not Python: the C++ code, the pages and py.typed."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    code = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    built = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("transduce-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    package = tmp_path / "src" / "transduce"
    files = {str(path.relative_to(package.parent).as_posix()): path for path in package.rglob("*") if path.is_file()}
    assert {"transduce/py.typed", "transduce/kernels/cpu/engine.cpp"} <= files.keys()
    assert files.keys() <= held.keys()
    assert all(held[name] == path.read_bytes() for name, path in files.items())
    (entries,) = (data.decode() for name, data in held.items() if name.endswith("entry_points.txt"))
    assert "transduce = transduce.cli:main" in entries
