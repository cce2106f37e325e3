"""Kernels that ask a device, once, what neither WebGPU nor its driver tells."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from liveshape.device.library import Library
from liveshape.kernels import Kernel, Variant

_LOOPS = Kernel.load("measure/loops")
_TURNS = 1 << 17  # of the probe's loop; llvmpipe of Mesa 22 ends every loop after 65,535


def run_probe(library: Library, device: Any, kernel: Kernel, words: Sequence[int]) -> tuple[int, ...]:
    """Run one workgroup of a kernel on a buffer of 32-bit words; the words after it.

    Example: `run_probe(LIBRARY, device, Kernel.load("measure/loops"), (9, 0)) == (9, 9)`.
    """
    packed, threads = struct.pack(f"<{len(words)}I", *words), kernel.group_size
    usage = library.wgpu.BufferUsage
    found = device.create_buffer(size=len(packed), usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
    device.queue.write_buffer(found, 0, packed)
    variant = Variant(kernel, (), (("WG", f"{threads}u"),), (1,), len(packed), threads)
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": library.compile(device, variant, None), "entry_point": "main"}
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
    after = struct.unpack(f"<{len(words)}I", device.queue.read_buffer(found))
    found.destroy()
    return after


def max_turns(library: Library, device: Any) -> int | None:
    """After how many turns a driver ends a loop that has more to do; None where it does not.

    Example: `max_turns(LIBRARY, device) is None`.
    """
    try:
        _, made = run_probe(library, device, _LOOPS, (_TURNS, 0))
    except library.wgpu.GPUError:
        return None  # a driver that fails here would fail in kernels
    return made if made < _TURNS else None
