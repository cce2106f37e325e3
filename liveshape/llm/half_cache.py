"""A cache of halves: half of its memory, half of what attention reads, and a little of its accuracy."""

from __future__ import annotations

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Tensor
from liveshape.graph.constants import whole
from liveshape.graph.elements import padded, prod, storage_bytes

_ATTENTION = frozenset(
    {"sdpa_with_kv_cache.default", "update_cache.default", "custom_sdpa.default", "liveshape.rotary_to_cache"}
)


def halve_caches(graph: Graph) -> int:
    """Keep every float32 cache that only attention reads and writes as float16; returns how many. Call before building.

    Example: `halve_caches(lower(program.file, "forward", program.data))`.
    """
    caches: dict[Tensor, None] = {}
    for node in graph.nodes:
        for position in node.mutates:
            value = node.args[position]
            if node.name in _ATTENTION and isinstance(value, Tensor) and value.constant is not None:
                caches[value] = None
    others = {value for node in graph.nodes if node.name not in _ATTENTION for value in (*node.inputs, *node.written)}
    found = [cache for cache in caches if cache not in others and cache.dtype == "float32"]
    if not caches:
        raise UnsupportedError(f"{graph.name} has no cache inside of attention that could be kept in halves")
    for cache in found:
        assert cache.constant is not None
        begun = np.frombuffer(whole(cache.constant), "<f4").astype("<f2")
        cache.constant = memoryview(begun.tobytes())
        cache.dtype = "float16"
        cache.storage.nbytes = padded(storage_bytes("float16", prod(cache.max_shape), graph.limits.half))
    return len(found)
