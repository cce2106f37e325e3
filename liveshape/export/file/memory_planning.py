"""Memory planning by liveness: activations whose lifetimes do not overlap share a memory object. ExecuTorch's runtimes
follow it; liveshape plans anew, because it knows which views cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def shared_memory(calls: Sequence[Iterable[int]], sizes: Mapping[int, int], kept: Iterable[int]) -> dict[int, int]:
    """Assign memory objects, greedy best fit. `calls` list their tensors; `sizes` may share, `kept` have their own.

    >>> shared_memory([(0, 1), (1, 2), (2, 3)], {1: 8, 2: 8, 3: 8}, kept=[0])
    {0: 0, 1: 1, 2: 2, 3: 1}
    """
    found = {tensor: number for number, tensor in enumerate(dict.fromkeys(kept))}
    last = {tensor: at for at, call in enumerate(calls) for tensor in call}
    objects = len(found)
    room: dict[int, int] = {}  # size of each free object
    held: dict[int, int] = {}
    for at, call in enumerate(calls):
        tensors = list(dict.fromkeys(call))
        for tensor in tensors:
            if tensor not in sizes or tensor in found:
                continue
            # Best fit: the one that wastes or grows least.
            free = min(room, key=lambda each: abs(room[each] - sizes[tensor]), default=None)
            if free is None:
                free, objects = objects, objects + 1
                held[free] = sizes[tensor]
            else:
                held[free] = max(room.pop(free), sizes[tensor])
            found[tensor] = free
        for tensor in tensors:
            if tensor in sizes and last[tensor] == at and found[tensor] in held:
                room[found[tensor]] = held[found[tensor]]
    return found
