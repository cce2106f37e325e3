"""bfloat16 on the host, for which numpy has no dtype: the upper half of a float32, in files as 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_float32(bits: Any) -> Any:
    """bfloat16 bits (uint16) as float32.

    >>> to_float32(np.array([0x3F80, 0xC000], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(array: Any) -> Any:
    """Each float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN.

    >>> rounded(np.array([1.001, 1.004, -3.0], np.float32))
    array([ 1.       ,  1.0078125, -3.       ], dtype=float32)
    """
    # Overflow wraps silently in 1-d arrays; a 0-d one would warn.
    bits = array.reshape(-1).view(np.uint32)
    last = (bits >> np.uint32(16)) & np.uint32(1)
    nearest = ((bits + (last + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(array), array, nearest.reshape(array.shape))
