"""Our own endpoints answer what the translator says."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server import Running, running, save_tiny

from transduce.decoding.options import Request
from transduce.decoding.shelf import find_direction
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.seeing.branches import find_branches
from transduce.seeing.sentence import see
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models, Served
from transduce.serving.options import ServeConfig
from transduce.serving.run import ServeJob, describe_tag, find_directions, load, read_terms
from transduce.text import numbers
from transduce.text.subwords import Subwords, SubwordsConfig, learn

TEXT = "two euros and nine dollars"


def make_job(*models: str, glossaries: Sequence[str] = ()) -> ServeJob:
    """Return what `transduce serve` is asked for with these models on a CPU."""
    return ServeJob(
        models=models,
        glossaries=glossaries,
        config=ServeConfig(),
        api_keys=None,
        open=False,
        device="cpu",
        precision="auto",
        threads=1,
        engine="auto",
    )


def events(body: bytes) -> list[tuple[str, dict[str, object]]]:
    blocks = [block.split("\n") for block in body.decode().removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_all_that_a_translation_knows(server: Running, loaded: list[Translator]):
    asked = {"texts": [f" {TEXT} \n\nnine"], "source": "en", "target": "de", "n_best": 3, "alignments": True}
    answer = server.post("/v1/translate", asked).json
    assert (answer["model"], answer["source"], answer["target"]) == ("en-de", "en", "de")
    (found,) = answer["translations"]
    expected = loaded[0].translate(f" {TEXT} \n\nnine", n_best=3, beam=3, alignments=True)
    assert (found["text"], found["score"]) == (expected.text, expected.score)
    assert [one["source"] for one in found["sentences"]] == [one.source for one in expected.sentences]
    for own, theirs in zip(found["sentences"], expected.sentences):
        for candidate, alternative in zip(own["candidates"], theirs.alternatives, strict=True):
            assert candidate["text"] == alternative.text
            assert candidate["log_probability"] == alternative.log_probability
            assert candidate["tokens"] == list(alternative.tokens)
            assert candidate["token_scores"] == pytest.approx(alternative.token_scores)
            assert [tuple(link) for link in candidate["alignment"]] == alternative.alignment
    # The text is what stands before it and its sentences with what is behind them.
    parts = [one["candidates"][0]["text"] + one["behind"] for one in found["sentences"]]
    assert found["before"] + "".join(parts) == found["text"]


def test_prefixes_and_phrases_are_kept(server: Running, loaded: list[Translator]):
    asked = {"texts": [TEXT, "nine"], "target": "de", "prefix": "zwei", "forbid": ["und"], "beam": 4, "alpha": 1}
    answer = server.post("/v1/translate", asked).json
    for text, found in zip(asked["texts"], answer["translations"]):
        expected = loaded[0].translate(Request(text, "zwei", (), ("und",)), beam=4, alpha=1.0)
        assert found["text"] == expected.text
        assert found["text"].startswith("zwei")


def learn_tagged(*languages: str) -> Subwords:
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    tags = tuple(f">>{language}<<" for language in languages)
    return Subwords(learn(lines, SubwordsConfig(size=500, coverage=1.0, symbols=tags)))


def load_all(job: ServeJob) -> list[Served]:
    """Load a job's models as a server does, with their desks closed."""
    directions = [direction for model in job.models for direction in find_directions(model)]
    terms = read_terms(job.glossaries, [(one.source, one.target) for one in directions])
    served = list(load(job, directions, terms, Metrics()))
    for one in served:
        one.desk.close()
    return served


def test_a_model_with_language_tags_serves_each_of_its_languages(tmp_path: Path):
    folder = save_tiny(tmp_path / "many", 1, subwords=learn_tagged("de", "fr", "pt_br"))
    served = load_all(make_job(*(f"en-{target}={folder}" for target in ("de", "fr", "ka", "pt_BR", "de_AT"))))
    translators = [one.desk.translator for one in served]
    # Texts into ka need tags of their own; a region has the tag of its language.
    assert [one.tag for one in translators] == [">>de<<", ">>fr<<", "", ">>pt_br<<", ">>de<<"]
    assert [one.name for one in served] == ["many-de", "many-fr", "many", "many-pt-BR", "many-de-AT"]
    assert len({id(one.engine) for one in translators}) == 1
    own = ", no tag for it: texts must begin with their own (>>de<<, >>fr<<, >>pt_br<<)"
    assert [describe_tag(one) for one in translators[:3]] == [", tag: >>de<<", ", tag: >>fr<<", own]


