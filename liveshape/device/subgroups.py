"""The subgroup size of a device: how many neighbouring threads can shuffle values among them.

WebGPU promises neither a size of subgroups nor that neighbours in a workgroup are neighbours in a subgroup. Devices do
it so; one that does not is as good as one without subgroups.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from liveshape.device.library import Library
from liveshape.kernels import Kernel, Variant

SUBGROUPS = "subgroup"  # as wgpu-native calls the feature
_LEAST = 8  # fewer would read a key in too many steps
_UNKNOWN = 4  # what wgpu says the least size is where a driver does not tell
_LANES = Kernel.load("measure/subgroups")


def subgroup_size(library: Library, device: Any, info: Mapping[str, Any]) -> int:
    """The size that every subgroup of an open device has at least, 0 where neighbours in a workgroup may be apart.

    Example: `subgroup_size(LIBRARY, device, adapter.info)`.
    """
    try:
        size = neighbours(*_places(library.wgpu, device))
    except library.wgpu.GPUError:
        return 0  # a driver that stumbles here would stumble later
    # Where sizes differ from kernel to kernel this one may have met a large one.
    least = int(info.get("subgroup_min_size") or info.get("stackgroup_min_size") or 0)
    size = min(size, least) if least > _UNKNOWN else size
    return size if size >= _LEAST else 0


def _places(wgpu: Any, device: Any) -> tuple[Sequence[int], Sequence[int]]:
    """The lane of each thread of a workgroup, and how many neighbours it reaches."""
    threads = _LANES.group_size
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    found = device.create_buffer(size=8 * threads, usage=usage)
    text = Variant(_LANES, (), (("WG", f"{threads}u"),), (1,), 8 * threads, threads).source
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": device.create_shader_module(code=text), "entry_point": "main"}
    )
    entries = [{"binding": 0, "resource": {"buffer": found}}]
    bound = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    work = encoder.begin_compute_pass()
    work.set_pipeline(pipeline)
    work.set_bind_group(0, bound)
    work.dispatch_workgroups(1)
    work.end()
    device.queue.submit([encoder.finish()])
    numbers = struct.unpack(f"<{2 * threads}I", device.queue.read_buffer(found))
    found.destroy()
    return numbers[::2], numbers[1::2]


def neighbours(lanes: Sequence[int], reaches: Sequence[int]) -> int:
    """How many neighbours, beginning at multiples of it, all reach each other and lie in a row in their subgroup; or 0.

    >>> neighbours((0, 1, 2, 3, 0, 1, 2, 3), (4,) * 8)
    4
    >>> neighbours((0, 2, 1, 3, 0, 2, 1, 3), (4,) * 8)
    0
    """
    size = min(reaches)
    return size if all(lane % size == thread % size for thread, lane in enumerate(lanes)) else 0
