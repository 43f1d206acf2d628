"""A server of tiny models for tests: in its own thread, on a free port of this machine."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
import uvicorn

from transduce.config import Config, ModelConfig, SearchConfig
from transduce.decoding.translator import Translator
from transduce.model.saved import save_model
from transduce.model.transformer import Transformer
from transduce.serving.app import make_app
from transduce.serving.desk import Desk
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models, Served
from transduce.serving.options import ServeConfig
from transduce.serving.run import listen
from transduce.text import numbers
from transduce.text.subwords import END, SPACE, Subwords, SubwordsConfig, learn

PAIRS = (("en", "de"), ("de", "en"), ("en", "fr"))


@cache
def learn_subwords() -> Subwords:
    """Learn subwords of the built-in numbers, English and German."""
    lines = [line for pair in numbers.corpus("train", 400) for line in pair]
    return Subwords(learn(lines, SubwordsConfig(size=500, coverage=1.0)))


def save_tiny(
    folder: Path, seed: int, languages: tuple[str, str] | None = None, subwords: Subwords | None = None
) -> Path:
    """Save a model with random weights, whose translations are mostly whole words and soon cut."""
    subwords = subwords or learn_subwords()
    sizes: dict[str, Any] = {"layers": 2, "d_model": 32, "d_ff": 48, "heads": 2, "tie": "none"}
    config = Config(
        model=ModelConfig(vocabulary=len(subwords), **sizes), search=SearchConfig(beam=2, extra_tokens=4, no_repeat=2)
    )
    torch.manual_seed(seed)
    model = Transformer(config.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(mean=float(name.endswith("norm.weight")), std=0.3 if weight.ndim == 1 else 1.0)
        pieces = subwords.pieces(range(len(subwords)))
        model.output.weight[[not (piece.startswith(SPACE) and len(piece) > 2) for piece in pieces]] *= 0.5
        model.output.weight[[subwords.processor.is_byte(token) for token in range(len(subwords))]] = 0  # seldom said
        model.output.weight[END] *= 4  # so that some come to an end
    about = {"languages": list(languages)} if languages else {}
    save_model(folder, config, model.state_dict(), {"source": subwords, "target": subwords}, about)
    return folder


@dataclass
class Answer:
    """A server's answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A running server, and what is behind it."""

    port: int
    models: Models
    metrics: Metrics
    server: uvicorn.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request as given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            lower = {key.lower(): value for key, value in answer.getheaders()}
            return Answer(answer.status, lower, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, **headers)

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        return self.ask("POST", path, json.dumps(value).encode(), content_type="application/json", **headers)

    def form(self, path: str, **fields: str) -> Answer:
        kind = "application/x-www-form-urlencoded"
        return self.ask("POST", path, urlencode(fields).encode(), content_type=kind)


def translators(folder: Path) -> list[Translator]:
    """Return a translator for each pair."""
    return [
        Translator.load(save_tiny(folder / "-".join(pair), seed, pair), device="cpu", threads=1)
        for seed, pair in enumerate(PAIRS, 1)
    ]


@contextmanager
def running(loaded: Sequence[Translator], keys: Sequence[str] = (), **settings: Any) -> Iterator[Running]:
    """Run a server of translators, one for each of the pairs."""
    config, metrics = ServeConfig(port=0, **settings), Metrics()
    served: list[Served] = []
    for pair, translator in zip(PAIRS, loaded):
        name = "-".join(pair)
        desk = Desk(translator, config, partial(metrics.note, name))
        metrics.watch(name, desk)
        served.append(Served(name, *pair, desk))
    models = Models(served)
    with listen(config) as listening:
        app = make_app(models, config, metrics, keys)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", lifespan="on"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        try:
            yield Running(listening.getsockname()[1], models, metrics, server)
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()
