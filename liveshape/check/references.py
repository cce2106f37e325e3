"""The reference of a node: what it should write, from arrays at live shapes; torch's operator, or a written meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from liveshape.check.kept_elements import kept
from liveshape.check.meanings import ANY_WINS, MEANINGS
from liveshape.check.meanings.pointwise_meanings import NUMPY_FUNCTIONS, by_expression, evaluated
from liveshape.check.numpy_references import NUMPY, base_name
from liveshape.errors import LiveshapeError
from liveshape.graph import Node, Tensor, Value
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.ops import OPS
from liveshape.ops.composed import Composition, Loading, from_places, viewed_shape
from liveshape.run.host import find_on_host

Reference = Callable[[Sequence[Any]], Sequence[Any]]
_RANDOM = ("rand", "dropout")  # in the names of operators that draw their results
_UNWRITTEN = "empty"  # and of those that leave them open
_ANY_INDEX = ("kthvalue", "median.dim", "mode")  # where equal elements may have any of their indices
# Where a quotient is no float32, torch gives NaN in its vectors and the remainder in what is left of them.
_FAR_QUOTIENTS = ("fmod", "remainder")


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
    results: Sequence[Any]
    if node.alias:
        (out,) = node.outputs
        results = [np.asarray(arguments[0]).reshape(shapes[out])]
    elif isinstance(node.args[0], Composition):
        results = _composed(node, known)
    elif isinstance(node.args[0], Loading):
        results = [_loaded(node, known)]
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


def _composed(node: Node, known: Mapping[Value, Any]) -> Sequence[Any]:
    """The results of an expression of what an operator gives by its own reference."""
    composition, values, *_, out = node.args
    anchor = composition.anchor
    target = Tensor(out[0].name, anchor.dtype, anchor.max_shape)
    inner = OPS[anchor.name].bind(0, node.label, (*from_places(anchor.arguments, values), target))
    computed = expected(inner, known, {})[target]
    live = LiveTensor(target, bytearray())
    live.shape = computed.shape
    shape = viewed_shape(composition, [_live(value, known[value]) for value in values], live)
    _, _, operands, numbers = arguments_of(node, known)
    with np.errstate(all="ignore"):
        return evaluated(NUMPY_FUNCTIONS, composition.expression, [computed.reshape(shape), *operands], numbers)


def _loaded(node: Node, known: Mapping[Value, Any]) -> Any:
    """What an operator gives of an expression."""
    loading, values, *_, out = node.args
    _, _, operands, numbers = arguments_of(node, known)
    with np.errstate(all="ignore"):
        (array,) = evaluated(NUMPY_FUNCTIONS, loading.expression, operands, numbers)
    operand = Tensor(f"{out.name} before its operator", loading.expression.dtype, loading.max_shape)
    arguments = from_places(loading.anchor.arguments, (*values, operand))
    inner = OPS[loading.anchor.name].bind(0, node.label, (*arguments, out))
    return expected(inner, {**known, operand: kept(array, operand.dtype)}, {})[out]


def _live(value: Value, known: Any) -> LiveTensor | LiveScalar:
    if isinstance(value, Tensor):
        tensor = LiveTensor(value, bytearray())
        tensor.shape = np.shape(known)
        return tensor
    scalar = LiveScalar(value, bytearray())  # type: ignore[arg-type]
    scalar.value = known
    return scalar


def _by_numpy(node: Node, arguments: Sequence[Any], without: str) -> Sequence[Any]:
    """What numpy gives where nothing else does; `without` says why not."""
    name = base_name(node.name)
    if node.traits.pointwise is None and name not in NUMPY:
        raise NoReference(without)
    with np.errstate(all="ignore"):
        if name not in NUMPY:
            return [by_expression(NUMPY_FUNCTIONS, node, arguments)]
        results = NUMPY[name](*arguments)
    return results if isinstance(results, tuple) else [results]


def _computed(node: Node, arguments: list[Any]) -> Sequence[Any]:
    name = node.name
    try:
        if is_random(node) or _UNWRITTEN in name:
            raise NoReference("nobody can foresee its results")
        if name in MEANINGS:
            return MEANINGS[name](*arguments)
        whole = next((each for each in node.traits.fused_from if OPS[each].traits.first_alone == name), None)
        if whole is not None:  # it gives the first of these results
            return _computed(OPS[whole].bind(0, node.label, (*node.args[:-1], node.outputs)), arguments)[:1]
        if name.startswith("dim_order_ops"):
            return [arguments[0]]  # a cast to the dtype of its output; tensors are contiguous
        operator = find_on_host(name)
        if base_name(name) in _FAR_QUOTIENTS and np.result_type(*arguments).kind == "f":
            operator = "torch gives NaN for quotients beyond float32"
        if isinstance(operator, str):
            return _by_numpy(node, arguments, operator)
        dtypes = [value.dtype if isinstance(value, Tensor) else None for value in node.outputs]
        results = operator.function(arguments[: operator.inputs], dtypes)
        if any(part in name for part in _ANY_INDEX):
            return [results[0], *(None for _ in results[1:])]
        return results
    except NoReference:
        raise
    except Exception as error:
        raise NoReference(f"its reference fails at these shapes: {type(error).__name__}: {error}") from error
