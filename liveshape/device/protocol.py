"""What a device is: memory, kernels bound to it, one submit per step, and reading that can be waited for or awaited.

Everything above asks for nothing else, so that wgpu, a device on paper and the one of a browser serve alike. Any number
of threads may call the methods at once. What cannot be done raises DeviceError, and so does every call from then on if
the device is lost. docs/adding.md walks through a device of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from threading import get_ident
from typing import Any, Protocol

from liveshape.graph.limits import Limits
from liveshape.kernels import Variant
from liveshape.plan.params import Slot


@dataclass(frozen=True)
class Adapter:
    """One GPU that a machine offers, as `liveshape devices` lists it."""

    index: int
    name: str
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU", ...
    backend: str
    driver: str
    software: bool  # it computes on the host's cores
    half: bool
    max_buffer_bytes: int
    max_binding_bytes: int


@dataclass(frozen=True)
class Buffer:
    """Memory of a device in one part, or in several of one segment each (`segment_bytes`) where it is above a limit."""

    parts: tuple[tuple[Any, int], ...]  # (what the device knows the part by, its bytes)
    nbytes: int


class Command:
    """One dispatch: a bound kernel, the slot of its params and grid, which is read at every submit, and its name."""

    __slots__ = ("bound", "label", "origin", "prepared", "slot")

    def __init__(self, bound: Any, slot: Slot, label: str, origin: tuple[int, int] = (-1, 0)) -> None:
        self.bound, self.slot, self.label = bound, slot, label
        self.origin = origin  # the node that it is of, and which of its steps
        self.prepared: Any = None  # what the device makes of it at the first submit, for those that follow


@dataclass
class Counters:
    """What the device made and did since it was opened; steady state means that only `submits` grows."""

    buffers: int = 0
    pipelines: int = 0
    bind_groups: int = 0
    submits: int = 0
    live_bytes: int = 0  # of memory neither freed nor forgotten, when the device was last asked for its counters


Span = tuple[str, float, float]  # a name, and seconds of a clock at its begin and its end


@dataclass
class Watched:
    """Where time went while a device was watched.

    `spans` are the host's: encode, submit and wait, by time.perf_counter. `submits` are the device's, by a clock of its
    own that begins at zero: the commands of each submit with the begin and end of each, or of all of them as one.
    """

    spans: list[Span] = field(default_factory=list)
    submits: list[tuple[Sequence[Command], list[tuple[float, float]]]] = field(default_factory=list)


class Clock(Enum):
    """What the clock of a device is read around."""

    NOTHING = 0
    SUBMITS = 1
    COMMANDS = 2


Copy = tuple[Buffer, int, int, Buffer, int]  # bytes start..start + count of a buffer, to a place in staging
InputCopy = tuple[Buffer, int, Buffer]  # the first bytes of a buffer, to the start of another


class Device(Protocol):
    """An open device.

    Example: `device.write(device.buffer(64, "weights"), 0, bytes(64))`.
    """

    name: str
    adapter: Adapter
    limits: Limits
    has_clock: bool  # whether it can tell when a command began and ended
    steps_ahead: int  # short ones that had better be submitted while one is waited for: it must not wait for the host

    @property
    def counters(self) -> Counters:
        """Always the same object, as it is now."""

    @property
    def lost(self) -> bool:
        """Whether nothing can be done with it any more."""

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """Zeroed memory for tensors."""

    def uniforms(self, nbytes: int) -> Buffer:
        """Memory that holds the params of commands."""

    def staging(self, nbytes: int) -> Buffer:
        """Memory that results are copied to and read from."""

    def free(self, buffers: Iterable[Buffer]) -> None:
        """Give memory back at once. Using it afterwards is a DeviceError; freeing it again is nothing."""

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy host bytes, a multiple of four, into a buffer or uniforms from `offset` on."""

    def flush(self) -> None:
        """Wait until everything written and submitted so far is done."""

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> Any:
        """A kernel on the first bytes of each buffer, in `variant.segments` bindings, then the params."""

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
    ) -> None:
        """In this order: the input copies, the commands, the copies to staging. A refused command is named."""

    def read(self, staging: Buffer, nbytes: int) -> bytearray:
        """The first bytes of staging memory, once what was submitted for it is done.

        A signal comes through at any moment. Staging memory whose reading did not end well may be read again; it is
        never given to `submit` again, but freed.
        """

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray:
        """The same, awaited."""

    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> AbstractContextManager[Watched]:
        """Note where time goes until the end of the context, which fills in the device's; nobody else may submit then.

        `note` is told the commands of a submit before they are encoded. Without `has_clock` there are no times of the
        device.
        """


@dataclass(frozen=True)
class Offer:
    """An adapter, and how it is opened: with all that it allows, or with the limits that are given."""

    adapter: Adapter
    open: Callable[[Limits | None], Device]


DEVICE_THREADS: set[int] = set()  # idents of the threads in which devices run Python


def in_device_thread() -> bool:
    """Whether this is a thread of a device. Finalizers may run in it, since the collector runs anywhere: they must not
    wait for anybody who may wait for the thread.

    >>> in_device_thread()
    False
    """
    return get_ident() in DEVICE_THREADS
