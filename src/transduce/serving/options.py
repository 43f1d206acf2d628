"""The settings of `transduce serve`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Settings):
    """Who may ask for how much, and what waits how long."""

    section: ClassVar[str] = ""

    host: str = "127.0.0.1"
    """address to listen on; one that others can reach needs --api-keys or --open"""
    port: int = 5000
    """port to listen on; 0: any that is free"""
    origins: tuple[str, ...] = ()
    """web sites whose pages may ask from a browser, as in https://example.org; * is all of them"""
    gather: float = 4.0
    """milliseconds to wait for more sentences before a batch is translated"""
    batch: int = 32
    """most sentences in a batch; the longer a batch takes, the longer others wait"""
    characters: int = 20_000
    """most characters in one request"""
    file_characters: int = 2_000_000
    """most characters in a file or a stream"""
    queue: int = 200_000
    """characters that may wait for each model; who comes then is told when to come back"""
    clients: int = 200
    """requests that may be answered at once"""
    files: int = 8
    """files and streams that may be translated at once for each model"""
    seconds: float = 60.0
    """longest time for a request to arrive and to be answered; files and streams may take longer"""
    file_seconds: float = 3600.0
    """longest time for a file or a stream"""
    finish: float = 30.0
    """seconds that requests under way are given when the server is asked to stop"""
    attention_tokens: int = 100
    """most subwords of a sentence whose attention is shown; tables grow with the square of it"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "batch", "characters", "file_characters", "queue", "clients", "files")
        yield from self.at_least(1, "attention_tokens")
        yield from self.at_least(0, "port", "gather", "finish")
        yield from self.above(0, "seconds", "file_seconds")
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                yield f"origins has {origin}, which is no web site; write it as in https://example.org, without a path"
        if self.port > 65_535:
            yield f"port = {self.port} is no port; use one below 65,536"
