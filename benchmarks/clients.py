"""Servers to measure and clients to load them, for serve_load.py and serve_soak.py."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode


@contextmanager
def started(*command: str | Path) -> Iterator[int]:
    """Start a server as a process of its own; yield its port, and end it with SIGTERM."""
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        for line in process.stderr:
            if found := re.search(r"serving at http://127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                break
        else:
            raise SystemExit(f"{command[0]} did not start")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def serve_command(run: Path, *flags: str) -> list[str]:
    """Return the command that serves one model on any free port of this machine."""
    return [sys.executable, "-m", "transduce", "serve", f"en-de={run}", "--port", "0", *flags]


class Client:
    """One connection, kept open."""

    def __init__(self, port: int):
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> tuple[int, bytes]:
        """Send a request and read the whole answer."""
        reader, _ = await self.send(method, path, body, kind)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        if found := re.search(r"content-length: (\d+)", head):
            return status, await reader.readexactly(int(found[1]))
        parts: list[bytes] = []
        while size := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(size + 2))
        await reader.readline()
        return status, b"".join(part[:-2] for part in parts)

    async def send(
        self, method: str, path: str, body: bytes, kind: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request without waiting for the answer."""
        if not (self.reader and self.writer):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await self.writer.drain()
        return self.reader, self.writer

    async def translate(self, text: str) -> int:
        """Ask as LibreTranslate's clients do; return the status of the answer."""
        form = urlencode({"q": text, "source": "en", "target": "de"}).encode()
        status, _ = await self.ask("POST", "/translate", form, "application/x-www-form-urlencoded")
        return status

    async def post(self, path: str, value: object) -> tuple[int, bytes]:
        """Ask with JSON."""
        return await self.ask("POST", path, json.dumps(value).encode())

    def close(self) -> None:
        """Drop the connection, whatever is still to come."""
        if self.writer:
            self.writer.transport.abort()
        self.reader = self.writer = None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
