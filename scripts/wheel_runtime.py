"""Puts the runtime of pages into a wheel, if `make web` has built it: then `liveshape web` needs no checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Adds web/dist as liveshape/tools/web_page/runtime, if it is there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; an editable one finds web/dist in the checkout itself."""
        built = Path(self.root) / "web" / "dist"
        if version == "standard" and (built / "liveshape.zip").is_file():
            build_data["force_include"][str(built)] = "liveshape/tools/web_page/runtime"
