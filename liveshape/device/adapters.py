"""The GPUs that this machine offers, and the one that a caller means."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.device.library import set_instance_extras, wgpu
from liveshape.device.software_driver import offer_software_driver
from liveshape.errors import DeviceError, NoAdapterError

LIMIT_NAMES = {
    "max_groups": "max-compute-workgroups-per-dimension",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_binding_bytes": "max-storage-buffer-binding-size",
    "max_buffer_bytes": "max-buffer-size",
    "max_bindings": "max-storage-buffers-per-shader-stage",
    "max_workgroup_bytes": "max-compute-workgroup-storage-size",
    "uniform_alignment": "min-uniform-buffer-offset-alignment",
}
_NO_ADAPTER = (
    "no WebGPU adapter was found; install a Vulkan driver for your GPU, or a software one "
    "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
)


@dataclass(frozen=True)
class Adapter:
    """One GPU that this machine offers, as `liveshape devices` lists it."""

    index: int
    name: str
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU", ...
    backend: str
    driver: str
    software: bool
    half: bool
    max_buffer_bytes: int
    max_binding_bytes: int


@functools.cache
def _leave_opengl_alone() -> None:
    """OpenGL is a second road to the same hardware, with fewer features and complaints of its own on stderr."""
    if set_instance_extras is not None:
        with contextlib.suppress(RuntimeError):  # the program around us uses wgpu already
            set_instance_extras(backends=["Primary"])


@contextlib.contextmanager
def no_display() -> Iterator[None]:
    """Mesa's driver looks for a display and complains on stderr where the session has none; any folder quiets it."""
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
    """wgpu tells in twenty lines what an adapter lacks; what a program needs of it is asked for, or is an error."""
    return not record.getMessage().startswith(("Missing downlevel flags", "DownlevelCapabilities"))


def usable_adapters() -> list[Any]:
    """The adapters as wgpu has them, GPUs first, and of software adapters the newest driver.

    Example: `describe(0, usable_adapters()[0]).name`.
    """
    offer_software_driver()
    _leave_opengl_alone()
    logging.getLogger("wgpu").addFilter(_is_of_use)  # as often as it likes: it is there once
    try:
        with no_display():
            adapters = wgpu.gpu.enumerate_adapters_sync()
    except (wgpu.GPUError, RuntimeError) as error:
        raise DeviceError(f"the adapters of this machine could not be listed: {error}") from error
    found = [adapter for adapter in adapters if adapter.info["backend_type"] != "OpenGL"]
    return sorted(found, key=lambda adapter: _rank(adapter.info["adapter_type"], adapter.info["description"]))


def _rank(kind: str, driver: str) -> tuple[bool, list[int]]:
    """GPUs keep their order; of software adapters the newest driver comes first, several times as fast as an old one.

    >>> _rank("CPU", "Mesa 25.0.7 (LLVM 15.0.6)") < _rank("CPU", "Mesa 22.3.6 (LLVM 15.0.6)")
    True
    """
    version = re.search(r"\d+(\.\d+)+", driver)
    software = kind == "CPU"
    return software, [-int(part) for part in version[0].split(".")] if software and version else []


def list_adapters() -> list[Adapter]:
    """Every usable adapter, GPUs first.

    >>> [adapter.name for adapter in list_adapters()]  # doctest: +SKIP
    ['NVIDIA H200', 'llvmpipe (LLVM 15.0.6, 256 bits)']
    """
    return [describe(index, adapter) for index, adapter in enumerate(usable_adapters())]


def describe(index: int, adapter: Any) -> Adapter:
    """What there is to know about an adapter before it is opened.

    Example: `describe(0, usable_adapters()[0]).software`.
    """
    info, limits = adapter.info, adapter.limits
    return Adapter(
        index=index,
        name=info["device"] or info["description"] or "unknown",
        kind=info["adapter_type"],
        backend=info["backend_type"],
        driver=info["description"],
        software=info["adapter_type"] == "CPU",
        half="shader-f16" in adapter.features,
        max_buffer_bytes=limits[LIMIT_NAMES["max_buffer_bytes"]],
        max_binding_bytes=limits[LIMIT_NAMES["max_binding_bytes"]],
    )


def asked_device(choice: str | int | None = None) -> str | int | None:
    """What the caller asks for: the choice itself, else the environment variable LIVESHAPE_DEVICE.

    >>> asked_device("nvidia")
    'nvidia'
    """
    return os.environ.get("LIVESHAPE_DEVICE") if choice is None else choice


def choose_adapter(asked: str | int | None, adapters: list[Adapter]) -> int:
    """The index of the adapter that is asked for by index or by a part of its name; the first without a wish.

    >>> choose_adapter("llvmpipe", list_adapters())  # doctest: +SKIP
    1
    """
    if not adapters:
        raise NoAdapterError(_NO_ADAPTER)
    if asked is None or asked == "":
        return 0
    text = str(asked)
    listing = ", ".join(f"{adapter.name} (index {adapter.index})" for adapter in adapters)
    if text.isdigit():
        if int(text) < len(adapters):
            return int(text)
        raise NoAdapterError(f"there is no adapter {text}; this machine has {listing}")
    for adapter in adapters:
        if text.lower() in f"{adapter.name} {adapter.driver} {adapter.kind}".lower():
            return adapter.index
    raise NoAdapterError(f"no adapter is called {text!r}; this machine has {listing}")
