"""The only file that imports wgpudawn: Dawn, Chrome's WebGPU, with wgpu-py's API and its own C calls.

Dawn opens the matrix units of a GPU to WGSL, which wgpu-native does not. Its index checks are off for the whole device,
since they take half of the time of a matrix product: `tint.py` writes them into the kernels that need them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import wgpudawn
from wgpudawn.backends.dawn import _api, extras, ffi, lib
from wgpudawn.backends.dawn._helpers import get_wgpu_instance

from liveshape.device.dawn_futures import Futures
from liveshape.device.library import Library, NativeCalls, SubmitHeuristics
from liveshape.device.offers import offers_of
from liveshape.device.protocol import Offer
from liveshape.device.tint import MATRICES, matrix_shapes, tint_source
from liveshape.errors import DeviceError
from liveshape.graph.limits import MatrixShape
from liveshape.kernels import Variant

_LOG = logging.getLogger("liveshape")
SERIES = "0.32."  # the supported release series, as in pyproject.toml: another has other C calls
_HOST_MEMORY = "host-mapped-pointer"
_TOGGLES = (
    "allow_unsafe_apis",  # matrices, timestamps inside passes, and buffers in memory of the host
    "vulkan_enable_f16_on_nvidia",
    "disable_robustness",
    "disable_workgroup_init",  # no kernel reads workgroup memory that it did not write
)
# A device has one lock, so that encoding beside a submit takes longer than after it: a step of a 1B, 104 commands, took
# 1,150 us with the worker on an H200 and 860 us without. In pieces ResNet18 took 1.24 ms, whole 1.45.
_HEURISTICS = SubmitHeuristics(deferred=None, pieces=24, first_piece=8)

if not wgpudawn.__version__.startswith(SERIES):
    raise DeviceError(
        f"wgpudawn {wgpudawn.__version__} is installed; liveshape calls Dawn as {SERIES}* does: "
        "pip install 'wgpudawn>=0.32,<0.33'"
    )


@functools.cache
def _set_toggles() -> None:
    """Set Dawn's toggles; where the caller made the instance, it keeps its own, and there are no matrices."""
    with contextlib.suppress(RuntimeError):
        extras.set_instance_extras(enable_toggles=_TOGGLES, disable_toggles=["timestamp_quantization"])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log what Dawn writes to stderr about drivers that it does not take, instead of showing it to everyone."""
    with tempfile.TemporaryFile() as told:
        stderr = os.dup(2)
        os.dup2(told.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            told.seek(0)
            if text := told.read().decode(errors="replace").strip():
                _LOG.debug("Dawn: %s", text)


def _adapters() -> list[Any]:
    with _quiet():
        _set_toggles()
        return list(wgpudawn.gpu.enumerate_adapters_sync())


def _module(device: Any, variant: Variant, native: NativeCalls | None) -> Any:
    return device.create_shader_module(code=tint_source(variant), label=variant.label)


def _lost(device: Any) -> str:
    """Why a device was lost: Dawn ignores every call on such a device, without an error."""
    promise = device._lost_promise
    if promise._state == "pending":
        return ""
    info = promise.sync_wait()
    return f"device lost: {info.message or info.reason}"


def _submit(queue: Any, work: Any) -> int:
    _api.libf.wgpuQueueSubmit(queue, 1, ffi.new("WGPUCommandBuffer[1]", [work]))
    return -1


def _events(device: Any, queue: Any) -> Futures:
    def check() -> None:
        _api.process_events()  # only now Dawn tells of a loss
        if reason := _lost(device):
            raise wgpudawn.GPUError(reason)

    return Futures(ffi, lib, _api.libf, get_wgpu_instance(), queue, check)


def _nanoseconds(queue: Any) -> float:
    return 1.0


def _matrices(adapter: Any) -> tuple[MatrixShape, ...]:
    if MATRICES not in adapter.features:
        return ()
    sizes = adapter.info.get("subgroup_min_size"), adapter.info.get("subgroup_max_size")
    return matrix_shapes(extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", ()), sizes)


def _host_buffer(device: Any, nbytes: int) -> tuple[Any, memoryview] | None:
    if _HOST_MEMORY not in device.features:
        return None
    try:
        memory = extras.allocate_host_memory(device, nbytes)
        with contextlib.suppress(AttributeError, OSError):  # the first touch of small pages takes 0.7 ms for each MB
            memory.obj.madvise(mmap.MADV_HUGEPAGE)
        usage = wgpudawn.BufferUsage.COPY_DST
        return extras.create_buffer_from_host_memory(device, memory, usage=usage, label="staging"), memory
    except (OSError, wgpudawn.GPUError) as error:  # no pages, or a driver that does not take these: results are copied
        _LOG.info("results are copied: no staging of %d bytes in memory of the host (%s)", nbytes, error)
        return None


LIBRARY = Library(
    "dawn",
    wgpudawn,
    NativeCalls(
        ffi,
        lib,
        _api.libf,
        wgpudawn.GPUError,
        _api,
        _submit,
        _events,
        extras.write_timestamp,
        _nanoseconds,
        _HEURISTICS,
    ),
    _adapters,
    _module,
    "subgroups",
    "chromium-experimental-timestamp-query-inside-passes",
    # The first: the worker's thread encodes and submits, too.
    ("implicit-device-synchronization", MATRICES, _HOST_MEMORY),
    _matrices,
    _lost,
    _host_buffer,
)


def offers() -> list[Offer]:
    """The Dawn backend for `device/backends.py`: its adapters.

    Example: `offers()[0].open(None)`.
    """
    return offers_of(LIBRARY)
