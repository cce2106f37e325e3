"""Scalars, and copies of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import MEANINGS, Meaning, meaning

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "truediv": operator.truediv,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "sym_max": max,
    "sym_min": min,
    "sym_not": operator.not_,
    "sym_float": float,
    "sym_int": int,
}


def _of_scalars(function: Callable[..., Any]) -> Meaning:
    return lambda *given: [function(*given)]


for _name, _function in _ARITHMETIC.items():
    for _spelled in (_name, f"executorch_prim::{_name}.Scalar"):
        MEANINGS[_spelled] = _of_scalars(_function)
MEANINGS["pow"] = _of_scalars(operator.pow)  # ExecuTorch has none


@meaning("sym_size.int", "aten::sym_size.int")
def _size(x: Any, dim: int) -> Sequence[Any]:
    return [x.shape[dim]]


@meaning("sym_numel", "aten::sym_numel")
def _numel(x: Any) -> Sequence[Any]:
    return [x.size]


@meaning("et_vk.select_as_symint.default")
def _element(x: Any, dim: int, index: int) -> Sequence[Any]:
    return [int(np.take(x, index, dim).reshape(-1)[0])]


@meaning("et_vk.prepack.default", "liveshape.move", "liveshape.assign")
def _same(x: Any) -> Sequence[Any]:
    return [x]
