"""The library that tests of the device open: the one that LIVESHAPE_BACKEND names, wgpu by default."""

from __future__ import annotations

from liveshape.device.backends import default_backend
from liveshape.device.library import Library


def _asked() -> Library:
    if default_backend() == "dawn":
        from liveshape.device.dawn import LIBRARY as DAWN

        return DAWN
    from liveshape.device.wgpu_native import LIBRARY as WGPU

    return WGPU


LIBRARY = _asked()
