"""4 bits with error feedback: what rounding a column does wrong, the columns after it make up for.

Which columns can make up for which is known from the inputs of a layer, by the mean products of any two of them.
"""

from __future__ import annotations

import numpy as np

from liveshape.export.rounding import fitted_between
from liveshape.export.weights import Array, Grouped

# Of the mean square of an input, added to each: inputs that a short text never shows are not taken for zeros.
_DAMPING = 0.01


def fed_back(weight: Array, moments: Array, group: int = 32) -> Grouped:
    """A float matrix (N, K) in groups with minima, for inputs with these mean products (K, K).

    Example: `fed_back(weight, inputs.T @ inputs / len(inputs))`.
    """
    rows, width = weight.shape
    reach = _reach(moments)
    left = np.array(weight.T, np.float32, order="C")  # (K, N): a column of the weight is contiguous
    codes = np.empty((width, rows), np.int8)
    scales, minima = (np.empty((width // group, rows), np.float32) for _ in range(2))
    for number, start in enumerate(range(0, width, group)):
        end = start + group
        block, near = left[start:end], reach[start:end, start:end]
        _, scale, minimum = fitted_between(block)
        for place in range(group):
            code = np.clip(np.rint((block[place] - minimum) / scale), -8, 7)
            codes[start + place] = code
            # The column is done: what is kept of it is its error, in the units of what follows.
            block[place] -= code * scale + minimum
            block[place] /= near[place, place]
            block[place + 1 :] -= near[place, place + 1 :, None] * block[place]
        left[end:] -= reach[start:end, end:].T @ block
        scales[number], minima[number] = scale, minimum
    return Grouped(4, *(np.ascontiguousarray(each.T) for each in (codes, scales, minima)))


def _reach(moments: Array) -> Array:
    """How the error of each input is spread over those after it: the upper Cholesky factor of the inverse."""
    square = moments.astype(np.float64)
    level = float(np.diag(square).mean())
    # A layer that saw nothing but zeros has no error to feed back.
    square[np.diag_indices_from(square)] += _DAMPING * level if level > 0 else 1.0
    return np.ascontiguousarray(np.linalg.cholesky(np.linalg.inv(square)).T, np.float32)
