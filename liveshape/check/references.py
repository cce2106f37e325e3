"""The reference of a node: what it should write, from arrays at live shapes; torch's operator, or a written meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings import ANY_WINS, MEANINGS
from liveshape.check.numpy_references import NUMPY, base_name
from liveshape.errors import LiveshapeError
from liveshape.graph import Node, Tensor, Value
from liveshape.run.arrays import numpy_dtype
from liveshape.run.bfloat16 import rounded
from liveshape.run.host import find_on_host

Reference = Callable[[Sequence[Any]], Sequence[Any]]
_RANDOM = ("rand", "dropout")  # in the names of operators that draw their results
_UNWRITTEN = "empty"  # and of those that leave them open
_ANY_INDEX = ("kthvalue", "median.dim", "mode")  # where equal elements may have any of their indices


class NoReference(LiveshapeError):
    """Why a node has no reference, or none at these shapes."""


def arguments_of(node: Node, known: Mapping[Value, Any]) -> list[Any]:
    """The arguments of a node but its output, values replaced by what is known of them."""

    def found(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return [found(item) for item in argument]
        return known[argument] if isinstance(argument, Value) else argument

    return [found(argument) for argument in node.args[:-1]]


def expected(node: Node, known: Mapping[Value, Any], shapes: Mapping[Value, tuple[int, ...]]) -> dict[Value, Any]:
    """What a node writes by its reference; `shapes` are those that the plan gives, which views and casts take.

    Raises NoReference.

    Example: `expected(node, {x: np.ones(3)}, {out: (3,)})[out]`.
    """
    arguments = arguments_of(node, known)
    mutated = [value for position in node.mutates for value in (node.args[position],)]
    if node.alias:
        (out,) = node.outputs
        results: Sequence[Any] = [np.asarray(arguments[0]).reshape(shapes[out])]
    else:
        results = _computed(node, arguments)
    written = [*node.outputs, *mutated]
    if len(results) != len(written):
        if mutated or len(results) < len(written):
            raise NoReference(f"its reference gives {len(results)} results, it has {len(written)}")
        results = results[: len(written)]  # a file may leave out the last ones
    made: dict[Value, Any] = {}
    for value, result in zip(written, results, strict=True):
        if result is not None:
            made[value] = kept(_ranked(result, value), value.dtype) if isinstance(value, Tensor) else result
    return made


def _ranked(result: Any, tensor: Tensor) -> Any:
    """A result with the rank of the file: a live size of one may have left a dimension that is else dropped."""
    array = np.asarray(result)
    while array.ndim > tensor.rank and array.shape[-1] == 1:
        array = array[..., 0]
    return array


def is_random(node: Node) -> bool:
    """Whether an operator draws its results, so that the whole program gives others each time.

    Example: `is_random(graph.nodes[3])`.
    """
    return any(part in node.name for part in _RANDOM)


def is_open(node: Node, known: Mapping[Value, Any]) -> bool:
    """Whether what a node writes is left open by these inputs, so that it may be something else at every call."""
    return node.name in ANY_WINS and ANY_WINS[node.name](*arguments_of(node, known))


def kept(array: Any, dtype: str) -> Any:
    """An array as a tensor of this dtype keeps it: cast as torch casts, rounded where it is bfloat16.

    >>> kept(np.array([1.9, -1.9]), "int32"), kept(np.array([1.001]), "bfloat16")
    (array([ 1, -1], dtype=int32), array([1.], dtype=float32))
    """
    with np.errstate(all="ignore"):
        made = np.asarray(array).astype(numpy_dtype(dtype))
    return rounded(made) if dtype == "bfloat16" else made


def _by_numpy(name: str, arguments: Sequence[Any], without: str) -> Sequence[Any]:
    """What numpy gives where nothing else does; `without` says why not."""
    if base_name(name) not in NUMPY:
        raise NoReference(without)
    with np.errstate(all="ignore"):
        results = NUMPY[base_name(name)](*arguments)
    return results if isinstance(results, tuple) else [results]


def _computed(node: Node, arguments: list[Any]) -> Sequence[Any]:
    name = node.name
    try:
        if is_random(node) or _UNWRITTEN in name:
            raise NoReference("nobody can foresee its results")
        if name in MEANINGS:
            return MEANINGS[name](*arguments)
        if name.startswith("dim_order_ops"):
            return [arguments[0]]  # a cast to the dtype of its output; tensors are contiguous
        operator = find_on_host(name)
        if isinstance(operator, str):
            return _by_numpy(name, arguments, operator)
        dtypes = [value.dtype if isinstance(value, Tensor) else None for value in node.outputs]
        results = operator.function(arguments[: operator.inputs], dtypes)
        if any(part in name for part in _ANY_INDEX):
            return [results[0], *(None for _ in results[1:])]
        return results
    except NoReference:
        raise
    except Exception as error:
        raise NoReference(f"its reference fails at these shapes: {type(error).__name__}: {error}") from error
