"""Normalization, rotary embeddings, convolutions of floats, and priors of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning
from liveshape.errors import UnsupportedError
from liveshape.run.host import find_on_host


@meaning("et_vk.rms_norm.default")
def _rms_norm(x: Any, weight: Any, eps: float) -> Sequence[Any]:
    wide = x.astype(np.float64)
    return [wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps) * weight]


def _turned(x: Any, cosine: Any, sine: Any) -> Any:
    """Pairs of neighbours of (..., rows, heads, size), by angles of (rows, size / 2)."""
    wide = x.astype(np.float64)
    even, odd, cosine, sine = wide[..., ::2], wide[..., 1::2], cosine[:, None], sine[:, None]
    return np.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).reshape(x.shape)


@meaning("et_vk.apply_rotary_emb.default")
def _rotary(xq: Any, xk: Any, cosine: Any, sine: Any) -> Sequence[Any]:
    return [_turned(each, cosine, sine) for each in (xq, xk)]


@meaning("et_vk.apply_rotary_emb_interleaved.default")
def _rotary_of_complex(x: Any, angles: Any) -> Sequence[Any]:
    """Pairs of neighbours as complex numbers (batch, rows, size), by angles that all of the batch share."""
    pairs = angles.astype(np.float64).reshape(x.shape[1], -1, 2)
    return [_turned(x[:, :, None], pairs[..., 0], pairs[..., 1])[:, :, 0]]


@meaning("et_vk.apply_rotary_emb_hf.default")
def _rotary_by_halves(xq: Any, xk: Any, cosine: Any, sine: Any, start: Any) -> Sequence[Any]:
    """Halves of a head, of its first elements as many as the tables have.

    Tables of positions (positions, size) turn (batch, rows, heads, elements), those of a batch (batch, positions, size)
    turn (batch, heads, rows, elements). `start` is the first position, or a table with the position of each row.
    """
    heads_first, width = cosine.ndim == 3, cosine.shape[-1]

    def angles(table: Any, rows: int) -> Any:
        if isinstance(start, np.ndarray):
            table = table[..., np.clip(start[:, 0], 0, table.shape[-2] - 1), :]
        else:
            table = table[..., start : start + rows, :]
        return table[:, None]

    def turned(x: Any) -> Any:
        wide, rows = x[..., :width].astype(np.float64), x.shape[2 if heads_first else 1]
        crossed = np.concatenate([-wide[..., width // 2 :], wide[..., : width // 2]], -1)
        return np.concatenate([wide * angles(cosine, rows) + crossed * angles(sine, rows), x[..., width:]], -1)

    return [turned(xq), turned(xk)]


@meaning("et_vk.grid_priors.default")
def _grid_priors(x: Any, stride: int, offset: float) -> Sequence[Any]:
    """The places (x, y) of the cells of a grid, row by row."""
    height, width = x.shape[-2:]
    down, across = np.mgrid[:height, :width]
    return [(np.stack([across, down], -1).reshape(-1, 2) + offset) * stride]


@meaning("et_vk.conv_with_clamp.default")
def _conv_with_clamp(*arguments: Any) -> Sequence[Any]:
    *of_convolution, least, most = arguments
    operator = find_on_host("aten.convolution.default")
    if isinstance(operator, str):
        raise UnsupportedError(operator)
    (result,) = operator.function(of_convolution, ["float32"])
    return [np.clip(result, -np.inf if least is None else least, np.inf if most is None else most)]
