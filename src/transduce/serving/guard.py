"""The guard between the network and the endpoints: it limits sizes, times and numbers, and notices clients that leave.

A request takes a place only once all of it has arrived, so a slow client costs a little memory and no place. While it
is answered, the connection is watched; if the client leaves, the answer is abandoned.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.metrics import Metrics
from transduce.serving.options import ServeConfig

LARGE = {"/v1/stream", "/translate_file"}  # limited in size and time as files are
ALWAYS = {"/health", "/metrics"}  # answered however many requests are active
ROOM = 65_536  # bytes that a request may have beside its text
WIDEST = 12  # most bytes of a character, spelled as \\ud83d\\ude00 in JSON or %F0%9F%98%80 in a form
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusalError(Exception):
    """A request is refused."""

    def __init__(self, status: int, reason: str, text: str, wait: float | None = None):
        super().__init__(text)
        self.status, self.reason, self.text, self.wait = status, reason, text, wait


def to_json_bytes(value: Any) -> bytes:
    """Return JSON for a value with any text, even with lone surrogates."""
    return json.dumps(value).encode()


class Guard:
    """Passes requests on to the application, within the limits."""

    def __init__(self, app: ASGIApp, config: ServeConfig, metrics: Metrics):
        self.app, self.config, self.metrics = app, config, metrics
        self._active = self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        begin = None
        try:
            body = await self._read(scope, receive)
            if body is None:
                self.metrics.vanished.inc()
                return
            begin = time.monotonic()
            await self._answer(scope, receive, answer, body)
        except RefusalError as refusal:
            self.metrics.refused.labels(refusal.reason).inc()
            await answer.refuse(refusal)
        finally:
            # The route's own path, not what the client sent: a label for each of those would fill the memory.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, _method(scope), str(answer.status or "none")).inc()
            if begin is not None:
                self.metrics.request_seconds.labels(path).observe(time.monotonic() - begin)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, or None if the client leaves before it is complete."""
        large = scope["path"] in LARGE
        most = WIDEST * (self.config.file_characters if large else self.config.characters) + ROOM
        length = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = RefusalError(413, "size", f"the request is too large; the limit is {most:,} bytes")
        if length.isdigit() and int(length) > most:
            raise too_large
        if large and self._uploads >= self.config.files:
            raise RefusalError(503, "busy", "too many files are being sent; try again in 5 s", 5)
        self._uploads += large
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.config.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size, more = size + len(parts[-1]), message.get("more_body", False)
                    if size > most:
                        raise too_large
        except TimeoutError:
            raise RefusalError(408, "time", f"the request did not arrive within {self.config.seconds:g} s") from None
        finally:
            self._uploads -= large
        return b"".join(parts)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer", body: bytes) -> None:
        if self._active >= self.config.clients and scope["path"] not in ALWAYS:
            raise RefusalError(503, "clients", f"{self._active} requests are being answered; try again in 1 s", 1)
        gone = asyncio.Event()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        given = False

        async def pass_on() -> Message:
            nonlocal given
            if given:
                await gone.wait()
                return {"type": "http.disconnect"}
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        limit = self.config.file_seconds if scope["path"] in LARGE else self.config.seconds
        work = asyncio.create_task(self.app(scope, pass_on, answer))  # pyright: ignore[reportArgumentType]
        watcher = asyncio.create_task(watch())
        self._active += 1
        self.metrics.active.inc()
        try:
            done, _ = await asyncio.wait({work, watcher}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                await work
            elif watcher in done and not answer.whole:
                self.metrics.vanished.inc()
            elif not done and not answer.status:
                raise RefusalError(504, "time", f"the answer took more than {limit:g} s; send less at once", None)
        finally:
            self._active -= 1
            self.metrics.active.dec()
            for task in (work, watcher):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


class _Answer:
    """Sends an answer with the headers that every answer has; remembers its status and whether it is complete."""

    def __init__(self, send: Send):
        self._send = send
        self.status = 0
        self.whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message.get("headers", [])}
            more = [(key.encode(), value.encode()) for key, value in HEADERS.items() if key.encode() not in own]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        elif message["type"] == "http.response.body":
            self.whole = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, refusal: RefusalError) -> None:
        """Answer with the reason, unless an answer has begun."""
        if self.status:
            return
        body = to_json_bytes({"error": refusal.text})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += retry_after(refusal.wait)
        if refusal.status in (408, 413):
            headers.append((b"connection", b"close"))  # the rest of the request is not read
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def retry_after(seconds: float | None) -> list[tuple[bytes, bytes]]:
    """Return the header that says when to try again."""
    return [] if seconds is None else [(b"retry-after", str(max(1, round(seconds))).encode())]


def _method(scope: Mapping[str, Any]) -> str:
    return scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
