"""Shader modules with only the checks that are worth their time, through the C calls of wgpu-native.

naga bounds every loop of a module that it does not trust and checks every index. Our loops end by construction, so the
first goes; indices stay checked, but in kernels whose file says why they need not be, and unless LIVESHAPE_UNCHECKED=1
asks for the last bit of speed.
"""

from __future__ import annotations

import os
from typing import Any

from liveshape.device.library import NativeCalls
from liveshape.kernels import Variant


def create_module(device: Any, variant: Variant, native: NativeCalls | None) -> Any:
    """A module of wgpu-py's own class.

    Example: `create_module(device, variant, native=None)`.
    """
    if native is None or not hasattr(native.lib, "wgpuDeviceCreateShaderModuleTrusted"):
        return device.create_shader_module(code=variant.source, label=variant.label)
    ffi, lib = native.ffi, native.lib
    text, label = variant.source.encode(), variant.label
    data = ffi.new("char[]", text)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.next = ffi.NULL
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = data, len(text)
    name = label.encode()
    name_data = ffi.new("char[]", name)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name_data, len(name)
    unchecked = variant.kernel.unchecked or os.environ.get("LIVESHAPE_UNCHECKED", "0") not in ("", "0")
    checks = lib.WGPUShaderRuntimeChecks_None if unchecked else lib.WGPUShaderRuntimeChecks_BoundsChecks
    handle = native.calls.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
    return native.classes.GPUShaderModule(label, handle, device)
