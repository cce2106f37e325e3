"""Submitting and reading through the C calls of wgpu-native, which can wait for one submission and not for all.

The methods of wgpu-py wait until the device is idle, on a thread of their own. A step that was submitted ahead would be
waited for, too, and nothing would run while the host works.
"""

from __future__ import annotations

import itertools
from typing import Any


class Readback:
    """The calls for one device: `lib` names constants, `calls` raise the errors of the device, `ffi` makes C values."""

    def __init__(self, lib: Any, calls: Any, ffi: Any, device: Any, queue: Any) -> None:
        self._calls, self._ffi, self._device, self._queue = calls, ffi, device._internal, queue._internal
        self._read_mode, self._success = lib.WGPUMapMode_Read, lib.WGPUMapAsyncStatus_Success
        self._tickets = itertools.count(1)
        self._statuses: dict[int, int] = {}
        self._mapped = ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)", self._on_mapped)
        self._mode = lib.WGPUCallbackMode_AllowProcessEvents

    def _on_mapped(self, status: int, message: Any, ticket: Any, unused: Any) -> None:
        self._statuses[int(self._ffi.cast("uintptr_t", ticket))] = status

    def submit(self, commands: Any) -> int:
        """Submit one command buffer; its number is what `read` waits for."""
        handles = self._ffi.new("WGPUCommandBuffer[1]", [commands._internal])
        return int(self._calls.wgpuQueueSubmitForIndex(self._queue, 1, handles))

    def read(self, staging: Any, nbytes: int, submission: int) -> bytearray:
        """The first bytes of a staging buffer, once this submission is done."""
        calls, ffi, handle = self._calls, self._ffi, staging._internal
        ticket = next(self._tickets)  # another thread may read at the same time, and receive our callback
        info = {"mode": self._mode, "callback": self._mapped, "userdata1": ffi.cast("void *", ticket)}
        calls.wgpuBufferMapAsync(handle, self._read_mode, 0, nbytes, ffi.new("WGPUBufferMapCallbackInfo *", info)[0])
        until = ffi.new("WGPUSubmissionIndex *", submission)
        while ticket not in self._statuses:
            calls.wgpuDevicePoll(self._device, True, until)
        status = self._statuses.pop(ticket)
        if status != self._success:
            raise RuntimeError(f"mapping ended with status {status}")
        result = bytearray(ffi.buffer(calls.wgpuBufferGetConstMappedRange(handle, 0, nbytes), nbytes))
        calls.wgpuBufferUnmap(handle)
        return result
