"""Profiling wrappers of recorder and reader: host spans, and GPU timestamp queries.

A device that is not watched has no overhead from this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from liveshape.device.buffers import Allocation, only_part
from liveshape.device.library import Library, SubmitHeuristics
from liveshape.device.passes import Pieces, PublicRecorder, Recorder, copy_public, encode_public, put_public
from liveshape.device.protocol import Clock, Command, Device, Watched
from liveshape.device.readback import Reader

_MOST_QUERIES = 4096  # per query set, WebGPU's limit
_TICK_BYTES = 8


@dataclass(frozen=True)
class Opened:
    """A device with its library, and the library's own device and queue."""

    device: Device
    library: Library
    handle: Any
    queue: Any


class WatchedRecorder:
    """Recorder that records host spans, and with a clock writes GPU timestamps."""

    heuristics: SubmitHeuristics | None = None

    def __init__(
        self,
        opened: Opened,
        inner: Recorder,
        clock: Clock,
        note: Callable[[Sequence[Command]], None] | None,
        found: Watched,
    ) -> None:
        self._opened, self._clock, self._note, self._found = opened, clock, note, found
        self._inner = inner if clock is Clock.NOTHING else PublicRecorder(opened.handle, opened.queue)
        self._inside = opened.library.clock_inside in opened.handle.features and opened.library.native is not None
        self._stamps: list[_Stamps] = []

    def encode(self, input_copies: Pieces, commands: Sequence[Command], copies: Pieces, what: str) -> Any:
        """Encode one step, with timestamps if there is a clock."""
        if self._note is not None and commands:
            self._note(commands)
        with _span(self._found, "encode"):
            if self._clock is Clock.NOTHING or not commands:
                return self._inner.encode(input_copies, commands, copies, what)
            encoder = self._opened.handle.create_command_encoder(label=what)
            copy_public(encoder, input_copies)
            stamps = _Stamps(self._opened, commands, 1 if self._clock is Clock.SUBMITS else len(commands), self._inside)
            self._stamps.append(stamps)
            stamps.encode(encoder)
            copy_public(encoder, copies)
            return encoder

    def finish(self, encoder: Any) -> Any:
        """Finish an encoder into a command buffer."""
        with _span(self._found, "encode"):
            return self._inner.finish(encoder)

    def submit(self, work: Any) -> int:
        """Submit a command buffer to the queue."""
        with _span(self._found, "submit"):
            return self._inner.submit(work)

    def write(self, memory: Allocation, begin: int, data: memoryview) -> None:
        """Queue write of host bytes."""
        self._inner.write(memory, begin, data)

    def collect(self) -> None:
        """Read the timestamps of all submits, which are done; the first tick is zero."""
        native, queue = self._opened.library.native, self._opened.queue
        period = 1.0 if native is None else native.timestamp_period(queue)
        rows = [(stamps.commands, stamps.read()) for stamps in self._stamps]
        self._stamps.clear()
        # Ticks may count from 1970: as float seconds they would have no room for nanoseconds.
        zero = min((begin for _, ticks in rows for begin, _ in ticks), default=0)
        scale = 1e-9 * period
        for commands, ticks in rows:
            times = [(scale * (begin - zero), scale * (end - zero)) for begin, end in ticks]
            self._found.submits.append((commands, times))


class _Stamps:
    """Timestamp queries of one submit, around all of its commands or around each.

    Inside a pass one timestamp ends a dispatch and begins the next, since it is written when all work before it is
    done. With timestamps per pass only, each dispatch gets a pass of its own with a begin and an end.
    """

    def __init__(self, opened: Opened, commands: Sequence[Command], count: int, inside: bool) -> None:
        self.commands = tuple(commands)
        self._device, self._native, self._count = opened.device, opened.library.native, count
        self._inside = inside and count > 1
        wgpu, handle = opened.library.wgpu, opened.handle
        ticks = count + 1 if self._inside else 2 * count
        sizes = [min(_MOST_QUERIES, ticks - start) for start in range(0, ticks, _MOST_QUERIES)]
        self._sets = [handle.create_query_set(type=wgpu.QueryType.timestamp, count=size) for size in sizes]
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._ticks = handle.create_buffer(size=_TICK_BYTES * ticks, usage=usage)
        self._staging = opened.device.staging(_TICK_BYTES * ticks)

    def encode(self, encoder: Any) -> None:
        """Encode the commands with timestamps."""
        if self._inside:
            self._encode_inside(encoder)
        else:
            size = len(self.commands) // self._count
            for place in range(self._count):
                encode_public(encoder, self.commands[place * size : (place + 1) * size], self._around(place))
        for place, queries in enumerate(self._sets):
            encoder.resolve_query_set(queries, 0, queries.count, self._ticks, place * _MOST_QUERIES * _TICK_BYTES)
        memory: Allocation = only_part(self._staging)
        encoder.copy_buffer_to_buffer(self._ticks, 0, memory.handle, 0, memory.nbytes)

    def _encode_inside(self, encoder: Any) -> None:
        """Encode one pass, as without profiling, with timestamps inside it."""
        assert self._native is not None
        write_timestamp = self._native.write_timestamp
        compute = encoder.begin_compute_pass()
        write_timestamp(compute, *self._tick(0))
        current = None
        for place, command in enumerate(self.commands):
            current = put_public(compute, command, current)
            write_timestamp(compute, *self._tick(place + 1))
        compute.end()

    def _tick(self, place: int) -> tuple[Any, int]:
        return self._sets[place // _MOST_QUERIES], place % _MOST_QUERIES

    def _around(self, place: int) -> dict[str, Any]:
        """The timestamp_writes of a pass."""
        queries, index = self._tick(2 * place)
        return {"query_set": queries, "beginning_of_pass_write_index": index, "end_of_pass_write_index": index + 1}

    def read(self) -> list[tuple[int, int]]:
        """Begin and end timestamps of each row, in ticks."""
        ticks = memoryview(self._device.read(self._staging, self._staging.nbytes)).cast("Q").tolist()
        self._device.free([self._staging])
        self._ticks.destroy()
        return list(pairwise(ticks) if self._inside else zip(ticks[::2], ticks[1::2], strict=True))


class WatchedReader:
    """Reader that records how long the host waited."""

    def __init__(self, inner: Reader, found: Watched) -> None:
        self._inner, self._found = inner, found

    def read(self, memory: Allocation, nbytes: int) -> bytearray | memoryview:
        """Read the first bytes of a staging buffer, after the submits that write to it."""
        with _span(self._found, "wait"):
            return self._inner.read(memory, nbytes)

    async def read_async(self, memory: Allocation, nbytes: int) -> bytearray | memoryview:
        """Async `read`."""
        return await self._inner.read_async(memory, nbytes)

    def finish(self) -> None:
        """Wait until all submits so far are done."""
        with _span(self._found, "wait"):
            self._inner.finish()


@contextmanager
def _span(found: Watched, name: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        found.spans.append((name, begin, time.perf_counter()))
