"""The prefill chunk at load time: devices with matrix units take longer ones than a file was exported with, and a small
context shorter ones.

Such devices unpack a weight once for all rows of a call, so that short chunks cost them a part of their speed. Only
files of our own exporter are taken at their word that a call may be longer, and only if shape inference finds every new
bound.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Limits, Tensor, Value
from liveshape.llm.program.token_graph import LENGTH, at_positions, context_of, parameters_of, signature
from liveshape.lower.shape_inference import ShapeInference, substituted

# On an H200 prompts of 4,096 of a 1B took 59 ms in chunks of 2,048, and 83 ms in chunks of 512.
MATRIX_CHUNK = 2048
_LEAST_CHUNK = 16  # tokens of a call, however small the context is


def prefill_chunk(limits: Limits) -> int:
    """Tokens of a prefill chunk that a device wants at least; 0: what the file says.

    >>> prefill_chunk(Limits())
    0
    """
    takes_matrices = limits.half_inputs and limits.matrices_of("float16") and not limits.one_order
    return MATRIX_CHUNK if takes_matrices else 0


def with_chunk(graph: Graph, constants: dict[str, Any], wanted: int) -> tuple[Graph, dict[str, Any]]:
    """A lowered graph whose calls hold `wanted` tokens, if it has fewer and can; and the constants that say so.

    Example: `with_chunk(graph, constants_of(program), prefill_chunk(limits))`.
    """
    tokens, position, _ = signature(graph, constants)
    context = context_of(constants, tokens, at_positions(graph, position))
    size = min(wanted, context)
    if size <= tokens.max_shape[1] or parameters_of(constants) is None:
        return graph, constants
    return _with_bound(graph, constants, size, context)


def with_chunk_of_context(graph: Graph, constants: dict[str, Any], context: int | None) -> tuple[Graph, dict[str, Any]]:
    """A lowered graph whose calls hold no more tokens than a smaller context does, if it can; and the constants that
    say so.

    Example: `with_chunk_of_context(graph, constants_of(program), 256)`.
    """
    tokens, position, _ = signature(graph, constants)
    own = context_of(constants, tokens, at_positions(graph, position))
    # One less: a graph is resized by what changes from the first position of its longest call to the last one.
    size = tokens.max_shape[1] if context is None else max(context - 1, _LEAST_CHUNK)
    if size >= tokens.max_shape[1] or tokens.static:
        return graph, constants
    return _with_bound(graph, constants, size, own)


def _with_bound(graph: Graph, constants: dict[str, Any], size: int, context: int) -> tuple[Graph, dict[str, Any]]:
    """The graph with `size` as the bound of its tokens, where every new bound is known; else as it is."""
    tokens, _, logits = signature(graph, constants)
    now = tokens.max_shape[1]
    own, other, far = ends = [ShapeInference(start) for start in (0, 0, max(context - size, 0))]
    for end, count in zip(ends, (now, size, size), strict=True):
        end.of(tokens).shape = (1, count)
    try:
        for node in graph.nodes:
            for end in ends:
                end.run(node)
    except LiveshapeError:
        return graph, constants
    replaced: dict[Value, Value] = {}
    for value in graph.values:
        if isinstance(value, Tensor) and value.constant is None:
            shapes = (value.max_shape, *(end.of(value).shape for end in (own, other, far)))
            bound = tuple(
                most if one == new else max(new, last, most if size > now else 0)
                for most, one, new, last in zip(*shapes, strict=True)
            )
            if bound != value.max_shape:
                replaced[value] = replace(value, max_shape=bound)
    if logits in replaced and size > now:
        return graph, constants  # of every row: they would take the memory of many weights
    return substituted(graph, replaced), {**constants, LENGTH: size}
