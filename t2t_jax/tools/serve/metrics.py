"""Counters of a server, for Prometheus.

Labels are from sets that do not grow: rows of tables, directions, statuses. Nothing of
a client is among them.
"""

from collections.abc import Iterable, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)  # seconds
KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
PREFIX, LABELS = "t2t_jax_", ("endpoint", "direction", "status")
prometheus_client.disable_created_metrics()


class Metrics(Collector):
    """Counts requests, their seconds, and lines.

    Attributes:
      lines: that were sent to the engine, by direction.
      characters: of these lines.
    """

    def __init__(self):
        self._registry = registry = CollectorRegistry()
        self._now: list[Metric] = []
        self._requests = Counter(
            f"{PREFIX}requests", "Requests answered.", LABELS, registry=registry
        )
        self._seconds = Histogram(
            f"{PREFIX}request_seconds",
            "Seconds until the answer.",
            LABELS[:1],
            registry=registry,
            buckets=BOUNDS,
        )
        self.lines = Counter(
            f"{PREFIX}lines",
            "Lines sent to the engine.",
            LABELS[1:2],
            registry=registry,
        )
        self.characters = 0
        registry.register(self)

    def count(self, endpoint: str, direction: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(endpoint, direction, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment, for the registry."""
        return self._now

    def text(self, values: Mapping[str, tuple[str, str, float]]) -> str:
        """All metrics; `values` has others by name: a kind, a help and a value."""
        self._now = [
            KINDS[kind](f"{PREFIX}{name}", about, value)
            for name, (kind, about, value) in values.items()
        ]
        return generate_latest(self._registry).decode()
