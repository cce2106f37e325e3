"""Required limits and features when a device is requested, and the limits that kernels are planned with."""

from __future__ import annotations

from typing import Any

from liveshape.device.library import Library
from liveshape.graph.limits import Limits, MatrixShape

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
_MORE_LIMITS = ("max-compute-workgroup-size-x",)
# A software adapter has few cores and pays for every barrier: small workgroups with little synchronization.
_SOFTWARE_INVOCATIONS = 32
_SOFTWARE_THREADS = 4  # bench.software: 4 takes 0.62 to 0.93 of the time of a token with 8


def required_limits(adapter: Any) -> dict[str, int]:
    """The adapter's maximum for each limit that kernels use.

    Example: `adapter.request_device_sync(required_limits=required_limits(adapter))`.
    """
    return {name: adapter.limits[name] for name in (*LIMIT_NAMES.values(), *_MORE_LIMITS)}


def required_features(library: Library, adapter: Any, subgroups: bool) -> list[str]:
    """Features for kernels and timestamps, where the adapter supports them.

    Example: `required_features(LIBRARY, adapter, subgroups=True)`.
    """
    wanted = (HALF, *library.clocks, *library.more_features, *((library.subgroups,) if subgroups else ()))
    return [name for name in wanted if name in adapter.features]


def granted_limits(
    device: Any,
    software: bool,
    subgroup: int,
    matrices: tuple[MatrixShape, ...] = (),
    cuts_loops: bool = False,
    fast_matrices: bool = False,
) -> Limits:
    """Limits of an open device, lowered where larger does not pay on a software adapter.

    Example: `granted_limits(device, software=False, subgroup=32)`.
    """
    granted = {ours: device.limits[theirs] for ours, theirs in LIMIT_NAMES.items()}
    cooperating, lanes = Limits.max_cooperating_threads, 0
    if software:
        # Reductions of few threads gain nothing from shuffles; what many threads load in common does.
        cooperating, subgroup, lanes = _SOFTWARE_THREADS, 0, subgroup
        granted["max_invocations"] = min(granted["max_invocations"], _SOFTWARE_INVOCATIONS)
    return Limits(
        **granted,
        half=HALF in device.features,
        subgroup=subgroup,
        max_cooperating_threads=cooperating,
        matrices=matrices,
        fast_matrices=fast_matrices,
        lanes=lanes,
        cuts_loops=cuts_loops,
    )
