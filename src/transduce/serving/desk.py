"""A desk for many clients: one thread translates what waits, sentences of similar length together.

Clients take turns sentence by sentence, so that a long document does not keep a short question waiting. A batch holds
only sentences with the same settings. What nobody waits for any more is not translated.
"""

import asyncio
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from transduce.decoding.options import Options, Request
from transduce.decoding.search import SIMILAR
from transduce.decoding.translation import Sentence, Translation, join
from transduce.decoding.translator import LaidOut, Translator
from transduce.errors import TransduceError
from transduce.serving.options import ServeConfig

CHUNK = 4000  # characters of a document that are laid out at once, about
ALONE = 1.0  # seconds since two orders last overlapped, after which batches no longer wait for others
AHEAD = 2  # chunks of a document that are at the desk at once, so that it never waits for the next one

# A line; one of more than 32,000 characters is cut at a space, or anywhere if it has none.
_LINE = re.compile(r"[^\n]{0,32000}\n|[^\n]{1,32000}\Z|[^\n]{1,32000}\s|[^\n]{32000}")
T = TypeVar("T")
Found = tuple[int, int, Sentence]  # index of the text, index of the sentence in it, its translation


class BusyError(TransduceError):
    """The queue is full; try again in `seconds`."""

    def __init__(self, reason: str, seconds: float):
        super().__init__(f"{reason}; try again in {seconds:.0f} s")
        self.seconds = seconds


class ClosedError(TransduceError):
    """The desk takes no more work."""


class FaultError(TransduceError):
    """An internal error while translating."""


@dataclass(frozen=True)
class Passage:
    """A translated sentence of a document with the text that follows it; the first also has the text before it."""

    source: str
    text: str
    done: int
    """characters of the document translated so far, about"""
    unsaid: tuple[str, ...] = ()
    """translations of the glossary's terms that are missing"""


@dataclass(frozen=True)
class BatchFigures:
    """The figures of one batch, for the metrics."""

    sentences: int
    characters: int
    seconds: float
    waited: Sequence[float]
    """seconds that each sentence waited for its turn"""


@dataclass(eq=False)
class _Order:
    """What one client waits for: translations, or other work with the model."""

    requests: Sequence[Request]
    options: Options
    settings: tuple[tuple[str, Any], ...]
    work: Callable[[], Any] | None
    patient: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    arrived: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    since: float = field(default_factory=time.monotonic)
    sentences: deque[tuple[int, int, Request]] | None = None
    """those still waiting; None until the texts are laid out"""
    size: int = 0
    """characters still waiting"""
    gone: bool = False

    def deliver(self, result: Any) -> None:
        """Pass a result to the client, from the desk's thread."""
        if not self.gone and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.arrived.put_nowait, result)

    async def next(self) -> Any:
        """Return the next result; raise it if it is an error."""
        if isinstance(result := await self.arrived.get(), Exception):
            raise result
        return result

    @property
    def waits(self) -> bool:
        """Whether work is left and somebody waits for it."""
        return not self.gone and (self.sentences is None or bool(self.sentences))


