"""Subgroup size of a device: how many consecutive threads can use subgroup shuffles among them.

WebGPU guarantees neither a subgroup size nor that consecutive local invocation indices are consecutive subgroup
lanes. Devices do it so; one that does not counts as having no subgroups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liveshape.device.library import Library
from liveshape.device.probes import run_probe
from liveshape.kernels import Kernel

LEAST_SUBGROUP = 8  # smaller ones would read an attention key in too many steps
LEAST_LANES = 4  # of a software adapter: a vector of 128 bits
_UNKNOWN = 4  # wgpu's minimum size where the driver does not report one
LANES = Kernel.load("measure/subgroups")


def subgroup_size(library: Library, device: Any, info: Mapping[str, Any], least: int = LEAST_SUBGROUP) -> int:
    """Minimum subgroup size of an open device; 0 where it is below `least` or lanes do not follow invocation indices.

    Example: `subgroup_size(LIBRARY, device, adapter.info)`.
    """
    try:
        size = neighbours(*_places(library, device))
    except library.wgpu.GPUError:
        return 0  # a driver that fails here would fail in kernels
    # The size may vary between kernels, and this probe may have got a larger one.
    reported = int(info.get("subgroup_min_size") or info.get("stackgroup_min_size") or 0)
    size = min(size, reported) if reported > _UNKNOWN else size
    return size if size >= least else 0


def _places(library: Library, device: Any) -> tuple[Sequence[int], Sequence[int]]:
    """Subgroup lane and subgroup size of each thread of a workgroup."""
    numbers = run_probe(library, device, LANES, (0,) * (2 * LANES.group_size))
    return numbers[::2], numbers[1::2]


def neighbours(lanes: Sequence[int], reaches: Sequence[int]) -> int:
    """Size of aligned groups of consecutive threads that are consecutive lanes of one subgroup; or 0.

    >>> neighbours((0, 1, 2, 3, 0, 1, 2, 3), (4,) * 8)
    4
    >>> neighbours((0, 2, 1, 3, 0, 2, 1, 3), (4,) * 8)
    0
    """
    size = min(reaches)
    return size if all(lane % size == thread % size for thread, lane in enumerate(lanes)) else 0
