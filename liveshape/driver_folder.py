"""Where `liveshape devices --install-software-driver` unpacks a software Vulkan driver, and the device looks for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DRIVER, LOADER, MANIFEST = "libvulkan_lvp.so", "libvulkan.so.1", "driver.json"
ADDED = "VK_ADD_DRIVER_FILES"
_NAMED = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", ADDED)


def driver_folders() -> list[Path]:
    """The folder of this virtual environment, where there is one, and that of the user; the first is the one to write.

    Example: `[folder for folder in driver_folders() if (folder / MANIFEST).is_file()]`.
    """
    homes = [Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"))]
    if sys.prefix != sys.base_prefix:
        homes.insert(0, Path(sys.prefix) / "share")
    return [home / "liveshape" / "vulkan" for home in homes]


def named_drivers() -> str | None:
    """The variable of the environment that names drivers, in which case no other is added.

    Example: `named_drivers() or "none"`.
    """
    return next((name for name in _NAMED if name in os.environ), None)
