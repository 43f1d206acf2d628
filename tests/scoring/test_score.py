"""`transduce score`: from files to scores, printed for people, for pipes and for programs."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from systems import damage, make_sentences, write

from transduce.errors import DataError, UsageError
from transduce.scoring import bleu
from transduce.scoring.findings import ScoreJob, ScoreReport
from transduce.scoring.perplexity import Likelihood
from transduce.scoring.score import publish, resolve, score
from transduce.scoring.show import format_p, show_scores
from transduce.scoring.texts import STANDARD_INPUT

REFERENCES = make_sentences(50, seed=1)
SOURCE = make_sentences(50, seed=9)
GOOD, BAD = damage(REFERENCES, 0.2, seed=2), damage(REFERENCES, 0.4, seed=3)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two systems, their reference and their source."""
    texts = {"good": GOOD, "bad": BAD, "ref.de": REFERENCES, "src": SOURCE}
    return {name: write(tmp_path / name, lines) for name, lines in texts.items()}


def make_job(files: dict[str, Path], *systems: str, **options: Any) -> ScoreJob:
    """Return a job for some systems, with few resamples."""
    options = {"samples": 40} | options
    return ScoreJob(systems=tuple(files[name] for name in systems), references=(files["ref.de"],), **options)


def measure_words(source: Any, references: Any) -> Likelihood:
    """Stand in for a model that gives every word a probability of one half."""
    assert list(source) == SOURCE
    assert list(references) == REFERENCES
    lengths = [len(line.split()) for line in references]
    return Likelihood([-0.6931471805599453 * length for length in lengths], lengths)


def printed(report: ScoreReport) -> str:
    """Return what a pipe gets."""
    stream = io.StringIO()
    show_scores(report, stream)
    return stream.getvalue()


def test_all_metrics_are_measured_unless_some_are_chosen(files: dict[str, Path]):
    found = score(make_job(files, "good")).scores[0]
    assert [some.name for some in found] == ["bleu", "chrf", "ter", "exact", "paper"]
    assert found[0].value == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)
    chosen = score(make_job(files, "good", metrics=("ter", "bleu", "ter"))).scores[0]
    assert [some.name for some in chosen] == ["ter", "bleu"]


def test_the_language_is_that_of_the_references_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bleu, "_is_installed", lambda tokenize: True)

    def settings_of(reference: str, **options: Any) -> tuple[str | None, str, bool]:
        settings, metrics = resolve(ScoreJob(systems=(Path("a"),), references=(Path(reference),), **options))
        return settings.language, settings.tokenize, "paper" in metrics

    assert settings_of("newstest2014.de.xz") == ("de", "13a", True)
    assert settings_of("newstest2014.de", language="fr") == ("fr", "13a", True)
    assert settings_of("reference.txt") == (None, "13a", False)
    assert settings_of("reference.ja") == ("ja", "ja-mecab", False)
    assert settings_of("reference.zh") == ("zh", "zh", False)
    assert settings_of("reference.zh-TW.gz") == ("zh-tw", "zh", False)
    assert settings_of("reference.th") == ("th", "char", False)
    assert settings_of("reference", language="ko") == ("ko", "ko-mecab", False)
    assert settings_of("reference.ja", tokenize="char") == ("ja", "char", False)


THAI = ["วันนี้อากาศดีมาก", "ฉันไปโรงเรียน", "เขากินข้าว"]


