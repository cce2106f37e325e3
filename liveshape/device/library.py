"""A WebGPU library as a value, so that one process can use two.

Each has the classes, enums and errors of wgpu-py. Some also expose raw C calls through cffi: these cost a third, and
their objects are released without running any Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NativeCalls:
    """Raw C calls of a library, through cffi."""

    ffi: Any
    lib: Any  # the raw functions
    calls: Any  # the same, raising device errors
    error: type[Exception]
    classes: Any  # module of the wrapper classes that own and release handles
    write_timestamp: Callable[[Any, Any, int], None]  # inside a pass, at an index of a query set


@dataclass(frozen=True)
class Library:
    """A WebGPU library: its public API, and `native` C calls or None.

    Example: `Library(wgpu, None, lambda: None)`.
    """

    wgpu: Any
    native: NativeCalls | None
    configure: Callable[[], None]  # sets up the instance before adapters are enumerated; idempotent
