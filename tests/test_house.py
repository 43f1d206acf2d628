"""Architecture: rooms use only earlier rooms, the public names are there, nothing heavy is imported unasked."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import transduce

SOURCE = Path(transduce.__file__).parent
RECIPES = Path(__file__).parents[1] / "recipes"
# In the order in which data flows; a module may import only what stands before it, or beside it in the same room.
ROOMS = [
    *("ground", "text", "kernels", "model", "decoding", "scoring", "seeing", "serving", "training", "interop", "door")
]
GROUND = {"errors", "version", "disk", "places", "strict", "config", "presets", "progress", "protobuf"}
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))


def room(module: str) -> str:
    """Return the room of a module given as `transduce.text.clean` or `transduce.cli`."""
    parts = module.split(".")[1:]
    if not parts:
        return "ground"
    if parts[0] in GROUND:
        return "ground"
    return parts[0] if parts[0] in ROOMS else "door"


def imports(path: Path) -> set[str]:
    """Return the modules of transduce that a file imports, at the top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {
                f"{node.module}.{name.name}"
                for name in node.names
                if (SOURCE.parent / node.module.replace(".", "/")).is_dir()
            }
    return {name for name in found if name.startswith("transduce.")}


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=str)
def test_a_room_uses_only_rooms_before_it(path: Path) -> None:
    here = room("transduce." + ".".join(path.with_suffix("").parts))
    for name in imports(path):
        assert ROOMS.index(room(name)) <= ROOMS.index(here), f"{path} ({here}) imports {name} ({room(name)})"


def test_modules_of_a_room_do_not_go_in_circles() -> None:
    graph = {"transduce." + ".".join(path.with_suffix("").parts): imports(path) for path in MODULES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join([*trail, name])
        if name in done:
            return
        for other in graph.get(name, ()):
            visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        if not name.endswith("__init__"):
            visit(name, ())
    assert len(done) >= sum(path.name != "__init__.py" for path in MODULES)


@pytest.mark.parametrize("path", [*SOURCE.rglob("*.py"), *RECIPES.glob("*.py")], ids=lambda path: path.name)
def test_a_flag_that_takes_several_values_may_be_given_again(path: Path) -> None:
    """Else the last one alone would count, and nothing would say so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            named = {word.arg: ast.unparse(word.value) for word in node.keywords}
            is_flag = any(isinstance(name, ast.Constant) and str(name.value).startswith("-") for name in node.args)
            if is_flag and named.get("nargs") in ("'+'", "'*'"):
                assert named.get("action") == "'extend'", f"{path}:{node.lineno}"
                assert named.get("default", "[]") == "[]", f"{path}:{node.lineno}: its default would count too"


def test_the_public_names_are_there_and_no_others() -> None:
    for name in transduce.__all__:
        assert getattr(transduce, name) is not None
    listed = {name for names in transduce._HOMES.values() for name in names}
    assert listed | {"__version__"} == set(transduce.__all__)
    assert set(transduce.__all__) <= set(dir(transduce))  # though none may be imported yet
    with pytest.raises(AttributeError, match="Transducer"):
        _ = transduce.Transducer  # pyright: ignore[reportAttributeAccessIssue]


def test_a_name_leads_to_its_home() -> None:
    for home, names in transduce._HOMES.items():
        for name in names:
            assert getattr(transduce, name) is getattr(importlib.import_module(home), name)


def test_preparing_text_does_not_import_torch() -> None:
    # Workers are spawned: each would pay for it in time and memory.
    code = "import transduce.text.prepare, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_every_module_says_what_it_is(path: Path) -> None:
    if (SOURCE / path).read_text(encoding="utf-8").strip():
        assert ast.get_docstring(ast.parse((SOURCE / path).read_text(encoding="utf-8"))), path


def test_the_design_names_every_module() -> None:
    design = (SOURCE.parent.parent / "docs" / "design.md").read_text(encoding="utf-8")
    missing = [
        str(path)
        for path in MODULES
        if path.name not in ("__init__.py", "__main__.py", "version.py") and path.name not in design
    ]
    assert missing == []
