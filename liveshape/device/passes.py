"""Command recording: dispatches and copies as one command buffer with one compute pass.

The raw C calls cost a third of wgpu-py's methods, and their objects are released without running any Python, so no
signal is lost in a destructor. The methods are the fallback; a test compares both byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from liveshape.device.buffers import Allocation
from liveshape.device.library import NativeCalls, SubmitHeuristics
from liveshape.device.protocol import Command
from liveshape.errors import DeviceError

Pieces = Iterable[tuple[Allocation, int, Allocation, int, int]]


class Recorder(Protocol):
    """Encodes, finishes and submits command buffers: RawRecorder or PublicRecorder."""

    heuristics: SubmitHeuristics | None  # of submits by another thread; None where that may not encode and finish

    def encode(self, input_copies: Pieces, commands: Sequence[Command], copies: Pieces, what: str) -> Any:
        """Encode one step: input copies, a compute pass, output copies. Returns the command encoder."""

    def finish(self, encoder: Any) -> Any:
        """Finish an encoder into a command buffer."""

    def submit(self, work: Any) -> int:
        """Submit a command buffer to the queue; returns the submission index, -1 where there is none."""

    def write(self, memory: Allocation, begin: int, data: memoryview) -> None:
        """Queue write of host bytes, ordered before the next submit."""


class RawRecorder:
    """Recorder through the raw C calls."""

    def __init__(self, native: NativeCalls, device: Any, queue: Any) -> None:
        self._ffi, self._lib, self._calls, self._submit = native.ffi, native.lib, native.calls, native.submit
        self._device, self._queue = device._internal, queue._internal
        self.heuristics: SubmitHeuristics | None = native.heuristics

    def encode(self, input_copies: Pieces, commands: Sequence[Command], copies: Pieces, what: str) -> Any:
        """Encode one step: input copies, a compute pass, output copies. Returns the command encoder."""
        ffi = self._ffi
        encoder = ffi.gc(
            self._calls.wgpuDeviceCreateCommandEncoder(self._device, ffi.NULL), self._lib.wgpuCommandEncoderRelease
        )
        self._copy(encoder, input_copies)
        if commands:
            self._encode_pass(encoder, commands)
        self._copy(encoder, copies)
        return encoder

    def finish(self, encoder: Any) -> Any:
        """Finish an encoder into a command buffer; wgpu validates and translates the commands only now."""
        ffi = self._ffi
        return ffi.gc(self._calls.wgpuCommandEncoderFinish(encoder, ffi.NULL), self._lib.wgpuCommandBufferRelease)

    def submit(self, work: Any) -> int:
        """Submit a command buffer to the queue; returns the submission index, -1 where there is none."""
        return self._submit(self._queue, work)

    def write(self, memory: Allocation, begin: int, data: memoryview) -> None:
        """Queue write of host bytes, ordered before the next submit."""
        # The address alone: the garbage collector would clear a view held by an error before its holder.
        address = self._ffi.cast("uint8_t *", self._ffi.from_buffer(data))
        self._calls.wgpuQueueWriteBuffer(self._queue, memory.raw, begin, address, len(data))

    def _copy(self, encoder: Any, pieces: Pieces) -> None:
        for source, begin, target, at, size in pieces:
            self._calls.wgpuCommandEncoderCopyBufferToBuffer(encoder, source.raw, begin, target.raw, at, size)

    def _encode_pass(self, encoder: Any, commands: Sequence[Command]) -> None:
        """Encode the commands as one compute pass; validation errors surface at `finish`."""
        ffi, lib, calls = self._ffi, self._lib, self._calls
        handle = ffi.gc(calls.wgpuCommandEncoderBeginComputePass(encoder, ffi.NULL), lib.wgpuComputePassEncoderRelease)
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        current = None
        for command in commands:
            bound, slot = command.bound, command.slot
            pipeline = bound.raw_pipeline
            if pipeline is not current:
                current = pipeline
                set_pipeline(handle, pipeline)
            offset = command.prepared
            if offset is None:
                check_commands((command,))
                offset = command.prepared = ffi.new("uint32_t[1]", [max(slot.offset, 0)])
            set_bind_group(handle, 0, bound.raw_bind_group, bound.has_params, offset)
            dispatch(handle, *slot.grid)
        calls.wgpuComputePassEncoderEnd(handle)


class PublicRecorder:
    """Recorder through wgpu-py's public methods."""

    heuristics: SubmitHeuristics | None = None

    def __init__(self, device: Any, queue: Any) -> None:
        self._device, self._queue = device, queue

    def encode(self, input_copies: Pieces, commands: Sequence[Command], copies: Pieces, what: str) -> Any:
        """Encode one step: input copies, a compute pass, output copies. Returns the command encoder."""
        encoder = self._device.create_command_encoder(label=what)
        copy_public(encoder, input_copies)
        if commands:
            encode_public(encoder, commands)
        copy_public(encoder, copies)
        return encoder

    def finish(self, encoder: Any) -> Any:
        """Finish an encoder into a command buffer."""
        return encoder.finish()

    def submit(self, work: Any) -> int:
        """Submit a command buffer to the queue; wgpu-py has no submission index."""
        self._queue.submit([work])
        return -1

    def write(self, memory: Allocation, begin: int, data: memoryview) -> None:
        """Queue write of host bytes, ordered before the next submit."""
        self._queue.write_buffer(memory.handle, begin, data)


def copy_public(encoder: Any, pieces: Pieces) -> None:
    """Encode buffer-to-buffer copies."""
    for source, begin, target, at, size in pieces:
        encoder.copy_buffer_to_buffer(source.handle, begin, target.handle, at, size)


def encode_public(encoder: Any, commands: Sequence[Command], clock: Any = None) -> None:
    """Encode the commands as one compute pass; `clock` is its timestamp_writes.

    Example: `encode_public(device._device.create_command_encoder(), commands)`.
    """
    compute = encoder.begin_compute_pass() if clock is None else encoder.begin_compute_pass(timestamp_writes=clock)
    current = None
    for command in commands:
        current = put_public(compute, command, current)
    compute.end()


def put_public(compute: Any, command: Command, current: Any) -> Any:
    """Encode one dispatch; sets the pipeline unless it is `current`, and returns it."""
    bound, slot = command.bound, command.slot
    if bound.pipeline is not current:
        compute.set_pipeline(bound.pipeline)
    compute.set_bind_group(0, bound.bind_group, [slot.offset] if bound.has_params else [])
    compute.dispatch_workgroups(*slot.grid)
    return bound.pipeline


def check_commands(commands: Iterable[Command]) -> None:
    """Raise for a command that cannot be encoded, by name.

    Example: `check_commands([command])`.
    """
    for command in commands:
        if command.bound.bind_group is None:
            raise DeviceError(f"{command.label}: its memory was freed: load the program again")
        if command.bound.has_params and command.slot.offset < 0:
            raise DeviceError(f"{command.label}: it takes params, and its slot has no place for them")
