"""A server's metrics for Prometheus: requests, batches, what waits, and the process itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from transduce.serving.desk import BatchFigures, Desk

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "transduce_requests", "requests answered", ("path", "method", "status"), registry=registry
        )
        self.request_seconds = Histogram(
            "transduce_request_seconds",
            "seconds from the complete request to the last byte of the answer",
            ("path",),
            buckets=TIMES,
            registry=registry,
        )
        self.active = Gauge("transduce_requests_active", "requests being answered", registry=registry)
        self.vanished = Counter(
            "transduce_clients_vanished", "clients that left before their answer", registry=registry
        )
        self.refused = Counter("transduce_refused", "requests refused, by reason", ("reason",), registry=registry)
        self._sentences = Counter("transduce_sentences", "sentences translated", ("model",), registry=registry)
        self._characters = Counter("transduce_characters", "characters translated", ("model",), registry=registry)
        self._batch = Histogram(
            "transduce_batch_sentences", "sentences per batch", ("model",), buckets=SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "transduce_batch_seconds", "seconds per batch", ("model",), buckets=TIMES, registry=registry
        )
        self._wait = Histogram(
            "transduce_wait_seconds",
            "seconds that a sentence waits for its turn",
            ("model",),
            buckets=TIMES,
            registry=registry,
        )
        self._waiting = Gauge("transduce_waiting_characters", "characters waiting", ("model",), registry=registry)

    def note(self, model: str, batch: BatchFigures) -> None:
        """Count a batch."""
        self._sentences.labels(model).inc(batch.sentences)
        self._characters.labels(model).inc(batch.characters)
        self._batch.labels(model).observe(batch.sentences)
        self._batch_seconds.labels(model).observe(batch.seconds)
        for seconds in batch.waited:
            self._wait.labels(model).observe(seconds)

    def watch(self, model: str, desk: Desk) -> None:
        """Report what waits at a desk whenever the metrics are read."""
        self._waiting.labels(model).set_function(lambda: desk.waiting)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
