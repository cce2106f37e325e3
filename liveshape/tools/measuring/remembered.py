"""What was measured of an adapter, kept in the user's cache folder: a driver is the same until it is another one.

A file that cannot be read is as good as none, and one that cannot be written costs the next process a measurement.
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
    """What was remembered of an adapter, or None.

    Example: `recall(device.adapter, "rates")`.
    """
    return _all(what).get(_key(adapter))


def remember(adapter: Adapter, what: str, value: Any) -> None:
    """Keep plain values of an adapter for processes to come.

    Example: `remember(device.adapter, "rates", {"copy": 3.9e12})`.
    """
    path = _path(what)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may read it now.
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
