"""Group-wise weight quantization: 4-bit symmetric or asymmetric (a minimum per group), 8-bit symmetric."""

from __future__ import annotations

import numpy as np

from liveshape.export.model.layout import Array, Grouped, Layout

LOW, HIGH = -8, 7
# Weights per slice: its temporaries fit a core's cache.
_SLICE = 1 << 17
# Groups with a smaller range count as constant: the reciprocal of their scale overflows.
_TINY = np.float32(1e-36)


def group_of(width: int, asked: int) -> int | None:
    """The largest group size up to the asked one that divides a row, preferably a multiple of 8; None if none does.

    >>> group_of(576, 32), group_of(100, 32), group_of(6, 32)
    (32, 20, None)
    """
    for multiple in (8, 4):
        for group in range(asked - asked % multiple, 0, -multiple):
            if width % group == 0:
                return group
    return None


def rounded(weight: Array, layout: Layout) -> Grouped:
    """Quantize a float matrix (N, K) to a layout; NaN and infinity propagate to the scales or minima.

    Example: `rounded(weight, Layout(4, 32, minima=True)).scales.shape`.
    """
    height, width = weight.shape
    codes = np.empty((height, width), np.int8)
    scales = np.empty((height, width // layout.group), np.float32)
    minima = np.empty_like(scales) if layout.minima else None
    fit = _FITS[layout.bits, layout.minima]
    step = max(1, _SLICE // width)
    for start in range(0, height, step):
        part = slice(start, start + step)
        # One group per column: reductions over a group then vectorize along whole rows.
        groups = np.ascontiguousarray(weight[part].reshape(-1, layout.group).T, np.float32)  # (group, groups)
        with np.errstate(over="ignore", invalid="ignore"):
            found, scale, minimum = fit(groups)
            codes[part] = found.T.reshape(-1, width)
        scales[part] = scale.reshape(-1, scales.shape[1])
        if minima is not None and minimum is not None:
            minima[part] = minimum.reshape(-1, scales.shape[1])
    return Grouped(layout.bits, codes, scales, minima)


def _between(groups: Array) -> tuple[Array, Array, Array]:
    """4-bit asymmetric: min at -8, max at 7; scale and minimum are then refitted to the codes by least squares.

    Rounding again with the fit, or searching for a smaller range, clips outliers: the squared error falls, and the
    divergence from the unquantized model grows.
    """
    count = np.float32(len(groups))
    low, reach = groups.min(0), np.ptp(groups, 0)
    constant = reach < _TINY
    scale = np.where(constant, 1, reach / np.float32(HIGH - LOW))
    codes = groups - low
    codes *= 1 / scale
    codes += LOW
    np.rint(codes, codes)
    np.clip(codes, LOW, HIGH, codes)
    # Normalized to 0..1, so that no product overflows float32.
    share = groups - low
    share *= np.where(constant, 0, 1 / np.where(constant, 1, reach))
    ones, squares = codes.sum(0), _products(codes, codes)
    totals, products = share.sum(0), _products(codes, share)
    spread = count * squares - ones * ones
    slope = (count * products - ones * totals) / np.where(spread > 0, spread, 1)
    fitted = np.where(constant, scale, slope * reach)
    minimum = np.where(constant, low, low + reach * ((totals - slope * ones) / count))
    return np.where(constant, 0, codes), fitted, minimum


def _symmetric(groups: Array) -> tuple[Array, Array, None]:
    """4-bit symmetric: absmax at -8; the scale is then refitted by least squares weighted by magnitude.

    Groups that were 4-bit symmetric already, such as those of Q4_0, are unchanged. Scales may be negative.
    Searching for the scale of the least squared error clips outliers, and costs more than it gains: on
    SmolLM2-135M it moved the divergence from the unquantized model from 0.38 to 0.47, on stories15M from 0.09 to 0.13.
    """
    high, low = groups.max(0), groups.min(0)
    largest = np.where(high > -low, high, low)
    constant = np.abs(largest) < _TINY
    # Any scale does for a group of zeros: its codes are all 0.
    divisor = np.where(constant, 1, largest)
    codes = groups * (np.float32(LOW) / divisor)
    np.rint(codes, codes)
    np.clip(codes, LOW, HIGH, codes)
    # Normalized by absmax, so that no square overflows float32.
    share = groups / divisor
    weighted = np.abs(share)
    weighted *= codes
    products, squares = _products(weighted, share), _products(weighted, codes)
    return codes, np.where(constant, 1, products / np.where(constant, 1, squares) * divisor), None


def _eight(groups: Array) -> tuple[Array, Array, None]:
    """8-bit symmetric: absmax at 127 or -127."""
    largest = np.maximum(groups.max(0), -groups.min(0))
    constant = largest < _TINY
    scale = np.where(constant, 1, largest / np.float32(127))
    codes = groups * (1 / scale)
    np.rint(codes, codes)
    return np.clip(codes, -127, 127, codes), scale, None


def _products(one: Array, other: Array) -> Array:
    """Dot products per group, in four partial sums, since a long float32 sum loses precision."""
    apart = 4, -1, one.shape[1]
    sums: Array = np.einsum("aij,aij->aj", one.reshape(apart), other.reshape(apart)).sum(0)
    return sums


# By (bits, asymmetric).
_FITS = {(4, True): _between, (4, False): _symmetric, (8, False): _eight}
