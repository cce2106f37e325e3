"""Software Vulkan driver (ICD) installed beside this Python environment (scripts/software_driver.py): added to the
Vulkan loader's drivers, unless the environment names drivers itself."""

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
    """Make the driver known to the Vulkan loader; call before adapters are enumerated.

    Example: `offer_software_driver(); wgpu.gpu.enumerate_adapters_sync()`.
    """
    folder = Path(sys.prefix) / "share" / "liveshape" / "vulkan"
    if not (folder / "driver.json").is_file():
        return
    if not any(name in os.environ for name in _NAMED):
        os.environ[_NAMED[-1]] = str(folder / "driver.json")
    try:
        ctypes.CDLL(_LOADER)
    except OSError:  # no Vulkan loader on the system: once ours is loaded, dlopen finds it by name
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(folder / _LOADER))
