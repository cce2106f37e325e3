"""One thread is held before a line while another thread runs to its end, for one line after the other: what two threads
meet once in hundreds of runs is met each time."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest

from liveshape.device import host_memory, readback, waiting
from liveshape.device.adapters import usable_adapters
from liveshape.device.waiting import Pace
from liveshape.device.webgpu import WebGpuDevice
from liveshape.run import results
from liveshape.run.results import Transfer
from tests.device.interrupts import Doubling
from tests.device.library import LIBRARY

X = np.ones((64, 64), np.float32)


class Held:
    """Holds a thread before a line of a module, the `at`th that it comes to, until `other` has run in another thread.

    Example: `Held(results, 3, lambda: doubling.start(x)).over(transfer.wait)`.
    """

    def __init__(self, module: ModuleType, at: int, other: Callable[[], object]) -> None:
        self._file, self._left, self._other = module.__file__, at, other
        self.line = 0  # 0 if it comes to fewer

    def over(self, action: Callable[[], Any]) -> Any:
        """What the action returns."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return action()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.line = frame.f_lineno
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(self._other).result()
        return self._trace


class Calls:
    """Calls of one program, each with an input of its own, and what they should give."""

    def __init__(self) -> None:
        self._doubling = Doubling(WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0))
        self._numbers = itertools.count(1)
        self._started: list[tuple[Transfer, int]] = []

    def start(self, count: int = 1) -> Transfer:
        """The last of so many."""
        for _ in range(count):
            number = next(self._numbers)
            self._started.append((self._doubling.start(X * number), number))
        return self._started[-1][0]

    def check(self, read: dict[Transfer, Any], held: Held) -> None:
        """What was read, and what is when it is read again."""
        started, self._started = self._started, []
        for transfer, number in started:
            for (got,) in (transfer.wait(), read.get(transfer, transfer.wait())):
                np.testing.assert_array_equal(got, 2 * number * X, err_msg=f"held before line {held.line}")


@pytest.fixture(scope="module")
def calls() -> Calls:
    return Calls()


@pytest.fixture(params=["the reader copies", "threads copy"])
def copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are copied by who reads them, or as large ones are."""
    if request.param == "threads copy":
        monkeypatch.setattr(host_memory, "LARGE", 1)
        for module in (host_memory, readback):
            monkeypatch.setattr(module, "BY_THREADS", 1)


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    "wait", [Transfer.wait, lambda transfer: asyncio.run(transfer.wait_async())], ids=["wait", "wait_async"]
)
def test_calls_reuse_the_memory_that_a_thread_is_about_to_read(wait: Callable[[Transfer], Any], calls: Calls) -> None:
    for at in itertools.count(1):
        transfer = calls.start()
        held = Held(results, at, lambda: calls.start(2))  # once around the ring
        read = held.over(lambda transfer=transfer: wait(transfer))
        calls.check({transfer: read}, held)
        if not held.line:
            break
    assert at > 10


@pytest.mark.usefixtures("copied")
def test_a_thread_reads_the_memory_that_a_call_is_about_to_reuse(calls: Calls) -> None:
    for at in itertools.count(1):
        transfer, _ = calls.start(), calls.start()
        read: dict[Transfer, Any] = {}
        held = Held(results, at, lambda transfer=transfer, read=read: read.update({transfer: transfer.wait()}))
        held.over(calls.start)
        calls.check(read, held)
        if not held.line:
            break
    assert at > 10


def test_two_threads_see_the_end_of_one_work() -> None:
    """The estimate is of the device, which programs in several threads share."""
    for at in itertools.count(1):
        pace = Pace(software=True)
        pace.submitted(())
        held = Held(waiting, at, pace.ended)
        held.over(pace.ended)
        assert pace.left <= 0
        if not held.line:
            break
    assert at > 3
