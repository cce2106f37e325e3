"""Fixtures of the commands' tests. Without the playwright package the tests of a page are not collected: `make
test-page`."""

from __future__ import annotations

import importlib.util

import pytest

from liveshape.device import backends

collect_ignore = [] if importlib.util.find_spec("playwright") else ["test_program_page.py"]


@pytest.fixture
def no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._backends, "wgpu", list)
