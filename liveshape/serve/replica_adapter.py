"""Which adapter a replica takes: GPUs that a cluster assigns are numbers, and Vulkan sees every GPU of a machine."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.device.protocol import Adapter
from liveshape.errors import InputError


def adapter_of(assigned: Sequence[str | int], adapters: Sequence[Adapter]) -> int | None:
    """The index of the adapter for a replica with these GPUs: GPU k is the k-th adapter that is no software one.

    None, which is the usual adapter, where no GPU is assigned.

    Two replicas of one machine have different GPUs, so they have different adapters, whichever order the libraries
    count in.

    Example: `open_engine("model.gguf", device=adapter_of(["1"], list_adapters()))`.
    """
    if not assigned:
        return None
    hardware = [adapter for adapter in adapters if not adapter.software]
    if len(assigned) != 1 or not str(assigned[0]).isdigit() or int(assigned[0]) >= len(hardware):
        listing = ", ".join(adapter.name for adapter in hardware) or "none"
        raise InputError(
            f"the replica has the GPUs {', '.join(map(str, assigned))}, the adapters of this machine are {listing}: "
            "give each replica one GPU of those, or name the adapter with the option device"
        )
    return hardware[int(assigned[0])].index
