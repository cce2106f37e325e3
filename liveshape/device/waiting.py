"""Waiting for the device without keeping the interpreter from its signals: short looks with short sleeps between."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

from liveshape.device.library import NativeCalls
from liveshape.device.protocol import Command

_SPIN = 2e-3  # seconds for which a GPU is looked at without a sleep: a sleep takes longer than it should
SHORT = 0.05  # seconds of work for which the driver may wait, deaf to signals
_SHORTEST = 20e-6
# A sleep may add this part to the time waited so far, and is never longer than this; the second where much is left.
_SLEEPS = ((1 / 16, 1e-3), (1 / 4, 10e-3))
_OVERDUE_AFTER = 1.0  # seconds that a callback may be late once the device is idle; another thread may be running it

NEVER = -1  # the status of a callback that nobody will hear of


class Naps:
    """How long to sleep between two looks: a small part of the time that was waited already."""

    __slots__ = ("_begin", "_idle_since", "_spin")

    def __init__(self, spin: float = 0) -> None:
        self._begin = time.perf_counter()
        self._spin = spin
        self._idle_since: float | None = None

    def next(self, long: bool = False) -> float:
        """Seconds to sleep now, more of them if it is known to take long."""
        waited = time.perf_counter() - self._begin
        part, most = _SLEEPS[long]
        return 0 if waited < self._spin else min(max(waited * part, _SHORTEST), most)

    def overdue(self, idle: bool) -> bool:
        """Whether the device has had nothing to do for so long that what is waited for will never come."""
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
    """How long the work of one device takes, judged by the work before.

    A GPU works beside the host, which may look at it all the time. A software adapter needs the host's cores, so there
    looks are few while much is left, and the driver waits for the end: no signal comes through in that short time.
    """

    def __init__(self, software: bool) -> None:
        self._software = software
        self._groups = 0  # submitted since the device was last seen idle
        self._since = 0.0
        self._seconds = 0.0  # that a group took at most, of late; 0 while nothing is known
        self.submission = -1  # the last one, where submissions have numbers

    def naps(self) -> Naps:
        """The sleeps of one wait."""
        return Naps(0 if self._software else _SPIN)

    def submitted(self, commands: Sequence[Command]) -> None:
        """More work for the device."""
        if self._software:
            if self._groups == 0:
                self._since = time.perf_counter()
            self._groups += 1 + sum([x * y * z for x, y, z in [command.slot.grid for command in commands]])

    @property
    def left(self) -> float:
        """Seconds that the work will still take, by what is known of it; 0 or less if it says nothing."""
        return self._seconds * self._groups - (time.perf_counter() - self._since)

    def ended(self) -> None:
        """What was submitted is done."""
        if self._groups:
            took = (time.perf_counter() - self._since) / self._groups
            self._seconds, self._groups = max(took, 0.9 * self._seconds), 0


class Tickets:
    """Callbacks of one device by number, so that a callback may run in whichever thread looks first."""

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
        # cffi would print what a signal raised in here and go on: it is kept for `look`, and so is the status.
        self._interrupts[threading.get_ident()] = error
        given = traceback.tb_frame.f_locals
        self._on_arrival(given["status"], None, given["ticket"], None)

    def new(self) -> int:
        """A number that no callback has had."""
        return next(self._numbers)

    def info(self, kind: str, callback: Any, ticket: int) -> Any:
        """The C struct that asks for a callback with this number."""
        number = self._ffi.cast("void *", ticket)
        return self._ffi.new(f"{kind} *", {"mode": self.mode, "callback": callback, "userdata1": number})[0]

    def look(self, ticket: int, naps: Naps) -> int | None:
        """The status of a ticket, NEVER, or None while the device works. Raises what a signal raised in a callback."""
        idle = self._lib.wgpuDevicePoll(self._device, False, self._ffi.NULL)
        if self._interrupts and (interrupt := self._interrupts.pop(threading.get_ident(), None)) is not None:
            raise interrupt
        status = self._statuses.get(ticket)
        # A second signal can arrive while the first is kept; then nobody knows of the callback any more.
        return NEVER if status is None and naps.overdue(idle) else status

    def wait(self, submission: int) -> None:
        """Let the driver wait for one submission."""
        self._lib.wgpuDevicePoll(self._device, True, self._ffi.new("WGPUSubmissionIndex *", submission))

    def forget(self, ticket: int) -> None:
        """Nobody will ask for it again."""
        self._statuses.pop(ticket, None)
