"""Offers of a library: its adapters, each with a function that opens the device."""

from __future__ import annotations

from functools import partial
from typing import Any

from liveshape.device.adapters import describe, usable_adapters
from liveshape.device.library import Library
from liveshape.device.protocol import Offer
from liveshape.device.webgpu import WebGpuDevice
from liveshape.graph.limits import Limits


def offers_of(library: Library) -> list[Offer]:
    """Every usable adapter of a library, GPUs first.

    Example: `offers_of(LIBRARY)[0].open(None)`.
    """
    return [
        Offer(describe(library, index, adapter), partial(_opened, library, adapter, index))
        for index, adapter in enumerate(usable_adapters(library))
    ]


def _opened(library: Library, adapter: Any, index: int, limits: Limits | None) -> WebGpuDevice:
    return WebGpuDevice(library, adapter, index, limits)
