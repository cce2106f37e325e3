"""Whether the scales of a weight may be rounded to float16: none is infinite there, and no column loses digits."""

from __future__ import annotations

import numpy as np

from liveshape.graph import Tensor
from liveshape.graph.constants import is_in_memory, pieces
from liveshape.graph.elements import prod

_PIECE = 16 << 20
# Numbers below 2^-14 have fewer digits in float16, and steps of 2^-24. Beside a scale of 2^-12 in the same column these
# are as small as the steps of that one.
_LEAST, _MOST = 2.0**-12, 65504.0


def fit_halves(scales: Tensor) -> bool:
    """Whether each column of scales, [groups, columns] or [groups, 2, columns], keeps its digits in float16.

    Columns of zeros, as padding is, do. Scales that the host does not have are not looked at: they stay as they are.

    Example: `with_activations(graph, "int8", limits, fit_halves)`.
    """
    assert scales.constant is not None
    *_, columns = scales.max_shape
    if not prod(scales.max_shape) or not is_in_memory(scales.constant):
        return False
    largest = np.zeros(columns, np.float32)
    row = columns * 4
    for piece in pieces(scales.constant, max(_PIECE // row, 1) * row):
        found = np.abs(np.frombuffer(piece, "<f4"))
        if found.size % columns:
            return False
        largest = np.maximum(largest, found.reshape(-1, columns).max(axis=0))
    return bool((((largest >= _LEAST) & (largest <= _MOST)) | (largest == 0)).all())
