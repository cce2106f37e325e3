"""How large the numbers of constants are, in numpy, and plans that are made with that."""

from __future__ import annotations

import numpy as np

from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.constants import is_in_memory, pieces
from liveshape.graph.elements import prod
from liveshape.lower.magnitudes import UNKNOWN, Magnitude
from liveshape.plan.compiling import compile_optimized
from liveshape.plan.plan import Choices, Plan

_PIECE = 16 << 20  # bytes that are in memory at once
_BLOCK = 1 << 20  # of these, so many stay in the cache while they are read three times
_TINY = 2.0**-126  # at most this is lost of a square that is no normal float32


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
    row = 4 * width
    largest = square = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in pieces(data, max(_PIECE // row, 1) * row):
            numbers = np.frombuffer(piece, "<f4")
            count = max(_BLOCK // row, 1) * width
            for block in (numbers[begin : begin + count] for begin in range(0, numbers.size, count)):
                # By numpy's maximum, which passes a NaN on: Python's does not.
                largest = np.maximum(largest, np.maximum(block.max(), -block.min()))
                if block.size % width:  # a row of several constants, as the biases of siblings are
                    square = np.inf
                else:
                    rows = block.reshape(-1, width)
                    square = np.maximum(square, np.einsum("ij,ij->i", rows, rows).max())
    # Sums in float32 take half the time of sums in float64; what they may have lost is added.
    square = (float(square) + width * _TINY) * (1 + width * 2.0**-23)
    found = Magnitude(float(largest), min(square, width * float(largest) ** 2) ** 0.5)
    return found if np.isfinite(found).all() else UNKNOWN
