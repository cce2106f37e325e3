"""Readback of staging buffers: map, copy, unmap, safe against interrupts and threads between any two of them.

The C calls of wgpu-native wait for one submission; the methods of wgpu-py, the fallback, wait until the device is
idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from liveshape.device.buffers import Allocation
from liveshape.device.host_memory import BY_THREADS, HostMemory
from liveshape.device.library import Library, NativeCalls
from liveshape.device.waiting import SHORT, Naps, Outcome, Pace
from liveshape.device.worker import Worker
from liveshape.errors import DeviceError

Bytes = bytearray | memoryview
_MOST_TRIES = 1000  # retries of a map lost to another reader or to an interrupt


class Reader(Protocol):
    """Readback: RawReader or PublicReader."""

    def read(self, memory: Allocation, nbytes: int) -> Bytes:
        """Read the first bytes of a staging buffer, after the submits that write to it."""

    async def read_async(self, memory: Allocation, nbytes: int) -> Bytes:
        """Async `read`."""

    def finish(self) -> None:
        """Wait until all submits so far are done."""


def _begin(memory: Allocation, nbytes: int, submitting: threading.RLock) -> None:
    """Mark the buffer as mapped, after a submit of it that is in progress."""
    with submitting:
        memory.mapped, memory.wanted = True, nbytes


class RawReader:
    """Readback through the raw C calls, by polling."""

    def __init__(self, native: NativeCalls, device: Any, queue: Any, submitting: threading.RLock, pace: Pace) -> None:
        self._ffi, self._calls, self._error = native.ffi, native.calls, native.error
        self._submitting, self._pace = submitting, pace
        self._events = native.events(device, queue)
        self._host = HostMemory()
        self._worker = Worker("liveshape reader")  # reads what is large

    def read(self, memory: Allocation, nbytes: int) -> Bytes:
        """Poll until the map is done; sleeps let signals and other threads through."""
        for found in self._looks(memory, nbytes):
            if not isinstance(found, Naps):
                return found
            self._rest(found, memory.submission)
        raise AssertionError("looks end with the bytes or an error")

    async def read_async(self, memory: Allocation, nbytes: int) -> Bytes:
        """Poll with `await` between the polls."""
        for found in self._looks(memory, nbytes):
            if not isinstance(found, Naps):
                return found
            await asyncio.sleep(found.next())
        raise AssertionError("looks end with the bytes or an error")

    def finish(self) -> None:
        """Poll until the work submitted so far is done."""
        ticket, naps = self._events.work_done(), self._pace.naps()
        submission = self._pace.submission
        while self._events.look(ticket, naps) is None:  # if its callback was lost, the device is idle
            self._rest(naps, submission)
        self._events.forget(ticket)
        self._pace.ended()

    def _rest(self, naps: Naps, submission: int) -> None:
        """Between two polls: sleep, or block in the driver for short work."""
        left = self._pace.left
        if 0 < left < SHORT and submission >= 0:
            self._events.wait(submission)
        elif nap := naps.next(long=left > SHORT):  # a sleep of 0 would take 55 us; the poll itself lets others in
            time.sleep(nap)

    def _looks(self, memory: Allocation, nbytes: int) -> Iterator[Naps | Bytes]:
        """Poll: yields the backoff before each sleep, and at last the bytes.

        The first reader maps, the first to see it done copies, and an interrupted one may call again.
        """
        naps = self._pace.naps()
        for _ in range(_MOST_TRIES):
            with memory.lock:
                memory.check()
                if memory.ticket is None:
                    self._map(memory, nbytes)
                ticket = memory.ticket
            assert ticket is not None
            while (outcome := self._events.look(ticket, naps)) is None and memory.ticket == ticket:
                yield naps
            take = partial(self._taken, memory, nbytes, ticket, outcome)
            # No interrupt may come between threads that copy and the unmap.
            whole = nbytes < BY_THREADS or memory.host is not None
            data = take() if whole else self._worker.start(take).wait()
            if data is not None:
                self._pace.ended()
                yield data
        raise DeviceError(f"{memory.label} was not there after {_MOST_TRIES} tries: run the call again")

    def _map(self, memory: Allocation, nbytes: int) -> None:
        if memory.host is not None:  # it is there once the device is done
            memory.ticket = self._events.work_done()
            return
        if memory.mapped:  # a reader was interrupted between map and unmap
            with contextlib.suppress(self._error):
                self._calls.wgpuBufferUnmap(memory.raw)
        _begin(memory, nbytes, self._submitting)
        memory.ticket = self._events.map(memory.raw, nbytes)

    def _taken(self, memory: Allocation, nbytes: int, ticket: int, outcome: Outcome | None) -> Bytes | None:
        with memory.lock:
            memory.check()
            if outcome is None or memory.ticket != ticket:
                return None  # another thread read and unmapped it
            return self._take(memory, nbytes, ticket, outcome)

    def _take(self, memory: Allocation, nbytes: int, ticket: int, outcome: Outcome) -> Bytes | None:
        memory.ticket = None
        self._events.forget(ticket)
        if outcome is Outcome.LOST:  # with its callback, to an interrupt: map again
            return None
        if outcome is Outcome.FAILED:
            raise DeviceError(f"mapping {memory.label} failed")
        if memory.host is not None:
            return memory.host.lent(nbytes)
        data = None
        if nbytes <= memory.wanted:
            mapped = self._calls.wgpuBufferGetConstMappedRange(memory.raw, 0, nbytes)
            data = self._host.copied(self._ffi.buffer(mapped, nbytes), nbytes)
        self._calls.wgpuBufferUnmap(memory.raw)
        memory.mapped = False
        return data


class PublicReader:
    """Readback through wgpu-py's methods, on a worker thread: a signal inside them would leave their locks held."""

    def __init__(self, library: Library, device: Any, queue: Any, submitting: threading.RLock) -> None:
        self._wgpu, self._device, self._queue, self._submitting = library.wgpu, device, queue, submitting
        self._source = device.create_buffer(size=4, usage=library.wgpu.BufferUsage.COPY_SRC)
        self._worker = Worker("liveshape reader")
        self._host = HostMemory()

    def read(self, memory: Allocation, nbytes: int) -> Bytes:
        """Wait for the worker; after an interrupt it still completes the read."""
        data: Bytes = self._worker.start(lambda: self._read(memory, nbytes)).wait()
        return data

    async def read_async(self, memory: Allocation, nbytes: int) -> Bytes:
        """Poll the worker, with `await` between the polls."""
        job, naps = self._worker.start(lambda: self._read(memory, nbytes)), Naps()
        while not job.over:
            await asyncio.sleep(naps.next())
        data: Bytes = job.wait()
        return data

    def finish(self) -> None:
        """Read back a copy submitted last: wgpu-py 0.32 has no on_submitted_work_done."""
        self._worker.start(self._finish).wait()

    def _read(self, memory: Allocation, nbytes: int) -> Bytes:
        with memory.lock:
            memory.check()
            _begin(memory, nbytes, self._submitting)
            memory.handle.map_sync(self._wgpu.MapMode.READ, 0, nbytes)
            data = self._host.copied(memory.handle.read_mapped(0, nbytes, copy=False), nbytes)
            memory.handle.unmap()
            memory.mapped = False
        return data

    def _finish(self) -> Bytes:
        usage = self._wgpu.BufferUsage.MAP_READ | self._wgpu.BufferUsage.COPY_DST
        memory = Allocation(self._device.create_buffer(size=4, usage=usage), 4, "the mark of a flush")
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(self._source, 0, memory.handle, 0, 4)
        self._queue.submit([encoder.finish()])
        data = self._read(memory, 4)
        memory.handle.destroy()
        return data
