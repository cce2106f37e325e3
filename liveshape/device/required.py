"""What is required of an adapter as it is opened, and the limits that kernels are planned with then."""

from __future__ import annotations

from typing import Any

from liveshape.device.subgroups import SUBGROUPS
from liveshape.graph.limits import Limits

LIMIT_NAMES = {
    "max_groups": "max-compute-workgroups-per-dimension",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_binding_bytes": "max-storage-buffer-binding-size",
    "max_buffer_bytes": "max-buffer-size",
    "max_bindings": "max-storage-buffers-per-shader-stage",
    "max_workgroup_bytes": "max-compute-workgroup-storage-size",
    "uniform_alignment": "min-uniform-buffer-offset-alignment",
}
HALF = "shader-f16"
CLOCKS = ("timestamp-query", "timestamp-query-inside-passes")  # of a pass, and of a command inside of it
_MORE_LIMITS = ("max-compute-workgroup-size-x",)
# A software adapter has few cores and pays for every barrier: its threads should be few and not wait for each other.
_SOFTWARE_INVOCATIONS = 32
_SOFTWARE_THREADS = 8  # as many as a vector of the CPU has lanes


def required_limits(adapter: Any) -> dict[str, int]:
    """All that an adapter has, of the limits that we know.

    Example: `adapter.request_device_sync(required_limits=required_limits(adapter))`.
    """
    return {name: adapter.limits[name] for name in (*LIMIT_NAMES.values(), *_MORE_LIMITS)}


def required_features(adapter: Any, subgroups: bool) -> list[str]:
    """What kernels and clocks can use, as far as the adapter has it.

    Example: `required_features(adapter, subgroups=True)`.
    """
    wanted = (HALF, *CLOCKS, *((SUBGROUPS,) if subgroups else ()))
    return [name for name in wanted if name in adapter.features]


def granted_limits(device: Any, software: bool, subgroup: int) -> Limits:
    """What an open device allows, less what does not pay on a software adapter.

    Example: `granted_limits(device, software=False, subgroup=32)`.
    """
    granted = {ours: device.limits[theirs] for ours, theirs in LIMIT_NAMES.items()}
    cooperating = Limits.max_cooperating_threads
    if software:
        cooperating = _SOFTWARE_THREADS
        granted["max_invocations"] = min(granted["max_invocations"], _SOFTWARE_INVOCATIONS)
    return Limits(**granted, half=HALF in device.features, subgroup=subgroup, max_cooperating_threads=cooperating)
