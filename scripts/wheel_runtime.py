"""Puts the runtime of pages, which `make web` built, into a wheel: then `liveshape web` needs no checkout.

LIVESHAPE_WHEEL_RUNTIME=0 leaves it out, and =1 refuses a wheel without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Adds web/dist as liveshape/tools/web_page/runtime, where it is there and no older than the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; an editable one finds web/dist in the checkout itself."""
        wanted = os.environ.get("LIVESHAPE_WHEEL_RUNTIME", "")
        if version != "standard" or wanted == "0":
            return
        problem = problem_of(Path(self.root))
        if not problem:
            build_data["force_include"][str(Path(self.root) / "web" / "dist")] = "liveshape/tools/web_page/runtime"
        elif wanted == "1":
            raise RuntimeError(f"LIVESHAPE_WHEEL_RUNTIME=1, but {problem}: run `make web` first")
        else:
            self.app.display_warning(f"without the runtime of `liveshape web`: {problem}; `make web` builds it")


def problem_of(root: Path) -> str:
    """Why the runtime of a checkout cannot be taken; nothing if it can.

    Example: `problem_of(Path("."))`.
    """
    archive = root / "web" / "dist" / "liveshape.zip"
    if not archive.is_file():
        return "web/dist has no runtime of pages"
    built = archive.stat().st_mtime
    sources = (path for kind in ("py", "wgsl", "js") for path in (root / "liveshape").rglob(f"*.{kind}"))
    later = next((path for path in sources if path.stat().st_mtime > built), None)
    return "" if later is None else f"{later.relative_to(root)} is newer than web/dist"
