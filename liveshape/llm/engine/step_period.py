"""How many steps to keep in flight: as many as the device wants, while they take little time."""

from __future__ import annotations

import time

# Of steps in flight that are wasted when a sequence ends; a latency of the device comes on top.
MAX_SECONDS_IN_FLIGHT = 0.005


class StepPeriod:
    """An estimate of the seconds between two steps; it falls at once, and at most doubles with each.

    Example: `period = StepPeriod(device.latency)`; `period.tick()` when a step was read,
    `period.steps_ahead(device.steps_ahead)` before the next are submitted.
    """

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._last: float | None = None  # time of the last step
        self._seconds: float | None = None

    def tick(self) -> None:
        """A step was read."""
        before, self._last = self._last, time.perf_counter()
        if before is not None:
            passed = self._last - before
            self._seconds = passed if self._seconds is None else min(passed, 2 * self._seconds)

    def steps_ahead(self, most: int) -> int:
        """How many steps, at least one and at most so many, may be in flight behind the one that is read next."""
        if self._seconds is None:
            return most
        return max(1, min(most, int((MAX_SECONDS_IN_FLIGHT + self._latency) / self._seconds)))