def test_a_model_that_knows_its_languages_serves_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path))
    save_tiny(tmp_path / "many", 1, ("en", "mul"), learn_tagged("sw", "pt_br"))
    served = load_all(make_job("many"))
    assert [(one.source, one.target, one.desk.translator.tag) for one in served] == [
        ("en", "sw", ">>sw<<"),
        ("en", "pt-br", ">>pt_br<<"),
    ]
    assert Models(served).choose(TEXT, "en", "pt_BR")[0] is served[1]
    # By its language, the one that is asked for.
    (found,) = load_all(replace(make_job(), models=[find_direction("pt-BR")]))
    assert (found.target, found.desk.translator.tag) == ("pt-br", ">>pt_br<<")
    silent = save_tiny(tmp_path / "silent", 1, subwords=learn_tagged("sw", "ka"))
    with pytest.raises(
        DataError, match=r"translates into sw, ka, but .* from which language; .*, as in en-sw=.*silent$"
    ):
        find_directions(str(silent))
    save_tiny(tmp_path / "none", 1)
    with pytest.raises(DataError, match=r"^none: does not say its languages; give them, as in en-de=none$"):
        find_directions("none")


def test_models_are_chosen_by_languages_or_names(server: Running):
    assert [model["name"] for model in server.get("/v1/models").json] == ["en-de", "de-en", "en-fr"]

    def chosen(**asked: object) -> str:
        return server.post("/v1/translate", {"texts": ["it is not what you think"], **asked}).json["model"]

    assert chosen() == "en-de"
    assert chosen(target="FR") == "en-fr"
    assert chosen(target="en") == "de-en"
    assert chosen(model="en-fr") == "en-fr"
    assert server.post("/v1/translate", {"texts": ["das ist nicht gut"]}).json["model"] == "de-en"
    wrong = server.post("/v1/translate", {"texts": ["x"], "model": "best", "target": "de"})
    assert wrong.status == 400
    assert wrong.json["error"].startswith("no model here matches: model best, into de; available: en-de (en-de)")


