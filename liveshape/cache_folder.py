"""The user's cache folder: converted models, and measurements of adapters."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """LIVESHAPE_CACHE, or the cache folder of this operating system.

    Example: `cache_folder() / "rates.json"`.
    """
    chosen = os.environ.get("LIVESHAPE_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "liveshape"
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(usual) if usual else Path.home() / ".cache") / "liveshape"
