"""Reductions over dimensions, softmax, scans and normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import NUMPY, axes_of, reference, wide

# Over dimensions that a node names, or all; and the place of an extremum along one, or in all.
_OVER_DIMS = {"all": np.all, "amax": np.max, "amin": np.min, "any": np.any, "mean": np.mean, "sum": np.sum}
_PLACES = {"argmax": np.argmax, "argmin": np.argmin}


def _over_dims(function: Any) -> Any:
    def reduced(x: Any, dims: Any = None, keepdim: Any = False, *_: Any) -> Any:
        x = wide(x)
        return function(x, axis=axes_of(dims, x.ndim), keepdims=bool(keepdim)) if x.ndim else function(x)

    return reduced


def _place(function: Any) -> Any:
    def found(x: Any, dim: Any = None, keepdim: Any = False) -> Any:
        axis = dim[0] if isinstance(dim, list) else dim
        return function(x, axis=axis, keepdims=bool(keepdim) and axis is not None)

    return found


NUMPY.update({name: _over_dims(function) for name, function in _OVER_DIMS.items()})
NUMPY.update({name: _place(function) for name, function in _PLACES.items()})


@reference("cumsum")
def _cumsum(x: Any, dim: int, *_: Any) -> Any:
    return np.cumsum(wide(x), axis=dim) if np.ndim(x) else wide(x)


@reference("_softmax")
def _softmax(x: Any, dim: int, *_: Any) -> Any:
    x = wide(x)
    powers = np.exp(x - x.max(dim, keepdims=True, initial=-np.inf))
    return powers / powers.sum(dim, keepdims=True)


@reference("_log_softmax")
def _log_softmax(x: Any, dim: int, *_: Any) -> Any:
    x = wide(x)
    lowered = x - x.max(dim, keepdims=True, initial=-np.inf)
    return lowered - np.log(np.exp(lowered).sum(dim, keepdims=True))


def _normalized(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    mean = x.mean(axes, keepdims=True)
    scale = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


@reference("native_layer_norm")
def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = wide(x)
    found, mean, scale = _normalized(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias, mean, scale


@reference("native_group_norm")
def _group_norm(x: Any, weight: Any, bias: Any, batch: Any, channels: Any, pixels: Any, groups: int, eps: float) -> Any:
    """The file has the sizes of its bound; x has the live ones."""
    shape, along = np.shape(x), (-1,) + (1,) * (np.ndim(x) - 2)
    grouped, mean, scale = _normalized(wide(x).reshape(shape[0], groups, -1), (2,), eps)
    found = grouped.reshape(shape)
    found = found if weight is None else found * wide(weight).reshape(along)
    found = found if bias is None else found + wide(bias).reshape(along)
    return found, mean[..., 0], scale[..., 0]


@reference("_native_batch_norm_legit_no_training")
def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Any:
    along = (-1,) + (1,) * (np.ndim(x) - 2)
    found = (wide(x) - wide(mean).reshape(along)) / np.sqrt(wide(variance).reshape(along) + eps)
    found = found if weight is None else found * wide(weight).reshape(along)
    return (found if bias is None else found + wide(bias).reshape(along)), None, None