def test_a_text_without_spaces_is_scored_as_one_in_training_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """With sacreBLEU's characters, and without what counts words, whether or not the language is named."""
    monkeypatch.setattr(bleu, "_is_installed", lambda tokenize: False)
    said = [f"{THAI[0]}แดด", THAI[1], "เธอกินข้าว"]
    for name, told, language in (("ref.th", None, "Thai"), ("ref", None, "Thai"), ("ref", "ja", "Japanese")):
        for path, lines in ((tmp_path / "said", said), (tmp_path / name, THAI)):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        paths: dict[str, Any] = {"systems": (tmp_path / "said",), "references": (tmp_path / name,)}
        job = ScoreJob(**paths, language=told, samples=0)
        found = score(job)
        assert [one.name for one in found.scores[0]] == ["bleu", "chrf", "exact"]
        theirs = sacrebleu.BLEU(tokenize="char")
        assert found.scores[0][0].value == theirs.corpus_score(said, [THAI]).score
        assert found.scores[0][0].signature == str(theirs.get_signature())
        err = capsys.readouterr().err
        assert f"between them, and {language} is written without; --metrics names them all the same\n" in err
        mecab = "ja-mecab, is not installed, so BLEU takes char; for the usual scores: pip install 'sacrebleu[ja]'\n"
        assert (mecab in err) == (language == "Japanese")
        asked = replace(job, metrics=("ter", "bleu"), tokenize="13a")
        assert [one.name for one in score(asked).scores[0]] == ["ter", "bleu"]
        assert "note" not in capsys.readouterr().err


