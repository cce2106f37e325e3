"""Float16 KV cache: half of the memory and of the bandwidth of attention, slightly less accurate."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Tensor, Value
from liveshape.graph.constants import all_bytes
from liveshape.graph.state import states_of
from liveshape.lower.rewriting import renamed


def halve_caches(graph: Graph, pools: Collection[Tensor] = ()) -> Graph:
    """The same graph with every float32 KV cache as float16: positional state, and `pools` of pages.

    Example: `halve_caches(lower(program.file, "forward", program.data))`.
    """
    caches = [*pools, *(state.tensor for state in states_of(graph) if state.axis is not None)]
    if not any(cache.dtype in ("float32", "float16") for cache in caches):
        raise UnsupportedError(f"{graph.name} has no cache inside of attention that could be kept in halves")
    halves: dict[Value, Value] = {cache: _half(cache) for cache in caches if cache.dtype == "float32"}
    return replace(
        graph,
        nodes=tuple(replace(node, args=renamed(node.args, halves)) for node in graph.nodes),
        values=tuple(halves.get(value, value) for value in graph.values),
    )


def _half(cache: Tensor) -> Tensor:
    data = None
    if cache.constant is not None:
        data = memoryview(np.frombuffer(all_bytes(cache.constant), "<f4").astype("<f2").tobytes())
    return replace(cache, dtype="float16", constant=data)
