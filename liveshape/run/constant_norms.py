"""How large the numbers of constants are, in numpy, and plans that are made with that."""

from __future__ import annotations

import numpy as np

from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.constants import is_in_memory, pieces
from liveshape.graph.elements import prod
from liveshape.lower.magnitudes import UNKNOWN, Magnitude
from liveshape.plan.compiling import compile_optimized
from liveshape.plan.plan import Choices, Plan

_PIECE = 16 << 20


def compile_measured(graph: Graph, limits: Limits, choices: Choices | None = None) -> Plan:
    """The plan of a graph that nothing rewrites any more, fused, with what its constants permit.

    Example: `compile_measured(program.graph("forward"), device.limits)`.
    """
    return compile_optimized(graph, limits, choices, measured)


def measured(constant: Tensor) -> Magnitude | None:
    """The largest magnitude and the longest row of a constant of float32; None where the host does not have it.

    Example: `with_half_results(graph, limits, measured)`.
    """
    data = constant.constant
    if data is None or constant.dtype != "float32" or not is_in_memory(data) or not prod(constant.max_shape):
        return None
    width = constant.max_shape[-1] if constant.rank else 1
    largest = square = 0.0
    for piece in pieces(data, max(_PIECE // (4 * width), 1) * 4 * width):
        rows = np.frombuffer(piece, "<f4")
        largest = max(largest, float(np.abs(rows).max()))
        if rows.size % width:  # a row of several constants, as the biases of siblings are
            square = np.inf
        else:
            rows = rows.reshape(-1, width)
            square = max(square, float(np.einsum("ij,ij->i", rows, rows, dtype=np.float64).max()))
    found = Magnitude(largest, min(square, width * largest**2) ** 0.5)
    return found if np.isfinite(found).all() else UNKNOWN
