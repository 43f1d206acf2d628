"""The HTTP service: LibreTranslate's endpoints, our own, metrics, health, and the pages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from transduce.serving import libre, own
from transduce.serving.answers import House, add_handlers, problems
from transduce.serving.forms import Health
from transduce.serving.guard import Guard
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models
from transduce.serving.options import ServeConfig
from transduce.version import __version__

KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
SEEING = ("draw.js", "attention.js", "beam.js", "sentence.js", "look.css")


def make_app(models: Models, config: ServeConfig, metrics: Metrics, keys: Sequence[str] = ()) -> ASGIApp:
    """Return the application that serves the models."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        for model in models.served:
            await asyncio.to_thread(model.desk.close)

    # FastAPI's own documentation pages load scripts from other sites; ours is at /docs.
    app = FastAPI(
        title="transduce",
        version=__version__,
        summary="Translation with models of 'Attention Is All You Need'.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
        separate_input_output_schemas=False,
    )
    house = House(models, config, keys)
    add_handlers(app)
    app.include_router(libre.make_router(house))
    app.include_router(own.make_router(house))
    pages = _read_pages()

    @app.get("/health", tags=["server"], responses=problems())
    async def health() -> Health:
        """Check that the server is up and every model can translate."""
        if idle := [model.name for model in models.served if not model.desk.works]:
            raise HTTPException(503, f"{', '.join(idle)} can no longer translate; restart the server")
        return Health()

    @app.get(
        "/metrics",
        tags=["server"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
    )
    async def show_metrics(request: Request) -> Response:
        """Return the server's metrics for Prometheus."""
        house.check_key(request)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _page(pages, "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return _page(pages, "docs.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return _page(pages, name)

    guard = Guard(app, config, metrics)
    if not config.origins:
        return guard
    return CORSMiddleware(
        guard, allow_origins=config.origins, allow_methods=("GET", "POST"), allow_headers=("X-API-Key", "Authorization")
    )


def _read_pages() -> dict[str, bytes]:
    """Read all files of the pages, once: a request names one of them, never a path."""
    own_pages = [file for file in (files("transduce.serving") / "pages").iterdir() if file.is_file()]
    shared = [files("transduce.seeing") / "pages" / name for name in SEEING]
    return {file.name: file.read_bytes() for file in (*own_pages, *shared)}


def _page(pages: dict[str, bytes], name: str) -> Response:
    if name not in pages:
        raise HTTPException(404, "there is no such page")
    return Response(pages[name], media_type=f"{KINDS[name[name.rindex('.') :]]}; charset=utf-8")
