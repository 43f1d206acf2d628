"""What Prometheus may know of a server: requests, batches, what waits, and the process itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from transduce.serving.desk import Batch, Desk

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The numbers of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "transduce_requests", "requests answered", ("path", "method", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "transduce_request_seconds",
            "from the whole request to the last byte",
            ("path",),
            buckets=TIMES,
            registry=registry,
        )
        self.active = Gauge("transduce_requests_active", "requests being answered", registry=registry)
        self.vanished = Counter("transduce_clients_vanished", "clients that did not wait", registry=registry)
        self.refused = Counter("transduce_refused", "requests refused, by reason", ("reason",), registry=registry)
        self._sentences = Counter("transduce_sentences", "sentences translated", ("model",), registry=registry)
        self._characters = Counter("transduce_characters", "characters translated", ("model",), registry=registry)
        self._batch = Histogram(
            "transduce_batch_sentences", "sentences translated together", ("model",), buckets=SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "transduce_batch_seconds", "time of a batch", ("model",), buckets=TIMES, registry=registry
        )
        self._wait = Histogram(
            "transduce_wait_seconds", "time until a sentence is begun", ("model",), buckets=TIMES, registry=registry
        )
        self._waiting = Gauge("transduce_waiting_characters", "characters that wait", ("model",), registry=registry)

    def note(self, model: str, batch: Batch) -> None:
        """Count a batch."""
        self._sentences.labels(model).inc(batch.sentences)
        self._characters.labels(model).inc(batch.characters)
        self._batch.labels(model).observe(batch.sentences)
        self._batch_seconds.labels(model).observe(batch.seconds)
        for seconds in batch.waited:
            self._wait.labels(model).observe(seconds)

    def watch(self, model: str, desk: Desk) -> None:
        """Tell what waits at a desk, whenever that is asked."""
        self._waiting.labels(model).set_function(lambda: desk.waiting)

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self.registry)
