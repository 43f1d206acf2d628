"""What the endpoints share: keys, limits, and errors as JSON with a reason."""

import hmac
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from transduce.errors import TransduceError
from transduce.serving.desk import BusyError, ClosedError, FaultError
from transduce.serving.forms import Problem
from transduce.serving.guard import to_json_bytes
from transduce.serving.models import Models
from transduce.serving.options import ServeConfig


class ForbiddenError(TransduceError):
    """The API key is missing or wrong."""


class LimitError(TransduceError):
    """The request exceeds a limit."""


class House:
    """What all endpoints use: the models, the settings and the keys."""

    def __init__(self, models: Models, config: ServeConfig, keys: Sequence[str]):
        self.models, self.config, self._keys = models, config, [key.encode() for key in keys]

    @property
    def locked(self) -> bool:
        """Whether a key is needed."""
        return bool(self._keys)

    def check_key(self, request: Request, given: str | None = None) -> None:
        """Refuse clients without a valid key: in the request itself, as X-API-Key, or as a bearer token."""
        if not self._keys:
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        shown = given or request.headers.get("x-api-key") or (bearer if scheme.lower() == "bearer" else "")
        # Compare all keys, each in a time that does not reveal how much of it was right.
        right = [hmac.compare_digest(shown.encode("utf-8", "replace"), key) for key in self._keys]
        if not any(right):
            what = (
                "this API key is not valid" if shown else "an API key is required: api_key, X-API-Key or a bearer token"
            )
            raise ForbiddenError(what)

    def check_size(self, *texts: str, most: int | None = None) -> None:
        """Refuse texts that are too long in total."""
        most = most or self.config.characters
        if (size := sum(map(len, texts))) > most:
            raise LimitError(f"the request has {size:,} characters, and the limit is {most:,}; send less at once")


# What each status means, for the schema.
_REASONS = {
    400: "the request cannot be understood or fulfilled",
    403: "an API key is required",
    408: "the request did not arrive in time",
    413: "the request is too large",
    422: "a field is missing or has a wrong value",
    503: "the server is busy; Retry-After says when to try again",
    504: "the answer took too long",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors an endpoint may answer with, for the schema."""
    return {
        status: {"model": Problem, "description": _REASONS[status]} for status in (*statuses, 403, 408, 413, 503, 504)
    }


def problem(status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    return Response(to_json_bytes({"error": reason}), status, headers, "application/json")


def describe(errors: Sequence[Any]) -> str:
    """Return what is wrong with a form, in one line."""
    found = [
        f"{'.'.join(str(part) for part in error['loc'] if part != 'body') or 'the request'}: {error['msg']}"
        for error in errors[:5]
    ]
    return "; ".join(found)


def add_handlers(app: FastAPI) -> None:
    """Answer every error with its reason."""

    @app.exception_handler(TransduceError)
    async def _ours(request: Request, error: TransduceError) -> Response:
        match error:
            case BusyError():
                return problem(503, str(error), {"Retry-After": f"{max(1, round(error.seconds))}"})
            case ClosedError():
                return problem(503, str(error), {"Retry-After": "5"})
            case ForbiddenError():
                return problem(403, str(error))
            case LimitError():
                return problem(413, str(error))
            case FaultError():
                return problem(500, str(error))
            case _:
                return problem(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        return problem(422, describe(error.errors()))

    @app.exception_handler(ValidationError)
    async def _form(request: Request, error: ValidationError) -> Response:
        return problem(400, describe(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        said = str(error.detail)
        plain = said.lower() if said == HTTPStatus(error.status_code).phrase else said  # Not Found, by the framework
        return problem(error.status_code, plain, error.headers)

    @app.exception_handler(Exception)
    async def _fault(request: Request, error: Exception) -> Response:
        return problem(500, "an internal error; see the server's console")
