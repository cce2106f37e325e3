"""Waiting on wgpu-native: callbacks that arrive while the device is polled, in whichever thread polls first."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from liveshape.device.waiting import Naps, Outcome


class PollCallbacks:
    """Pending callbacks of one device by number.

    Example: `PollCallbacks(ffi, lib, libf, device, queue).work_done()`.
    """

    def __init__(self, ffi: Any, lib: Any, calls: Any, device: Any, queue: Any) -> None:
        self._ffi, self._lib, self._calls = ffi, lib, calls
        self._device, self._queue = device._internal, queue._internal
        self._numbers = itertools.count(1)
        self._statuses: dict[int, int] = {}
        self._interrupts: dict[int, BaseException] = {}  # by thread
        name = "void({}, WGPUStringView, void *, void *)"
        self._mapped, self._done = (
            self._ffi.callback(name.format(status), self._on_arrival, onerror=self._on_interrupt)
            for status in ("WGPUMapAsyncStatus", "WGPUQueueWorkDoneStatus")
        )
        assert lib.WGPUMapAsyncStatus_Success == lib.WGPUQueueWorkDoneStatus_Success

    def _on_arrival(self, status: int, message: Any, ticket: Any, unused: Any) -> None:
        self._statuses[int(self._ffi.cast("uintptr_t", ticket))] = status

    def _on_interrupt(self, kind: Any, error: BaseException, traceback: Any) -> None:
        # cffi would print an exception of a signal handler and go on: it is kept for `look`, with the status.
        self._interrupts[threading.get_ident()] = error
        given = traceback.tb_frame.f_locals
        self._on_arrival(given["status"], None, given["ticket"], None)

    def map(self, buffer: Any, nbytes: int) -> int:
        """Map the first bytes of a staging buffer for reading."""
        ticket = next(self._numbers)
        info = self._info("WGPUBufferMapCallbackInfo", self._mapped, ticket)
        self._calls.wgpuBufferMapAsync(buffer, self._lib.WGPUMapMode_Read, 0, nbytes, info)
        return ticket

    def work_done(self) -> int:
        """The end of all work submitted so far."""
        ticket = next(self._numbers)
        info = self._info("WGPUQueueWorkDoneCallbackInfo", self._done, ticket)
        self._calls.wgpuQueueOnSubmittedWorkDone(self._queue, info)
        return ticket

    def _info(self, kind: str, callback: Any, ticket: int) -> Any:
        number, mode = self._ffi.cast("void *", ticket), self._lib.WGPUCallbackMode_AllowProcessEvents
        return self._ffi.new(f"{kind} *", {"mode": mode, "callback": callback, "userdata1": number})[0]

    def look(self, ticket: int, naps: Naps) -> Outcome | None:
        """Poll: how it ended, or None while it is pending. Raises what a signal handler raised in a callback."""
        idle = self._lib.wgpuDevicePoll(self._device, False, self._ffi.NULL)
        if self._interrupts and (interrupt := self._interrupts.pop(threading.get_ident(), None)) is not None:
            raise interrupt
        status = self._statuses.get(ticket)
        if status is None:
            # A second signal while the first is being kept loses the callback.
            return Outcome.LOST if naps.overdue(idle) else None
        return Outcome.DONE if status == self._lib.WGPUMapAsyncStatus_Success else Outcome.FAILED

    def wait(self, submission: int) -> None:
        """Block in the driver until one submission is done."""
        self._lib.wgpuDevicePoll(self._device, True, self._ffi.new("WGPUSubmissionIndex *", submission))

    def forget(self, ticket: int) -> None:
        """Drop a ticket."""
        self._statuses.pop(ticket, None)
