"""ExecuTorch's suites, in the order of the page."""

from __future__ import annotations

from tests.coverage.backends import backend_suite
from tests.coverage.catalogue import catalogue
from tests.coverage.recording import Suite
from tests.coverage.vulkan import vulkan_delegate
from tests.support.exporting import quiet
from tests.support.packages import declare_libraries


def suites() -> list[Suite]:
    declare_libraries()
    with quiet():
        return [catalogue(), vulkan_delegate(), backend_suite("operators"), backend_suite("models")]
