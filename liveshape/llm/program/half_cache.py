"""Float16 KV cache: half of the memory and of the bandwidth of attention, slightly less accurate."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Limits, Tensor, Value
from liveshape.graph.constants import all_bytes
from liveshape.graph.state import states_of
from liveshape.lower.rewriting import renamed

_LOG = logging.getLogger("liveshape")


def halve_caches(graph: Graph, pools: Collection[Tensor] = (), limits: Limits | None = None) -> Graph:
    """The same graph with every float32 KV cache as float16: positional state, and `pools` of pages.

    On a device whose `limits` have no f16 it takes as much memory as before, which is logged.

    Example: `halve_caches(lower(program.file, "forward", program.data))`.
    """
    if limits is not None and not limits.half:
        _LOG.warning("a float16 KV cache saves no memory on this device: it has no f16, so halves lie there as floats")
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
