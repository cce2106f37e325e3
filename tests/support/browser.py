"""Chromium without a head, for the tests of pages: the system's, or the one that Playwright brought."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def of_the_system() -> str | None:
    """Where the system has one."""
    return os.environ.get("LIVESHAPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


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
