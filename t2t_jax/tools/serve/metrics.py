"""Counters of a server in the text format of Prometheus.

Labels are from sets that do not grow: rows of tables, directions, statuses. Nothing of
a client is among them.
"""

import collections
from collections.abc import Mapping

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)  # seconds


class Metrics:
    """Counts requests, their seconds, and lines.

    Attributes:
      lines: that were sent to the engine, by direction.
      characters: of these lines.
    """

    def __init__(self):
        self._requests: collections.Counter = collections.Counter()
        self._seconds: dict[str, list[int]] = {}  # by endpoint: requests in each bucket
        self._total: collections.Counter = collections.Counter()
        self.lines: collections.Counter = collections.Counter()
        self.characters = 0

    def count(self, endpoint: str, direction: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests[endpoint, direction, status] += 1
        buckets = self._seconds.setdefault(endpoint, [0] * (len(BOUNDS) + 1))
        buckets[sum(seconds > bound for bound in BOUNDS)] += 1
        self._total[endpoint] += seconds

    def text(self, now: Mapping[str, tuple[str, str, float]]) -> str:
        """All metrics; `now` has others by name: a kind, a help and a value."""
        lines: list[str] = []

        def family(name: str, kind: str, about: str) -> str:
            name = f"t2t_jax_{name}"
            lines.extend((f"# HELP {name} {about}", f"# TYPE {name} {kind}"))
            return name

        name = family("requests_total", "counter", "Requests answered.")
        for labels, count in sorted(self._requests.items()):
            named = zip(("endpoint", "direction", "status"), labels, strict=True)
            lines.append(f"{name}{_labels(*named)} {count}")
        name = family("request_seconds", "histogram", "Seconds until the answer.")
        for endpoint, buckets in sorted(self._seconds.items()):
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), buckets, strict=True):
                total += count
                labels = _labels(("endpoint", endpoint), ("le", bound))
                lines.append(f"{name}_bucket{labels} {total}")
            labels = _labels(("endpoint", endpoint))
            lines.append(f"{name}_sum{labels} {self._total[endpoint]:.6f}")
            lines.append(f"{name}_count{labels} {total}")
        name = family("lines_total", "counter", "Lines sent to the engine.")
        for direction, count in sorted(self.lines.items()):
            lines.append(f"{name}{_labels(('direction', direction))} {count}")
        for each, (kind, about, value) in now.items():
            lines.append(f"{family(each, kind, about)} {value:.15g}")
        return "\n".join(lines) + "\n"


def _labels(*pairs: tuple) -> str:
    def escaped(value) -> str:
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in pairs) + "}"
