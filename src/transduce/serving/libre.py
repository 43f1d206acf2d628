"""LibreTranslate's API, for its existing clients: /translate, /detect, /languages, /translate_file."""

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from transduce.decoding.documents import Document
from transduce.decoding.options import Options
from transduce.decoding.options import Request as Wanted
from transduce.decoding.translation import Translation, Version
from transduce.serving import forms
from transduce.serving.answers import House, problems
from transduce.serving.guard import WIDEST
from transduce.serving.models import AUTO, Served
from transduce.text import cues, office
from transduce.text.codes import NO_CODES, Codes
from transduce.text.detect import name_language
from transduce.text.markup import Markup
from transduce.text.office import Office
from transduce.text.subtitles import Subtitles

# The endings of files that are translated, and their media types.
KINDS = {
    ".txt": "text/plain; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".epub": "application/epub+zip",
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt; charset=utf-8",
}
KEPT_SECONDS, KEPT_BYTES = 600, 1 << 26
TOGETHER = 64  # texts of a document that are translated at once
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
MOST_FIELDS = 20

F = TypeVar("F", bound=BaseModel)


class KeptFiles:
    """Translated files, kept for a while under names that we make; the oldest go first."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def put(self, content: bytes, kind: str) -> str:
        """Keep a file and return its name."""
        name = secrets.token_urlsafe(18) + kind
        self._files[name] = (time.monotonic() + KEPT_SECONDS, content)
        self._tidy()
        return name

    def get(self, name: str) -> bytes | None:
        """Return a file by its name, or None if it is gone."""
        self._tidy()
        return self._files.get(name, (0, None))[1]

    def _tidy(self) -> None:
        size = sum(len(content) for _, content in self._files.values())
        while self._files:
            name, (until, content) = next(iter(self._files.items()))
            if until > time.monotonic() and (size <= KEPT_BYTES or len(self._files) == 1):
                return
            size -= len(content)
            del self._files[name]


def make_router(house: House) -> APIRouter:
    """Return the endpoints."""
    router, kept, models = APIRouter(tags=["LibreTranslate"]), KeptFiles(), house.models

    @router.post(
        "/translate",
        openapi_extra=_body(forms.LibreRequest),
        response_model_exclude_none=True,
        responses=problems(400),
    )
    async def translate(request: Request) -> forms.LibreResponse:
        """Translate a text, or a list of texts."""
        asked = await _read(request, forms.LibreRequest)
        house.check_key(request, asked.api_key)
        texts = asked.q if isinstance(asked.q, list) else [asked.q]
        house.check_size(*texts)
        found = await _translate(house, texts, asked)
        lone = isinstance(asked.q, str)
        return forms.LibreResponse(
            translated_text=found[0][0] if lone else [text for text, _, _ in found],
            alternatives=None if not asked.alternatives else found[0][1] if lone else [more for _, more, _ in found],
            detected_language=(
                None if asked.source != AUTO else found[0][2] if lone else [one for _, _, one in found if one]
            ),
        )

    @router.post("/detect", openapi_extra=_body(forms.LibreDetect), responses=problems(400))
    async def detect(request: Request) -> list[forms.Detected]:
        """List the languages a text may be in, served here or not, most likely first."""
        asked = await _read(request, forms.LibreDetect)
        house.check_key(request, asked.api_key)
        house.check_size(asked.q)
        first, *others = models.detect(asked.q)
        return [_detected(*first), *(_detected(*other) for other in others if other[1] > 0.05)]

    @router.get("/languages", responses=problems())
    async def languages() -> list[forms.LanguageEntry]:
        """List the languages, and those each can be translated into."""
        return [
            forms.LanguageEntry(code=code, name=name, targets=targets) for code, name, targets in models.languages()
        ]

    @router.get("/frontend/settings", responses=problems())
    async def settings() -> dict[str, Any]:
        """Return the settings that LibreTranslate's web page asks for."""
        first = models.served[0]
        return {
            "apiKeys": house.locked,
            "keyRequired": house.locked,
            "charLimit": house.config.characters,
            "filesTranslation": True,
            "supportedFilesFormat": list(KINDS),
            "frontendTimeout": 500,
            "suggestions": False,
            "language": {
                side: {"code": code, "name": name_language(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
        }

    @router.post(
        "/translate_file", openapi_extra=_body(forms.LibreFile, "multipart/form-data"), responses=problems(400)
    )
    async def translate_file(request: Request) -> forms.FileResponse:
        """Translate text, HTML, a document or subtitles; the answer links to the result for ten minutes."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise HTTPException(400, "send the file as multipart/form-data")
        async with request.form(max_files=1, max_fields=10) as form:
            fields = {key: value for key, value in form.items() if isinstance(value, str)}
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise HTTPException(400, "file: is missing")
            content, name = await file.read(), file.filename or ""
        asked = forms.LibreFile.model_validate({**fields, "file": ""})
        house.check_key(request, asked.api_key)
        ending = PurePath(name).suffix.lower()
        kind = ".html" if ending == ".htm" else ending
        if kind not in KINDS:
            raise HTTPException(400, f"files may be {', '.join(KINDS)}")
        most = WIDEST * house.config.file_characters
        # Documents are read in a thread, so that the event loop can answer others meanwhile.
        document = await asyncio.to_thread(_read_document, name, kind, content, most)
        plain = " ".join(document.texts) if document and kind != ".html" else _decode(content)
        house.check_size(plain, most=house.config.file_characters)
        served, _ = models.find(plain[:5000], asked.source, asked.target)
        if served and document:
            # Again, as only now its languages are known: parts of it may be in others.
            codes = Codes.read(served.source, served.target)
            document = await asyncio.to_thread(_read_document, name, kind, content, most, codes) or document
            content = await _translate_document(served, document)
        elif served:
            passages = [passage.text async for passage in served.desk.stream(plain)]
            content = "".join(passages).encode("utf-8", "replace")
        token = kept.put(content, kind)
        return forms.FileResponse(translated_file_url=str(request.url_for("download_file", name=token)))

    @router.get("/download_file/{name}", include_in_schema=False)
    async def download_file(name: str) -> Response:
        content = kept.get(name)
        if content is None:
            raise HTTPException(404, "this file does not exist; translated files are kept for ten minutes")
        kind = name[name.rindex(".") :]
        # An attachment, never shown as a page of this server: it may hold scripts of its own.
        headers = {"Content-Disposition": f'attachment; filename="translated{kind}"'}
        return Response(content, 200, headers, KINDS[kind])

    return router


@dataclass(frozen=True)
class _Piece:
    """One text of a request, its markup if it is HTML, and the model that translates it; None if it stays as it is."""

    text: str
    markup: Markup | None
    served: Served | None
    detected: forms.Detected | None
    """its language, if that was to be detected"""

    @property
    def own(self) -> list[str]:
        return self.markup.texts if self.markup else [self.text]


async def _translate(
    house: House, texts: Sequence[str], asked: forms.LibreRequest
) -> list[tuple[str, list[str], forms.Detected | None]]:
    """Return each text's translation, alternatives to it, and its language if that was to be detected."""
    pieces: list[_Piece] = []
    for text in texts:
        markup = Markup(text) if asked.format == "html" else None
        plain = " ".join(markup.texts) if markup else text
        served, language = house.models.find(plain, asked.source, asked.target)
        if served and markup:
            markup = Markup(text, Codes.read(served.source, served.target))
        pieces.append(_Piece(text, markup, served, _detected(*language) if language else None))
    found: dict[int, list[Translation]] = {}
    # All texts for one model go to its desk at once.
    for served in dict.fromkeys(piece.served for piece in pieces if piece.served):
        settings: dict[str, Any] = {}
        if asked.alternatives:
            many = asked.alternatives + 1
            settings = {"n_best": many, "beam": max(many, served.desk.translator.search.beam)}
        own = [(number, text) for number, piece in enumerate(pieces) if piece.served is served for text in piece.own]
        options = Options(alignments=any(piece.markup and piece.markup.has_elements for piece in pieces))
        wanted = [Wanted(text) for _, text in own]
        for (number, _), one in zip(own, await served.desk.translate(wanted, options, **settings)):
            found.setdefault(number, []).append(one)
    return [_finish(piece, found.get(number, []), asked.alternatives) for number, piece in enumerate(pieces)]


def _finish(piece: _Piece, found: list[Translation], more: int) -> tuple[str, list[str], forms.Detected | None]:
    if not piece.served:
        return piece.text, [], piece.detected
    versions = _versions(found, more + 1)
    filled = [
        piece.markup.fill([(one.text, one.links) for one in some]) if piece.markup else some[0].text
        for some in versions
    ]
    return filled[0], [one for one in dict.fromkeys(filled[1:]) if one != filled[0]], piece.detected


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise HTTPException(400, f"line {line} of the file is not UTF-8; save it as UTF-8") from None


def _read_document(name: str, kind: str, content: bytes, most: int, codes: Codes = NO_CODES) -> Document | None:
    """Read a document with at most this many bytes of text; None for plain text."""
    if kind in office.ENDINGS:
        return Office(name, content, most, codes)
    if kind in cues.ENDINGS:
        return Subtitles(name, content)
    return Markup(_decode(content), codes) if kind == ".html" else None


async def _translate_document(served: Served, document: Document) -> bytes:
    """Translate a document, some of its texts at a time."""
    texts, done = document.texts, list[Version]()
    options = Options(alignments=document.has_elements)
    with served.desk.document():
        for begin in range(0, len(texts), TOGETHER):
            some = [Wanted(own) for own in texts[begin : begin + TOGETHER]]
            done += [one.versions()[0] for one in await served.desk.translate(some, options, patient=True)]
    whole = await asyncio.to_thread(document.fill, [(version.text, version.links) for version in done])
    return whole.encode("utf-8", "replace") if isinstance(whole, str) else whole


def _versions(found: list[Translation], many: int) -> list[list[Version]]:
    """Return up to `many` versions of all texts, the best first; a text with fewer has its best again."""
    ranked = [one.versions() for one in found]
    most = max(map(len, ranked), default=1)
    return [[own[place] if place < len(own) else own[0] for own in ranked] for place in range(min(many, most))]


def _detected(language: str, confidence: float) -> forms.Detected:
    return forms.Detected(language=language, confidence=round(100 * confidence, 1))


async def _read(request: Request, form: type[F]) -> F:
    """Read a request from JSON, or from the fields of a form and those in the URL, as LibreTranslate does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        try:
            given = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise HTTPException(400, "the request is not valid JSON") from None
    elif kind == FORMS[0]:
        given = {**request.query_params, **_fields(await request.body())}
    elif kind in FORMS or not kind:
        async with request.form(max_files=0, max_fields=MOST_FIELDS) as fields:
            given = {**request.query_params, **fields}
    else:
        raise HTTPException(400, f"send JSON or a form, not {kind}")
    return form.model_validate(given)


def _fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form; its characters need not be escaped, as `curl -d` sends them."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
    except UnicodeDecodeError:
        raise HTTPException(400, "the form is not UTF-8") from None
    except ValueError:
        raise HTTPException(400, f"the form has more than {MOST_FIELDS} fields") from None


def _body(form: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Describe a body that we parse ourselves, for the schema."""
    schema = form.model_json_schema()
    content = {kind: {"schema": schema} for kind in kinds or ("application/json", FORMS[0])}
    return {"requestBody": {"required": True, "content": content}}
