"""GPU buffer allocations and their state (mapped, submitted, freed); wgpu-native aborts the process on misuse.

Submitting a mapped or destroyed buffer, or reading one that is not mapped, cannot be caught: so each allocation
tracks its state, updated before the change, because an interrupt may come between any two lines.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from liveshape.device.host_staging import HostStaging
from liveshape.device.pipelines import Pipeline
from liveshape.device.protocol import Buffer
from liveshape.device.worker import Job
from liveshape.errors import DeviceError
from liveshape.graph.limits import Limits, segment_bytes
from liveshape.kernels import Variant

_Kind = TypeVar("_Kind")


class Living(Generic[_Kind]):
    """A set of weak references.

    Without weakref callbacks: each would be one more place that swallows a signal.

    Example: `Living[Allocation]().add(memory)`.
    """

    __slots__ = ("_all", "_room")

    def __init__(self) -> None:
        self._all: list[weakref.ref[_Kind]] = []
        self._room = 64

    def add(self, each: _Kind) -> None:
        """Add an object."""
        self._all.append(weakref.ref(each))
        if len(self._all) > self._room:
            self._all = [weakref.ref(living) for living in self]
            self._room = 64 + 2 * len(self._all)

    def __iter__(self) -> Iterator[_Kind]:
        return iter([living for each in self._all if (living := each()) is not None])


class Bound:
    """A pipeline with its bind group, also as raw handles where the C calls are used.

    It keeps the pipeline alive.
    """

    __slots__ = ("__weakref__", "bind_group", "has_params", "kept", "pipeline", "raw_bind_group", "raw_pipeline")

    def __init__(self, pipeline: Pipeline, bind_group: Any, has_params: bool) -> None:
        self.kept, self.bind_group, self.has_params = pipeline, bind_group, has_params
        self.pipeline = pipeline.handle
        self.raw_pipeline, self.raw_bind_group = self.pipeline._internal, bind_group._internal

    def forget(self) -> None:
        """Drop the bind group once a buffer of it is freed, so that it can no longer be encoded."""
        self.bind_group = self.raw_bind_group = None


class Allocation:
    """A wgpu buffer and its state. With the C calls nobody waits for the device while holding `lock`."""

    __slots__ = (
        "__weakref__",
        "bounds",
        "freed",
        "handle",
        "host",
        "job",
        "label",
        "lock",
        "mapped",
        "nbytes",
        "raw",
        "spares",
        "submission",
        "submitted",
        "ticket",
        "wanted",
    )

    def __init__(self, handle: Any, nbytes: int, label: str, host: HostStaging | None = None) -> None:
        self.nbytes, self.label = nbytes, label
        self.place(handle, host)
        self.spares: list[HostStaging] = []  # that lent results to somebody
        self.lock = threading.RLock()
        self.freed = False
        self.mapped = False  # set before mapping, cleared after unmapping: true if it may be mapped
        self.ticket: int | None = None  # of a pending or completed map, cleared before unmapping
        self.wanted = 0  # bytes of that mapping
        self.submission = -1  # index of the last submission that copies into it, where available
        self.submitted = 0  # count of submits up to the one that writes to it
        self.job: Job | None = None  # the worker's job, where that submit is deferred
        self.bounds = Living[Bound]()

    def place(self, handle: Any, host: HostStaging | None) -> None:
        """Where it lies from now on; `host` is the memory of the host that this is."""
        self.handle, self.raw, self.host = handle, getattr(handle, "_internal", None), host

    def check(self) -> None:
        """Raise DeviceError if the buffer was freed."""
        if self.freed:
            raise DeviceError(f"{self.label} ({self.nbytes:,} bytes) was freed: load the program again")


class Register:
    """Live allocations of a device: neither freed nor garbage-collected, as those of an interrupted call are."""

    def __init__(self) -> None:
        self._all = Living[Allocation]()

    def add(self, memory: Allocation) -> None:
        """Track an allocation."""
        self._all.add(memory)

    @property
    def nbytes(self) -> int:
        """Total bytes of live allocations."""
        return sum(memory.nbytes for memory in self._all if not memory.freed)


def only_part(buffer: Buffer) -> Allocation:
    """The single allocation of a uniform or staging buffer, which are never split.

    Example: `only_part(device.staging(64)).mapped`.
    """
    ((memory, _),) = buffer.parts
    assert isinstance(memory, Allocation)
    return memory


def ranges(buffer: Buffer, offset: int, nbytes: int) -> Iterator[tuple[Allocation, int, int]]:
    """Split a byte range of a buffer into (allocation, offset, bytes) pieces.

    Example: `list(ranges(buffer, 0, 64))`.
    """
    if offset < 0 or offset + nbytes > buffer.nbytes:
        raise DeviceError(f"bytes {offset:,} to {offset + nbytes:,} are outside a buffer of {buffer.nbytes:,} bytes")
    start = 0
    for memory, size in buffer.parts:
        low, high = max(offset, start), min(offset + nbytes, start + size)
        if low < high:
            memory.check()
            yield memory, low - start, high - low
        start += size


def allocate(
    nbytes: int, limits: Limits, create: Callable[[int], Allocation], free: Callable[[Iterable[Buffer]], None]
) -> Buffer:
    """A storage buffer; above the buffer size limit it is split into segments, all of them or none.

    Example: `allocate(1 << 33, device.limits, create, device.free)`.
    """
    size = nbytes if nbytes <= limits.max_buffer_bytes else segment_bytes(limits)
    parts: list[tuple[Allocation, int]] = []
    try:
        for start in range(0, nbytes, size):
            part = min(size, nbytes - start)
            parts.append((create(part), part))
    except BaseException:
        free([Buffer(tuple(parts), nbytes)])
        raise
    return Buffer(tuple(parts), nbytes)


def bindings(
    variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer, limits: Limits
) -> list[tuple[Allocation, int, int]]:
    """What a bind group binds: the first bytes of each buffer, one range per segment, then the uniforms.

    Example: `bindings(variant, [(buffer, 64)], uniforms, device.limits)`.
    """
    found: list[tuple[Allocation, int, int]] = []
    for (buffer, nbytes), count in zip(buffers, variant.segments, strict=True):
        size = max(nbytes if count == 1 else segment_bytes(limits), 1)
        pieces = [list(ranges(buffer, begin, min(size, nbytes - begin))) for begin in range(0, nbytes, size)]
        if len(pieces) != count or any(len(piece) != 1 for piece in pieces):
            raise DeviceError(
                f"kernel {variant.label}: {nbytes:,} bytes of {buffer.nbytes:,} in {len(buffer.parts)} parts "
                f"cannot be bound as {count}; binding_parts() says how many bindings they take"
            )
        found += [piece for (piece,) in pieces]
    if variant.kernel.param_bytes:
        found.append((only_part(uniforms), 0, variant.kernel.param_bytes))
    return found


def copied_ranges(
    source: Buffer, start: int, target: Buffer, place: int, nbytes: int
) -> Iterator[tuple[Allocation, int, Allocation, int, int]]:
    """Buffer-to-buffer copies (source, offset, target, offset, bytes) for a byte range.

    The two may be segmented differently.

    Example: `list(copied_ranges(block, 0, staging, 0, 64))`.
    """
    for memory, begin, size in ranges(source, start, nbytes):
        for into, at, part in ranges(target, place, size):
            yield memory, begin, into, at, part
            begin += part
        place += size
