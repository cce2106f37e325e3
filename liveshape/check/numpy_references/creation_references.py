"""Tensors that are filled and copied; pointwise operators are expressions, and mean what these do."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import reference


@reference("full")
def _full(size: Any, value: Any, *_: Any) -> Any:
    return np.full([int(each) for each in size], value)


@reference("full_like", "fill")
def _full_like(x: Any, value: Any, *_: Any) -> Any:
    return np.full(np.shape(x), value)


@reference("zeros")
def _zeros(size: Any, *_: Any) -> Any:
    return np.zeros([int(each) for each in size])


@reference("ones")
def _ones(size: Any, *_: Any) -> Any:
    return np.ones([int(each) for each in size])


@reference("zeros_like")
def _zeros_like(x: Any, *_: Any) -> Any:
    return np.zeros(np.shape(x))


@reference("ones_like")
def _ones_like(x: Any, *_: Any) -> Any:
    return np.ones(np.shape(x))


@reference("scalar_tensor")
def _scalar_tensor(value: Any, *_: Any) -> Any:
    return np.asarray(value)


@reference("clone", "alias_copy", "_to_copy", "lift_fresh_copy")
def _same(x: Any, *_: Any) -> Any:
    return x
