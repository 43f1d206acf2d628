"""The settings of `transduce serve`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Settings):
    """Addresses, limits and waiting times of the server."""

    section: ClassVar[str] = ""

    host: str = "127.0.0.1"
    """address to listen on; if other machines can reach it, --api-keys or --open is needed"""
    port: int = 5000
    """port to listen on; 0: any free port"""
    origins: tuple[str, ...] = ()
    """web sites whose pages may send requests from a browser, as in https://example.org; *: all sites"""
    gather: float = 4.0
    """milliseconds to wait for more sentences before translating a batch"""
    batch: int = 32
    """most sentences in a batch; larger batches keep other requests waiting longer"""
    characters: int = 20_000
    """most characters in one request"""
    file_characters: int = 2_000_000
    """most characters in a file or a stream"""
    queue: int = 200_000
    """most characters waiting for each model; further requests are refused and told when to retry"""
    clients: int = 200
    """most requests answered at once"""
    files: int = 8
    """most files and streams translated at once by each model"""
    seconds: float = 60.0
    """most seconds for a request to arrive, and for its answer unless it is a file or a stream"""
    file_seconds: float = 3600.0
    """most seconds to answer a file or a stream"""
    finish: float = 30.0
    """seconds that running requests get to finish when the server is stopped"""
    attention_tokens: int = 100
    """most subwords in a sentence whose attention is shown; the tables grow with the square of the length"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "batch", "characters", "file_characters", "queue", "clients", "files")
        yield from self.at_least(1, "attention_tokens")
        yield from self.at_least(0, "port", "gather", "finish")
        yield from self.above(0, "seconds", "file_seconds")
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                yield f"origins has {origin}, which is no web origin; write it as https://example.org, without a path"
        if self.port > 65_535:
            yield f"port = {self.port} is out of range; use one below 65,536"
