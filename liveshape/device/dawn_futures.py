"""Waiting on Dawn: futures, whose end any thread may ask for as often as it likes.

A future answers the same however often it is asked, so nothing is lost when an interrupt comes between its end and the
note of it. Dawn wants a callback even so: an empty one, which keeps what a signal handler raises inside of it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from liveshape.device.waiting import Naps, Outcome


class Futures:
    """Pending futures of one device by number; `check` raises once the device is lost.

    Example: `Futures(ffi, lib, libf, instance, queue, lambda: None).work_done()`.
    """

    def __init__(self, ffi: Any, lib: Any, calls: Any, instance: Any, queue: Any, check: Callable[[], None]) -> None:
        self._ffi, self._lib, self._calls, self._instance = ffi, lib, calls, instance
        self._queue, self._check = queue._internal, check
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[int, Any]] = {}  # future, and the buffer that it maps
        self._interrupts: dict[int, BaseException] = {}  # by thread
        name = "void({}, WGPUStringView, void *, void *)"
        self._mapped, self._done = (
            ffi.callback(name.format(status), _ignore, onerror=self._on_interrupt)
            for status in ("WGPUMapAsyncStatus", "WGPUQueueWorkDoneStatus")
        )

    def map(self, buffer: Any, nbytes: int) -> int:
        """Map the first bytes of a staging buffer for reading."""
        info = self._info("WGPUBufferMapCallbackInfo", self._mapped)
        return self._new(self._calls.wgpuBufferMapAsync(buffer, self._lib.WGPUMapMode_Read, 0, nbytes, info), buffer)

    def work_done(self) -> int:
        """The end of all work submitted so far."""
        info = self._info("WGPUQueueWorkDoneCallbackInfo", self._done)
        return self._new(self._calls.wgpuQueueOnSubmittedWorkDone(self._queue, info), None)

    def look(self, ticket: int, naps: Naps) -> Outcome | None:
        """Poll: how it ended, or None while it is pending. Raises once the device is lost."""
        number, buffer = self._pending.get(ticket, (0, None))
        if number == 0:
            return Outcome.LOST  # another thread saw its end and dropped it
        info = self._ffi.new("WGPUFutureWaitInfo *")
        info.future.id = number
        self._calls.wgpuInstanceWaitAny(self._instance, 1, info, 0)
        if self._interrupts and (interrupt := self._interrupts.pop(threading.get_ident(), None)) is not None:
            raise interrupt
        if not info.completed:
            return None
        self._check()  # futures of a lost device end as if their work were done
        mapped = buffer is None or self._lib.wgpuBufferGetMapState(buffer) == self._lib.WGPUBufferMapState_Mapped
        return Outcome.DONE if mapped else Outcome.FAILED

    def wait(self, submission: int) -> None:
        """Dawn has no index of a submission to wait for."""

    def forget(self, ticket: int) -> None:
        """Drop a number that nobody polls any more."""
        self._pending.pop(ticket, None)

    def _info(self, kind: str, callback: Any) -> Any:
        return self._ffi.new(f"{kind} *", {"mode": self._lib.WGPUCallbackMode_WaitAnyOnly, "callback": callback})[0]

    def _new(self, future: Any, buffer: Any) -> int:
        ticket = next(self._numbers)
        self._pending[ticket] = (future.id, buffer)
        return ticket

    def _on_interrupt(self, kind: Any, error: BaseException, traceback: Any) -> None:
        # cffi would print an exception of a signal handler and go on: it is kept for `look`.
        self._interrupts[threading.get_ident()] = error


def _ignore(status: int, message: Any, unused: Any, unused_too: Any) -> None:
    """A callback for Dawn: the future itself is asked."""
