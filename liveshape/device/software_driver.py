"""Software Vulkan driver (ICD) unpacked by `liveshape devices --install-software-driver`: added to the Vulkan loader's
drivers, unless the environment names drivers itself."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

from liveshape.driver_folder import ADDED, LOADER, MANIFEST, driver_folders, named_drivers


@functools.cache
def offer_software_driver() -> None:
    """Make the driver known to the Vulkan loader; call before adapters are enumerated.

    Example: `offer_software_driver(); wgpu.gpu.enumerate_adapters_sync()`.
    """
    folder = next((folder for folder in driver_folders() if (folder / MANIFEST).is_file()), None)
    if folder is None:
        return
    if named_drivers() is None:
        os.environ[ADDED] = str(folder / MANIFEST)
    try:
        ctypes.CDLL(LOADER)
    except OSError:  # no Vulkan loader on the system: once ours is loaded, dlopen finds it by name
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(folder / LOADER))
