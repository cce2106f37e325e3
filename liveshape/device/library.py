"""The only file that imports wgpu: its public calls, and the C calls of wgpu-native where that is the backend."""

from __future__ import annotations

import wgpu

__all__ = ["ShaderModule", "calls", "ffi", "lib", "native", "set_instance_extras", "wgpu", "write_timestamp"]

try:
    from wgpu.backends.wgpu_native import _api as native
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule as ShaderModule
    from wgpu.backends.wgpu_native._api import libf as calls  # the functions of lib, raising the errors of the device
    from wgpu.backends.wgpu_native.extras import set_instance_extras, write_timestamp
except ImportError:  # another backend of wgpu-py: its public calls do everything
    native = ffi = lib = calls = ShaderModule = set_instance_extras = write_timestamp = None
