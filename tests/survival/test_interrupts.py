"""Ctrl-C at random moments, in processes of their own; the program says what it does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.survival.interrupts import apart


def hold(found: dict[str, Any], count: int) -> None:
    assert found["interrupted"] + found.get("swallowed", 0) >= count
    assert found.get("swallowed", 0) <= max(3, count // 20), f"too many were swallowed: {found}"
    assert found["came through while the device computed"]


@pytest.mark.parametrize("way", ["raw", pytest.param("public", marks=pytest.mark.slow)])
def test_interrupts_leave_nothing_behind(way: str) -> None:
    hold(apart(way, 16, seed=1, seconds=900), 16)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["raw", "public"])
def test_many_interrupts_leave_nothing_behind(way: str) -> None:
    hold(apart(way, 250, seed=2, seconds=3000), 250)
