"""The prefill chunk at load time: devices with matrix units take longer ones than a file was exported with.

They unpack a weight once for all rows of a call, so that short chunks cost them a part of their speed. Only files of
our own exporter are taken at their word that a call may be longer, and only if shape inference finds every new bound.
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
    tokens, position, logits = signature(graph, constants)
    now, context = tokens.max_shape[1], context_of(constants, tokens, at_positions(graph, position))
    size = min(wanted, context)
    if size <= now or parameters_of(constants) is None:
        return graph, constants
    own, longer, far = ends = [ShapeInference(start) for start in (0, 0, context - size)]
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
            shapes = (value.max_shape, *(end.of(value).shape for end in (own, longer, far)))
            bound = tuple(
                most if one == more else max(most, more, last) for most, one, more, last in zip(*shapes, strict=True)
            )
            if bound != value.max_shape:
                replaced[value] = replace(value, max_shape=bound)
    if logits in replaced:
        return graph, constants  # of every row: they would take the memory of many weights
    return substituted(graph, replaced), {**constants, LENGTH: size}
