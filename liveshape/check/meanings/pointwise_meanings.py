"""What expressions mean, by the table of pointwise functions: in numpy and in float64, or in another library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from liveshape.check.kept_elements import kept
from liveshape.check.meanings.meaning_table import meaning
from liveshape.graph import Node, Tensor
from liveshape.graph.expression import Expression, is_whole
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.ops.pointwise import built


def evaluated(library: Any, expression: Expression, operands: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """The results of an expression of arrays of a library, every call of it kept in the dtype that the file has for it.

    Beside its functions the library has `floats` and `wholes`, which convert, `truth`, and `kept`, which rounds.

    >>> from liveshape.graph.expression import Applied
    >>> negative = Expression(("float32",), (), (Applied("neg", (0,), "float32"),))
    >>> evaluated(NUMPY_FUNCTIONS, negative, [np.array([1.5])], [])
    [array([-1.5], dtype=float32)]
    """
    values = list(operands)
    for kind, number in zip(expression.numbers, numbers, strict=True):
        # Rounded as tensors are, in torch, too: of the ties of a quantized sum the last bit of a scale decides.
        values.append(library.kept((library.wholes if is_whole(kind) else library.floats)(number), kind))
    for call in expression.calls:
        function = FUNCTIONS[call.function]
        whole = function.of_wholes([is_whole(expression.dtype_of(place)) for place in call.arguments], call.dtype)
        given = []
        for position, place in enumerate(call.arguments):
            condition = position in function.conditions
            convert = library.truth if condition else library.wholes if whole else library.floats
            given.append(convert(values[place]))
        values.append(library.kept(function.meaning(library, *given), call.dtype))
    return [values[place] for place in expression.results]


@dataclass(frozen=True)
class Operand:
    """An array in the place of a tensor, with the dtype that this has."""

    name: str
    dtype: str
    array: Any


def by_expression(library: Any, node: Node, arguments: Sequence[Any]) -> Any:
    """What a pointwise operator gives: the expression that it declares, of arrays in the place of its tensors.

    Example: `by_expression(NUMPY_FUNCTIONS, node, [np.ones(3), 2.0])`.
    """
    *given, out = node.args
    inputs = [
        Operand(argument.name, argument.dtype, array) if isinstance(argument, Tensor) else array
        for argument, array in zip(given, arguments, strict=True)
    ]
    define: Any = node.traits.pointwise
    made = built(define, inputs, out.dtype)
    (result,) = evaluated(library, made.expression, [each.array for each in made.tensors], made.numbers)
    # Numbers alone fill a tensor of the sizes that come first, or of the shape of one.
    like = arguments[0]
    return result if made.tensors else np.broadcast_to(result, like if isinstance(like, list) else np.shape(like))


@meaning("liveshape.pointwise", "liveshape.pointwise_results")
def _fused(expression: Expression, operands: Sequence[Any], numbers: Sequence[Any]) -> Sequence[Any]:
    # A result of numbers alone has an element for every one of the operands, too.
    shape = np.broadcast_shapes(*map(np.shape, operands))
    with np.errstate(all="ignore"):
        return [np.broadcast_to(each, shape) for each in evaluated(NUMPY_FUNCTIONS, expression, operands, numbers)]


def _erfinv(x: float) -> float:
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    if not abs(x) < 1:
        return math.nan
    return math.copysign(NormalDist().inv_cdf((1 + abs(x)) / 2) / math.sqrt(2), x)


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond what a float holds
        return math.inf


def _digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if not math.isfinite(x):
        return x if x > 0 else math.nan
    if x < 0:
        return math.nan if x == math.floor(x) else _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    square = 1 / (x * x)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return total + math.log(x) - 0.5 / x - series


def _of_each(function: Callable[[float], float]) -> Any:
    return np.vectorize(function, otypes=[np.float64])


class NumpyFunctions:
    """numpy's functions, and those of the table that it lacks."""

    eq, ne, lt, le, gt, ge = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
    erf, erfc, erfinv, lgamma, digamma = map(_of_each, (math.erf, math.erfc, _erfinv, _lgamma, _digamma))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def floats(self, x: Any) -> Any:
        array = np.asarray(x)
        return array if array.dtype.kind == "c" else array.astype(np.float64)

    def wholes(self, x: Any) -> Any:
        return np.asarray(x).astype(np.int64)

    def truth(self, x: Any) -> Any:
        return np.asarray(x) != 0

    def kept(self, x: Any, dtype: str) -> Any:
        array = np.asarray(x)
        return array if array.dtype.kind == "c" else kept(array, dtype)

    def complex(self, real: Any, imaginary: Any) -> Any:
        made = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.complex128)
        made.real, made.imag = real, imaginary
        return made

    def polar(self, magnitude: Any, angle: Any) -> Any:
        return self.complex(magnitude * np.cos(angle), magnitude * np.sin(angle))

    def logit(self, x: Any) -> Any:
        return np.log(x / (1 - x))


NUMPY_FUNCTIONS = NumpyFunctions()
