"""The only file that imports wgpu: its public calls, and the C calls of wgpu-native where that is the backend."""

from __future__ import annotations

import wgpu

from liveshape.errors import DeviceError

SERIES = (0, 32)  # of wgpu-py: what pyproject.toml asks for, and what every test runs with

__all__ = ["SERIES", "ShaderModule", "calls", "ffi", "lib", "native", "set_instance_extras", "wgpu", "write_timestamp"]


def check_series(version: str) -> None:
    """A DeviceError for a wgpu-py of another series: its C calls have other arguments, which would end the process.

    >>> check_series("0.32.4")
    """
    if not version.startswith(f"{SERIES[0]}.{SERIES[1]}."):
        wanted = f"wgpu>={SERIES[0]}.{SERIES[1]},<{SERIES[0]}.{SERIES[1] + 1}"
        raise DeviceError(
            f"wgpu {version} is installed; liveshape calls wgpu-native as {SERIES[0]}.{SERIES[1]}.* does: "
            f"pip install '{wanted}'"
        )


check_series(wgpu.__version__)

try:
    from wgpu.backends.wgpu_native import _api as native
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule as ShaderModule
    from wgpu.backends.wgpu_native._api import libf as calls  # the functions of lib, raising the errors of the device
    from wgpu.backends.wgpu_native.extras import set_instance_extras, write_timestamp
except ImportError:  # another backend of wgpu-py: its public calls do everything
    native = ffi = lib = calls = ShaderModule = set_instance_extras = write_timestamp = None
