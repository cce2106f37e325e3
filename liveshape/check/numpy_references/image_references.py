"""Convolutions, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import reference, wide


def _windows(x: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """[N, C, *outputs, *kernel] of padded x [N, C, *sizes]."""
    spans = [1 + step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    axes = tuple(range(2, x.ndim))
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    outputs = tuple(slice(None, None, step) for step in stride)
    taps = tuple(slice(None, None, step) for step in dilation)
    return found[(slice(None), slice(None), *outputs, *taps)]


@reference("convolution")
def _convolution(
    x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: Any, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    x, weight = wide(x), wide(weight)
    if transposed:
        # The convolution of x with zeros between its pixels by the kernel turned around.
        axes, kernel = tuple(range(2, x.ndim)), weight.shape[2:]
        spread = np.zeros(
            (*x.shape[:2], *((size - 1) * step + 1 for size, step in zip(x.shape[2:], stride, strict=True)))
        )
        spread[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = x
        sizes = zip(kernel, dilation, padding, output_padding, strict=True)
        edges = [(step * (size - 1) - pad, step * (size - 1) - pad + more) for size, step, pad, more in sizes]
        grouped = weight.reshape(groups, x.shape[1] // groups, *weight.shape[1:])
        weight = np.flip(np.swapaxes(grouped, 1, 2).reshape(-1, x.shape[1] // groups, *kernel), axes)
        x, stride = spread, (1,) * len(kernel)
    else:
        edges = [(each, each) for each in padding]
    return _correlated(_padded(x, edges), weight, bias, stride, dilation, groups)


def _padded(x: Any, edges: Sequence[tuple[int, int]]) -> Any:
    """Zeros around x, or less of it where there are fewer than none."""
    found = np.pad(x, [(0, 0), (0, 0), *((max(low, 0), max(high, 0)) for low, high in edges)])
    cut = (slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(edges, found.shape[2:], strict=True))
    return found[(slice(None), slice(None), *cut)]


def _correlated(x: Any, weight: Any, bias: Any, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Any:
    inner, rows = x.shape[1] // groups, weight.shape[0] // groups
    taps = list(range(1, weight.ndim))
    results = []
    for group in range(groups):
        part = _windows(x[:, group * inner : (group + 1) * inner], weight.shape[2:], stride, dilation)
        found = np.tensordot(part, weight[group * rows : (group + 1) * rows], ([1, *range(x.ndim, part.ndim)], taps))
        results.append(np.moveaxis(found, -1, 1))
    found = np.concatenate(results, 1)
    return found if bias is None else found + wide(bias).reshape(-1, *(1,) * (x.ndim - 2))
