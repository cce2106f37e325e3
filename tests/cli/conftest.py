"""Fixtures of the commands' tests."""

from __future__ import annotations

import pytest

from liveshape.device import backends


@pytest.fixture
def no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._backends, "wgpu", list)