def test_a_stream_adds_up_to_the_translation(server: Running, loaded: list[Translator]):
    lines = [f"{TEXT} {number} " for number in range(150)]
    text = "\n" + "\n\n".join(lines) + "\n "
    answer = server.post("/v1/stream", {"text": text, "target": "de", "source": "en"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *passages, (last, about) = events(answer.body)
    assert (last, about["model"]) == ("done", "en-de")
    assert {name for name, _ in passages} == {"passage"}
    assert "".join(str(data["text"]) for _, data in passages) == loaded[0].translate(text).text
    done = [data["done"] for _, data in passages]
    assert done == sorted(done)  # pyright: ignore[reportArgumentType]
    assert done[-1] == passages[0][1]["of"] == len(text)
    assert len(passages) == 150


def test_nothing_streams_to_nothing(server: Running):
    assert [name for name, _ in events(server.post("/v1/stream", {"text": "", "target": "de"}).body)] == ["done"]
    found = events(server.post("/v1/stream", {"text": " \n ", "target": "de"}).body)
    assert found[0][1]["text"] == " \n "


def test_ways_to_go_on_differ_in_the_next_word(server: Running, loaded: list[Translator]):
    asked = {"text": TEXT, "target": "de", "source": "en", "prefix": "zwei", "n_best": 4}
    found = server.post("/v1/continue", asked).json["candidates"]
    texts = [one["text"] for one in found]
    assert 1 < len(texts) == len(set(texts)) <= 4
    assert all(text.startswith("zwei") for text in texts)
    prefix = len(loaded[0].subwords["target"].encode("zwei"))
    assert len({one["tokens"][prefix] for one in found}) == len(found)
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True)
    # Each is the best from there on: no worse than what greedy search says.
    for one in find_branches(loaded[0], Request(TEXT, "zwei"), loaded[0].search, 4):
        (likely,) = loaded[0].score([(TEXT, one.text)])
        if one.complete and len(likely) == len(one.token_scores):
            assert one.log_probability == pytest.approx(float(likely.sum()), abs=1e-3)


def test_attention_is_what_show_prints(server: Running, loaded: list[Translator]):
    found = server.post("/v1/attention", {"text": TEXT, "target": "de", "source": "en"}).json
    expected = see(loaded[0], Request(TEXT), loaded[0].search).to_dict(4)
    assert found == json.loads(json.dumps(expected))
    given = server.post("/v1/attention", {"text": TEXT, "target": "de", "source": "en", "translation": "zwei"}).json
    assert (given["target"]["text"], given["target"]["given"], given["tree"]) == ("zwei", True, [])


@pytest.mark.parametrize(
    ("path", "value", "status", "reason"),
    [
        ("translate", {}, 422, "texts: Field required"),
        ("translate", {"texts": []}, 422, "texts"),
        ("translate", {"texts": ["x"], "beams": 3}, 422, "beams: Extra inputs are not permitted"),
        ("translate", {"texts": ["x"], "n_best": 99}, 422, "n_best"),
        ("translate", {"texts": ["x"], "require": [" "]}, 400, "has no words to require"),
        ("translate", {"texts": ["x\ny"], "prefix": "z"}, 400, "a prefix or a required phrase is for one sentence"),
        ("translate", {"texts": ["x" * 30_000]}, 413, "30,000 characters, and the limit is 20,000"),
        ("attention", {"text": ""}, 400, "the sentence is empty"),
        ("attention", {"text": "nine " * 200}, 413, "subwords, and the limit is 100"),
        ("continue", {"text": " "}, 400, "the sentence is empty"),
        ("continue", {"text": "nine", "prefix": "neun " * 150}, 413, "subwords, and the limit is 100"),
        ("stream", {"text": "x", "target": "it"}, 400, "no model here matches"),
        ("stream", {"text": "a \ud800"}, 400, "surrogate"),
    ],
)
def test_errors_say_what_is_wrong(server: Running, path: str, value: object, status: int, reason: str):
    answer = server.post(f"/v1/{path}", value)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert reason in answer.json["error"]


def test_a_glossary_holds_for_all_that_a_server_translates(tmp_path: Path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("contract\tVereinbarung\n")
    job = make_job("en-de", glossaries=[f"en-de={terms}"])
    (served,) = load_all(job)
    with running([served.desk.translator]) as server:
        asked = {"source": "en", "target": "de"}
        # In the last one no word stands for the term alone.
        texts = ["The contract is old.", "The house is old.", "Contract work is badly paid."]
        own = server.post("/v1/translate", {"texts": texts, **asked}).json["translations"]
        assert ["Vereinbarung" in one["text"] for one in own] == [True, False, False]
        unsaid = [sentence["unsaid"] for one in own for sentence in one["sentences"]]
        assert unsaid == [[], [], ["Vereinbarung"]]
        libre = server.post("/translate", {"q": texts, **asked}).json
        assert libre == {"translatedText": [one["text"] for one in own]}
        *passages, _ = events(server.post("/v1/stream", {"text": "\n".join(texts), **asked}).body)
        assert [data["unsaid"] for _, data in passages] == unsaid
        assert ["Vereinbarung" in str(data["text"]) for _, data in passages] == [True, False, False]


def test_numbers_for_prometheus(server: Running):
    server.post("/v1/translate", {"texts": [TEXT, "nine"], "source": "en", "target": "fr"})
    server.get("/a/path/that/is/not/there")
    families = {one.name: one for one in text_string_to_metric_families(server.get("/metrics").body.decode())}
    sentences = {one.labels["model"]: one.value for one in families["transduce_sentences"].samples}
    assert sentences["en-fr"] >= 2
    paths = {one.labels["path"] for one in families["transduce_requests"].samples}
    assert "/v1/translate" in paths
    assert not any("not" in path for path in paths)  # what clients write never becomes a label
    active = families["transduce_requests_active"].samples[0].value
    assert active == 1  # this request itself
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6
    assert {one.labels["model"] for one in families["transduce_waiting_characters"].samples} == {
        "en-de",
        "de-en",
        "en-fr",
    }


def test_health_and_the_schema(server: Running):
    assert server.get("/health").json == {"status": "ok"}
    paths = server.get("/openapi.json").json["paths"]
    assert {"/translate", "/detect", "/languages", "/translate_file", "/v1/translate", "/v1/stream"} <= set(paths)
    assert "text/event-stream" in paths["/v1/stream"]["post"]["responses"]["200"]["content"]


def test_pages_load_nothing_from_elsewhere(server: Running):
    for path in ("/", "/docs"):
        page = server.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        text = page.body.decode()
        assert "://" not in text
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        assert " onclick" not in text
    assert server.get("/page/page.js").status == 200
    for name in ("app.py", "..%2Fapp.py", "%2e%2e/app.py", "look.css%00"):
        assert server.get(f"/page/{name}").status == 404
