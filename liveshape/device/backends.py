"""Registry of device backends: backends by name, their adapters, and choosing and opening one.

A backend is a function that returns its offers, called on demand: a library is imported only when it is used. In a web
page (Pyodide) there is one backend, the page's own GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence

from liveshape.device.failure import check_process
from liveshape.device.protocol import Adapter, Device, Offer
from liveshape.errors import DeviceError, InputError, NoAdapterError
from liveshape.graph.limits import Limits, MatrixUse

_LOG = logging.getLogger("liveshape")
_NO_ADAPTER = (
    "no WebGPU adapter was found; install a Vulkan driver for your GPU, or a software one: "
    "`liveshape devices --install-software-driver` unpacks one on Debian and Ubuntu, without root"
)


Backend = Callable[[], Sequence[Offer]]

MatrixUses = Callable[[], MatrixUse]  # of what runs on a device, asked only where it decides


def unknown_use() -> MatrixUse:
    """What work takes matrix units for, where nobody knows.

    >>> unknown_use()
    <MatrixUse.PRODUCTS: 2>
    """
    return MatrixUse.PRODUCTS


def _wgpu() -> Sequence[Offer]:
    try:
        from liveshape.device.wgpu_native import offers
    except ImportError as error:
        raise NoAdapterError(f"wgpu could not be loaded: {error}") from error
    return offers()


def _dawn() -> Sequence[Offer]:
    try:
        from liveshape.device.dawn import offers
    except ImportError as error:
        raise NoAdapterError(f"Dawn could not be loaded ({error}): pip install 'liveshape[dawn]'") from error
    return offers()


def _page() -> Sequence[Offer]:
    from liveshape.device.page_opening import offers

    return offers()


_IN_PAGE = sys.platform == "emscripten"
_backends: dict[str, Backend] = {"page": _page} if _IN_PAGE else {"wgpu": _wgpu, "dawn": _dawn}
_open: dict[tuple[str, int], Device] = {}  # by backend and index of the adapter
_opening = threading.RLock()


def register(name: str, backend: Backend) -> None:
    """Register a backend, replacing one of the same name.

    Example: `register("page", lambda: [Offer(adapter, lambda limits: device)])`.
    """
    _backends[name] = backend


def default_backend(asked: str | int | None = None, matrices: MatrixUses = unknown_use) -> str:
    """The backend for a device where nobody names one: LIVESHAPE_BACKEND, else the GPU of the page that Python runs in,
    else Dawn where it is installed and opens the matrix units of that device, else wgpu; that, too, for work that takes
    no `matrices`, since decode is faster there. What it takes them for is asked only where both are possible.

    >>> default_backend()  # doctest: +SKIP
    'wgpu'
    """
    named = os.environ.get("LIVESHAPE_BACKEND") or ("page" if _IN_PAGE else None)
    if named or importlib.util.find_spec("wgpudawn") is None:
        return named or "wgpu"
    try:
        use = matrices()
        if use is MatrixUse.NOTHING:
            return "wgpu"
        # wgpu is not asked: where Dawn opens the device, that takes 0.5 s of a load (H200), and Dawn's list 0.1.
        adapters = _dawn_adapters()
        adapter = adapters[choose_adapter(asked, adapters)]
        gains = adapter.fast_matrices if use is MatrixUse.FLOAT32 else bool(adapter.matrices)
        return "dawn" if gains and not adapter.software else "wgpu"
    except DeviceError as error:  # another series of it, no driver that it takes, or no such adapter
        _LOG.info("Dawn is installed and not used: %s", error)
        return "wgpu"


@functools.cache
def _dawn_adapters() -> list[Adapter]:
    return list_adapters("dawn")


def split_choice(choice: str | int | None, backend: str | None = None) -> tuple[str | None, str | int | None]:
    """Backend and device of a choice: `dawn:nvidia` names both.

    >>> split_choice("dawn:nvidia"), split_choice(1, "dawn"), split_choice("nvidia")
    (('dawn', 'nvidia'), ('dawn', 1), (None, 'nvidia'))
    """
    name, colon, rest = choice.partition(":") if isinstance(choice, str) else ("", "", "")
    if not colon or name not in _backends:
        return backend, choice
    if backend not in (None, name):
        raise InputError(f"device {choice!r} is of the backend {name!r}, and backend={backend!r} was given: give one")
    return name, rest or None


def name_backend(choice: Device | str | int | None, backend: str) -> str:
    """The choice of a device that names its backend, too.

    >>> name_backend("nvidia", "dawn"), name_backend(None, "dawn")
    ('dawn:nvidia', 'dawn:')
    """
    if not (choice is None or isinstance(choice, (str, int))):
        raise InputError(f"{choice!r} is an open device: it has its backend, and backend={backend!r} cannot be given")
    check_backend(backend)
    _, rest = split_choice(choice, backend)
    return f"{backend}:{'' if rest is None else rest}"


def choose_backend(
    choice: str | int | None = None, backend: str | None = None, matrices: MatrixUses = unknown_use
) -> tuple[str, str | int | None]:
    """The backend to open, and what was asked of its device: by the caller, else by LIVESHAPE_DEVICE.

    >>> choose_backend("wgpu:nvidia")
    ('wgpu', 'nvidia')
    """
    name, asked = split_choice(choice, backend)
    if asked is None:
        named, asked = split_choice(asked_device())
        name = name or named
    return name or default_backend(asked, matrices), asked


def check_backend(name: str) -> None:
    """Raise for a backend that does not exist.

    >>> check_backend("dawn")
    """
    if name not in _backends:
        raise InputError(f"there is no backend {name!r}; there is {', '.join(_backends)}")


def backend_names() -> list[str]:
    """The names of all backends.

    >>> backend_names()
    ['wgpu', 'dawn']
    """
    return list(_backends)


def list_adapters(backend: str | None = None) -> list[Adapter]:
    """Every usable adapter of a backend, GPUs first.

    >>> [adapter.name for adapter in list_adapters()]  # doctest: +SKIP
    ['NVIDIA H200', 'llvmpipe (LLVM 15.0.6, 256 bits)']
    """
    return [offer.adapter for offer in _offers(backend or default_backend())]


def open_device(
    choice: str | int | None = None,
    backend: str | None = None,
    limits: Limits | None = None,
    *,
    matrices: MatrixUses = unknown_use,
) -> Device:
    """Open a device by index, by part of its name, or by `LIVESHAPE_DEVICE`; the first GPU by default. `dawn:nvidia`
    names the backend, too. Work that takes no `matrices` is no reason to choose a backend for its matrix units.

    Devices are shared per adapter until lost; with `limits` a separate device is opened.

    >>> open_device("nvidia")  # doctest: +SKIP
    """
    check_process()
    with _opening:
        name, asked = choose_backend(choice, backend, matrices)
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
    check_backend(backend)
    return _backends[backend]()


def _after_fork() -> None:
    """In a forked child: a new lock, since a thread that held the old one does not exist here."""
    global _opening
    _opening = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
