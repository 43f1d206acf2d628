"""The verb `serve`: open the port, load the models, and answer until told to stop."""

import asyncio
import ipaddress
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from transduce.decoding.engines import Name, Precision
from transduce.decoding.glossary import Term, read_glossaries
from transduce.decoding.shelf import Direction, read_directions
from transduce.decoding.translator import Translator
from transduce.errors import DataError, UsageError, name_some
from transduce.model.saved import find_model
from transduce.seeing.sentence import name_of
from transduce.serving.app import make_app
from transduce.serving.desk import Desk
from transduce.serving.metrics import Metrics
from transduce.serving.models import Models, Served
from transduce.serving.options import ServeConfig

SHORTEST_KEY = 16

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class ServeJob:
    """The arguments of `transduce serve`."""

    models: Sequence[str | Direction]
    """models, each with or without its languages: en-de=runs/base"""
    config: ServeConfig
    glossaries: Sequence[str]
    """files of terms; if several language pairs are served, each with its pair: en-de=terms.tsv"""
    api_keys: Path | None
    open: bool
    device: str
    precision: Precision
    threads: int | None
    engine: Name


def serve(job: ServeJob) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish the requests under way."""
    # Check for mistakes before loading models.
    keys = read_keys(job.api_keys) if job.api_keys else []
    if not (keys or job.open or is_loopback(job.config.host)):
        raise UsageError(
            f"--host {job.config.host} lets other machines in; give --api-keys FILE with the keys they need, or --open "
            "to serve without keys"
        )
    directions = [direction for model in job.models for direction in find_directions(model)]
    terms = read_terms(job.glossaries, [(one.source, one.target) for one in directions])
    listening = listen(job.config)
    with listening:
        metrics = Metrics()
        models = Models(list(load(job, directions, terms, metrics)))
        host = f"[{job.config.host}]" if ":" in job.config.host else job.config.host
        for model in models.served:
            many = len(terms.get((model.source, model.target), ()))
            known = f", terms: {many:,}" if many else ""
            print(
                f"{model.name}: {model.source} → {model.target}{known}{describe_tag(model.desk.translator)}",
                file=sys.stderr,
            )
        print(f"serving at http://{host}:{listening.getsockname()[1]}/ (API: /docs)", file=sys.stderr, flush=True)
        app = make_app(models, job.config, metrics, keys)
        asyncio.run(answer(app, job.config, listening))
    print("stopped", file=sys.stderr)


def load(
    job: ServeJob, directions: Sequence[Direction], terms: Mapping[Pair, Mapping[str, Term]], metrics: Metrics
) -> Iterator[Served]:
    """Load the models, and give each its own desk and name.

    A model with a tag for each of its target languages is loaded once, and serves several of them, each by a name with
    that language.
    """
    taken: set[str] = set()
    loaded: dict[Path, Translator] = {}
    for direction in directions:
        folder, source, target = direction.folder, direction.source, direction.target
        if folder not in loaded:
            loaded[folder] = Translator.load(
                folder, device=job.device, precision=job.precision, threads=job.threads, engine=job.engine
            )
        first = loaded[folder]
        tag = first.subwords["source"].tag_of(target)
        translator = Translator(first.loaded, first.engine, terms.get((source, target)), tag)
        name = base = f"{name_of(translator)}-{target}" if tag else name_of(translator)
        while name in taken:
            name = f"{base}-{len(taken) + 1}"
        taken.add(name)
        desk = Desk(translator, job.config, partial(metrics.note, name))
        metrics.watch(name, desk)
        yield Served(name, source, target, desk)


def describe_tag(translator: Translator) -> str:
    """Return what is to be known of a model's language tags; nothing if it has none."""
    if translator.tag:
        return f", tag: {translator.tag}"
    tags = translator.subwords["source"].tags
    return f", no tag for it: texts must begin with their own ({name_some(tags)})" if tags else ""


class _Server(uvicorn.Server):
    """Stops at a signal and ends without an error: uvicorn would send itself the signal once more."""

    def _capture(self) -> dict[int, Any]:
        return {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = self._capture()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        """Install our signal handlers again, ten times a second: LLVM, which compiles kernels, replaces them."""
        self._capture()
        return await super().on_tick(counter)


async def answer(app: ASGIApp, config: ServeConfig, listening: socket.socket) -> None:
    """Answer requests until a signal comes."""
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # what people translate is theirs
        server_header=False,
        ws="none",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(config.finish)),
        h11_max_incomplete_event_size=65_536,
    )
    await _Server(settings).serve(sockets=[listening])


def listen(config: ServeConfig) -> socket.socket:
    """Open the port and return its socket."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as failed:
            listening = failed.enter_context(socket.socket(family, kind, protocol))
            if sys.platform != "win32":  # there two programs could then listen on one port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(512)  # so that clients are not refused while models are loaded
            failed.pop_all()
    except OSError as error:
        raise UsageError(
            f"--host {config.host} --port {config.port} cannot be opened: {error.strerror}; choose another --port"
        ) from None
    return listening


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> list[str]:
    """Read the keys in a file, one per line; # begins a comment line."""
    keys: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8; save it as UTF-8, one key to a line") from None
    for number, line in enumerate(lines, 1):
        if not (key := line.strip()) or key.startswith("#"):
            continue
        if len(key) < SHORTEST_KEY or not key.isascii() or " " in key:
            raise DataError(
                f"{path}, line {number}: is not a key; use {SHORTEST_KEY} or more letters and digits, such as `openssl "
                "rand -hex 16` prints"
            )
        keys.append(key)
    if not keys:
        raise DataError(f"{path}: has no keys; write one to a line")
    return keys


def read_terms(given: Sequence[str], pairs: Sequence[Pair]) -> dict[Pair, dict[str, Term]]:
    """Read the terms for each language pair: the one before the =, or the only one served."""
    files: dict[Pair, list[Path]] = {}
    there = {f"{source}-{target}".lower(): (source, target) for source, target in pairs}
    for name in given:
        path, pair = part_languages(name)
        if pair is None and len(there) > 1:
            first = next(iter(there))
            raise UsageError(
                f"--glossary {name}: several language pairs are served; name its pair, as in {first}={name}"
            )
        known = there.get("-".join(pair).lower()) if pair else next(iter(there.values()))
        if known is None:
            raise UsageError(
                f"--glossary {name}: no model for these languages is served; available: {', '.join(there)}"
            )
        files.setdefault(known, []).append(path)
    return {pair: read_glossaries(paths) for pair, paths in files.items()}


def part_languages(name: str) -> tuple[Path, Pair | None]:
    """Split off the languages before the =, if given: en-de=runs/base."""
    given = re.fullmatch(r"([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)?)-([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)?)=(.+)", name)
    if given:
        return Path(given[3]), (given[1].replace("_", "-"), given[2].replace("_", "-"))
    return Path(name), None


def find_directions(model: str | Direction) -> list[Direction]:
    """Return what a model is to translate: the languages before the =, or all those that it says itself."""
    if isinstance(model, Direction):
        name, found = model.folder, [model]
    else:
        name, given = part_languages(model)
        folder = find_model(name)
        found = [Direction(folder, *given)] if given else read_directions(folder)
    if not found:
        raise DataError(f"{name}: does not say its languages; give them, as in en-de={name}")
    targets = [one.target for one in found]
    if not found[0].source:
        raise DataError(
            f"{name}: translates into {name_some(targets)}, but does not say from which language; give both, as in "
            f"en-{targets[0]}={name}"
        )
    return [replace(one, source=one.source.replace("_", "-"), target=one.target.replace("_", "-")) for one in found]
