"""Enumerating the adapters of a WebGPU library, in order of preference, with their info."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from liveshape.device.fast_matrices import are_fast
from liveshape.device.library import Library
from liveshape.device.protocol import Adapter
from liveshape.device.required import HALF, LIMIT_NAMES
from liveshape.device.software_driver import offer_software_driver
from liveshape.errors import DeviceError


@contextlib.contextmanager
def no_display() -> Iterator[None]:
    """Set XDG_RUNTIME_DIR where it is unset: without it Mesa complains on stderr; any folder quiets it."""
    name = "XDG_RUNTIME_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = os.sep
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _is_of_use(record: logging.LogRecord) -> bool:
    """Filter of wgpu's twenty-line log of missing downlevel flags: a missing feature that matters is an error later."""
    return not record.getMessage().startswith(("Missing downlevel flags", "DownlevelCapabilities"))


def usable_adapters(library: Library) -> list[Any]:
    """A library's own adapter objects, GPUs first, then software adapters with the newest driver first.

    Example: `describe(LIBRARY, 0, usable_adapters(LIBRARY)[0]).name`.
    """
    offer_software_driver()
    logging.getLogger(library.wgpu.__name__).addFilter(_is_of_use)  # idempotent
    try:
        with no_display():
            adapters = library.adapters()
    except (library.wgpu.GPUError, RuntimeError) as error:
        raise DeviceError(f"the adapters of this machine could not be listed: {error}") from error
    found = [adapter for adapter in adapters if adapter.info["backend_type"] != "OpenGL"]
    return sorted(found, key=lambda adapter: _rank(adapter.info["adapter_type"], adapter.info["description"]))


def _rank(kind: str, driver: str) -> tuple[bool, list[int]]:
    """Sort key: GPUs keep their order; software adapters by newest driver, several times as fast as an old one.

    >>> _rank("CPU", "Mesa 25.0.7 (LLVM 15.0.6)") < _rank("CPU", "Mesa 22.3.6 (LLVM 15.0.6)")
    True
    """
    version = re.search(r"\d+(\.\d+)+", driver)
    software = kind == "CPU"
    return software, [-int(part) for part in version[0].split(".")] if software and version else []


def describe(library: Library, index: int, adapter: Any) -> Adapter:
    """Adapter info (name, type, driver, limits) without opening a device.

    Example: `describe(LIBRARY, 0, usable_adapters(LIBRARY)[0]).software`.
    """
    info, limits, matrices = adapter.info, adapter.limits, library.matrices(adapter)
    name = info["device"] or info["description"] or "unknown"
    return Adapter(
        index=index,
        name=name,
        kind=info["adapter_type"],
        backend=info["backend_type"],
        driver=info["description"],
        software=info["adapter_type"] == "CPU",
        half=HALF in adapter.features,
        max_buffer_bytes=limits[LIMIT_NAMES["max_buffer_bytes"]],
        max_binding_bytes=limits[LIMIT_NAMES["max_binding_bytes"]],
        library=library.name,
        matrices=matrices,
        fast_matrices=are_fast(name, matrices),
    )
