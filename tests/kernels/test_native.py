"""Compiling once: cached by what it was made from, compiled again when damaged, with a remedy where it fails."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transduce.errors import TransduceError
from transduce.kernels import native
from transduce.kernels.native import CHECKSUM, LIBRARY, NativeError


@pytest.fixture(scope="session")
def whole() -> bytes:
    """The bytes of the library as compiled here."""
    return Path(native.load()._name).read_bytes()


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes) -> Iterator[Path]:
    """A compiler that copies the compiled library and records its calls, with an empty cache."""
    (tmp_path / "whole.so").write_bytes(whole)
    program = tmp_path / "compiler"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo version one; exit; fi\n'
        f'echo "$@" >> "{tmp_path}/calls"\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'cp "{tmp_path}/whole.so" "$2"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "cache"))
    native.load.cache_clear()
    yield program
    native.load.cache_clear()


def calls(compiler: Path) -> int:
    """Return how often it has compiled."""
    path = compiler.parent / "calls"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def only_folder(compiler: Path) -> Path:
    """Return the only folder in the cache."""
    (folder,) = (compiler.parent / "cache").iterdir()
    return folder


def load_again() -> None:
    native.load.cache_clear()
    native.load()


def test_it_is_compiled_once(compiler: Path, capsys: pytest.CaptureFixture[str]):
    native.load()
    assert capsys.readouterr().err == "transduce: compiling the fast CPU code for this machine, once\n"
    assert sorted(path.name for path in only_folder(compiler).iterdir()) == [CHECKSUM, LIBRARY]
    load_again()
    native.load()
    assert calls(compiler) == 1
    assert capsys.readouterr().err == ""


def test_other_flags_another_compiler_or_other_sources_are_compiled_anew(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    native.load()
    native.load(("-march=x86-64",))
    assert calls(compiler) == 2
    compiler.write_text(compiler.read_text(encoding="utf-8").replace("version one", "version two"), encoding="utf-8")
    load_again()
    assert calls(compiler) == 3
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in native.SOURCES.iterdir():
        (sources / path.name).write_text(path.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
    monkeypatch.setattr(native, "SOURCES", sources)
    load_again()
    assert calls(compiler) == 4
    monkeypatch.setattr(native, "_processor", lambda: "another")
    load_again()
    assert calls(compiler) == 5


@pytest.mark.parametrize("name", [LIBRARY, CHECKSUM])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_what_is_damaged_is_made_anew(compiler: Path, name: str, damage: str):
    native.load()
    path = only_folder(compiler) / name
    content = path.read_bytes()
    path.unlink()  # the loaded one stays as it is
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "changed":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    load_again()
    assert calls(compiler) == 2
    assert path.read_bytes() == content
    assert only_folder(compiler) == path.parent
    load_again()
    assert calls(compiler) == 2


def test_two_processes_at_once(compiler: Path):
    compiler.write_text(compiler.read_text(encoding="utf-8").replace("cp ", "sleep 0.5; cp "), encoding="utf-8")
    code = "from transduce.kernels import native; print(native.load().transduce_columns(1) > 0)"
    several = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in several] == ["True\n"] * 3
    only_folder(compiler)
    load_again()
    assert calls(compiler) <= 3


def test_another_process_compiles_for_the_next_time(compiler: Path, capsys: pytest.CaptureFixture[str]):
    assert not native.is_ready()
    assert native.compile_behind().wait() == 0
    assert native.is_ready()
    native.load()
    assert calls(compiler) == 1
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_compiled_nothing_is_waited_for(compiler: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.is_ready()


def test_without_what_links_statically_it_is_tried_otherwise(compiler: Path):
    text = compiler.read_text(encoding="utf-8")
    refuse = 'case "$*" in *-static*|*-march*) echo no such flag >&2; exit 1;; esac\nwhile'
    compiler.write_text(text.replace("while", refuse), encoding="utf-8")
    native.load()
    lines = (compiler.parent / "calls").read_text(encoding="utf-8").splitlines()
    assert ["-march" in line for line in lines] == [True, True, False]


def test_a_compiler_that_fails_is_quoted_with_a_remedy(compiler: Path, tmp_path: Path):
    compiler.write_text(
        "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do echo line $i >&2; done; exit 1\n", encoding="utf-8"
    )
    with pytest.raises(NativeError, match=r"cannot compile the fast CPU code; install a C\+\+ compiler") as caught:
        native.load()
    assert "line 3\n" in str(caught.value)
    assert str(caught.value).endswith("line 10")
    assert "line 2\n" not in str(caught.value)
    assert isinstance(caught.value, TransduceError)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_result_that_cannot_be_loaded_is_said(compiler: Path):
    (compiler.parent / "whole.so").write_bytes(b"not a library")
    with pytest.raises(NativeError, match="compiled, but cannot be loaded"):
        native.load()


def test_a_cache_that_cannot_be_written_is_said(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("TRANSDUCE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NativeError, match=r"cannot hold the compiled code .* set TRANSDUCE_CACHE"):
        native.load()


def test_which_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NativeError, match=r"no C\+\+ compiler was found.*pip install ziglang"):
        native.find_compiler()
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert native.find_compiler() == [sys.executable, "-m", "ziglang", "c++"]
    for name in ("clang++", "g++", "c++"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
        assert native.find_compiler() == [name]
    monkeypatch.setenv("CXX", "g++ -m64")
    assert native.find_compiler() == ["g++", "-m64"]
    monkeypatch.setenv("CXX", "nowhere")
    with pytest.raises(NativeError, match="CXX = nowhere is not a program"):
        native.find_compiler()


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TRANSDUCE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert native.cache_folder() == Path.home() / ".cache" / "transduce"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert native.cache_folder() == Path("/elsewhere/transduce")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert native.cache_folder() == Path.home() / "Library" / "Caches" / "transduce"
    monkeypatch.setenv("TRANSDUCE_CACHE", "/given")
    assert native.cache_folder() == Path("/given")
