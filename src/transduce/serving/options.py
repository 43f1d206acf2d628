"""The settings of `transduce serve`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from transduce.strict import Settings


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Settings):
    """Who may ask for how much, and what waits how long."""

    section: ClassVar[str] = ""

    host: str = "127.0.0.1"
    """address to listen on; others than this machine need --api-key-file or --no-auth"""
    port: int = 5000
    """port to listen on; 0: any that is free"""
    gather: float = 4.0
    """milliseconds to wait for more texts before a batch is translated"""
    batch: int = 64
    """most texts in a batch"""
    batch_characters: int = 20_000
    """most characters in a batch, about"""
    characters: int = 20_000
    """most characters of one request; files may have file_characters"""
    file_characters: int = 2_000_000
    """most characters of an uploaded file"""
    queue: int = 500_000
    """characters that may wait; who asks for more is told when to come back"""
    seconds: float = 60.0
    """longest time for one request; streams and files take longer"""
    clients: int = 200
    """requests that may be answered at once; who asks for more is told when to come back"""

    def problems(self) -> Iterator[str]:
        yield from self.at_least(1, "batch", "batch_characters", "characters", "file_characters", "queue", "clients")
        yield from self.at_least(0, "port", "gather")
        yield from self.above(0, "seconds")
        if self.port > 65_535:
            yield f"port = {self.port} is no port; use one below 65,536"
