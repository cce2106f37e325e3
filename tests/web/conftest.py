"""What the tests of pages share. The one of `make test` is collected where Chromium and the built package are there:
`make test` sees to both, and says if it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liveshape.shipped import shipped, shipped_model
from tests.support.browser import WEBGPU_FLAGS, chromium, has_chromium, opened_page
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


collect_ignore = [] if has_chromium() and is_built() else ["test_short.py"]


@pytest.fixture(scope="module")
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
