"""A WebGPU library as a value, so that one process can use two.

Each has the classes, enums and errors of wgpu-py. Some also expose raw C calls through cffi: these cost a third, and
their objects are released without running any Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from liveshape.device.waiting import Events
from liveshape.graph.limits import MatrixShape
from liveshape.kernels import Variant


@dataclass(frozen=True)
class SubmitHeuristics:
    """From how many commands on a step is worth more than one submit from the caller's thread."""

    deferred: int | None  # finished and submitted by the worker while the next step is encoded; None: never
    pieces: int  # submitted in pieces while encoding, where the device is idle
    first_piece: int  # commands; each piece is twice as long as the last


@dataclass(frozen=True)
class NativeCalls:
    """Raw C calls of a library, through cffi, and what its C API has of its own."""

    ffi: Any
    lib: Any  # the raw functions
    calls: Any  # the same, raising device errors
    error: type[Exception]
    classes: Any  # module of the wrapper classes that own and release handles
    submit: Callable[[Any, Any], int]  # a command buffer to a queue; its submission index, or -1
    events: Callable[[Any, Any], Events]  # of a device and its queue
    write_timestamp: Callable[[Any, Any, int], None]  # inside a pass, at an index of a query set
    timestamp_period: Callable[[Any], float]  # nanoseconds per tick of a queue
    heuristics: SubmitHeuristics


def _no_matrices(adapter: Any) -> tuple[MatrixShape, ...]:
    return ()


def _never_told(device: Any) -> str:
    return ""


def _no_host_buffer(device: Any, nbytes: int) -> tuple[Any, memoryview] | None:
    return None


@dataclass(frozen=True)
class Library:
    """A WebGPU library: its public API, and `native` C calls or None.

    Example: `Library("wgpu", wgpu, None, wgpu.gpu.enumerate_adapters_sync, create_module, "subgroup", "clock-inside")`.
    """

    name: str
    wgpu: Any
    native: NativeCalls | None
    adapters: Callable[[], list[Any]]  # its adapters, of an instance that is set up before
    compile: Callable[[Any, Variant, NativeCalls | None], Any]  # a shader module of a device
    # Names of features: subgroup operations, and timestamps inside passes.
    subgroups: str
    clock_inside: str
    more_features: tuple[str, ...] = ()  # requested where an adapter has them
    matrices: Callable[[Any], tuple[MatrixShape, ...]] = _no_matrices  # that an adapter offers
    lost: Callable[[Any], str] = _never_told  # why a device was lost, where no call tells it; "" while it works
    # A buffer for copies in memory of the host, and that memory; None where a device cannot.
    host_buffer: Callable[[Any, int], tuple[Any, memoryview] | None] = _no_host_buffer

    @property
    def clocks(self) -> tuple[str, str]:
        """The features of timestamps: per pass, and per dispatch inside a pass."""
        return "timestamp-query", self.clock_inside
