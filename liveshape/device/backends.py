"""Registry of device backends: backends by name, their adapters, and choosing and opening one.

A backend is a function that returns its offers, called on demand: a library is imported only when it is used, and a
web page that opened its GPU before Python started can offer that device.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from liveshape.device.failure import check_process
from liveshape.device.protocol import Adapter, Device, Offer
from liveshape.errors import InputError, NoAdapterError
from liveshape.graph.limits import Limits

_LOG = logging.getLogger("liveshape")
_NO_ADAPTER = (
    "no WebGPU adapter was found; install a Vulkan driver for your GPU, or a software one "
    "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
)


Backend = Callable[[], Sequence[Offer]]


def _wgpu() -> Sequence[Offer]:
    try:
        from liveshape.device.wgpu_native import offers
    except ImportError as error:
        raise NoAdapterError(f"wgpu could not be loaded: {error}") from error
    return offers()


_backends: dict[str, Backend] = {"wgpu": _wgpu}
_open: dict[tuple[str, int], Device] = {}  # by backend and index of the adapter
_opening = threading.RLock()


def register(name: str, backend: Backend) -> None:
    """Register a backend, replacing one of the same name.

    Example: `register("page", lambda: [Offer(adapter, lambda limits: device)])`.
    """
    _backends[name] = backend


def default_backend() -> str:
    """The default backend.

    >>> default_backend()
    'wgpu'
    """
    return next(iter(_backends))


def list_adapters(backend: str | None = None) -> list[Adapter]:
    """Every usable adapter, GPUs first.

    >>> [adapter.name for adapter in list_adapters()]  # doctest: +SKIP
    ['NVIDIA H200', 'llvmpipe (LLVM 15.0.6, 256 bits)']
    """
    return [offer.adapter for offer in _offers(backend or default_backend())]


def open_device(choice: str | int | None = None, backend: str | None = None, limits: Limits | None = None) -> Device:
    """Open a device by index, by part of its name, or by `LIVESHAPE_DEVICE`; the first GPU by default.

    Devices are shared per adapter until lost; with `limits` a separate device is opened.

    >>> open_device("nvidia")  # doctest: +SKIP
    """
    check_process()
    with _opening:
        name, asked = backend or default_backend(), asked_device(choice)
        offers = _offers(name)
        index = choose_adapter(asked, [offer.adapter for offer in offers])
        if limits is not None:
            return offers[index].open(limits)
        device = _open.get((name, index))
        if device is None or device.lost:
            device = _open[name, index] = offers[index].open(None)
            if device.adapter.software and not asked:
                _LOG.warning("no GPU was found: running on the software adapter %s", device.name)
        return device


def asked_device(choice: str | int | None = None) -> str | int | None:
    """The requested device: the choice itself, else the environment variable LIVESHAPE_DEVICE.

    >>> asked_device("nvidia")
    'nvidia'
    """
    return os.environ.get("LIVESHAPE_DEVICE") if choice is None else choice


def choose_adapter(asked: str | int | None, adapters: Sequence[Adapter]) -> int:
    """Index of the adapter requested by index or by part of its name; the first by default.

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


def _offers(backend: str) -> Sequence[Offer]:
    if backend not in _backends:
        raise InputError(f"there is no backend {backend!r}; there is {', '.join(_backends)}")
    return _backends[backend]()


def _after_fork() -> None:
    """In a forked child: a new lock, since a thread that held the old one does not exist here."""
    global _opening
    _opening = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
