"""Puts the runtime of pages into a wheel, if LIVESHAPE_WHEEL_RUNTIME=1: then `liveshape web` needs no checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Adds web/dist as liveshape/tools/web_page/runtime, if it is asked for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; an editable one finds web/dist in the checkout itself."""
        if version != "standard" or os.environ.get("LIVESHAPE_WHEEL_RUNTIME") != "1":
            return
        built = Path(self.root) / "web" / "dist"
        if not (built / "liveshape.zip").is_file():
            raise RuntimeError(f"LIVESHAPE_WHEEL_RUNTIME=1, but {built} has no runtime of pages: run `make web` first")
        build_data["force_include"][str(built)] = "liveshape/tools/web_page/runtime"
