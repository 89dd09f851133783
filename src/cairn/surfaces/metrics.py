"""Prometheus text for GET /metrics: request counts and times, and how the memory is doing."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counts what the guard observes. Routes are names of the route table, so label values stay few."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route] += seconds
            place = next((i for i, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
            self._buckets[route][place] += 1

    def render(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """The exposition text. `gauges` maps a metric name to its help and value."""
        lines = [
            "# HELP cairn_requests_total Requests by route and status.",
            "# TYPE cairn_requests_total counter",
        ]
        with self._lock:
            for (route, status), count in sorted(self._requests.items()):
                lines.append(f'cairn_requests_total{{route="{route}",status="{status}"}} {count}')
            lines += [
                "# HELP cairn_request_seconds Time per request.",
                "# TYPE cairn_request_seconds histogram",
            ]
            for route, counts in sorted(self._buckets.items()):
                running = 0
                for bound, count in zip(BUCKETS, counts, strict=False):
                    running += count
                    lines.append(f'cairn_request_seconds_bucket{{route="{route}",le="{bound}"}} {running}')
                total = running + counts[-1]
                lines.append(f'cairn_request_seconds_bucket{{route="{route}",le="+Inf"}} {total}')
                lines.append(f'cairn_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
                lines.append(f'cairn_request_seconds_count{{route="{route}"}} {total}')
        for name, (help_text, value) in sorted(gauges.items()):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"
