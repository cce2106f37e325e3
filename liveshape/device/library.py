"""A library behind WebGPU as a value, so that two of them can serve one process.

Each has the classes, enums and errors of wgpu-py. What lies below them, through cffi, is known of some: those C calls
cost a third, and what they made is released without running any Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NativeCalls:
    """The C calls below a library's classes."""

    ffi: Any
    lib: Any  # the functions as they are
    calls: Any  # the same ones, raising an `error` of the device
    error: type[Exception]
    classes: Any  # the module of the classes that hold what the calls made, and release it
    write_timestamp: Callable[[Any, Any, int], None]  # inside of a pass, to a place in a query set


@dataclass(frozen=True)
class Library:
    """One library: its public calls, and the C calls where they are known; without them `native` is None.

    Example: `Library(wgpu, None, lambda: None)`.
    """

    wgpu: Any
    native: NativeCalls | None
    configure: Callable[[], None]  # the instance, before its first adapter is asked for; it may be called again
