"""The pages are true: commands run and print what is shown, Python runs, flags exist, links lead somewhere."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, ROOT, Reader, alike, blocks, commands, parses
from torch.distributed.run import get_args_parser

from transduce.cli import VERBS, main

RUN = {"sh", "bash", "console", "python"}
SHOWN = {"text", "source", "nginx", "yaml"}
COMMAND = re.compile(r"^(\$ |(transduce|python|pip|make|torchrun|srun|curl|echo|git) )", re.MULTILINE)
BESIDE = ["CONTRIBUTING.md", "CHANGELOG.md"]
# Flags of other people's tools, and of our recipes, whose commands are tried whole.
OTHERS = {"--local-dir", "--signal", "--set", "--quick", "--training"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"))
    reader.settle()
    yield reader
    reader.leave()


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["page.py", "demo/run/model", "twenty-three euros"])  # of the Python in format.md


@pytest.mark.parametrize("page", PAGES)
def test_commands_run_and_print_what_is_shown(
    page: str, reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader.folder)
    # A page builds on the results of earlier ones.
    for earlier in PAGES[: PAGES.index(page) + 1]:
        for line, shown in commands(earlier):
            if line not in reader.typed:
                code = reader.type(line)
                printed = "".join(capsys.readouterr())
                reader.typed[line] = printed.splitlines()
                assert code == (2 if shown and shown[0].startswith("error:") else 0), f"{line}\n{printed}"
            for text in shown:
                assert text.strip() == "…" or any(alike(text, other) for other in reader.typed[line]), (
                    f"{line} does not print {text}"
                )
    names: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), names)


def test_there_is_much_to_run() -> None:
    every = {command.line for page in PAGES for command in commands(page)}
    assert len(every) >= 80
    # Each verb is shown somewhere.
    assert {words[1] for line in every if (words := line.split())[0] == "transduce"} == set(VERBS)


@pytest.mark.parametrize("page", [*PAGES, *BESIDE])
def test_what_is_not_run_holds_no_command(page: str) -> None:
    for language, text in blocks(page):
        assert language in RUN | SHOWN, f"{page}: a block in the language “{language}”; say what it is: {text[:80]}"
        if language in SHOWN:
            assert not COMMAND.search(text), f"{page}: nobody runs {text[:80]}"


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """Return the flags of each verb."""
    from contextlib import redirect_stdout
    from io import StringIO

    found: dict[str, set[str]] = {}
    for verb in VERBS:
        with redirect_stdout(StringIO()) as printed:
            main([verb, "--help"])
        found[verb] = set(re.findall(r"--[\w.-]+", printed.getvalue()))
    return found


@pytest.mark.parametrize("page", [*PAGES, *BESIDE])
def test_flags_in_the_text_are_flags(page: str, flags: dict[str, set[str]]) -> None:
    launcher = {option for action in get_args_parser()._actions for option in action.option_strings}
    text = re.sub(r"^( *)```.*?^\1```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", text):
        if re.match(r"python (benchmarks|recipes)/", code):
            assert parses(*shlex.split(code)[1:]) == 0, f"{page}: {code}"
            continue
        verb = re.match(r"transduce (\w+)", code)
        known = flags[verb[1]] if verb else set().union(*flags.values(), launcher, OTHERS)
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*\b", code):
            assert flag in known, f"{page}: `{code}` has {flag}, which is no flag"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, *BESIDE])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^) ]+)", text):
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}"
    for name in re.findall(
        r"`((?:text|kernels|model|decoding|scoring|seeing|serving|training|interop|docs|benchmarks|recipes|tests)/[\w./-]+\.\w+)",
        text,
    ):
        assert (ROOT / name).exists() or (ROOT / "src/transduce" / name).exists(), f"{page}: {name}"


def test_every_page_is_in_the_contents() -> None:
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} == set(PAGES) - {"README.md"}
