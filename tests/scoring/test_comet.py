"""COMET is used as documented if it is installed; if not, the error asks for it."""

import io
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from systems import make_texts, write

from transduce.errors import TransduceError, UsageError
from transduce.scoring.comet import measure_comet
from transduce.scoring.score import ScoreJob, score
from transduce.scoring.show import show_scores

SOURCE, REFERENCES, OTHERS = ["one", "two"], ["eins", None], ["ein", "zwei"]
SYSTEMS = [["eins", "zwo"], ["ein", "zwei"]]


@dataclass
class Comet:
    """Stands in for the package: records its input and returns the lengths of translations."""

    loaded: list[str] = field(default_factory=list)
    downloaded: list[str] = field(default_factory=list)
    asked: list[list[dict[str, str]]] = field(default_factory=list)

    def download_model(self, model: str) -> str:
        self.downloaded.append(model)
        if model == "nobody/nothing":
            raise KeyError(f"Model '{model}' not supported by COMET.")
        return f"/cache/{model}/checkpoints/model.ckpt"

    def load_from_checkpoint(self, checkpoint_path: str) -> Any:
        self.loaded.append(checkpoint_path)
        print("loading")
        return self

    def predict(self, samples: list[dict[str, str]], batch_size: int, gpus: int, progress_bar: bool) -> Any:
        assert batch_size > 0
        assert gpus in (0, 1)
        self.asked.append(samples)
        print("predicting")
        scores = [len(sample["mt"]) / 10 for sample in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def comet(monkeypatch: pytest.MonkeyPatch) -> Comet:
    """Put it in the place of the package."""
    fake, module = Comet(), ModuleType("comet")
    vars(module).update(download_model=fake.download_model, load_from_checkpoint=fake.load_from_checkpoint)
    monkeypatch.setitem(sys.modules, "comet", module)
    return fake


def test_each_system_is_scored_with_source_and_reference(comet: Comet, capsys: pytest.CaptureFixture[str]):
    first, second = measure_comet(make_texts(SYSTEMS, [REFERENCES, OTHERS], SOURCE), "Unbabel/wmt22-comet-da")
    assert comet.downloaded == ["Unbabel/wmt22-comet-da"]
    assert comet.loaded == ["/cache/Unbabel/wmt22-comet-da/checkpoints/model.ckpt"]
    assert comet.asked[0] == [{"src": "one", "mt": "eins", "ref": "eins"}, {"src": "two", "mt": "zwo", "ref": "zwei"}]
    assert [sample["mt"] for sample in comet.asked[1]] == SYSTEMS[1]
    assert first.sentences is not None
    assert first.sentences.tolist() == [0.4, 0.3]
    assert (first.value, second.value) == (pytest.approx(0.35), pytest.approx(0.35))
    assert first.signature.startswith("nrefs:1|model:Unbabel/wmt22-comet-da|version:")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "loading" in printed.err


def test_a_model_may_be_a_checkpoint_or_its_folder(comet: Comet, tmp_path: Path):
    texts = make_texts(SYSTEMS, [OTHERS], SOURCE)
    checkpoint = tmp_path / "mine" / "checkpoints" / "model.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    measure_comet(texts, str(tmp_path / "mine"))
    measure_comet(texts, str(checkpoint))
    assert comet.loaded == [str(checkpoint)] * 2
    assert comet.downloaded == []
    for wrong in (tmp_path, tmp_path / "other.ckpt"):
        with pytest.raises(
            TransduceError, match=r"no such file; a COMET model is a folder with checkpoints/model.ckpt"
        ):
            measure_comet(texts, str(wrong))


def test_a_model_that_cannot_be_downloaded_is_named(comet: Comet):
    with pytest.raises(TransduceError, match=r"the COMET model nobody/nothing cannot be downloaded .*huggingface.co"):
        measure_comet(make_texts(SYSTEMS, [OTHERS], SOURCE), "nobody/nothing")


def test_it_is_one_more_score_of_the_verb(comet: Comet, tmp_path: Path):
    paths = [write(tmp_path / name, lines) for name, lines in (("a", SYSTEMS[0]), ("b", SYSTEMS[1]), ("r", ["x", "y"]))]
    source = write(tmp_path / "s", SOURCE)
    job = ScoreJob(
        systems=tuple(paths[:2]), references=(paths[2],), source=source, metrics=("chrf",), comet="m/m", samples=20
    )
    report = score(job)
    assert [[some.name for some in of_system] for of_system in report.scores] == [["chrf", "comet"]] * 2
    assert report.scores[1][1].comparison is not None
    assert report.scores[1][1].comparison.difference == pytest.approx(0)
    stream = io.StringIO()
    show_scores(report, stream)
    assert re.search(r"^COMET +a +0\.3500 ", stream.getvalue(), re.MULTILINE)


def test_without_the_package_it_is_said_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "comet", None)  # as if it were not installed
    job = ScoreJob(
        systems=(tmp_path / "nowhere",), references=(tmp_path / "nowhere.de",), source=tmp_path / "s", comet="m/m"
    )
    with pytest.raises(TransduceError, match=r"pip install 'transduce\[comet\]'.* is downloaded once"):
        score(job)  # and at once: before any file is read


def test_the_source_is_asked_for(comet: Comet, tmp_path: Path):
    job = ScoreJob(systems=(tmp_path / "a",), references=(tmp_path / "b",), comet="m/m")
    with pytest.raises(UsageError, match=r"--comet reads the source sentences as well; give --source FILE"):
        score(job)
