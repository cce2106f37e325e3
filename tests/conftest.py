"""What every test finds, however it was started."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liveshape.device import pipelines
from tests.support import recorded
from tests.support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Before anything asks for an adapter. Tests compile more than they run, and the driver of Debian's release compiles
# sooner than the newest one that people get; tests/device/test_drivers.py runs operators on that one, too. Dawn takes
# only the newest.
_DRIVER = "vulkan" if os.environ.get("LIVESHAPE_BACKEND") == "dawn" else "vulkan-stable"
_MANIFEST = Path(sys.prefix) / "share" / "liveshape" / _DRIVER / "driver.json"
if _MANIFEST.is_file():
    os.environ.setdefault("VK_DRIVER_FILES", str(_MANIFEST))

# For the same reason LLVM does not optimize what llvmpipe compiles; Mesa's own passes run as ever. The tiers of
# `make test-all` and tests/device/test_drivers.py take kernels as users have them.
os.environ.setdefault("GALLIVM_PERF", "nopt")

# Tests of one program share few kernels with the next; those of 4-bit layers take megabytes each on software adapters.
# tests/graphs/conftest.py has more, tests/device/test_pipelines.py budgets of its own.
pipelines.RECENT = 96

# Megabytes that a worker may grow by before memory that was freed goes back to the system: of the kernels that software
# drivers compile and drop, the C library keeps gigabytes.
GROWTH = 300
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None  # of glibc


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before workers start: the process that starts them comes here first."""
    if not hasattr(session.config, "workerinput"):
        recorded.seed()


# Cases of two seconds and more that have quicker siblings, or more of the same in a tier of `make test-all`.
SLOW_CASES = frozenset(Path(__file__).with_name("slow_cases.txt").read_text().splitlines())


def unknown_cases(cases: Collection[str], collected: Collection[str], chosen: Collection[str] = ()) -> list[str]:
    """The cases of files that were collected which are none of their tests, but for files of which some were chosen.

    >>> unknown_cases(["a.py::f[1]", "a.py::f[2]", "b.py::g"], ["a.py::f[1]", "a.py::h"])
    ['a.py::f[2]']
    """
    files = {each.partition("::")[0] for each in collected} - {*chosen}
    return sorted(case for case in cases if case.partition("::")[0] in files and case not in collected)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = {path for path, colons, _ in (each.partition("::") for each in config.args) if colons}
    if not config.getoption("lf", False):  # which collects some of a file
        unknown = unknown_cases(SLOW_CASES, [item.nodeid for item in items], chosen)
        if unknown:
            raise pytest.UsageError(f"tests/slow_cases.txt names no test that there is: {', '.join(unknown)}")
    for item in items:
        if item.nodeid in SLOW_CASES:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What torch and the tests' modules made stays: the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the tests of pages. It ends with its module: Playwright's loop runs meanwhile, which a second
    Playwright and asyncio.run refuse."""
    with chromium() as opened:
        yield opened


def _resident() -> int:
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


_after_trim = 0


def pytest_runtest_logfinish() -> None:
    """After every test."""
    global _after_trim
    if _TRIM is not None and _resident() > _after_trim + GROWTH:
        gc.collect()  # devices that tests opened for themselves are cycles, and keep their kernels until then
        _TRIM(0)
        _after_trim = _resident()


@pytest.fixture(autouse=True)
def _servers_log_no_longer() -> Iterator[None]:
    """A command that a test runs in this process writes its log to stderr alone, and the next test reads it."""
    loggers = [logging.getLogger(name) for name in ("liveshape.serve", "uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    """A job in the background of a script ignores Ctrl-C, and so would all that its tests start."""
    if threading.current_thread() is not threading.main_thread():  # which alone may say what a signal does
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
