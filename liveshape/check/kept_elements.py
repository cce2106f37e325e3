"""Arrays as tensors of the device keep them."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.run.arrays import numpy_dtype
from liveshape.run.bfloat16 import rounded


def kept(array: Any, dtype: str) -> Any:
    """An array as a tensor of this dtype keeps it: cast as torch casts, rounded where it is bfloat16.

    >>> kept(np.array([1.9, -1.9]), "int32"), kept(np.array([1.001]), "bfloat16")
    (array([ 1, -1], dtype=int32), array([1.], dtype=float32))
    """
    with np.errstate(all="ignore"):
        made = np.asarray(array).astype(numpy_dtype(dtype))
    return rounded(made) if dtype == "bfloat16" else made
