"""Shader modules with selected runtime checks (bounds checks, loop bounding), through wgpu-native's C calls.

naga bounds every loop of an untrusted module and bounds-checks every index. Our loops end by construction, so loop
bounding is off; bounds checks stay on except in kernels whose file says why they are not needed, or with
LIVESHAPE_UNCHECKED=1.
"""

from __future__ import annotations

import os
from typing import Any

from liveshape.device.library import NativeCalls
from liveshape.kernels import Variant


def is_checked(variant: Variant) -> bool:
    """Whether the indices of a kernel variant are checked.

    Example: `is_checked(variant)`.
    """
    return not variant.kernel.unchecked and os.environ.get("LIVESHAPE_UNCHECKED", "0") in ("", "0")


def create_module(device: Any, variant: Variant, native: NativeCalls | None) -> Any:
    """Create a GPUShaderModule for a kernel variant.

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
    checks = lib.WGPUShaderRuntimeChecks_BoundsChecks if is_checked(variant) else lib.WGPUShaderRuntimeChecks_None
    handle = native.calls.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, checks)
    return native.classes.GPUShaderModule(label, handle, device)
