"""Float weights as whole numbers in groups: 4 bits with or without a minimum for each group, or 8 bits.

A few rows at a time, so that it takes little memory beside the result, on as many threads as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from liveshape.errors import FormatError, InputError
from liveshape.export.weights import Array, Grouped

# Weights of one slice: what is computed of them fits a core's cache.
_SLICE = 1 << 17
_LOW, _HIGH = {4: -8, 8: -128}, {4: 7, 8: 127}
# Groups that reach no further than this are taken as constant: their steps have no reciprocal.
_TINY = np.float32(1e-36)
Rows = Callable[[slice], Array]  # brings some rows of a matrix as float32


def rounded(weight: Array, bits: int = 4, group: int = 32, minima: bool = False) -> Grouped:
    """A float matrix (N, K) in groups along its rows.

    Example: `rounded(weight, bits=4, group=32, minima=True).scales.shape`.
    """
    return rounded_rows(weight.__getitem__, weight.shape, bits, group, minima)


def rounded_rows(rows: Rows, shape: tuple[int, ...], bits: int = 4, group: int = 32, minima: bool = False) -> Grouped:
    """The same of a matrix that is read a few rows at a time.

    Example: `rounded_rows(lambda rows: checkpoint.rows(name, rows), checkpoint.shapes[name], bits=8)`.
    """
    height, width = shape
    if bits not in _LOW or (bits == 8 and minima):
        raise InputError(f"{bits} bits{' with minima' * minima}: weights are rounded to 4 bits, or to 8 without minima")
    if group < 1 or width % group:
        raise InputError(f"rows of {width} weights do not split into groups of {group}")
    codes = np.empty((height, width), np.int8)
    scales = np.empty((height, width // group), np.float32)
    least = np.empty_like(scales) if minima else None
    fit = fitted_between if minima else _symmetric if bits == 4 else _eight

    def work(start: int) -> None:
        part = slice(start, min(start + step, height))
        # Groups side by side: sums over the weights of a group then run along whole rows of them.
        groups = np.ascontiguousarray(rows(part).reshape(-1, group).T, np.float32)  # (group, groups)
        with np.errstate(over="ignore", invalid="ignore"):
            found, scale, minimum = fit(groups)
        if not (np.isfinite(scale).all() and np.isfinite(minimum).all()):
            raise FormatError(f"rows {part.start} to {part.stop - 1} have weights that are no numbers, or beyond 1e37")
        codes[part] = found.T.reshape(-1, width)
        scales[part] = scale.reshape(-1, width // group)
        if least is not None:
            least[part] = minimum.reshape(-1, width // group)

    step = max(1, _SLICE // width)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # Taken one by one: what a thread raises is raised here.
        for _ in pool.map(work, range(0, height, step)):
            pass
    return Grouped(bits, codes, scales, least)


def restored(weight: Grouped) -> Array:
    """The float weights that the whole numbers stand for, (N, K).

    >>> restored(Grouped(4, np.array([[-8, 7]], np.int8), np.array([[0.5]], np.float32)))
    array([[-4. ,  3.5]], dtype=float32)
    """
    apart = weight.codes.reshape(*weight.scales.shape, -1) * weight.scales[..., None]
    if weight.minima is not None:
        apart += weight.minima[..., None]
    return apart.reshape(weight.codes.shape)


def fitted_between(groups: Array) -> tuple[Array, Array, Array]:
    """The smallest weight of a group at -8, the largest at 7; scale and minimum are then fitted by least squares.

    Rounding again with what was fitted, or searching for a smaller range, clips the largest weights: the squared error
    falls, and the divergence from the unquantized model grows.
    """
    count = np.float32(len(groups))
    low, reach = groups.min(0), np.ptp(groups, 0)
    constant = reach < _TINY
    scale = np.where(constant, 1, reach / np.float32(15))
    codes = groups - low
    codes *= 1 / scale
    codes -= 8
    np.rint(codes, codes)
    np.clip(codes, -8, 7, codes)
    # In units of the reach and from the lowest on, so that no product leaves the range of float32.
    share = groups - low
    share *= np.where(constant, 0, 1 / np.where(constant, 1, reach))
    ones, squares = codes.sum(0), np.einsum("ij,ij->j", codes, codes)
    totals, products = share.sum(0), np.einsum("ij,ij->j", codes, share)
    spread = count * squares - ones * ones
    slope = (count * products - ones * totals) / np.where(spread > 0, spread, 1)
    fitted = np.where(constant, scale, slope * reach)
    minimum = np.where(constant, low, low + reach * ((totals - slope * ones) / count))
    return np.where(constant, 0, codes).astype(np.int8), fitted, minimum


def _symmetric(groups: Array) -> tuple[Array, Array, Array]:
    """The largest weight of a group at -8; the scale is then fitted to all of them, large ones first.

    A group that was symmetric in 4 bits already, as those of Q4_0 are, comes through unchanged. Scales may be negative.
    """
    high, low = groups.max(0), groups.min(0)
    largest = np.where(high > -low, high, low)
    constant = np.abs(largest) < _TINY
    # In units of the largest weight, so that no square leaves the range of float32.
    share = groups * np.where(constant, 0, 1 / np.where(constant, 1, largest))
    codes = np.rint(share * np.float32(-8))
    np.clip(codes, -8, 7, codes)
    weighted = np.abs(share)
    weighted *= codes
    products, squares = np.einsum("ij,ij->j", weighted, share), np.einsum("ij,ij->j", weighted, codes)
    fitted = np.where(constant, 1, largest * (products / np.where(constant, 1, squares)))
    return codes.astype(np.int8), fitted, np.zeros_like(fitted)


def _eight(groups: Array) -> tuple[Array, Array, Array]:
    """The largest weight of a group at 127 or -127."""
    largest = np.maximum(groups.max(0), -groups.min(0))
    constant = largest < _TINY
    scale = np.where(constant, 1, largest / np.float32(127))
    codes = np.rint(groups * (1 / scale))
    return np.clip(codes, -127, 127, codes).astype(np.int8), scale, np.zeros_like(scale)
