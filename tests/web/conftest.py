"""What the tests of pages need; without it they are not collected, as `make test` has it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liveshape.shipped import shipped, shipped_model
from tests.support.browser import WEBGPU_FLAGS, chromium
from tests.web.page_host import Faults, hosted

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = [each.name for each in Path(__file__).parent.glob("test_*.py") if "playwright" in each.read_text()]
collect_ignore = [] if importlib.util.find_spec("playwright") else PAGES

WEB = Path(__file__).parents[2] / "web"


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
    profile = gpu_browser.new_context()
    profile.set_default_timeout(600_000)
    opened = profile.new_page()
    opened.goto(f"{host[0]}/example/index.html")
    yield opened
    profile.close()
