"""Random graphs share kernels by the hundred."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from liveshape.device import pipelines
from liveshape.device.backends import open_device

# With the budget of a program that loads a few, random graphs take five times as long; many more of them, as in a tier,
# would take a worker above 3 GB.
RECENT = 480 if int(os.environ.get("LIVESHAPE_FUZZ", "0")) < 1000 else 256


@pytest.fixture(autouse=True, scope="package")
def _many_pipelines() -> Iterator[None]:
    shared: Any = open_device()
    before, pipelines.RECENT, shared._pipelines._most = pipelines.RECENT, RECENT, RECENT
    yield
    pipelines.RECENT = shared._pipelines._most = before
