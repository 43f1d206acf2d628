"""Throughput and waiting times of `transduce serve` beside servers that translate one request at a time.

Three servers of the same model take turns on this machine: ours; ours with batches of one sentence; and one that works
like LibreTranslate, with a pool of threads that each translate the text of one request. Each client keeps a connection
open and sends the next request as soon as it has an answer, in LibreTranslate's form.

    python benchmarks/serve_load.py --preset base --precision int8
    python benchmarks/serve_load.py --run demo/run --clients 1,8,64 --seconds 10

With a preset, the weights are random and every translation has as many tokens as its source.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Semaphore
from typing import Any
from urllib.parse import parse_qs

import torch
from clients import Client, percentile, serve_command, started

from transduce.config import SearchConfig
from transduce.decoding.translator import Translator
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.presets import PRESETS
from transduce.text import numbers
from transduce.text.subwords import Subwords, SubwordsConfig, learn

THREADS = 4  # of the server with a thread for each request; LibreTranslate's default
SERVERS = ("batches", "batches of one", "a thread each")


def save_random(folder: Path, preset: str) -> Path:
    """Save a random model of a preset's size, which outputs as many tokens as the source has."""
    lines = [line for pair in numbers.corpus("train", 4000) for line in pair]
    subwords = Subwords(learn(lines, SubwordsConfig(size=600, coverage=1.0)))
    known = PRESETS[preset].config
    config = replace(
        known,
        model=replace(known.model, vocabulary=len(subwords), source_vocabulary=None),
        search=SearchConfig(extra_tokens=0),
    )
    torch.manual_seed(1)
    weights = Transformer(config.model).state_dict()
    save_model(folder, config, weights, {"source": subwords, "target": subwords}, {})
    return folder


def serve_single(run: Path, precision: Any) -> None:
    """Run the server with a thread for each request; --single starts this file as its process."""
    translator, places = Translator.load(run, precision=precision), Semaphore(THREADS)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # otherwise it waits 40 ms between head and body
        wbufsize = -1

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            with places:
                body = json.dumps({"translatedText": translator.translate(form["q"][0]).text}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(HTTPServer):
        request_queue_size = 512
        pool = ThreadPoolExecutor(512)  # connections stay open; only some of them translate at once

        def process_request(self, request: Any, client_address: Any) -> None:
            self.pool.submit(self.process, request, client_address)

        def process(self, request: Any, client_address: Any) -> None:
            self.finish_request(request, client_address)
            self.shutdown_request(request)

    with Server(("127.0.0.1", 0), Handler) as server:
        print(f"serving at http://127.0.0.1:{server.server_port}/", file=sys.stderr, flush=True)
        server.serve_forever()


async def load(port: int, clients: int, seconds: float, texts: Sequence[str]) -> tuple[float, list[float]]:
    """Return the requests per second, and the seconds each took."""
    times: list[float] = []
    begin = time.monotonic()
    until = begin + seconds

    async def live(number: int) -> None:
        client = Client(port)
        while (asked := time.monotonic()) < until:
            assert await client.translate(texts[number % len(texts)]) == 200
            times.append(time.monotonic() - asked)
            number += clients
        client.close()

    await asyncio.gather(*(live(number) for number in range(clients)))
    return len(times) / (time.monotonic() - begin), times


def measure(run: Path, given: argparse.Namespace) -> None:
    """Let all servers take turns, and print a table."""
    texts = [source for source, _ in numbers.corpus("dev", 2000)]
    precision = ["--precision", given.precision]
    single = [sys.executable, __file__, "--single", "--run", run, *precision]
    with (
        started(*serve_command(run, *precision)) as ours,
        started(*serve_command(run, "--batch", "1", "--gather", "0", *precision)) as one,
        started(*map(str, single)) as other,
    ):
        ports = dict(zip(SERVERS, (ours, one, other)))
        for port in ports.values():
            asyncio.run(load(port, 8, 1, texts))
        print("| clients | server | requests/s | p50 ms | p99 ms |\n|--:|---|--:|--:|--:|")
        for clients in map(int, given.clients.split(",")):
            found: dict[str, list[tuple[float, list[float]]]] = {server: [] for server in ports}
            for _ in range(given.rounds):
                for server, port in ports.items():
                    found[server].append(asyncio.run(load(port, clients, given.seconds, texts)))
            for server, rounds in found.items():
                rate = statistics.median(rate for rate, _ in rounds)
                times = [1000 * seconds for _, some in rounds for seconds in some]
                p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
                print(f"| {clients} | {server} | {rate:.1f} | {p50:.0f} | {p99:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--preset", default="base", choices=sorted(PRESETS))
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--single", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.single:
        serve_single(given.run, given.precision)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(given.run or save_random(Path(folder) / "model", given.preset), given)


if __name__ == "__main__":
    main()