def test_it_is_said_why_the_papers_bleu_is_left_out(files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    plain = files["ref.de"].rename(files["ref.de"].with_suffix(".txt"))
    job = ScoreJob(systems=(files["good"],), references=(plain,), samples=0)
    score(job)
    assert "does not name a language that Moses knows; --language de would\n" in capsys.readouterr().err
    score(ScoreJob(systems=(files["good"],), references=(plain,), samples=0, language="tr"))
    assert "note: the paper's BLEU is left out: Moses does not know the language tr\n" in capsys.readouterr().err
    score(ScoreJob(systems=(files["good"],), references=(plain,), samples=0, metrics=("bleu",)))
    assert "note" not in capsys.readouterr().err


def test_a_pipe_gets_aligned_text_with_every_score_and_signature(files: dict[str, Path]):
    report = score(make_job(files, "good"))
    shown = printed(report).splitlines()
    assert shown[0] == "good: 50 sentences, 1 reference (ref.de)"
    assert shown[1].split() == ["score", "value", "mean", "±", "95", "%"]
    for line, some in zip(shown[2:], report.scores[0]):
        assert some.confidence is not None
        cells = f"{some.value:.2f} {some.confidence.mean:.2f} ± {some.confidence.half:.2f}"
        assert " ".join(line.split()) == f"{some.measured.title} {cells}"
    assert len({len(line) for line in shown[1:7]}) == 1  # numbers end below each other
    for some in report.scores[0]:
        assert any(line.endswith(f" {some.signature}") for line in shown)
    assert shown[-1].endswith("40 resamples of the sentences, seed 12345")
    assert not any(line != line.rstrip() for line in shown)


def test_systems_are_compared_with_the_first(files: dict[str, Path]):
    report = score(make_job(files, "good", "bad", metrics=("bleu", "ter")))
    shown = printed(report).splitlines()
    assert shown[0].startswith("good, bad: 50 sentences")
    assert shown[1].split() == "score system value mean ± 95 % difference 95 % of it p".split()
    rows = [line.split() for line in shown[2:6]]
    assert [row[:2] for row in rows] == [[name, system] for name in ("sacreBLEU", "TER") for system in ("good", "bad")]
    for row, place in ((rows[1], 0), (rows[3], 1)):
        found = report.scores[1][place].comparison
        assert found is not None
        difference = report.scores[1][place].value - report.scores[0][place].value
        expected = f"{difference:+.2f} {found.low:+.2f} to {found.high:+.2f} {found.p_value:.3f}"
        assert " ".join(row[6:]) == expected
    assert all(of_first.comparison is None for of_first in report.scores[0])
    assert "two-sided paired bootstrap" in shown[-1]


def test_a_p_value_is_never_shown_as_0():
    assert [format_p(value) for value in (1 / 10_001, 0.00099, 0.001, 0.0126, 1.0)] == [
        "< 0.001",
        "< 0.001",
        "0.001",
        "0.013",
        "1.000",
    ]


def test_without_resamples_the_scores_alone_are_shown(files: dict[str, Path]):
    shown = printed(score(make_job(files, "good", "bad", samples=0, metrics=("bleu",)))).splitlines()
    assert shown[1].split() == ["score", "system", "value"]
    assert "±" not in "".join(shown)


@pytest.mark.parametrize("width", ["40", "200"])
def test_a_terminal_gets_a_table_with_whole_numbers(
    files: dict[str, Path], width: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", width)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    report, stream = score(make_job(files, "good", "bad", metrics=("bleu",))), Terminal()
    show_scores(report, stream)
    for scores in report.scores:
        assert f"{scores[0].value:.2f}" in stream.getvalue()
    found = report.scores[1][0].comparison
    assert found is not None
    assert f"{found.low:+.2f} to {found.high:+.2f}  {found.p_value:.3f}" in stream.getvalue()
    assert report.scores[0][0].signature in stream.getvalue()


def test_the_perplexity_of_the_references_is_measured_and_shown(files: dict[str, Path]):
    report = score(make_job(files, "good", source=files["src"], metrics=("bleu",)), measure_words)
    words = sum(len(line.split()) for line in REFERENCES)
    assert f"perplexity of the references: 2.00 per subword (0.693 nats, {words} subwords)\n" in printed(report)
    with pytest.raises(UsageError, match="--model reads the source sentences as well; give --source FILE"):
        score(make_job(files, "good"), measure_words)


def test_json_holds_everything(files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    job = make_job(files, "good", "bad", json=True, source=files["src"], seed=7)
    report = score(job, measure_words)
    publish(report)
    found = json.loads(capsys.readouterr().out)
    assert (found["sentences"], found["seed"], found["samples"], found["language"]) == (50, 7, 40, "de")
    assert found["references"] == [str(files["ref.de"])]
    assert [system["name"] for system in found["systems"]] == ["good", "bad"]
    for system, scores in zip(found["systems"], report.scores):
        assert list(system["scores"]) == [some.name for some in scores]
        for some in scores:
            one = system["scores"][some.name]
            assert (one["value"], one["signature"]) == (some.value, some.signature)
            assert some.confidence is not None
            assert (one["mean"], one["half_of_95_percent"]) == (some.confidence.mean, some.confidence.half)
            if some.comparison:
                assert one["p_value"] == some.comparison.p_value
                assert one["difference"] == some.comparison.difference
                assert one["difference_95_percent"] == [some.comparison.low, some.comparison.high]
    assert found["references_under_the_model"]["perplexity"] == pytest.approx(2)
    assert found["references_under_the_model"]["tokens"] == sum(len(line.split()) for line in REFERENCES)


def test_json_has_no_infinity(files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    job = make_job(files, "good", json=True, source=files["src"], metrics=("exact",))
    publish(score(job, lambda _, references: Likelihood([-1e9] * len(references), [1] * len(references))))
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["references_under_the_model"]["perplexity"] is None


def test_every_sentence_of_every_system_becomes_a_line_of_json(files: dict[str, Path], tmp_path: Path):
    path = tmp_path / "sentences.jsonl"
    job = make_job(files, "good", "bad", sentences=path, source=files["src"], metrics=("bleu", "exact", "paper"))
    publish(score(job, measure_words))
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(one["line"], one["system"]) for one in found] == [(n, s) for n in range(1, 51) for s in ("good", "bad")]
    for one in found:
        place = one["line"] - 1
        translation = {"good": GOOD, "bad": BAD}[one["system"]][place]
        assert one["translation"] == translation
        assert (one["source"], one["references"]) == (SOURCE[place], [REFERENCES[place]])
        assert one["bleu"] == pytest.approx(
            sacrebleu.sentence_bleu(translation, [REFERENCES[place]], use_effective_order=True).score, abs=1e-4
        )
        assert one["exact"] is (translation.strip() == REFERENCES[place].strip())
        assert "paper" not in one
        assert one["reference_tokens"] == len(REFERENCES[place].split())
        assert one["reference_log_probability"] == pytest.approx(-0.6931 * one["reference_tokens"], abs=0.01)


def test_sentences_may_go_to_standard_output_and_the_table_does_not(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    publish(score(make_job(files, "good", sentences=STANDARD_INPUT, metrics=("chrf",))))
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 50
    assert "chrF2" in err
    with pytest.raises(UsageError, match="--json and --sentences - both write to standard output"):
        score(make_job(files, "good", sentences=STANDARD_INPUT, json=True))


def test_results_go_to_stdout_and_all_else_to_stderr(files: dict[str, Path], capsys: pytest.CaptureFixture[str]):
    write(files["good"], ["", *GOOD[1:]])
    publish(score(make_job(files, "good", report=files["good"].with_suffix(".html"), metrics=("chrf",))))
    out, err = capsys.readouterr()
    assert out.startswith("good: 50 sentences")
    assert "note: good: lines without a translation: " in err
    assert "note" not in out
    assert files["good"].with_suffix(".html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_standard_input_may_be_scored(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(GOOD).encode())))
    report = score(ScoreJob(systems=(STANDARD_INPUT,), references=(files["ref.de"],), samples=0, metrics=("bleu",)))
    assert report.scores[0][0].value == pytest.approx(sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score)


def test_what_cannot_be_written_is_refused_before_any_work(files: dict[str, Path], tmp_path: Path):
    for options, message in (
        ({"report": tmp_path / "no" / "page.html"}, "page.html: its folder does not exist"),
        ({"sentences": tmp_path / "no" / "s.jsonl"}, "s.jsonl: its folder does not exist"),
        ({"report": tmp_path}, "is a folder; name a file in it"),
        ({"report": STANDARD_INPUT}, "--report cannot write to standard output"),
        ({"report": files["good"]}, "would overwrite an input file"),
        ({"sentences": files["ref.de"]}, "--sentences .* would overwrite"),
        ({"report": files["bad"]}, "bad: already exists and is not a page"),
        ({"sentences": Path("/dev/null")}, "/dev/null: already exists and is not a regular file"),
        ({"samples": -1}, "must be whole numbers, 0 or more"),
        ({"seed": -1}, "must be whole numbers, 0 or more"),
        ({"workers": 0}, "--workers 0 is not positive"),
        ({"metrics": ("blue",)}, "did you mean bleu"),
        ({"tokenize": "13b"}, "did you mean 13a"),
    ):
        with pytest.raises((UsageError, DataError), match=message):
            score(make_job(files, "good", **options))
    assert files["good"].read_text(encoding="utf-8").splitlines() == GOOD


def test_scores_do_not_depend_on_chance_elsewhere(files: dict[str, Path]):
    first, second = (score(make_job(files, "good", "bad", metrics=("chrf",))) for _ in range(2))
    assert printed(first) == printed(second)
    other = score(make_job(files, "good", "bad", metrics=("chrf",), seed=1))
    assert other.scores[0][0].value == first.scores[0][0].value
    for number in (0, 1):
        assert other.scores[number][0].confidence != first.scores[number][0].confidence


def test_lower_case_and_tokenizer_reach_the_scores(files: dict[str, Path]):
    job = make_job(files, "good", lowercase=True, tokenize="char", metrics=("bleu", "chrf", "exact"), samples=0)
    bleu, chrf, exact = score(job).scores[0]
    expected = sacrebleu.corpus_bleu(GOOD, [REFERENCES], lowercase=True, tokenize="char").score
    assert bleu.value == pytest.approx(expected)
    assert all("case:lc" in some.signature for some in (bleu, chrf, exact))
