"""Our own endpoints, under /v1: typed, with all details of a translation."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from transduce.decoding.options import Request as Wanted
from transduce.errors import TransduceError
from transduce.seeing.branches import find_branches
from transduce.seeing.sentence import see
from transduce.serving import forms
from transduce.serving.answers import House, LimitError, problems
from transduce.serving.desk import BusyError, Passage
from transduce.serving.models import Served

DECIMALS = 4  # of attention weights


def make_router(house: House) -> APIRouter:
    """Return the endpoints."""

    def check_key(
        request: Request,
        header: Annotated[str | None, Depends(APIKeyHeader(name="X-API-Key", auto_error=False))],
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        house.check_key(request)

    router = APIRouter(prefix="/v1", tags=["transduce"], dependencies=[Depends(check_key)])

    def choose(asked: forms._Asked, *texts: str) -> Served:
        served, _ = house.models.choose(" ".join(texts)[:5000], asked.source, asked.target, asked.model)
        return served

    @router.get("/models", responses=problems())
    async def models() -> list[forms.ModelEntry]:
        """List the served models."""
        return [
            forms.ModelEntry(name=one.name, source=one.source, target=one.target, parameters=one.parameters)
            for one in house.models.served
        ]

    @router.post("/translate", responses=problems(400, 422))
    async def translate(asked: forms.TranslateRequest) -> forms.TranslateResponse:
        """Translate texts: n-best lists, scores, subwords, alignments, prefixes, required and forbidden phrases."""
        house.check_size(*asked.texts)
        served = choose(asked, *asked.texts)
        beam = max(asked.beam or served.desk.translator.search.beam, asked.n_best)
        settings: dict[str, Any] = {"beam": beam, "n_best": asked.n_best, "split": asked.split}
        settings |= {"alpha": asked.alpha} if asked.alpha is not None else {}
        settings |= {"alignments": True} if asked.alignments else {}
        requests = [Wanted(text, asked.prefix, tuple(asked.require), tuple(asked.forbid)) for text in asked.texts]
        found = await served.desk.translate(requests, **settings)
        return forms.TranslateResponse(
            model=served.name,
            source=served.source,
            target=served.target,
            translations=[forms.Translated.of(one) for one in found],
        )

    @router.post(
        "/stream",
        responses={200: {"content": {"text/event-stream": {}}}, **problems(400, 422)},
        response_class=StreamingResponse,
    )
    async def stream(asked: forms.StreamRequest) -> StreamingResponse:
        """Translate a long text as server-sent events.

        Each `passage` event has a sentence (`source`), its translation with the white space around it (`text`), the
        glossary's terms that are missing from it (`unsaid`), and how many characters are `done`, out of all (`of`). The
        texts joined are the whole translation. The last event is `done` or `error`.
        """
        house.check_size(asked.text, most=house.config.file_characters)
        served = choose(asked, asked.text[:5000])
        passages = served.desk.stream(asked.text)
        # Wait for the first passage: a text that cannot be translated at all is then an error with its own status.
        first = await anext(passages, None)
        return StreamingResponse(_events(served, asked.text, first, passages), media_type="text/event-stream")

    @router.post("/continue", responses=problems(400, 422))
    async def go_on(asked: forms.ContinueRequest) -> forms.ContinueResponse:
        """Continue a sentence's translation from a prefix, in the best way for each of the likeliest next words."""
        house.check_size(asked.text)
        served = choose(asked, asked.text)
        translator = served.desk.translator
        _check_tokens(house, served, asked.text, asked.prefix)
        wanted = Wanted(asked.text, asked.prefix)
        found = await served.desk.call(
            lambda: find_branches(translator, wanted, translator.search, asked.n_best),
            len(asked.text) * asked.n_best,
        )
        return forms.ContinueResponse(model=served.name, candidates=[forms.Candidate.of(one) for one in found])

    @router.post("/attention", responses={200: {"model": forms.AttentionResponse}, **problems(400, 422)})
    async def attention(asked: forms.AttentionRequest) -> Response:
        """Show what the model does with a sentence: attention by layer and head, probabilities, the beam, alignment."""
        house.check_size(asked.text, asked.translation or "")
        served = choose(asked, asked.text)
        translator = served.desk.translator
        _check_tokens(house, served, asked.text, asked.translation or "")

        def look() -> bytes:
            seen = see(translator, Wanted(asked.text), translator.search, asked.translation)
            return json.dumps(seen.to_dict(DECIMALS), ensure_ascii=False).encode()

        return Response(await served.desk.call(look, 4 * len(asked.text)), media_type="application/json")

    return router


def _check_tokens(house: House, served: Served, text: str, target: str) -> None:
    """Refuse texts that are too long for one sentence."""
    translator, most = served.desk.translator, house.config.attention_tokens
    for side, own in (("source", text), ("target", target)):
        translator.check(Wanted(own), "the sentence")
        if (tokens := len(translator.tokens(own, side))) > most:
            raise LimitError(f"the {side} has {tokens:,} subwords, and the limit is {most:,}; give one sentence")


async def _events(
    served: Served, text: str, first: Passage | None, passages: AsyncGenerator[Passage]
) -> AsyncIterator[bytes]:
    def event(name: str, data: dict[str, Any]) -> bytes:
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    def passage_event(passage: Passage) -> bytes:
        return event("passage", {**vars(passage), "of": len(text)})

    try:
        if first:
            yield passage_event(first)
        async for passage in passages:
            yield passage_event(passage)
        yield event("done", {"model": served.name, "source": served.source, "target": served.target})
    except BusyError as error:
        yield event("error", {"error": str(error), "seconds": error.seconds})
    except TransduceError as error:
        yield event("error", {"error": str(error)})
    finally:
        await passages.aclose()
