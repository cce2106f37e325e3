"""What a page downloads besides its model stays small: people leave before ten megabytes have come."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.browser import node
from tests.web.test_node import WEB

MOST = 5_000_000  # bytes with brotli


@pytest.mark.slow
def test_everything_but_the_model_is_at_most_five_megabytes() -> None:
    command = [node(), str(WEB / "sizes.mjs")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=True)
    sizes = json.loads(run.stdout)
    assert {"liveshape.zip", "pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip"} <= sizes.keys()
    assert sum(sizes.values()) <= MOST, sizes
