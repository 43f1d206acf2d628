"""The pages tell the truth: their commands run and print what they show, their Python runs, their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import PAGES, ROOT, Reader, alike, blocks, commands

LANGUAGES = {"sh", "console", "python", "source", "text", "toml", "nginx", "yaml"}
COMMAND = re.compile(r"^(\$ |(transduce|python|pip|make|torchrun|curl|echo|git|srun) )", re.MULTILINE)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"))
    reader.settle()
    yield reader
    reader.leave()


@pytest.mark.parametrize("page", PAGES)
def test_commands_run_and_print_what_is_shown(
    page: str, reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader.folder)
    # What a page goes on from was made by those before it.
    for earlier in PAGES[: PAGES.index(page) + 1]:
        for line, shown in commands(earlier):
            if line in reader.typed:
                continue
            code = reader.type(line)
            printed = capsys.readouterr()
            assert code == (2 if shown and shown[0].startswith("error:") else 0), f"{line}\n{printed.out}{printed.err}"
            lines = (printed.out + printed.err).splitlines()
            for text in shown:
                assert text.strip() == "…" or any(alike(text, other) for other in lines), f"{line} does not print: {text}"
            reader.typed.add(line)
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), {})
