"""Reading staging memory: map, copy, unmap, with an interrupt or another thread between any two of them.

The C calls of wgpu-native wait for one submission; the methods of wgpu-py, the fallback, wait on a thread of their own
until the device is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any, Protocol

from liveshape.device.library import calls, ffi, lib, wgpu
from liveshape.device.memory import Memory
from liveshape.device.waiting import NEVER, Naps, Tickets, raise_interrupt
from liveshape.errors import DeviceError


class Reader(Protocol):
    """One of the two ways below."""

    def read(self, memory: Memory, nbytes: int) -> bytearray:
        """The first bytes, once what was submitted for the memory is done."""

    async def read_async(self, memory: Memory, nbytes: int) -> bytearray:
        """The same, awaited."""

    def finish(self) -> None:
        """Wait until everything submitted so far is done."""


def _begin(memory: Memory, nbytes: int, submitting: threading.RLock) -> None:
    """From here on the memory counts as mapped; who is just submitting it may end first."""
    with submitting:
        memory.mapped, memory.wanted = True, nbytes


class RawReader:
    """Through the C calls."""

    def __init__(self, device: Any, queue: Any, submitting: threading.RLock) -> None:
        self._queue, self._submitting = queue._internal, submitting
        self._tickets = Tickets(device)

    def read(self, memory: Memory, nbytes: int) -> bytearray:
        """Look until it is there; sleeping lets signals and threads through."""
        naps = Naps()
        while (data := self._look(memory, nbytes, naps)) is None:
            time.sleep(naps.next())
        return data

    async def read_async(self, memory: Memory, nbytes: int) -> bytearray:
        """The same looks, with other tasks between them."""
        naps = Naps()
        while (data := self._look(memory, nbytes, naps)) is None:
            await asyncio.sleep(naps.next())
        return data

    def finish(self) -> None:
        """Look until the device has told that it is done."""
        ticket, naps = self._tickets.new(), Naps()
        info = self._tickets.info("WGPUQueueWorkDoneCallbackInfo", self._tickets.done, ticket)
        calls.wgpuQueueOnSubmittedWorkDone(self._queue, info)
        while (status := self._tickets.look(ticket, naps)) is None:
            time.sleep(naps.next())
        self._tickets.forget(ticket)
        if status == NEVER:
            raise_interrupt()

    def _look(self, memory: Memory, nbytes: int, naps: Naps) -> bytearray | None:
        """The bytes if they are there. Who comes first maps, who sees it first copies; one interrupted comes again."""
        with memory.lock:
            memory.check()
            if memory.ticket is None:
                self._map(memory, nbytes)
            ticket = memory.ticket
        assert ticket is not None
        status = self._tickets.look(ticket, naps)
        if status is None:
            return None
        with memory.lock:
            memory.check()
            if memory.ticket != ticket:  # another thread took it; the next look maps again
                return None
            return self._take(memory, nbytes, status)

    def _map(self, memory: Memory, nbytes: int) -> None:
        if memory.mapped:  # somebody was interrupted between mapping and unmapping
            with contextlib.suppress(wgpu.GPUError):
                calls.wgpuBufferUnmap(memory.raw)
        _begin(memory, nbytes, self._submitting)
        try:
            memory.ticket = self._tickets.new()
            info = self._tickets.info("WGPUBufferMapCallbackInfo", self._tickets.mapped, memory.ticket)
            calls.wgpuBufferMapAsync(memory.raw, lib.WGPUMapMode_Read, 0, nbytes, info)
        except BaseException:
            memory.ticket = None
            raise

    def _take(self, memory: Memory, nbytes: int, status: int) -> bytearray | None:
        ticket, memory.ticket = memory.ticket, None
        assert ticket is not None
        self._tickets.forget(ticket)
        if status == NEVER:
            raise_interrupt()
        if status != lib.WGPUMapAsyncStatus_Success:
            raise DeviceError(f"mapping {memory.label} ended with status {status}")
        data = None
        if nbytes <= memory.wanted:
            data = bytearray(ffi.buffer(calls.wgpuBufferGetConstMappedRange(memory.raw, 0, nbytes), nbytes))
        calls.wgpuBufferUnmap(memory.raw)
        memory.mapped = False
        return data


class PublicReader:
    """Through the methods of wgpu-py: the lock is held while a thread of wgpu-py waits."""

    def __init__(self, device: Any, queue: Any, submitting: threading.RLock) -> None:
        self._device, self._queue, self._submitting = device, queue, submitting
        self._source = device.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_SRC)

    def read(self, memory: Memory, nbytes: int) -> bytearray:
        """An interrupted mapping is waited for again."""
        with memory.lock:
            memory.check()
            if memory.promise is None:
                if memory.mapped:
                    raise DeviceError(f"reading {memory.label} was interrupted: run the call again")
                _begin(memory, nbytes, self._submitting)
                memory.promise = memory.handle.map_async(wgpu.MapMode.READ, 0, nbytes)
            memory.promise.sync_wait()
            data = bytearray(memory.handle.read_mapped(0, nbytes, copy=False))
            memory.promise = None
            memory.handle.unmap()
            memory.mapped = False
        return data

    async def read_async(self, memory: Memory, nbytes: int) -> bytearray:
        """On a thread: a task that waits must not keep the lock from the thread that it runs on."""
        return await asyncio.to_thread(self.read, memory, nbytes)

    def finish(self) -> None:
        """Read a copy that is made after everything else: the queue's own promise cannot be had in wgpu-py 0.32."""
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        memory = Memory(self._device.create_buffer(size=4, usage=usage), 4, "the mark of a flush")
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(self._source, 0, memory.handle, 0, 4)
        self._queue.submit([encoder.finish()])
        self.read(memory, 4)
        memory.handle.destroy()
