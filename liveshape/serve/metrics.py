"""Counters and histograms of the server, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from liveshape.llm.serving.async_engine import EngineStatus

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BETWEEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """Observations, counted by upper bounds.

    >>> times = Histogram("wait_seconds", "Time that requests waited.", (0.1, 1.0))
    >>> times.observe(0.5)
    >>> list(times.lines())[3]
    'wait_seconds_bucket{le="1.0"} 1'
    """

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self._name, self._about, self._bounds = name, about, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterator[str]:
        """Its text."""
        yield from _heading(self._name, "histogram", self._about)
        for bound, count in zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True):
            yield f'{self._name}_bucket{{le="{bound}"}} {count}'
        yield f"{self._name}_sum {self._sum:.6f}"
        yield f"{self._name}_count {sum(self._counts)}"


class Metrics:
    """What the server counts; the engine counts the rest.

    Example: `metrics.first_token.observe(0.2); print(metrics.text(engine.status))`.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.first_token = Histogram(
            "liveshape_time_to_first_token_seconds", "From a request to its first token.", _FIRST
        )
        self.between_tokens = Histogram(
            "liveshape_time_between_tokens_seconds", "From one token of an answer to the next.", _BETWEEN
        )

    def text(self, status: EngineStatus | None) -> str:
        """All of them, with the status of the engine once it is loaded."""
        lines = [] if status is None else list(_engine_lines(status))
        lines += _heading("liveshape_http_requests_total", "counter", "Requests that ended, by route and status.")
        for (route, code), count in sorted(self.requests.items()):
            lines.append(f'liveshape_http_requests_total{{route="{route}",status="{code}"}} {count}')
        return "\n".join([*lines, *self.first_token.lines(), *self.between_tokens.lines(), ""])


def _engine_lines(status: EngineStatus) -> Iterator[str]:
    for name, kind, about, value in (
        ("requests_running", "gauge", "Sequences that run.", status.running),
        ("requests_waiting", "gauge", "Requests that wait in the queue.", status.waiting),
        ("pages_in_use", "gauge", "Pages of the KV cache that running sequences hold.", status.pages_in_use),
        ("pages", "gauge", "Pages of the KV cache.", status.pages),
        ("prompt_tokens_total", "counter", "Tokens of prompts.", status.prompt_tokens),
        ("generated_tokens_total", "counter", "Tokens that were generated.", status.generated_tokens),
        ("steps_total", "counter", "Steps of the model.", status.steps),
    ):
        yield from _heading(f"liveshape_{name}", kind, about)
        yield f"liveshape_{name} {value}"


def _heading(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
