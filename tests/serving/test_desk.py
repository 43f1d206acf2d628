"""The desk: what is translated together, who waits, who is refused, and what happens when a client leaves."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.decoding.options import Request
from transduce.decoding.translator import Translator
from transduce.errors import DataError
from transduce.serving.desk import BatchFigures, BusyError, ClosedError, Desk, FaultError, _cut
from transduce.serving.options import ServeConfig

SENTENCES = ["nine", "two euros and nine dollars", "on Friday the ninth of May", "it is already twelve"]


class Slow:
    """A translator that waits until released, and records its input."""

    def __init__(self, translator: Translator):
        self._inner, self.gate, self.asked = translator, threading.Event(), list[list[str]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def translate(self, requests: Sequence[Request], *given: Any, **settings: Any) -> Any:
        self.asked.append([request.text for request in requests])
        assert self.gate.wait(20)
        if any("fault" in request.text for request in requests):
            raise ZeroDivisionError
        return self._inner.translate(requests, *given, **settings)


def make_desk(translator: Any, **settings: Any) -> tuple[Desk, list[BatchFigures]]:
    batches: list[BatchFigures] = []
    return Desk(translator, ServeConfig(**settings), batches.append), batches


async def waiting_for(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to be")


def test_many_clients_get_what_each_would_alone(loaded: list[Translator]):
    texts = [f"{sentence} {number}\n\n{sentence}" for number in range(12) for sentence in SENTENCES]

    async def run(desk: Desk) -> list[str]:
        found = await asyncio.gather(*(desk.translate([Request(text)]) for text in texts))
        return [one.text for (one,) in found]

    desk, batches = make_desk(loaded[0], gather=50)
    assert asyncio.run(run(desk)) == [loaded[0].translate(text).text for text in texts]
    desk.close()
    assert sum(batch.sentences for batch in batches) == 2 * len(texts)
    assert max(batch.sentences for batch in batches) == 32
    assert len(batches) < len(texts) / 4


def test_a_client_alone_does_not_wait_for_others(loaded: list[Translator]):
    async def one_by_one(desk: Desk) -> None:
        for text in SENTENCES:
            await desk.translate([Request(text)])

    async def two(desk: Desk) -> None:
        await asyncio.gather(*(desk.translate([Request(text)]) for text in SENTENCES[:2]))
        await desk.translate([Request(SENTENCES[0])])

    desk, batches = make_desk(loaded[0], gather=300)
    asyncio.run(one_by_one(desk))
    assert max(second for batch in batches for second in batch.waited) < 0.3
    batches.clear()
    asyncio.run(two(desk))
    desk.close()
    assert batches[-1].waited[0] >= 0.3  # somebody was there a moment ago, and may ask again


def test_sentences_of_similar_length_go_together(loaded: list[Translator]):
    slow = Slow(loaded[0])
    short, long = ["nine", "two", "six"], ["two euros and nine dollars", "on Friday the ninth of May"]

    async def run(desk: Desk) -> None:
        first = asyncio.create_task(desk.translate([Request("first")]))
        await waiting_for(lambda: slow.asked)
        others = [asyncio.create_task(desk.translate([Request(text)])) for text in [short[0], *long, *short[1:]]]
        await waiting_for(lambda: desk.waiting == sum(map(len, short + long)))
        slow.gate.set()
        await asyncio.gather(first, *others)

    desk, _ = make_desk(slow, gather=0)
    asyncio.run(run(desk))
    desk.close()
    assert slow.asked == [["first"], short, long]


def test_clients_take_turns(loaded: list[Translator]):
    slow = Slow(loaded[0])

    async def run(desk: Desk) -> None:
        first = asyncio.create_task(desk.translate([Request("first")]))
        await waiting_for(lambda: slow.asked)
        many = asyncio.create_task(desk.translate([Request(f"text {number}") for number in range(10, 20)]))
        await waiting_for(lambda: desk.waiting >= 70)
        one = asyncio.create_task(desk.translate([Request("a short")]))
        await waiting_for(lambda: desk.waiting >= 77)
        slow.gate.set()
        await asyncio.gather(first, many, one)

    desk, _ = make_desk(slow, batch=4, gather=0)
    asyncio.run(run(desk))
    desk.close()
    assert slow.asked[1] == ["text 10", "a short", "text 11", "text 12"]
    assert sum(map(len, slow.asked)) == 12


def test_what_nobody_waits_for_is_not_translated(loaded: list[Translator]):
    slow = Slow(loaded[0])

    async def run(desk: Desk) -> None:
        first = asyncio.create_task(desk.translate([Request("first")]))
        await waiting_for(lambda: slow.asked)
        gone = asyncio.create_task(desk.translate([Request("vanished")] * 50))
        stays = asyncio.create_task(desk.translate([Request("is here")]))
        await waiting_for(lambda: desk.waiting == 50 * 8 + 7)
        gone.cancel()
        await asyncio.wait({gone})
        assert desk.waiting == 7
        slow.gate.set()
        await asyncio.gather(first, stays)

    desk, _ = make_desk(slow, gather=0)
    asyncio.run(run(desk))
    desk.close()
    assert slow.asked == [["first"], ["is here"]]


def test_a_stream_that_is_left_ends(loaded: list[Translator]):
    slow = Slow(loaded[0])
    text = "".join(f"nine and {number}\n" for number in range(3000))

    async def run(desk: Desk) -> None:
        slow.gate.set()
        stream = desk.stream(text)
        async for passage in stream:
            assert passage.source == "nine and 0"
            break
        await stream.aclose()
        assert desk.waiting == 0
        one = desk.stream(text)
        await anext(one)
        with pytest.raises(BusyError, match="1 files are being translated"):
            await anext(desk.stream(text))
        await one.aclose()

    desk, _ = make_desk(slow, files=1)
    asyncio.run(run(desk))
    desk.close()
    assert sum(map(len, slow.asked)) < 2000


def test_a_full_queue_sends_clients_away_and_says_when_to_come_back(loaded: list[Translator]):
    slow = Slow(loaded[0])

    async def run(desk: Desk) -> None:
        first = asyncio.create_task(desk.translate([Request("first")]))
        await waiting_for(lambda: slow.asked)
        held = asyncio.create_task(desk.translate([Request("x" * 90)]))
        await waiting_for(lambda: desk.waiting == 90)
        with pytest.raises(BusyError, match="too much is waiting; try again in") as refused:
            await desk.translate([Request("y" * 20)])
        assert 1 <= refused.value.seconds <= 60
        patient = asyncio.create_task(desk.translate([Request("y" * 20)], patient=True))
        slow.gate.set()
        await asyncio.gather(first, held, patient)
        # What is more than the queue is still taken when nothing waits.
        await desk.translate([Request("z" * 200)])

    desk, _ = make_desk(slow, queue=100, gather=0)
    asyncio.run(run(desk))
    desk.close()


def test_one_clients_fault_is_not_anothers(loaded: list[Translator], capsys: pytest.CaptureFixture[str]):
    slow = Slow(loaded[0])

    async def run(desk: Desk) -> list[Any]:
        slow.gate.set()
        asked = [[Request("nine")], [Request("fault")], [Request("a\nb", prefix="x")], [Request("two")]]
        return await asyncio.gather(*map(desk.translate, asked), return_exceptions=True)

    desk, _ = make_desk(slow, gather=30)
    good, fault, wrong, other = asyncio.run(run(desk))
    desk.close()
    assert [good[0].text, other[0].text] == [loaded[0].translate(text).text for text in ("nine", "two")]
    assert isinstance(fault, FaultError)
    assert isinstance(wrong, DataError)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_closed_desk_finishes_what_it_has(loaded: list[Translator]):
    slow = Slow(loaded[0])

    async def run(desk: Desk) -> Any:
        under_way = asyncio.create_task(desk.translate([Request("nine")] * 3))
        await waiting_for(lambda: slow.asked)
        waits = asyncio.create_task(desk.translate([Request("two")]))
        await waiting_for(lambda: desk.waiting == 3)
        closing = asyncio.create_task(asyncio.to_thread(desk.close))
        await waiting_for(lambda: desk._closed)
        with pytest.raises(ClosedError):
            await desk.translate([Request("late")])
        slow.gate.set()
        await closing
        return await asyncio.gather(under_way, waits)

    desk, _ = make_desk(slow, gather=0)
    found, (two,) = asyncio.run(run(desk))
    assert len(found) == 3
    assert two.text == loaded[0].translate("two").text


def test_other_work_waits_its_turn_and_fails_alone(loaded: list[Translator]):
    async def run(desk: Desk) -> None:
        assert await desk.call(lambda: threading.current_thread().name, 1) == "desk"
        with pytest.raises(DataError, match="wrong"):
            await desk.call(lambda: (_ for _ in ()).throw(DataError("wrong")), 1)
        assert (await desk.translate([Request("")]))[0].text == ""

    desk, _ = make_desk(loaded[0])
    asyncio.run(run(desk))
    desk.close()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["", "a b", "x" * 3000, "\n", "\r\n", "y " * 20_000, "z" * 40_000]), max_size=8))
def test_chunks_add_up_to_the_document(parts: list[str]):
    text = "\n".join(parts)
    chunks = list(_cut(text))
    assert "".join(chunks) == text
    assert all(chunks)
    assert max(map(len, chunks), default=0) <= 36_001
