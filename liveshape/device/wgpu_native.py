"""The only file that imports wgpu: wgpu-py as a library, with the C calls of wgpu-native where that is its backend."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import wgpu

from liveshape.device.library import Library, NativeCalls, SubmitHeuristics
from liveshape.device.offers import offers_of
from liveshape.device.protocol import Offer
from liveshape.device.shaders import create_module
from liveshape.device.wgpu_callbacks import PollCallbacks
from liveshape.device.wgpu_types import parse_types
from liveshape.errors import DeviceError

SERIES = (0, 32)  # supported wgpu-py release series, as in pyproject.toml
# `finish` costs as much as encoding, and overlaps with it on another thread. On an H200 217 commands, 32 rows of a 1B,
# took 3.5 ms in pieces and 4.6 ms whole, but 152 of them, 8 rows, encoding-bound, 2.4 and 2.3.
_HEURISTICS = SubmitHeuristics(deferred=32, pieces=160, first_piece=32)


def check_series(version: str) -> None:
    """Raise DeviceError for another wgpu-py series: its C calls have other arguments, which would crash the process.

    >>> check_series("0.32.4")
    """
    if not version.startswith(f"{SERIES[0]}.{SERIES[1]}."):
        wanted = f"wgpu>={SERIES[0]}.{SERIES[1]},<{SERIES[0]}.{SERIES[1] + 1}"
        raise DeviceError(
            f"wgpu {version} is installed; liveshape calls wgpu-native as {SERIES[0]}.{SERIES[1]}.* does: "
            f"pip install '{wanted}'"
        )


check_series(wgpu.__version__)


@functools.cache
def _leave_opengl_alone() -> None:
    """Disable the OpenGL backend: the same hardware with fewer features, and noise on stderr."""
    with contextlib.suppress(ImportError, RuntimeError):  # another backend, or an instance exists already
        from wgpu.backends.wgpu_native.extras import set_instance_extras

        set_instance_extras(backends=["Primary"])


def _native() -> NativeCalls | None:
    try:
        from wgpu.backends.wgpu_native import _api, ffi, lib
        from wgpu.backends.wgpu_native.extras import write_timestamp
    except ImportError:  # another backend of wgpu-py: public API only
        return None
    parse_types(ffi)
    calls = _api.libf

    def submit(queue: Any, work: Any) -> int:
        return int(calls.wgpuQueueSubmitForIndex(queue, 1, ffi.new("WGPUCommandBuffer[1]", [work])))

    def events(device: Any, queue: Any) -> PollCallbacks:
        return PollCallbacks(ffi, lib, calls, device, queue)

    def period(queue: Any) -> float:
        return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))

    return NativeCalls(ffi, lib, calls, wgpu.GPUError, _api, submit, events, write_timestamp, period, _HEURISTICS)


def _adapters() -> list[Any]:
    _leave_opengl_alone()
    return list(wgpu.gpu.enumerate_adapters_sync())


LIBRARY = Library("wgpu", wgpu, _native(), _adapters, create_module, "subgroup", "timestamp-query-inside-passes")


def offers() -> list[Offer]:
    """The wgpu backend for `device/backends.py`: its adapters.

    Example: `offers()[0].open(None)`.
    """
    return offers_of(LIBRARY)
