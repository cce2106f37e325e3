"""Fixtures of the commands' tests. Without the playwright package the tests of a page are not collected: `make
test-page`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from liveshape.device import backends
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

collect_ignore = [] if importlib.util.find_spec("playwright") else ["test_program_page.py"]


@pytest.fixture
def no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._backends, "wgpu", list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened
