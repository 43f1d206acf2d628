"""A desk for many clients: texts that wait are translated together, a batch at a time, by one thread.

A client's texts wait in their order; clients take turns, so that a long document does not keep a short question
waiting. Only texts with the same settings go into one batch. What nobody waits for any more is not translated.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transduce.decoding.options import Options, Request
from transduce.decoding.translator import Translation, Translator
from transduce.errors import TransduceError
from transduce.serving.options import ServeConfig

Settings = tuple[Options, tuple[tuple[str, Any], ...]]


class BusyError(TransduceError):
    """The desk has as much work as it may; come back in `seconds`."""

    def __init__(self, seconds: float):
        super().__init__(f"too many texts are waiting; try again in {seconds:.0f} s")
        self.seconds = seconds


class ClosedError(TransduceError):
    """The desk takes no more work."""


@dataclass(eq=False)
class _Order:
    """What one client waits for."""

    requests: Sequence[Request]
    settings: Settings
    deliver: Callable[[int, Translation | TransduceError], None]
    """is told the number of each text and its translation, from the desk's thread"""
    begun: int = 0
    """texts that were taken into a batch"""
    gone: bool = False

    @property
    def waiting(self) -> bool:
        """Whether texts are left for which somebody waits."""
        return not self.gone and self.begun < len(self.requests)


@dataclass
class Tally:
    """What a desk has done so far."""

    texts: int = 0
    characters: int = 0
    batches: int = 0
    failed: int = 0
    seconds: float = 0.0
    """of translating"""
    sizes: deque[int] = field(default_factory=lambda: deque(maxlen=1000))
    """texts of the last batches"""


class Desk:
    """Translates for many clients with one model."""

    def __init__(self, translator: Translator, config: ServeConfig):
        self.translator, self.config, self.tally = translator, config, Tally()
        self._orders: deque[_Order] = deque()
        self._characters = 0  # that wait
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Characters that wait."""
        return self._characters

    async def translate(
        self, requests: Sequence[Request], options: Options | None = None, **settings: Any
    ) -> list[Translation]:
        """Translate texts; the first that cannot be is an error."""
        found: dict[int, Translation] = {}
        async for number, translation in self.stream(requests, options, **settings):
            found[number] = translation
        return [found[number] for number in range(len(requests))]

    async def stream(self, requests: Sequence[Request], options: Options | None = None, **settings: Any) -> AsyncIterator[tuple[int, Translation]]:
        """Yield each text's number and translation as soon as it is there."""
        options, _ = self.translator.resolve(options, settings)  # what is wrong with them is said at once
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Translation | TransduceError]]()

        def deliver(number: int, result: Translation | TransduceError) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, (number, result))

        order = _Order(requests, (options, tuple(sorted(settings.items()))), deliver)
        self._accept(order)
        try:
            for _ in requests:
                number, result = await arrived.get()
                if isinstance(result, TransduceError):
                    raise result
                yield number, result
        finally:
            self._leave(order)

    def close(self) -> None:
        """Take no more work, finish what is waiting, and end the thread."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._thread.join()

    def _accept(self, order: _Order) -> None:
        size = sum(len(request.text) for request in order.requests)
        with self._news:
            if self._closed:
                raise ClosedError("the server is stopping")
            if self._characters and self._characters + size > self.config.queue:
                raise BusyError(self._seconds_for(self._characters))
            self._characters += size
            self._orders.append(order)
            self._news.notify_all()

    def _leave(self, order: _Order) -> None:
        with self._news:
            order.gone = True
            self._characters -= sum(len(request.text) for request in order.requests[order.begun :])
            order.begun = len(order.requests)

    def _seconds_for(self, characters: int) -> float:
        """How long so much may take, going by what was."""
        pace = self.tally.characters / self.tally.seconds if self.tally.seconds else 1000.0
        return max(1.0, min(60.0, characters / pace))

    # ---- the thread ----

    def _work(self) -> None:
        while True:
            batch = self._take()
            if not batch:
                return
            self._translate(batch)

    def _take(self) -> list[tuple[_Order, int]]:
        """Wait for texts, and a little longer for more of them; none are left when the desk is closed."""
        with self._news:
            while not self._clean():
                if self._closed:
                    return []
                self._news.wait()
            until = time.monotonic() + self.config.gather / 1000
            while sum(len(order.requests) - order.begun for order in self._orders) < self.config.batch:
                left = until - time.monotonic()
                if left <= 0 or self._closed or not self._news.wait(left):
                    break
            self._clean()
            return list(self._choose())

    def _clean(self) -> bool:
        """Forget orders that are done or for which nobody waits; whether some are left."""
        self._orders = deque(order for order in self._orders if order.waiting)
        return bool(self._orders)

    def _choose(self) -> Iterator[tuple[_Order, int]]:
        """Texts for a batch: of the clients in turn, all with the settings of who came first."""
        if not self._orders:
            return
        settings = self._orders[0].settings
        turn = deque(order for order in self._orders if order.settings == settings)
        characters = texts = 0
        while turn and texts < self.config.batch and characters < self.config.batch_characters:
            order = turn.popleft()
            request = order.requests[order.begun]
            yield order, order.begun
            order.begun += 1
            texts, characters = texts + 1, characters + len(request.text)
            self._characters -= len(request.text)
            if order.waiting:
                turn.append(order)
        # Who has had a turn goes behind those who have not.
        self._orders.rotate(-1)

    def _translate(self, batch: Sequence[tuple[_Order, int]]) -> None:
        begin = time.monotonic()
        requests = [order.requests[number] for order, number in batch]
        options, settings = batch[0][0].settings
        for (order, number), result in zip(batch, self._results(requests, options, dict(settings))):
            self.tally.failed += isinstance(result, TransduceError)
            if not order.gone:
                order.deliver(number, result)
        self.tally.texts += len(batch)
        self.tally.characters += sum(len(request.text) for request in requests)
        self.tally.batches += 1
        self.tally.sizes.append(len(batch))
        self.tally.seconds += time.monotonic() - begin

    def _results(
        self, requests: Sequence[Request], options: Options, settings: Mapping[str, Any]
    ) -> list[Translation | TransduceError]:
        """All translations; where one text cannot be translated, the others are, one by one."""
        try:
            return list(self.translator.translate(requests, options, **settings))
        except TransduceError as error:
            if len(requests) == 1:
                return [error]
        except Exception as error:  # a fault of ours: it is one client's, and the others go on
            if len(requests) == 1:
                return [TransduceError(f"the translation failed: {error}")]
        return [self._results([request], options, settings)[0] for request in requests]
