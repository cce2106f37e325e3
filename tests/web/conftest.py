"""What the tests of pages need; without it they are not collected, as `make test` has it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liveshape.shipped import shipped, shipped_model
from tests.support.browser import WEBGPU_FLAGS, chromium, opened_page
from tests.web.page_host import Faults, hosted

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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

PAGES = [each.name for each in Path(__file__).parent.glob("test_*.py") if "playwright" in each.read_text()]
collect_ignore = [] if has_playwright else PAGES
if not (has_playwright and has_chromium and has_node and is_built()):
    collect_ignore.append("test_short.py")


@pytest.fixture(scope="session")
def gpu_browser() -> Iterator[Browser]:
    with chromium(WEBGPU_FLAGS) as opened:
        yield opened


@pytest.fixture(scope="session")
def served() -> Iterator[tuple[str, Faults]]:
    program = shipped("demo")
    assert program is not None
    folders = {"dist": WEB / "dist", "example": WEB / "example", "test": WEB / "test"}
    with hosted(**folders, story=shipped_model(), demo=program.parent) as found:
        yield found


@pytest.fixture
def host(served: tuple[str, Faults]) -> Iterator[tuple[str, Faults]]:
    """The server's address and its faults, which are none at the beginning of a test."""
    served[1].reset()
    yield served
    served[1].reset()


@pytest.fixture
def page(gpu_browser: Browser, host: tuple[str, Faults]) -> Iterator[Page]:
    """A page of its own profile, with nothing in its cache."""
    with opened_page(gpu_browser, f"{host[0]}/example/index.html") as opened:
        yield opened
