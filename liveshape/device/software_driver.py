"""A software Vulkan driver unpacked beside this Python environment (scripts/software_driver.py): offered to the Vulkan
loader in addition to the drivers of the system, unless the environment names drivers itself."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from pathlib import Path

_NAMED = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES")
_LOADER = "libvulkan.so.1"


@functools.cache
def offer_software_driver() -> None:
    """Let the loader find it; to be called before the first adapter is asked for.

    Example: `offer_software_driver(); wgpu.gpu.enumerate_adapters_sync()`.
    """
    folder = Path(sys.prefix) / "share" / "liveshape" / "vulkan"
    if not (folder / "driver.json").is_file():
        return
    if not any(name in os.environ for name in _NAMED):
        os.environ[_NAMED[-1]] = str(folder / "driver.json")
    try:
        ctypes.CDLL(_LOADER)
    except OSError:  # a system without Vulkan: once this one is loaded, everybody finds it by its name
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(folder / _LOADER))
