"""Measurements cached on disk per adapter and driver version, in the user's cache folder.

An unreadable cache file counts as a miss, an unwritable one costs the next process a measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from liveshape.cache_folder import cache_folder
from liveshape.device.protocol import Adapter


def recall(adapter: Adapter, what: str) -> Any:
    """The cached value for an adapter, or None.

    Example: `recall(device.adapter, "rates")`.
    """
    return _all(what).get(_key(adapter))


def remember(adapter: Adapter, what: str, value: Any) -> None:
    """Cache JSON values for an adapter on disk.

    Example: `remember(device.adapter, "rates", {"copy": 3.9e12})`.
    """
    path = _path(what)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Atomic: another process may be reading it.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(_all(what) | {_key(adapter): value}, file, indent=2)
        os.replace(file.name, path)


def _path(what: str) -> Path:
    return cache_folder() / f"{what}.json"


def _key(adapter: Adapter) -> str:
    return f"{adapter.name}, {adapter.backend}, {adapter.driver}"


def _all(what: str) -> dict[str, Any]:
    try:
        found = json.loads(_path(what).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
