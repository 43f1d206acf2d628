"""LibreTranslate's API, used by its own client and as its documentation says."""

import http.client
import json
import re
from html import unescape
from urllib.request import urlopen

import pytest
from documents import PICTURE, make_docx, run, unpack
from libretranslatepy import LibreTranslateAPI
from server import Running, running

from transduce.decoding.translator import Translator
from transduce.serving.models import find_unread

TEXT = "two euros and nine dollars"
GERMAN = "es ist schon zwölf und der Kaffee ist nicht gut"


def upload(server: Running, name: str, content: bytes, **fields: str) -> tuple[int, dict[str, str]]:
    parts = [f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + b"\r\n--x--\r\n"
    found = server.ask("POST", "/translate_file", body, content_type="multipart/form-data; boundary=x")
    return found.status, found.json


def test_the_real_client_translates_detects_and_lists(server: Running, loaded: list[Translator]):
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXT, "en", "de") == loaded[0].translate(TEXT).text
    assert client.translate(TEXT, "en", "fr") == loaded[2].translate(TEXT).text
    assert client.translate(GERMAN, "auto", "en") == loaded[1].translate(GERMAN).text
    assert client.detect(GERMAN)[0]["language"] == "de"
    assert client.detect("it is not what you think")[0]["language"] == "en"
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de", "en", "fr"]},
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "fr", "name": "French", "targets": ["fr"]},
    ]


def test_a_list_is_answered_with_a_list(server: Running, loaded: list[Translator]):
    texts = [TEXT, "", "nine", TEXT + "\n\n nine"]
    answer = server.post("/translate", {"q": texts, "source": "en", "target": "de", "format": "text"})
    assert answer.json == {"translatedText": [loaded[0].translate(text).text for text in texts]}


def test_alternatives_are_the_next_best(server: Running, loaded: list[Translator]):
    answer = server.post("/translate", {"q": TEXT, "source": "en", "target": "de", "alternatives": 3}).json
    best = [text for text, _ in loaded[0].translate(TEXT, n_best=4, beam=4).alternatives()]
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(best))


def test_a_language_stands_in_for_its_regions(server: Running, loaded: list[Translator]):
    expected = {"translatedText": loaded[0].translate(TEXT).text}
    for source, target in (("en", "de-DE"), ("en-US", "de_AT"), ("en-Latn-GB", "DE")):
        assert server.post("/translate", {"q": TEXT, "source": source, "target": target}).json == expected
    assert server.post("/translate", {"q": TEXT, "source": "auto", "target": "de-CH"}).json.items() >= expected.items()
    assert server.post("/translate", {"q": TEXT, "source": "en-de", "target": "de"}).status == 400


def test_auto_says_what_was_found(server: Running, loaded: list[Translator]):
    unclear = "Foo 17"
    answer = server.post("/translate", {"q": [GERMAN, unclear], "source": "auto", "target": "en"}).json
    assert answer["translatedText"] == [loaded[1].translate(text).text for text in (GERMAN, unclear)]
    # Only German can be translated into English here.
    assert [found["language"] for found in answer["detectedLanguage"]] == ["de", "de"]
    sure, unsure = (found["confidence"] for found in answer["detectedLanguage"])
    assert sure > 50 > unsure


SPANISH = "El tiempo es magnífico hoy y vamos a pasear por el parque con los niños."


def test_a_language_that_is_not_served_is_found_too(server: Running):
    """On LibreTranslate's scale: a clear text has 90 or more of 100, and all confidences add up to at most 100."""
    for text, language in ((SPANISH, "es"), ("今天天气很好", "zh"), ("we go home and it is not what you think", "en")):
        found = server.form("/detect", q=text).json
        assert found[0]["language"] == language
        assert 90 <= found[0]["confidence"] <= sum(one["confidence"] for one in found) <= 100.1
    (nothing, *_) = server.form("/detect", q="1234").json
    assert nothing == {"confidence": 0, "language": "en"}


@pytest.mark.parametrize(
    ("text", "target", "wanted"),
    [
        (SPANISH, "de", "Spanish (es), but no model here matches: from es, into de; available: en-de"),
        (GERMAN, "fr", "German (de), but no model here matches: from de, into fr; available: en-de"),
        ("今天天气很好", "de", "Chinese (zh), but no model here matches"),
    ],
)
def test_a_text_that_no_model_reads_is_refused(server: Running, text: str, target: str, wanted: str):
    answers = [
        server.post("/translate", {"q": ["nine", text], "source": "auto", "target": target}),
        server.post("/v1/translate", {"texts": [text], "source": "auto", "target": target}),
    ]
    for answer in answers:
        assert answer.status == 400
        assert answer.json["error"].startswith(f"the text looks like {wanted}")
    status, found = upload(server, "a.txt", text.encode(), source="auto", target=target)
    assert (status, found["error"]) == (400, answers[0].json["error"])
    assert (
        server.post("/translate", {"q": text, "source": "en", "target": target}).status == 200
    )  # who says so is right


