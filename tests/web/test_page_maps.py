"""Reads of `page_gpu.js`: maps begin with the submit that writes, and a buffer is never used while it is mapped."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.browser import node
from tests.web.test_node import WEB


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    command = [node(), str(WEB / "test" / "maps.mjs")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    told: dict[str, Any] = json.loads(run.stdout)
    return told


@pytest.mark.parametrize(
    ("case", "result", "events"),
    [
        ("begun", 16, "submit, map staging 16, unmap staging"),
        ("written_again", 32, "submit, map staging 16, unmap staging, submit, map staging 32, unmap staging"),
        ("more_than_written", 48, "submit, map staging 16, unmap staging, map staging 48, unmap staging"),
        ("twice", [8, 8], "submit, map staging 16, unmap staging, map staging 8, unmap staging"),
        ("not_staged", 0, "submit"),
        ("freed", ["destroyed", 4], "submit, map mine 16, submit, map staging 16, unmap staging"),
        ("left_unread", None, "submit, map mine 16"),
    ],
)
def test_maps(found: dict[str, Any], case: str, result: Any, events: str) -> None:
    assert found[case] == {"result": result, "events": events.split(", ")}