class Desk:
    """Translates for many clients with one model."""

    def __init__(
        self, translator: Translator, config: ServeConfig, note: Callable[[BatchFigures], None] = lambda batch: None
    ):
        self.translator, self.config, self._note = translator, config, note
        self._orders: deque[_Order] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._pace = 2000.0  # characters per second, of late
        self._documents = 0
        self._ended = 0.0  # when the last batch ended
        self._present = 0  # orders accepted and not yet left
        self._met = -ALONE  # when an order last arrived while another was present
        self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Characters waiting to be translated."""
        return sum(order.size for order in list(self._orders) if order.waits)

    @property
    def works(self) -> bool:
        """Whether the desk's thread is alive."""
        return self._thread.is_alive()

    async def translate(
        self, requests: Sequence[Request], options: Options | None = None, *, patient: bool = False, **settings: Any
    ) -> list[Translation]:
        """Translate texts; raise an error if one cannot be translated. A patient order is never refused."""
        order = self._accept(requests, options, settings, patient=patient)
        try:
            laid_out: list[LaidOut] = await order.next()
            found: list[list[Sentence | None]] = [[None] * len(pieces) for pieces, _ in laid_out]
            left = sum(map(len, found))
            while left:
                some: list[Found] = await order.next()
                for text, place, sentence in some:
                    found[text][place] = sentence
                left -= len(some)
            whole = ([sentence for sentence in own if sentence] for own in found)
            return [join(*each) for each in zip(requests, (layout for _, layout in laid_out), whole)]
        finally:
            self._leave(order)

    async def stream(self, text: str, options: Options | None = None, **settings: Any) -> AsyncGenerator[Passage]:
        """Translate a document of any length; yield its sentences in order, as soon as they are ready."""
        chunks = _cut(text)
        orders: deque[tuple[_Order, int]] = deque()
        done = 0
        with self.document():
            try:
                while True:
                    while len(orders) < AHEAD and (chunk := next(chunks, None)) is not None:
                        orders.append((self._accept([Request(chunk)], options, settings, patient=True), len(chunk)))
                    if not orders:
                        return
                    async for passage in self._passages(orders[0][0], done):
                        yield passage
                    done += orders.popleft()[1]
            finally:
                for order, _ in orders:
                    self._leave(order)

    @contextmanager
    def document(self) -> Iterator[None]:
        """Count a document while it is translated; refuse one too many."""
        if self._documents >= self.config.files:
            raise BusyError(f"{self._documents} files are being translated", 10)
        self._documents += 1
        try:
            yield
        finally:
            self._documents -= 1

    async def _passages(self, order: _Order, done: int) -> AsyncIterator[Passage]:
        ((pieces, layout),) = await order.next()
        if not pieces:
            yield Passage("", layout.gaps[0], done + len(layout.gaps[0]))
        held: dict[int, Sentence] = {}
        for place, piece in enumerate(pieces):
            while place not in held:
                held |= {where: sentence for _, where, sentence in await order.next()}
            sentence = held.pop(place)
            translation = sentence.alternatives[0].text
            before = "" if place else layout.gaps[0]
            done += len(before) + len(piece) + len(layout.gaps[place + 1])
            text = before + translation + layout.behind(place, translation)
            yield Passage(sentence.source, text, done, sentence.unsaid)

    async def call(self, work: Callable[[], T], size: int) -> T:
        """Do other work with the model when its turn comes; `size` is what it counts as, in characters."""
        order = self._accept([], None, {}, work=work, size=size)
        try:
            return await order.next()
        finally:
            self._leave(order)

    def close(self) -> None:
        """Accept no more work, finish what waits, and end the thread."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        self._thread.join()

    def _accept(
        self,
        requests: Sequence[Request],
        options: Options | None,
        settings: Mapping[str, Any],
        *,
        patient: bool = False,
        work: Callable[[], Any] | None = None,
        size: int = 0,
    ) -> _Order:
        options, _ = self.translator.resolve(options, settings)  # wrong settings are refused at once
        order = _Order(requests, options, tuple(sorted(settings.items())), work, patient)
        order.size = size or sum(len(request.text) for request in requests)
        with self._news:
            waiting = self.waiting
            if self._closed and not patient:
                raise ClosedError("the server is stopping")
            if not patient and waiting and waiting + order.size > self.config.queue:
                raise BusyError("too much is waiting", max(1.0, min(60.0, waiting / self._pace)))
            self._orders.append(order)
            self._present += 1
            if self._present > 1:
                self._met = order.since
            self._news.notify_all()
        return order

    def _leave(self, order: _Order) -> None:
        with self._news:
            order.gone = True
            self._present -= 1

    # ---- the thread ----

    def _work(self) -> None:
        while self._wait():
            for order in [order for order in list(self._orders) if order.sentences is None and not order.work]:
                self._lay_out(order)
            with self._news:
                lead = self._orders[0] if self._tidy() else None
                batch = self._choose(lead) if lead and not lead.work else []
                self._orders.rotate(-1)
            if lead and lead.work:
                self._do(lead, lead.work)
            elif lead:
                self._translate(lead, batch)

    def _wait(self) -> bool:
        """Wait for work, and briefly for more of it; return false once the desk is closed and nothing is left."""
        with self._news:
            while not self._tidy():
                if self._closed:
                    return False
                self._news.wait()
            if time.monotonic() - self._met > ALONE:
                return True
            # Clients ask again as soon as they are answered. If there are several, wait for those of the last batch
            # too, or two halves would take turns for ever.
            since = max(self._orders[0].since, self._ended)
            until = since + self.config.gather / 1000
            while (left := until - time.monotonic()) > 0 and not self._closed and not self._is_full():
                self._news.wait(left)
            return True

    def _tidy(self) -> bool:
        """Forget orders that are done or that nobody waits for; return whether any are left."""
        self._orders = deque(order for order in self._orders if order.waits)
        return bool(self._orders)

    def _is_full(self) -> bool:
        return sum(len(order.sentences or order.requests) for order in self._orders) >= self.config.batch

    def _lay_out(self, order: _Order) -> None:
        """Cut an order's texts into sentences."""
        name = "the text" if len(order.requests) == 1 else "text {:,}"
        try:
            laid_out = [
                self.translator.lay_out(request, order.options, name.format(number))
                for number, request in enumerate(order.requests, 1)
            ]
        except Exception as error:
            self._fail(order, error)
            return
        order.sentences = deque(
            (number, place, replace(request, text=piece))
            for number, (request, (pieces, _)) in enumerate(zip(order.requests, laid_out))
            for place, piece in enumerate(pieces)
        )
        order.size = sum(len(request.text) for _, _, request in order.sentences)
        order.deliver(laid_out)

    def _choose(self, lead: _Order) -> list[tuple[_Order, tuple[int, int, Request]]]:
        """Take sentences for a batch: one of each order in turn, similar in length to the first of the lead order."""
        alike = (order for order in self._orders if (order.options, order.settings) == (lead.options, lead.settings))
        offered = [
            (rank, turn, order, sentence)
            for turn, order in enumerate(alike)
            for rank, sentence in zip(range(self.config.batch), order.sentences or ())
        ]
        chosen: list[tuple[_Order, tuple[int, int, Request]]] = []
        shortest = longest = 0
        for _, _, order, sentence in sorted(offered, key=lambda offer: offer[:2]):
            length = len(sentence[2].text)
            if chosen and min(shortest, length) < SIMILAR * max(longest, length):
                continue
            shortest, longest = min(shortest or length, length), max(longest, length)
            chosen.append((order, sentence))
            if len(chosen) == self.config.batch:
                break
        for order in {order for order, _ in chosen}:
            taken = {sentence[:2] for other, sentence in chosen if other is order}
            order.sentences = deque(sentence for sentence in order.sentences or () if sentence[:2] not in taken)
            order.size = sum(len(request.text) for _, _, request in order.sentences)
        return chosen

    def _translate(self, lead: _Order, batch: Sequence[tuple[_Order, tuple[int, int, Request]]]) -> None:
        begin = time.monotonic()
        requests = [request for _, (_, _, request) in batch]
        results = self._results(requests, replace(lead.options, split="never"), dict(lead.settings))
        found: dict[_Order, list[Found]] = {}
        for (order, (text, place, _)), result in zip(batch, results):
            if isinstance(result, Exception):
                self._fail(order, result)
            else:
                found.setdefault(order, []).append((text, place, result.sentences[0]))
        for order, some in found.items():
            order.deliver(some)
        self._ended = time.monotonic()
        seconds, characters = self._ended - begin, sum(len(request.text) for request in requests)
        self._pace += 0.1 * (characters / max(seconds, 1e-6) - self._pace)
        self._note(BatchFigures(len(batch), characters, seconds, [begin - order.since for order, _ in batch]))

    def _results(
        self, requests: Sequence[Request], options: Options, settings: Mapping[str, Any]
    ) -> Sequence[Translation | Exception]:
        """Return all translations; if a batch fails, try each sentence alone, so that one does not harm the others."""
        try:
            return self.translator.translate(requests, options, **settings)
        except Exception as error:
            if len(requests) == 1:
                return [error]
        return [self._results([request], options, settings)[0] for request in requests]

    def _do(self, order: _Order, work: Callable[[], Any]) -> None:
        try:
            order.deliver(work())
        except Exception as error:
            self._fail(order, error)
        order.sentences = deque()

    def _fail(self, order: _Order, error: Exception) -> None:
        """Tell the client what is wrong; print internal errors on the console too."""
        if not isinstance(error, TransduceError):
            traceback.print_exception(error)
            error = FaultError("the translation failed because of an internal error")
        order.deliver(error)
        order.gone = True


def _cut(text: str) -> Iterator[str]:
    """Yield a document in chunks of whole lines; a very long line comes in parts."""
    begin = end = 0
    for line in _LINE.finditer(text):
        if line.end() - begin > CHUNK and end > begin:
            yield text[begin:end]
            begin = end
        end = line.end()
    if end > begin:
        yield text[begin:end]