def test_what_is_too_short_to_tell_is_translated(server: Running, loaded: list[Translator]):
    for text in ("El parque", "Ω", "17"):
        answer = server.post("/translate", {"q": text, "source": "auto", "target": "fr"}).json
        assert answer["translatedText"] == loaded[2].translate(text).text
        assert answer["detectedLanguage"]["language"] == "en"


def test_nothing_is_refused_where_a_language_served_cannot_be_told_from_others():
    """Serbian looks like Bulgarian to a detector that does not know it."""
    text = "Данас је лепо време и идемо са децом у шетњу по парку."
    assert find_unread(text, ["en", "de"]) == "bg"
    assert find_unread(text, ["sr", "en"]) is None


def test_a_text_in_the_language_wanted_stays(server: Running):
    assert server.form("/translate", q=TEXT, source="en", target="en").json == {"translatedText": TEXT}
    english = "what is this"
    answer = server.form("/translate", q=english, source="auto", target="en").json
    assert answer["translatedText"] == english
    assert answer["detectedLanguage"]["language"] == "en"
    status, found = upload(server, "a.txt", english.encode(), source="auto", target="en")
    assert status == 200
    with urlopen(found["translatedFileUrl"]) as file:
        assert file.read().decode() == english


def test_letters_of_a_form_may_stand_as_they_are(server: Running):
    """As `curl -d` sends them."""
    kind = "application/x-www-form-urlencoded"
    text = "es ist spät & zwölf"
    body = f"q={text.replace('&', '%26')}&source=de&target=de&api_key="
    assert server.ask("POST", "/translate", body.encode(), content_type=kind).json == {"translatedText": text}
    for wrong in (body.encode("latin-1"), b"q=sp%E4t&source=de&target=de"):
        found = server.ask("POST", "/translate", wrong, content_type=kind)
        assert (found.status, found.json) == (400, {"error": "the form is not UTF-8"})
    many = "&".join(f"f{number}=1" for number in range(30)).encode()
    assert server.ask("POST", "/translate", many, content_type=kind).status == 400


def test_markup_stays_where_it_is(server: Running, loaded: list[Translator]):
    html = '<p class="a>b">two &amp; nine<br/>three</p><script>two < nine</script><!-- two --> <code>two</code> 1 < 2'
    found = server.post("/translate", {"q": html, "source": "en", "target": "de", "format": "html"}).json

    def said(text: str) -> str:
        return loaded[0].translate(text).text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    assert found["translatedText"] == (
        f'<p class="a>b">{said("two & nine")}<br/>{said("three")}</p><script>two < nine</script><!-- two --> '
        f"<code>two</code>{said(' 1 < 2')}"
    )


def test_a_sentence_with_a_word_in_bold_is_one_sentence(server: Running, loaded: list[Translator]):
    html = "<p>two <b>nine</b> euros</p>"
    asked = {"q": html, "source": "en", "target": "de", "format": "html", "alternatives": 2}
    found = server.post("/translate", asked).json
    best = [text for text, _ in loaded[0].translate("two nine euros", n_best=3, beam=4).alternatives()]
    for text, expected in zip([found["translatedText"], *found["alternatives"]], best, strict=True):
        assert text.startswith("<p>")
        assert text.count("<b>") == text.count("</b>") > 0
        assert unescape(re.sub("<[^>]*>", "", text)) == expected


def test_files_come_back_translated(server: Running, loaded: list[Translator]):
    text = "two\n\n  nine euros \r\nthree"
    status, answer = upload(server, "../../etc/letter.TXT", text.encode(), source="en", target="de")
    assert status == 200
    with urlopen(answer["translatedFileUrl"]) as found:
        assert found.read().decode() == loaded[0].translate(text).text
        assert found.headers["Content-Disposition"] == 'attachment; filename="translated.txt"'
    status, answer = upload(server, "a.html", b"<b>two</b>", source="en", target="de")
    with urlopen(answer["translatedFileUrl"]) as found:
        assert found.read().decode().startswith("<b>")
    assert server.get("/download_file/..%2F..%2Fetc%2Fpasswd").status == 404
    assert server.get("/download_file/nothing.txt").status == 404


def test_documents_come_back_translated(server: Running, loaded: list[Translator]):
    content = make_docx(f"<w:p>{run('two ')}{run('nine', '<w:b/>')}{run(' euros')}</w:p>")
    for source, target in (("en", "de"), ("auto", "de"), ("en", "en")):
        status, answer = upload(server, "../letter.DOCX", content, source=source, target=target)
        assert status == 200
        with urlopen(answer["translatedFileUrl"]) as found:
            parts = unpack(found.read())
            assert found.headers["Content-Disposition"] == 'attachment; filename="translated.docx"'
            assert found.headers["Content-Type"].endswith("wordprocessingml.document")
        texts = re.findall("<w:t[^>]*>([^<]*)", parts["word/document.xml"].decode())
        text = "two nine euros"
        assert "".join(texts) == (text if source == target else loaded[0].translate(text).text)
        assert parts["word/media/image1.png"] == PICTURE
    assert server.get("/frontend/settings").json["supportedFilesFormat"] == [
        *(".txt", ".html", ".docx", ".odt", ".pptx", ".odp", ".epub", ".srt", ".vtt")
    ]


