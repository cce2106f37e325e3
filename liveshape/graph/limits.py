"""What a device allows, and what follows from it for a binding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a device allows; the defaults are what every WebGPU device must offer, so planning needs no GPU."""

    max_groups: int = 65535
    max_invocations: int = 256
    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_bindings: int = 8
    uniform_alignment: int = 256
    half: bool = True
    max_parts: int = 256  # threads that share one unit of work: few where threads are not there by the thousand


def segment_bytes(limits: Limits) -> int:
    """The size of one part of a split binding: a power of two, so that a kernel finds a part by shifting.

    >>> segment_bytes(Limits(max_binding_bytes=1000))
    512
    """
    return 1 << (limits.max_binding_bytes.bit_length() - 1)


def binding_parts(nbytes: int, block_bytes: int, limits: Limits) -> int:
    """How many bindings a tensor of `nbytes` takes that lies at the start of a block of `block_bytes`.

    Planner and device both ask here: a block that fits one buffer is one, a larger one is a buffer per segment.

    >>> odd = Limits(max_binding_bytes=1000)
    >>> binding_parts(900, 4000, odd), binding_parts(1200, 4000, odd)
    (1, 3)
    """
    if nbytes <= limits.max_binding_bytes and block_bytes <= limits.max_buffer_bytes:
        return 1
    return -(-nbytes // segment_bytes(limits))
