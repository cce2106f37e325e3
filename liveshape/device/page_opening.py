"""The GPU of the page that Python runs in (Pyodide, JupyterLite): `page_gpu.js` opens it, the backend `page` offers it.

Where Python can wait for a promise (JSPI) the first load opens it; elsewhere `await open_page()` does, before that.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from liveshape.device.page_device import PageDevice, Upload, can_wait
from liveshape.device.protocol import Device, Offer
from liveshape.errors import NoAdapterError
from liveshape.graph.limits import Limits

_device: PageDevice | None = None
_opened_here = True  # and so opened again here once it is lost; else that is for the JavaScript that offered it


async def open_page(gpu: Any = None) -> Device:
    """Open the GPU of the page, `navigator.gpu` unless another one is given, for every load from now on.

    Only browsers without JSPI need it; there `call_async` of a model is what runs.

    Example: `await liveshape.open_page(); model = liveshape.load("model.pte"); y = await model.call_async(x)`.
    """
    global _opened_here
    promise = _opening(gpu)
    try:
        opened = await promise
    except Exception as error:
        raise _refused(error) from error
    device = offer_gpu(opened)
    _opened_here = True
    return device


def offer_gpu(opened: Any, upload: Upload | None = None) -> Device:
    """Offer a `PageGpu` that JavaScript has opened; `upload` is that of `PageDevice`.

    Example: `offer_gpu(gpu, upload)`.
    """
    global _device, _opened_here
    _device, _opened_here = PageDevice(opened, upload=upload), False
    return _device


def offers() -> Sequence[Offer]:
    """The adapter of this page, opened at the first call, and again after the device was lost."""
    global _device
    if _device is None or (_device.lost and _opened_here):
        _device = PageDevice(_waited_for(_opening(None)))
    device = _device

    def opened_with(limits: Limits | None) -> Device:
        return device if limits is None else device.limited(limits)

    return [Offer(device.adapter, opened_with)]


def _waited_for(promise: Any) -> Any:
    if not can_wait():
        raise NoAdapterError(
            "the GPU of this page is not open, and Python cannot wait for it here (JSPI: Chromium 137, Firefox 153, "
            "Safari 27): `await liveshape.open_page()` before"
        )
    try:
        return importlib.import_module("pyodide.ffi").run_sync(promise)
    except Exception as error:
        raise _refused(error) from error


def _opening(gpu: Any) -> Any:
    """The promise of an open GPU. The script is a module: without its `export` it can be evaluated at once."""
    if gpu is None:
        gpu = getattr(getattr(importlib.import_module("js"), "navigator", None), "gpu", None)
    if gpu is None:
        raise NoAdapterError(
            "there is no WebGPU in this page: use a current Chrome, Edge, Safari or Firefox, over https or on "
            "localhost; on Linux Chrome may need chrome://flags/#enable-unsafe-webgpu"
        )
    text = resources.files("liveshape.device").joinpath("page_gpu.js").read_text()
    script = re.sub("^export ", "", text, flags=re.MULTILINE)
    return importlib.import_module("pyodide.code").run_js(f"(() => {{ {script}\nreturn PageGpu; }})()").open(gpu)


def _refused(error: Exception) -> NoAdapterError:
    return NoAdapterError(f"the GPU of this page could not be opened: {error}")