def test_pages_name_the_language_of_their_translation(server: Running, loaded: list[Translator]):
    """Once that of the text is known, which may be detected."""
    said = loaded[0].translate("it is not the old man").text
    page = '<html lang="{}"><p lang="fr">deux</p><p>{}</p></html>'
    given, expected = page.format("en", "it is not the old man"), page.format("de", said)
    for source in ("en", "auto"):
        fields = {"q": given, "source": source, "target": "de", "format": "html"}
        assert server.post("/translate", fields).json["translatedText"] == expected
        _, answer = upload(server, "a.html", given.encode(), source=source, target="de")
        with urlopen(answer["translatedFileUrl"]) as found:
            assert found.read().decode() == expected


@pytest.mark.parametrize(("ending", "head"), [(".srt", ""), (".vtt", "WEBVTT\n\n")])
def test_subtitles_come_back_translated(server: Running, loaded: list[Translator], ending: str, head: str):
    cue = "{}\n00:00:0{},000 --> 00:00:0{},500\n{}\n"
    content = f"{head}{cue.format(1, 1, 1, '<i>two euros and</i>')}\n{cue.format(2, 2, 2, 'nine dollars')}"
    status, answer = upload(server, f"film{ending.upper()}", content.encode(), source="en", target="de")
    assert status == 200
    with urlopen(answer["translatedFileUrl"]) as found:
        said = found.read().decode()
        assert found.headers["Content-Disposition"] == f'attachment; filename="translated{ending}"'
    words = re.sub(r"(?m)^WEBVTT$|^\d+$|^.*-->.*$|</?i>", "", said).split()
    assert words == loaded[0].translate("two euros and nine dollars").text.split()
    assert re.findall("<.*?>|.*-->.*|WEBVTT", said) == re.findall("<.*?>|.*-->.*|WEBVTT", content)


def test_a_document_of_too_much_text_is_refused(loaded: list[Translator]):
    with running(loaded, file_characters=1000) as server:
        many = make_docx(f"<w:p>{run('two ' * 251)}</w:p>")
        status, answer = upload(server, "a.docx", many, source="en", target="de")
        assert (status, answer["error"][:33]) == (413, "the request has 1,004 characters,")
        status, answer = upload(server, "a.docx", make_docx("<w:p/>" * 9999), source="en", target="de")
        assert status == 400
        assert "a.docx: is too large when unpacked" in answer["error"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.pdf", b"two", "files may be .txt, .html, .docx, .odt, .pptx, .odp, .epub, .srt, .vtt"),
        ("a.docx", b"two", "a.docx: damaged, or not a .docx document"),
        ("a.odt", make_docx(""), "its content is that of a .docx document"),
        ("a.srt", b"two", "a.srt:1: no line has times"),
        ("a.vtt", b"WEBVTT\n\xff", "a.vtt:2: not UTF-8"),
        ("a.txt", b"two\n\xff", "line 2 of the file is not UTF-8"),
    ],
)
def test_other_files_are_refused(server: Running, name: str, content: bytes, reason: str):
    status, answer = upload(server, name, content, source="en", target="de")
    assert status == 400
    assert reason.lower() in answer["error"].lower()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"source": "en", "target": "de"}, "q: Field required"),
        ({"q": TEXT, "target": "de"}, "source: Field required"),
        ({"q": TEXT, "source": "en", "target": "xx"}, "no model here matches: from en, into xx; available: en-de"),
        ({"q": TEXT, "source": "en", "target": "de", "format": "pdf"}, "format"),
        ({"q": 3, "source": "en", "target": "de"}, "q.str"),
        ({"q": TEXT, "source": "en", "target": "de", "alternatives": 99}, "alternatives"),
        ([], "the request"),
        ({"q": "\ud800", "source": "en", "target": "de"}, "surrogate"),
    ],
)
def test_errors_are_json_with_a_reason(server: Running, value: object, reason: str):
    answer = server.post("/translate", value)
    assert answer.status == 400
    assert reason in answer.json["error"]


def test_what_is_no_request_is_refused(server: Running):
    assert server.ask("POST", "/translate", b"{", content_type="application/json").status == 400
    assert server.ask("POST", "/translate", b"[" * 50_000, content_type="application/json").status == 400
    assert server.ask("POST", "/translate", b"x", content_type="image/png").status == 400
    assert server.ask("POST", "/translate_file", b"x", content_type="multipart/form-data; boundary=x").status == 400
    assert server.ask("PUT", "/translate", b"x").status == 405
    assert server.form("/translate", q="x" * 20_001, source="en", target="de").status == 413
    assert server.get("/frontend/settings").json["charLimit"] == 20_000


def test_forms_take_fields_of_the_address_too(server: Running, loaded: list[Translator]):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(
        "POST", "/translate?source=en&target=de", b"q=two", {"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert json.loads(connection.getresponse().read()) == {"translatedText": loaded[0].translate("two").text}
    connection.close()
