"""The device protocol: buffers, bind groups, one submit per step, and readback, blocking or async.

Layers above use nothing else, so wgpu, a mock device and a browser's device are interchangeable. All methods are
thread-safe. Failures raise DeviceError, and after a device loss every call does. docs/adding.md walks through adding
a device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from threading import get_ident
from typing import Any, Protocol, runtime_checkable

from liveshape.graph.constants import Constant
from liveshape.graph.limits import Limits, MatrixShape
from liveshape.kernels import Variant
from liveshape.plan.params import Slot


@dataclass(frozen=True)
class Adapter:
    """Info of one GPU adapter, as `liveshape devices` lists it."""

    index: int
    name: str
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU", ...
    backend: str
    driver: str
    software: bool  # a CPU implementation, such as llvmpipe
    half: bool
    max_buffer_bytes: int
    max_binding_bytes: int
    library: str = "wgpu"  # by which it is reached
    matrices: tuple[MatrixShape, ...] = ()  # of its matrix units, as far as the library opens them
    fast_matrices: bool = False  # whether float32 products gain by these: see fast_matrices.py


@dataclass(frozen=True)
class Buffer:
    """A device buffer: one allocation, or one per segment (`segment_bytes`) above the limits of a binding or buffer."""

    parts: tuple[tuple[Any, int], ...]  # (the device's own allocation, its bytes)
    nbytes: int


class Command:
    """One dispatch: a bound kernel, the slot of its params and grid (read at every submit), and its name."""

    __slots__ = ("bound", "label", "origin", "prepared", "slot")

    def __init__(self, bound: Any, slot: Slot, label: str, origin: tuple[int, int] = (-1, 0)) -> None:
        self.bound, self.slot, self.label = bound, slot, label
        self.origin = origin  # its node, and the index of the step
        self.prepared: Any = None  # the device's encoding, cached at the first submit


@dataclass
class Counters:
    """Counters of allocations, compilations and submits; in steady state only `submits` grows."""

    buffers: int = 0
    pipelines: int = 0
    bind_groups: int = 0
    submits: int = 0
    live_bytes: int = 0  # of live allocations, updated when the counters are read


Span = tuple[str, float, float]  # name, begin and end in seconds


@dataclass
class Watched:
    """Host spans and GPU timestamps recorded while a device was watched.

    `spans` are the host's: encode, submit and wait, by time.perf_counter. `submits` are GPU timestamps from zero on:
    the commands of each submit, with begin and end per command or per submit.
    """

    spans: list[Span] = field(default_factory=list)
    submits: list[tuple[Sequence[Command], list[tuple[float, float]]]] = field(default_factory=list)


class Clock(Enum):
    """Granularity of GPU timestamps."""

    NOTHING = 0
    SUBMITS = 1
    COMMANDS = 2


Copy = tuple[Buffer, int, int, Buffer, int]  # source, start, count, staging buffer, offset
InputCopy = tuple[Buffer, int, Buffer]  # source, bytes, target; both from offset 0


class Device(Protocol):
    """An open device.

    Example: `device.write(device.buffer(64, "weights"), 0, bytes(64))`.
    """

    name: str
    adapter: Adapter
    limits: Limits
    has_clock: bool  # timestamp queries
    steps_ahead: int  # short steps to keep in flight, so that the device never waits for the host
    latency: float  # seconds until the host hears of a step that is done, which steps in flight hide

    @property
    def counters(self) -> Counters:
        """The counters, always the same object, up to date."""

    @property
    def lost(self) -> bool:
        """Whether the device is lost."""

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """Allocate a zeroed storage buffer for tensors."""

    def uniforms(self, nbytes: int) -> Buffer:
        """Allocate a uniform buffer for the params of commands."""

    def staging(self, nbytes: int) -> Buffer:
        """Allocate a staging buffer for readback."""

    def free(self, buffers: Iterable[Buffer]) -> None:
        """Free buffers at once. Use after free is a DeviceError; a double free does nothing."""

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Upload host bytes, a multiple of four, to a storage or uniform buffer at `offset`."""

    def flush(self) -> None:
        """Wait until all writes and submits so far are done."""

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> Any:
        """Create a bind group: the first bytes of each buffer, in `variant.segments` bindings, then the uniforms."""

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> None:
        """Submit in this order: input copies, commands, copies to staging. An error names the command.

        `stateless`: nothing that the commands write is read by a later call, so that an interrupt may leave a part.
        """

    def read(self, staging: Buffer, nbytes: int) -> bytearray | memoryview:
        """Read back the first bytes of a staging buffer, after the submits that write to it.

        Interruptible by signals at any moment. After an interrupted read a staging buffer may be read again, but not
        submitted again: it is freed.
        """

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray | memoryview:
        """Async `read`."""

    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> AbstractContextManager[Watched]:
        """Record host spans, and GPU timestamps at the end of the context; nobody else may submit meanwhile.

        `note` is called with the commands of a submit before they are encoded. Without `has_clock` there are no GPU
        timestamps.
        """


@runtime_checkable
class UploadsFiles(Protocol):
    """A device that uploads constants from their files by itself."""

    def upload(self, buffer: Buffer, constant: Constant) -> bool:
        """Upload a constant that lies in its file as on the device; False where its bytes are not those of files."""


@runtime_checkable
class CompilesAtDispatch(Device, Protocol):
    """A device whose driver may finish a kernel when it is first dispatched, and not before."""

    compiles_at_dispatch: bool

    def another(self) -> Device:
        """Open one more device of the same adapter, with the same limits."""


@runtime_checkable
class CompilesAhead(Protocol):
    """A device that compiles several kernels at once."""

    def compiling_ahead(
        self, variants: Collection[Variant], first: Collection[Variant] = ()
    ) -> AbstractContextManager[None]:
        """Compile these kernels, some of them `first`, while in the context, in which all should be bound.

        Errors come from `bind`.
        """


@dataclass(frozen=True)
class Offer:
    """An adapter and a function that opens its device, with the adapter's own limits or with given ones."""

    adapter: Adapter
    open: Callable[[Limits | None], Device]


DEVICE_THREADS: set[int] = set()  # idents of the devices' own Python threads


def in_device_thread() -> bool:
    """Whether this is a device's own thread. The garbage collector runs finalizers in any thread: here they must not
    wait for anyone who may wait for this thread.

    >>> in_device_thread()
    False
    """
    return get_ident() in DEVICE_THREADS
