"""Libraries that few tests use and that take seconds to import: every worker imports every test's module."""

from __future__ import annotations

import importlib
from typing import Any


class ImportedLater:
    """A module that is imported when something of it is first asked for.

    >>> ImportedLater("json").dumps([1])
    '[1]'
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
