"""Chromium without a head and Node, for the tests of pages: what the system has, or what is unpacked in .venv."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# Nothing that leaves the machine, nothing that needs a display or the kernel's namespaces.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


# With WebGPU, by the software driver that Chromium brings; LIVESHAPE_CHROMIUM_FLAGS can have those of a GPU, as
# bench/web_gpu.py has them.
WEBGPU_FLAGS = [
    *(flag for flag in FLAGS if flag != "--disable-gpu"),
    "--enable-unsafe-webgpu",
    *os.environ.get("LIVESHAPE_CHROMIUM_FLAGS", "").split(),
]


# Where scripts/ensure-chromium.sh puts what it unpacks or downloads.
_UNPACKED, _DOWNLOADED = (Path(sys.prefix) / "share" / "liveshape" / name for name in ("chromium", "browsers"))
if _DOWNLOADED.is_dir():
    os.environ.setdefault("PLAYWRIGHT_BROWSERS_PATH", str(_DOWNLOADED))


def of_the_system() -> str | None:
    """Where the system has one, or one was unpacked."""
    named = os.environ.get("LIVESHAPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    return named or shutil.which(_UNPACKED / "chromium")


def has_chromium() -> bool:
    return of_the_system() is not None or _DOWNLOADED.is_dir()


def node() -> str:
    """Playwright's Node, which is new enough for JSPI."""
    from playwright._impl._driver import compute_driver_executable

    return compute_driver_executable()[0]


@contextmanager
def chromium(flags: Sequence[str] = FLAGS) -> Iterator[Browser]:
    """An open browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without one of the system's it is the one that Playwright brought, or its words about how to have it.
        opened = playwright.chromium.launch(executable_path=of_the_system(), args=list(flags))
        yield opened
        opened.close()


@contextmanager
def opened_page(browser: Browser, address: str, patience: float = 600_000) -> Iterator[Page]:
    """A page of its own profile, with nothing in its cache; it waits as many milliseconds for what a test asks."""
    profile = browser.new_context()
    profile.set_default_timeout(patience)
    page = profile.new_page()
    page.goto(address)
    try:
        yield page
    finally:
        profile.close()
