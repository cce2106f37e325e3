"""Device errors and device loss: the driver stopped, or the process is a fork."""

from __future__ import annotations

import os
import re
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from liveshape.device.library import Library
from liveshape.errors import DeviceError

# As wgpu-native says it, and Dawn: `[Device] is lost`, with the label of one that has some.
_LOST = re.compile(r'device( "[^"]*")?]? (is |was )?lost', re.IGNORECASE)
_FORKED = (
    "this process was made by fork(), and a device does not live on in a copy of its process: start the process with "
    'multiprocessing.set_start_method("spawn"), or open no device before it'
)


class Failure:
    """Error state of one device. A lost device stays lost, and the next Runtime opens another.

    Example: `raise failure.error("writing 4 bytes", error) from error`.
    """

    def __init__(self, name: str, library: Library, live_bytes: Callable[[], int]) -> None:
        check_process()
        self._name, self._library, self._live_bytes = name, library, live_bytes
        self.dead = ""  # reason of the device loss, "" while it works
        _all.add(self)

    @property
    def forked(self) -> bool:
        """Whether the device belongs to the parent of this forked process."""
        return self.dead == _FORKED

    def check(self) -> None:
        """Raise DeviceError if the device is lost."""
        if self.dead:
            raise DeviceError(self.dead)

    def error(self, what: str, error: Exception) -> DeviceError:
        """Convert an error of the library into a DeviceError, noting a device loss."""
        # A frame of Dawn's wrapper holds the error that it raises. Before 3.12.7 CPython crashes when it collects such
        # a cycle with a memoryview in it, as of a write.
        traceback.clear_frames(error.__traceback__)
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
        """In a forked child: the driver's threads do not exist here, so any call would hang."""
        self.dead = _FORKED
        # Destructors wait for the device, too, and would release the parent's objects.
        for kind in vars(self._library.native.classes).values() if self._library.native is not None else ():
            if isinstance(kind, type) and "_release" in vars(kind):
                kind._release = _nothing  # type: ignore[attr-defined]


_all: weakref.WeakSet[Failure] = weakref.WeakSet()  # one per open device
_forked = False


def check_process() -> None:
    """Raise in a process forked from one with an open device: it cannot open any.

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
    """No-op release in a forked child."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
