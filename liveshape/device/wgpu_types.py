"""The C types that opening a device needs, parsed by cffi at once.

cffi parses the text of each type apart, and goes through all names of wgpu's header for it: 40 ms, 50 times a process,
a third of the load of a small model. One function type that has them all as arguments is one text.
"""

from __future__ import annotations

from typing import Any

_POINTERS = (
    "WGPUAdapterInfo", "WGPUBindGroupDescriptor", "WGPUBindGroupEntry", "WGPUBindGroupLayoutDescriptor",
    "WGPUBindGroupLayoutEntry", "WGPUBufferBindingLayout", "WGPUBufferDescriptor", "WGPUBufferMapCallbackInfo",
    "WGPUChainedStruct", "WGPUCommandBufferDescriptor", "WGPUCommandEncoderDescriptor", "WGPUComputePassDescriptor",
    "WGPUComputePipelineDescriptor", "WGPUComputeState", "WGPUDeviceDescriptor", "WGPUDeviceExtras",
    "WGPUDeviceLostCallbackInfo", "WGPUInstanceDescriptor", "WGPUInstanceExtras", "WGPULimits", "WGPUNativeLimits",
    "WGPUPipelineLayoutDescriptor", "WGPUQueueDescriptor", "WGPUQueueWorkDoneCallbackInfo",
    "WGPURequestDeviceCallbackInfo", "WGPUShaderModuleDescriptor", "WGPUShaderSourceWGSL", "WGPUStringView",
    "WGPUUncapturedErrorCallbackInfo", "uint8_t", "void",
)  # fmt: skip
_ARRAYS = (
    "WGPUAdapter[]", "WGPUBindGroupEntry[]", "WGPUBindGroupLayoutEntry[]", "WGPUBindGroupLayout[]",
    "WGPUCommandBuffer[1]", "WGPUCommandBuffer[]", "WGPUFeatureName[]", "char []", "char[]", "uint32_t []",
    "uint32_t[1]",
)  # fmt: skip
_NUMBERS = ("intptr_t", "uintptr_t")


def parse_types(ffi: Any) -> list[str]:
    """Parse them, where cffi keeps what it parsed as it does today; returns their texts.

    Example: `parse_types(wgpu.backends.wgpu_native.ffi)`.
    """
    kept = getattr(ffi, "_parsed_types", None)
    if not isinstance(kept, dict):
        return []
    pointers = [f"{name} *" for name in _POINTERS]
    arrays = [name.replace("[", " (*)[", 1) for name in _ARRAYS]
    try:
        found = ffi.typeof(f"void (*)({', '.join([*pointers, *arrays, *_NUMBERS])})").args
    except Exception:  # a name that this release does not have: each is parsed when it is needed
        return []
    types = [*found[: len(pointers)], *(each.item for each in found[len(pointers) : -len(_NUMBERS)])]
    types += found[-len(_NUMBERS) :]
    texts = [*pointers, *_ARRAYS, *_NUMBERS]
    for text, ctype in zip(texts, types, strict=True):
        kept.setdefault(text, (ctype, False))
    return texts
