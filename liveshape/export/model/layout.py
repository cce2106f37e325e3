"""Group-wise quantized weights: integer codes with a scale, and optionally a minimum, for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """The format of a group-quantized matrix: bits, group size, and whether it is asymmetric (a minimum per group).

    Example: `Layout(4, 32)`.
    """

    bits: int
    group: int
    minima: bool = False


@dataclass(frozen=True)
class Grouped:
    """Rows of a group-quantized matrix.

    weight[n, k] = codes[n, k] * scales[n, k // group] + minima[n, k // group]

    Example: `Grouped(4, codes, scales).group`.
    """

    bits: int  # 4 (codes in -8..7) or 8 (in -128..127)
    codes: Array  # int8 (N, K)
    scales: Array  # float32 (N, K / group)
    minima: Array | None = None  # float32 (N, K / group)

    @property
    def group(self) -> int:
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def layout(self) -> Layout:
        return Layout(self.bits, self.group, self.minima is not None)


def restored(weight: Grouped) -> Array:
    """Dequantize to float weights, (N, K).

    >>> restored(Grouped(4, np.array([[-8, 7]], np.int8), np.array([[0.5]], np.float32)))
    array([[-4. ,  3.5]], dtype=float32)
    """
    apart = weight.codes.reshape(*weight.scales.shape, -1) * weight.scales[..., None]
    if weight.minima is not None:
        apart += weight.minima[..., None]
    return apart.reshape(weight.codes.shape)
