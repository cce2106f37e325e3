"""Waiting for the device by polling with short sleeps, so that Python's signal handlers run."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

from liveshape.device.library import NativeCalls
from liveshape.device.protocol import Command

_SPIN = 2e-3  # seconds of busy polling a GPU first: sleeps overshoot
SHORT = 0.05  # seconds of work for which to block in the driver, deaf to signals
_SHORTEST = 20e-6
# A sleep is this fraction of the time waited so far, up to a maximum; the second where much work is left.
_SLEEPS = ((1 / 16, 1e-3), (1 / 4, 10e-3))
_OVERDUE_AFTER = 1.0  # seconds of grace for a callback once the device is idle; another thread may be running it

NEVER = -1  # status of a lost callback


class Naps:
    """Backoff of polling: each sleep is a small fraction of the time waited so far."""

    __slots__ = ("_begin", "_idle_since", "_spin")

    def __init__(self, spin: float = 0) -> None:
        self._begin = time.perf_counter()
        self._spin = spin
        self._idle_since: float | None = None

    def next(self, long: bool = False) -> float:
        """Seconds of the next sleep; longer if much work is left."""
        waited = time.perf_counter() - self._begin
        part, most = _SLEEPS[long]
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
        if self._groups:
            took = (time.perf_counter() - self._since) / self._groups
            self._seconds, self._groups = max(took, 0.9 * self._seconds), 0


class Tickets:
    """Pending callbacks of one device by number: a callback may run in whichever thread polls first."""

    def __init__(self, native: NativeCalls, device: Any) -> None:
        self._ffi, self._lib, self._device = native.ffi, native.lib, device._internal
        self._numbers = itertools.count(1)
        self._statuses: dict[int, int] = {}
        self._interrupts: dict[int, BaseException] = {}  # by thread
        name = "void({}, WGPUStringView, void *, void *)"
        self.mapped, self.done = (
            self._ffi.callback(name.format(status), self._on_arrival, onerror=self._on_interrupt)
            for status in ("WGPUMapAsyncStatus", "WGPUQueueWorkDoneStatus")
        )
        self.mode = self._lib.WGPUCallbackMode_AllowProcessEvents

    def _on_arrival(self, status: int, message: Any, ticket: Any, unused: Any) -> None:
        self._statuses[int(self._ffi.cast("uintptr_t", ticket))] = status

    def _on_interrupt(self, kind: Any, error: BaseException, traceback: Any) -> None:
        # cffi would print an exception of a signal handler and go on: it is kept for `look`, with the status.
        self._interrupts[threading.get_ident()] = error
        given = traceback.tb_frame.f_locals
        self._on_arrival(given["status"], None, given["ticket"], None)

    def new(self) -> int:
        """A unique callback number."""
        return next(self._numbers)

    def info(self, kind: str, callback: Any, ticket: int) -> Any:
        """The C callback info struct for this number."""
        number = self._ffi.cast("void *", ticket)
        return self._ffi.new(f"{kind} *", {"mode": self.mode, "callback": callback, "userdata1": number})[0]

    def look(self, ticket: int, naps: Naps) -> int | None:
        """Poll: status of a ticket, NEVER, or None while pending. Raises what a signal handler raised in a callback."""
        idle = self._lib.wgpuDevicePoll(self._device, False, self._ffi.NULL)
        if self._interrupts and (interrupt := self._interrupts.pop(threading.get_ident(), None)) is not None:
            raise interrupt
        status = self._statuses.get(ticket)
        # A second signal while the first is being kept loses the callback.
        return NEVER if status is None and naps.overdue(idle) else status

    def wait(self, submission: int) -> None:
        """Block in the driver until one submission is done."""
        self._lib.wgpuDevicePoll(self._device, True, self._ffi.new("WGPUSubmissionIndex *", submission))

    def forget(self, ticket: int) -> None:
        """Drop a ticket."""
        self._statuses.pop(ticket, None)
