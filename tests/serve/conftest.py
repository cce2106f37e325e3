"""A browser with the chat page. Not collected are tests of a fleet without ray (`make test-ray`), and those of clients,
which have an environment of their own (`make test-clients`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.serve.stub_api import StubApi
from tests.support.browser import has_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

collect_ignore = ["clients"] if importlib.util.find_spec("ray") else ["clients", "test_ray.py"]
if not has_chromium():
    collect_ignore.append("test_page_short.py")


@pytest.fixture
def api() -> Iterator[StubApi]:
    stub = StubApi()
    yield stub
    stub.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="light")
    yield made
    made.close()


@pytest.fixture
def chat(context: BrowserContext, api: StubApi) -> Iterator[Page]:
    """The page, opened; no script of it may fail, and its policy may not have been broken."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.goto(api.address)
    yield page
    # Chromium writes a line for every status above 399, whatever the page makes of it.
    assert [line for line in wrong if not line.startswith("Failed to load resource")] == []
