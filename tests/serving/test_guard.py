"""Limits of size, time and number; clients that are slow or leave; keys; and the end by a signal."""

import asyncio
import ctypes
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from libretranslatepy import LibreTranslateAPI
from server import Running, running, save_tiny

from transduce import places
from transduce.cli import main
from transduce.decoding.translator import Translator
from transduce.serving.run import _Server

TEXT = "two euros and nine dollars"
KEY = "0123456789abcdef"


@contextmanager
def held(server: Running) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first model's desk, which begins a batch and then does nothing until released."""
    gate, begun = threading.Event(), threading.Event()
    desk = server.models.served[0].desk
    translate = desk._results

    def wait(*given: Any) -> Any:
        begun.set()
        assert gate.wait(20)
        return translate(*given)

    desk._results = wait  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield gate, begun
    finally:
        gate.set()
        desk._results = translate


def counted(server: Running, name: str, **labels: str) -> float:
    return server.metrics.registry.get_sample_value(name, labels) or 0.0


def until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come to be")


def send(server: Running, text: str = TEXT) -> http.client.HTTPConnection:
    """Send a request without waiting for the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = json.dumps({"texts": [text], "source": "en", "target": "de"})
    connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
    return connection


def test_too_many_clients_are_told_to_come_back(loaded: list[Translator]):
    with running(loaded, clients=2) as server, held(server) as (gate, _):
        some = [send(server) for _ in range(2)]
        until(lambda: counted(server, "transduce_requests_active") == 2)
        refused = server.post("/v1/translate", {"texts": [TEXT]})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "2 requests are being answered" in refused.json["error"]
        assert server.get("/health").status == 200  # which a watcher must learn at any time
        gate.set()
        assert [connection.getresponse().status for connection in some] == [200, 200]
        assert counted(server, "transduce_refused_total", reason="clients") == 1
        assert server.post("/v1/translate", {"texts": [TEXT]}).status == 200
        for connection in some:
            connection.close()


def test_a_full_queue_answers_503(loaded: list[Translator]):
    with running(loaded, queue=60, batch=1, gather=0) as server, held(server) as (gate, begun):
        first = send(server)
        assert begun.wait(20)
        second = send(server, "x" * 50)
        until(lambda: server.models.served[0].desk.waiting == 50)
        refused = server.post("/translate", {"q": TEXT, "source": "en", "target": "de"})
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "too much is waiting" in refused.json["error"]
        gate.set()
        assert [connection.getresponse().status for connection in (first, second)] == [200, 200]
        first.close()
        second.close()


def test_a_client_that_leaves_costs_nothing(loaded: list[Translator]):
    with running(loaded, batch=1, gather=0) as server, held(server) as (gate, begun):
        first = send(server)
        assert begun.wait(20)
        second = send(server, "nine\n" * 100)
        until(lambda: server.models.served[0].desk.waiting == 500)
        second.close()
        until(lambda: counted(server, "transduce_clients_vanished_total") == 1)
        until(lambda: server.models.served[0].desk.waiting == 0)
        assert counted(server, "transduce_requests_active") == 1
        gate.set()
        assert first.getresponse().status == 200
        first.close()
        until(lambda: counted(server, "transduce_sentences_total", model="en-de"))
    assert counted(server, "transduce_sentences_total", model="en-de") == 1  # and the desk is closed


def test_a_slow_client_takes_no_place(loaded: list[Translator]):
    with running(loaded, clients=1, seconds=0.5) as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert server.post("/v1/translate", {"texts": [TEXT]}).status == 200
        assert slow.recv(100).startswith(b"HTTP/1.1 408 ")  # it is told after half a second
        slow.close()


def test_an_answer_that_takes_too_long_is_given_up(loaded: list[Translator]):
    with running(loaded, seconds=0.3) as server, held(server) as (gate, _):
        refused = server.post("/v1/translate", {"texts": [TEXT], "source": "en", "target": "de"})
        assert (refused.status, refused.json["error"]) == (504, "the answer took more than 0.3 s; send less at once")
        assert counted(server, "transduce_requests_active") == 0
        gate.set()


def test_large_requests_are_not_read(loaded: list[Translator]):
    with running(loaded[:1], characters=100, file_characters=1000) as server:
        most = 12 * 100 + 65_536
        assert server.ask("POST", "/v1/translate", b" " * most, content_type="application/json").status == 422
        refused = server.ask("POST", "/v1/translate", b" " * (most + 1), content_type="application/json")
        assert (refused.status, refused.json) == (
            413,
            {"error": f"the request is too large; the limit is {most:,} bytes"},
        )
        # One that does not say its size is found out while it is read.
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/v1/translate", iter([b" " * 60_000, b" " * 60_000]), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()
        assert server.post("/v1/stream", {"text": "nine\n" * 200}).status == 200
        assert server.post("/v1/stream", {"text": "nine\n" * 201}).status == 413


def test_pages_of_some_web_sites_may_ask(loaded: list[Translator], capsys: pytest.CaptureFixture[str]):
    site, wanted = "https://example.org", "access-control-allow-origin"
    request = {"texts": [TEXT], "source": "en", "target": "de"}
    with running(loaded, keys=[KEY], origins=(site,)) as server:
        ask = {"access_control_request_method": "POST", "access_control_request_headers": "content-type,x-api-key"}
        assert server.ask("OPTIONS", "/v1/translate", None, origin=site, **ask).headers[wanted] == site
        assert server.ask("OPTIONS", "/v1/translate", None, origin="https://other.org", **ask).status == 400
        answer = server.post("/v1/translate", request, origin=site, x_api_key=KEY)
        assert (answer.status, answer.headers[wanted]) == (200, site)
        assert server.post("/v1/translate", request, origin=site).headers[wanted] == site  # so that it reads the error
        assert wanted not in server.post("/v1/translate", request, origin="https://other.org", x_api_key=KEY).headers
    with running(loaded) as server:
        assert wanted not in server.post("/v1/translate", request, origin=site).headers
    assert main(["serve", "nothing", "--origins", "example.org/page"]) == 1
    assert "origins has example.org/page, which is no web origin" in capsys.readouterr().err


def test_keys_are_asked_for(loaded: list[Translator]):
    with running(loaded, keys=[KEY, KEY[::-1]]) as server:
        asked = {"texts": [TEXT]}
        refused = server.post("/v1/translate", asked)
        assert (refused.status, "an API key is required" in refused.json["error"]) == (403, True)
        assert server.post("/v1/translate", asked, x_api_key="wrong").json["error"] == "this API key is not valid"
        assert server.post("/v1/translate", asked, x_api_key=KEY).status == 200
        assert server.post("/v1/translate", asked, authorization=f"Bearer {KEY[::-1]}").status == 200
        assert server.form("/translate", q=TEXT, source="en", target="de").status == 403
        assert server.form("/translate", q=TEXT, source="en", target="de", api_key=KEY).status == 200
        assert server.form("/detect", q=TEXT).status == 403
        assert server.get("/metrics").status == 403
        assert server.get("/metrics", authorization=f"bearer {KEY}").status == 200
        for path in ("/", "/health", "/languages", "/docs"):
            assert server.get(path).status == 200
        assert server.get("/frontend/settings").json["keyRequired"] is True
        client = LibreTranslateAPI(server.url, KEY)
        assert client.translate(TEXT, "en", "de") == loaded[0].translate(TEXT).text


def test_health_knows_of_a_desk_that_ended(loaded: list[Translator]):
    with running(loaded[:2]) as server:
        assert server.get("/health").json == {"status": "ok"}
        server.models.served[1].desk.close()
        ill = server.get("/health")
        assert (ill.status, "de-en can no longer translate" in ill.json["error"]) == (503, True)
        late = server.post("/v1/translate", {"texts": [TEXT], "target": "en"})
        assert (late.status, late.headers["retry-after"]) == (503, "5")


def test_every_answer_has_the_headers(server: Running):
    for answer in (server.get("/health"), server.get("/nowhere"), server.post("/translate", 3), server.get("/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_sigterm_finishes_what_is_under_way(tmp_path: Path):
    folder = save_tiny(tmp_path / "tiny", 1, ("en", "de"))
    command = [sys.executable, "-m", "transduce", "serve", str(folder), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stderr
    lines = [process.stderr.readline(), process.stderr.readline()]
    assert lines[0] == "tiny: en → de\n"
    found = re.search(r"serving at http://127\.0\.0\.1:(\d+)/", lines[1])
    assert found
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
    text = "".join(f"two euros and {number} dollars\n" for number in range(800))
    connection.request("POST", "/v1/stream", json.dumps({"text": text}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read(100)  # it is under way
    process.send_signal(signal.SIGTERM)
    rest = answer.read().decode()
    assert rest.rstrip().splitlines()[-2] == "event: done"
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == "stopped\n"
    process.stderr.close()
    connection.close()


def test_signals_that_were_taken_are_asked_for_again():
    """LLVM takes them when it compiles a kernel; here SIGTERM would otherwise go unanswered."""

    async def scenario() -> bool:
        server = _Server(uvicorn.Config(lambda: None))
        with server.capture_signals():
            ctypes.CDLL(None).signal(signal.SIGTERM, 1)
            signal.raise_signal(signal.SIGTERM)
            assert not server.should_exit
            await server.on_tick(1)
            signal.raise_signal(signal.SIGTERM)
            return await server.on_tick(2)

    before = signal.getsignal(signal.SIGTERM)
    assert asyncio.run(scenario())
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_wrong_command_line_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(places, "BOX", tmp_path / "box")
    monkeypatch.setenv("TRANSDUCE_MODELS", str(tmp_path / "own"))
    folder, keys = save_tiny(tmp_path / "tiny", 1), tmp_path / "keys"

    def refused(*arguments: str) -> str:
        assert main(["serve", *arguments]) in (1, 2)
        return capsys.readouterr().err

    assert "name a RUN, or give --to LANGUAGE" in refused()
    assert f"give them, as in en-de={folder}" in refused(str(folder))
    assert "--host 0.0.0.0 lets other machines in; give --api-keys FILE" in refused(
        f"en-de={folder}", "--host", "0.0.0.0"
    )
    assert "no model translates into de" in refused("--to", "de")
    assert "port = 70000 is out of range" in refused(str(folder), "--port", "70000")
    keys.write_text("# for tests\nshort\n")
    assert f"{keys}, line 2: is not a key" in refused(f"en-de={folder}", "--api-keys", str(keys))
    keys.write_text("\n# none\n")
    assert f"{keys}: has no keys" in refused(f"en-de={folder}", "--api-keys", str(keys))
    terms = tmp_path / "terms.tsv"
    terms.write_text("dollars\tTaler\n")
    two = (f"en-de={folder}", f"de-en={folder}", "--glossary", str(terms))
    assert f"several language pairs are served; name its pair, as in en-de={terms}" in refused(*two)
    assert "no model for these languages is served; available: en-de" in refused(
        f"en-de={folder}", "--glossary", f"en-fr={terms}"
    )
    terms.write_text("dollars Taler\n")
    assert f"{terms}:1: has no tab" in refused(f"en-de={folder}", "--glossary", f"EN-DE={terms}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "choose another --port" in refused(f"en-de={folder}", "--port", port)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in [name for name in sys.modules if name.startswith("transduce.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(tmp_path)]) == 2
    assert "uvicorn is not installed; run: pip install 'transduce[serve]'" in capsys.readouterr().err
