"""A cache of halves: half of its memory, half of what attention reads, and a little of its accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.graph import Graph, Tensor, Value
from liveshape.graph.constants import whole
from liveshape.graph.state import states_of


def halve_caches(graph: Graph) -> Graph:
    """The same program with every float32 cache, that is state of rows at positions, as float16.

    Example: `halve_caches(lower(program.file, "forward", program.data))`.
    """
    caches = [state.tensor for state in states_of(graph) if state.axis is not None]
    if not any(cache.dtype in ("float32", "float16") for cache in caches):
        raise UnsupportedError(f"{graph.name} has no cache inside of attention that could be kept in halves")
    halves: dict[Value, Value] = {cache: _half(cache, graph) for cache in caches if cache.dtype == "float32"}
    return Graph(
        graph.name,
        [replace(node, args=_renamed(node.args, halves)) for node in graph.nodes],
        [halves.get(value, value) for value in graph.values],
        graph.inputs,
        graph.outputs,
        graph.limits,
        graph.file_bytes,
    )


def _half(cache: Tensor, graph: Graph) -> Tensor:
    data = None
    if cache.constant is not None:
        data = memoryview(np.frombuffer(whole(cache.constant), "<f4").astype("<f2").tobytes())
    tensor = Tensor(cache.name, "float16", cache.max_shape, constant=data, half=graph.limits.half)
    tensor.storage.persistent = True
    return tensor


def _renamed(argument: Any, names: dict[Value, Value]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_renamed(item, names) for item in argument)
    return names.get(argument, argument) if isinstance(argument, Value) else argument
