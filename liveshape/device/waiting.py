"""Waiting for the device by polling with short sleeps, so that Python's signal handlers run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from liveshape.device.protocol import Command

_SPIN = 2e-3  # seconds of busy polling a GPU first: sleeps overshoot
SHORT = 0.05  # seconds of work for which to block in the driver, deaf to signals
_SHORTEST = 20e-6
# A sleep is this fraction of the time waited so far, up to a maximum; the last where much work is left. A software
# adapter wants the cores that a poll takes; with its fraction a call of 5 to 20 ms of a GPU would end 0.4 ms late.
_GPU_SLEEP, _SLEEP, _LONG_SLEEP = (1 / 64, 1e-3), (1 / 16, 1e-3), (1 / 4, 10e-3)
_OVERDUE_AFTER = 1.0  # seconds of grace for a callback once the device is idle; another thread may be running it


class Outcome(Enum):
    """How something that was waited for ended."""

    DONE = 0
    FAILED = 1
    LOST = 2  # its callback was, so nobody knows


class Events(Protocol):
    """Maps and finished work of one device, as numbers to poll; any thread may, and any poll may be interrupted."""

    def map(self, buffer: Any, nbytes: int) -> int:
        """Map the first bytes of a staging buffer for reading."""

    def work_done(self) -> int:
        """The end of all work submitted so far."""

    def look(self, ticket: int, naps: Naps) -> Outcome | None:
        """Poll: how it ended, or None while it is pending."""

    def wait(self, submission: int) -> None:
        """Block in the driver until one submission is done."""

    def forget(self, ticket: int) -> None:
        """Drop a number that nobody polls any more."""


class Naps:
    """Backoff of polling: each sleep is a small fraction of the time waited so far."""

    __slots__ = ("_begin", "_idle_since", "_spin")

    def __init__(self, spin: float = 0) -> None:
        self._begin = time.perf_counter()
        self._spin = spin  # seconds of busy polling, of a GPU alone
        self._idle_since: float | None = None

    def next(self, long: bool = False) -> float:
        """Seconds of the next sleep; longer if much work is left."""
        waited = time.perf_counter() - self._begin
        part, most = _LONG_SLEEP if long else _GPU_SLEEP if self._spin else _SLEEP
        return 0 if waited < self._spin else min(max(waited * part, _SHORTEST), most)

    def overdue(self, idle: bool) -> bool:
        """Whether the device has been idle so long that the callback is lost."""
        if not idle:
            self._idle_since = None
            return False
        now = time.perf_counter()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since <= _OVERDUE_AFTER:
            return False
        self._idle_since = None
        return True


class Pace:
    """Estimate of a device's remaining work, from the time of earlier work per workgroup.

    A GPU may be polled all the time. A software adapter needs the host's cores, so it is polled rarely while much is
    left, and the driver blocks for the end: signals are delayed for that short time.
    """

    def __init__(self, software: bool) -> None:
        self._software = software
        self._groups = 0  # workgroups submitted since the device was last idle
        self._since = 0.0
        self._seconds = 0.0  # recent maximum per workgroup; 0 while unknown
        self.submission = -1  # index of the last one, where available

    def naps(self) -> Naps:
        """A new backoff for one wait."""
        return Naps(0 if self._software else _SPIN)

    def submitted(self, commands: Sequence[Command]) -> None:
        """Count submitted workgroups."""
        if self._software:
            if self._groups == 0:
                self._since = time.perf_counter()
            self._groups += 1 + sum([x * y * z for x, y, z in [command.slot.grid for command in commands]])

    @property
    def left(self) -> float:
        """Estimated seconds of work left; 0 or less if unknown."""
        return self._seconds * self._groups - (time.perf_counter() - self._since)

    def ended(self) -> None:
        """The device is idle: update the estimate."""
        groups, self._groups = self._groups, 0  # another thread may see the same end
        if groups:
            took = (time.perf_counter() - self._since) / groups
            self._seconds = max(took, 0.9 * self._seconds)
