"""What every test finds, however it was started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    """A job in the background of a script ignores Ctrl-C, and so would all that its tests start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
