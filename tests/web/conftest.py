"""What the tests of pages need; without it they are not collected, as `make test` has it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
BUILT = WEB / "dist" / "liveshape.zip"
SOURCES = (
    *WEB.glob("*.*"),
    *(path for name in ("liveshape", "web/src", "web/python") for path in (ROOT / name).rglob("*.*")),
)


def is_built() -> bool:
    """Whether the npm package was built of what is here now."""
    of_it = (path for path in SOURCES if path.suffix in (".py", ".js", ".mjs", ".wgsl"))
    return BUILT.exists() and all(path.stat().st_mtime <= BUILT.stat().st_mtime for path in of_it)


has_playwright = importlib.util.find_spec("playwright") is not None
has_node = (WEB / "node_modules" / "node" / "bin" / "node").exists()
has_chromium = bool(os.environ.get("LIVESHAPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome"))

collect_ignore = [] if has_playwright else ["test_browser.py", "test_programs.py"]
if not (has_playwright and has_chromium and has_node and is_built()):
    collect_ignore.append("test_short.py")
