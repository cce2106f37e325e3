"""What a caller is told of a failure, and when a device is no more: its driver stopped, or the process was copied."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable
from typing import Any

from liveshape.device.library import Library
from liveshape.errors import DeviceError

_LOST = re.compile(r"device (is |was )?lost", re.IGNORECASE)
_FORKED = (
    "this process was made by fork(), and a device does not live on in a copy of its process: start the process with "
    'multiprocessing.set_start_method("spawn"), or open no device before it'
)


class Failure:
    """The failures of one device. A lost device is lost for good, and the next Runtime opens another.

    Example: `raise failure.error("writing 4 bytes", error) from error`.
    """

    def __init__(self, name: str, library: Library, live_bytes: Callable[[], int]) -> None:
        check_process()
        self._name, self._library, self._live_bytes = name, library, live_bytes
        self.dead = ""  # why nothing can be done with the device any more
        _all.add(self)

    @property
    def forked(self) -> bool:
        """Whether the device belongs to the process that this one was forked from."""
        return self.dead == _FORKED

    def check(self) -> None:
        """Raise if nothing can be done with the device any more."""
        if self.dead:
            raise DeviceError(self.dead)

    def error(self, what: str, error: Exception) -> DeviceError:
        """What to tell the caller of an error of the library."""
        text = str(error)
        if _LOST.search(text):
            self.dead = (
                f"the device was lost: {self._name} stopped, or its driver did; "
                "open a new Runtime and load the program again"
            )
            return DeviceError(f"{what}: {self.dead} ({text})")
        if isinstance(error, (self._library.wgpu.GPUOutOfMemoryError, MemoryError)):
            text += f"; {self._live_bytes():,} bytes are in use: close() other models, or export a smaller bound"
        return DeviceError(f"{what}: {text}")

    def leave_behind(self) -> None:
        """In the child of a fork: threads of the driver do not come along, so a call would wait for one for ever."""
        self.dead = _FORKED
        # Destructors wait for the device, too, and what they release in the child is gone for the parent.
        for kind in vars(self._library.native.classes).values() if self._library.native is not None else ():
            if isinstance(kind, type) and "_release" in vars(kind):
                kind._release = _nothing  # type: ignore[attr-defined]


_all: weakref.WeakSet[Failure] = weakref.WeakSet()  # of the devices that are open
_forked = False


def check_process() -> None:
    """Raise in a process that was forked from one with a device: it can open none.

    Example: `check_process(); adapter.request_device_sync()`.
    """
    if _forked:
        raise DeviceError(_FORKED)


def _after_fork() -> None:
    global _forked
    for failure in list(_all):
        _forked = True
        failure.leave_behind()


def _nothing(released: Any) -> None:
    """What a child has to release."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
