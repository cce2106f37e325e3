"""Pointwise operators: each is declared as an expression of its arguments, which its kernel and fusion come from.

@pointwise("aten.leaky_relu.default", "aten::leaky_relu.out")
def leaky_relu(e: Build, x: LiveTensor, slope: float) -> Term:
    return e.call("leaky_relu", x, slope)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from liveshape.errors import UnsupportedError
from liveshape.graph import Shape, SymInt
from liveshape.graph.elements import by_itself, is_complex, prod
from liveshape.graph.expression import EXACT, Applied, Expression, is_whole
from liveshape.graph.live import LiveTensor
from liveshape.kernels.pointwise_kernel import pointwise_kernel
from liveshape.kernels.pointwise_operands import HELD, RAMP, REPEATED, SAME, SCALAR, STRIDED, Operands
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.kernels.pointwise_text import hidden
from liveshape.kernels.requests import GetLimits
from liveshape.ops.registry import OPS, Tensors, op
from liveshape.ops.row_rules import elementwise
from liveshape.ops.scalars import float_of, int_of
from liveshape.ops.shapes import broadcast_shapes, broadcast_strides, ceil_div, merge_dims, strides_of

Steps = Iterator[Any]


class Pointwise(NamedTuple):
    """An expression, the tensors that are its operands, and its numbers: live scalars where a graph has them."""

    expression: Expression
    tensors: tuple[Any, ...]
    numbers: tuple[Any, ...]


class Viewed(NamedTuple):
    """A tensor as an operand of another shape, whose elements lie along these strides, or in order, from `start` on.

    Without a tensor it is these places themselves: whole numbers that rise along each dimension by its stride.
    """

    tensor: LiveTensor | None
    shape: Shape
    strides: Shape | None = None
    start: int = 0

    @property
    def dtype(self) -> str:
        """That of the elements."""
        return "int32" if self.tensor is None else self.tensor.dtype


class Term(NamedTuple):
    """A value of an expression that is being built."""

    kind: str  # operand, number or call
    place: int
    dtype: str


class Build:
    """An expression that is being built, of a result of this dtype, whose first operands are `tensors`.

    Arguments are tensors, numbers and values of calls; each tensor is one operand. An operator that cannot be one
    expression at these arguments raises UnsupportedError.
    """

    def __init__(self, out: str, tensors: Sequence[Any] = ()) -> None:
        self.out = out
        self._tensors = list(tensors)
        self._numbers: list[tuple[Any, str]] = []
        self._calls: list[tuple[str, Sequence[Term], str]] = []

    def call(self, function: str, *arguments: Any, dtype: str | None = None) -> Term:
        """What a function of the table gives, of the dtype of the result unless another one is said.

        Numbers are those of its class: whole where all tensors and the result are.
        """
        row, made = FUNCTIONS[function], dtype or self.out
        terms = [None if is_number(each) else self._value(each) for each in arguments]
        if row.complexes is None and any(term is not None and is_complex(term.dtype) for term in terms):
            raise UnsupportedError(f"{function} takes no complex numbers; take their parts by view_as_real")
        whole = row.of_wholes([None if term is None else is_whole(term.dtype) for term in terms], made)
        kind = EXACT["whole" if whole else "float"]
        known = zip(arguments, terms, strict=True)
        return self._called(function, [term or self._number(each, kind) for each, term in known], made)

    def exact(self, function: str, *arguments: Any) -> Term:
        """A step of the operator, whose result nobody rounds."""
        return self.call(function, *arguments, dtype=EXACT["whole" if is_whole(self.out) else "float"])

    def whole(self, made: Pointwise) -> list[Term]:
        """All values of an expression that is made already: its operands, which may be values of this one, its numbers
        and its calls."""
        terms = [self._value(tensor) for tensor in made.tensors]
        terms += [self._number(each, kind) for each, kind in zip(made.numbers, made.expression.numbers, strict=True)]
        for call in made.expression.calls:
            terms.append(self._called(call.function, [terms[place] for place in call.arguments], call.dtype))
        return terms

    def made(self, kept: Iterable[Term] = ()) -> Pointwise:
        """The expression of all calls, which keeps these values beside the last one."""
        first = {"operand": 0, "number": len(self._tensors), "call": len(self._tensors) + len(self._numbers)}

        def places(terms: Iterable[Term]) -> tuple[int, ...]:
            return tuple(first[term.kind] + term.place for term in terms)

        numbers, kinds = zip(*self._numbers, strict=True) if self._numbers else ((), ())
        calls = tuple(Applied(function, places(given), dtype) for function, given, dtype in self._calls)
        operands = tuple(tensor.dtype for tensor in self._tensors)
        return Pointwise(Expression(operands, kinds, calls, places(kept)), tuple(self._tensors), numbers)

    def _value(self, argument: Any) -> Term:
        if isinstance(argument, Term):
            return argument
        for place, tensor in enumerate(self._tensors):
            if tensor is argument:
                return Term("operand", place, tensor.dtype)
        self._tensors.append(argument)
        return Term("operand", len(self._tensors) - 1, argument.dtype)

    def _called(self, function: str, given: Sequence[Term], dtype: str) -> Term:
        self._calls.append((function, given, dtype))
        return Term("call", len(self._calls) - 1, dtype)

    def _number(self, number: Any, kind: str) -> Term:
        self._numbers.append((number, kind))
        return Term("number", len(self._numbers) - 1, kind)


Define = Callable[..., Term]


def is_number(argument: Any) -> bool:
    """Whether an argument is a number, live or not, and neither a tensor nor a value of an expression."""
    return isinstance(argument, (int, float, SymInt)) or not hasattr(argument, "dtype")


def pointwise(
    *names: str, given: Mapping[str, Any] | None = None, shape: Callable[..., Shape] | None = None, **traits: Any
) -> Callable[[Define], Define]:
    """Register a pointwise operator under its exported names, by the expression of its arguments.

    `define` gets a `Build` and the arguments but the output. Its annotations are those of an operator; `given` are
    those that these names have instead, or beside. A result of numbers alone has the `shape` that its arguments say.
    """

    def register(define: Define) -> Define:
        declared = [*inspect.signature(define, eval_str=True).parameters.values()][1:]
        taken = {each.name: each.annotation for each in declared if each.kind != each.VAR_POSITIONAL}
        taken |= dict(given or {})

        def run(*arguments: Any) -> Steps:
            *inputs, out = arguments
            yield from evaluate(built(define, inputs, out.dtype), out, shape=shape and shape(*inputs))

        run.__annotations__ = {**taken, "out": LiveTensor}
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in run.__annotations__]
        )
        run.__name__ = run.__qualname__ = define.__name__
        run.__module__ = define.__module__
        for name in names:
            known = OPS[name].traits.pointwise if name in OPS else None
            if known is not None and known.__code__ != define.__code__:
                raise ValueError(f"operator {name} is registered twice")
        op(*names, **{"rows": elementwise(), "pointwise": define} | traits)(run)
        return define

    return register


ONE = {"x": LiveTensor}


def direct(
    function: str, *names: str, given: Mapping[str, Any] = ONE, numbers: tuple[float, ...] = (), **traits: Any
) -> None:
    """Register what is one function of the table, of the arguments that are `given`, in this order, and of `numbers`.

    Example: `direct("erf", *exported("erf"))`.
    """

    def define(e: Build, *arguments: Any) -> Term:
        return e.call(function, *arguments, *numbers)

    pointwise(*names, given=given, **traits)(define)


def built(define: Define, inputs: Any, out: str) -> Pointwise:
    """The expression of an operator at these arguments, for a result of this dtype."""
    build = Build(out)
    define(build, *inputs)
    return build.made()


def with_operands(made: Pointwise, tensors: Sequence[Any]) -> Pointwise:
    """An expression with its operands in this order.

    >>> build = Build("float32")
    >>> x, y = (Viewed(None, (), (), start) for start in (0, 1))
    >>> ratio = build.call("div", x, y)
    >>> str(with_operands(build.made(), (y, x)).expression)
    'div(x1, x0)'
    """
    build = Build(made.expression.dtype, tensors)
    terms = build.whole(made)
    return build.made(terms[place] for place in made.expression.kept)


def apply(function: str, *arguments: Any, out: LiveTensor, shape: Shape | None = None) -> Steps:
    """out = one function of the table, of the shape that its arguments have together or of another one.

    Example: `yield from apply("mul", x, 0.5, out=halved)`.
    """
    build = Build(out.dtype)
    build.call(function, *arguments)
    yield from evaluate(build.made(), out, shape=shape)


def evaluate(made: Pointwise, *outs: LiveTensor, shape: Shape | None = None) -> Steps:
    """outs = the results of an expression of operands that broadcast together, of that shape or of another one.

    An operand that is the first result is what its memory holds before.
    """
    over = broadcast_shapes(*(tensor.shape for tensor in made.tensors)) if made.tensors else shape or ()
    for out in outs:
        out.shape = over if shape is None else shape
    half = yield from stores_halves(made.expression)
    operands, values = laid_out(made, over, held=outs[0])
    kernel = pointwise_kernel(made.expression, operands, half)
    tensors = (each.tensor if isinstance(each, Viewed) else each for each in made.tensors)
    bound = [each for each in tensors if each is not None and each is not outs[0]]
    yield kernel(*outs, *bound, **values, threads=ceil_div(values["count"], 4))


def stores_halves(expression: Expression) -> Any:
    """Whether float16 results of an expression are rounded, which only a device can tell: asked if there are any."""
    if all(call.dtype != "float16" for call in expression.calls[:-1]):
        return True
    return (yield GetLimits()).half


def laid_out(made: Pointwise, shape: Shape, prefix: str = "", held: Any = None) -> tuple[Operands, dict[str, Any]]:
    """How tensors, views and ramps are found that broadcast to a shape, and the params of their expression.

    One of them may be `held` by the text.

    >>> build = Build("int32")
    >>> build.call("neg", Viewed(None, (2, 3), (-1, 1)))
    Term(kind='call', place=0, dtype='int32')
    >>> laid_out(build.made(), (2, 3))[1]["dims"]
    (2, 4294967295, 0, 0, 3, 1, 0, 0)
    """
    operands, values = _layout(made, shape, prefix, held)
    if operands.apart or not prefix:
        values[f"{prefix}count"] = prod(shape)
    if hidden(made.expression, operands.computed):
        values[f"{operands.number}zero"] = 0
    for place, (kind, number) in enumerate(zip(made.expression.numbers, made.numbers, strict=True)):
        values[f"{operands.number}{place}"] = int_of(number) if is_whole(kind) else float_of(number)
    return operands, values


def _layout(made: Pointwise, shape: Shape, prefix: str, held: Any) -> tuple[Operands, dict[str, Any]]:
    dtypes, tensors = made.expression.operands, made.tensors
    found = [HELD if tensor is held else _how(tensor, shape) for tensor in tensors]
    strided = [tensor for tensor, how in zip(tensors, found, strict=True) if how in (STRIDED, RAMP)]
    if not strided:
        return Operands(dtypes, tuple(found), prefix=prefix), {}
    # Views that lie alike share a column: what is known of a channel or a row is found once.
    kinds = [each[1:] if isinstance(each, Viewed) else each for each in strided]
    first = [kinds.index(kind) for kind in kinds]
    columns = tuple([sorted(set(first)).index(place) for place in first])
    unique = [strided[place] for place in sorted(set(first))]
    sizes, strides = merge_dims(shape, *(broadcast_strides(each.shape, shape, _strides(each)) for each in unique))
    starts = tuple([_start(each) for each in unique])
    apart = len(sizes) > 1 and sizes[-1] % 4 != 0
    for each, column in zip(strided, columns, strict=True):
        if isinstance(each, Viewed) and each.tensor is not None:
            apart = apart or not _in_vectors(strides[column], starts[column])
            if strides[column][-1:] == (0,) and (by_itself(each.dtype) or each.dtype == "int8"):
                found[tensors.index(each)] = REPEATED
    shared = () if len(unique) == len(strided) else columns
    operands = Operands(dtypes, tuple(found), apart, prefix, any(start != 0 for start in starts), shared)
    gap = (0,) * (4 * operands.words - 1 - len(unique))
    dims = tuple([each for axis, size in enumerate(sizes) for each in (size, *(row[axis] for row in strides), *gap)])
    values: dict[str, Any] = {f"{prefix}rank": len(sizes), f"{prefix}dims": dims}
    return operands, values | ({f"{prefix}starts": (0, *starts, *gap)} if operands.starts else {})


_WORD = 1 << 32  # offsets of places may be negative: they wrap around


def _strides(operand: Any) -> Shape:
    own = operand.strides if isinstance(operand, Viewed) else None
    if own is not None and operand.tensor is None:
        return tuple(stride % _WORD for stride in own)
    return strides_of(operand.shape) if own is None else own


def _start(operand: Any) -> int:
    return operand.start if isinstance(operand, Viewed) else 0


def _in_vectors(strides: Shape, start: int) -> bool:
    """Whether four neighbours of a row of the result are one element, or a vector of memory."""
    return strides[-1:] in ((), (0,)) or (strides[-1] == 1 and all(each % 4 == 0 for each in (start, *strides[:-1])))


def _how(operand: Any, shape: Shape) -> str:
    if isinstance(operand, Viewed) and operand.tensor is None:
        return RAMP
    begins = _start(operand) == 0
    if begins and operand.shape == shape and not (isinstance(operand, Viewed) and operand.strides is not None):
        return SAME
    return SCALAR if begins and prod(operand.shape) == 1 else STRIDED


# Rows are followed before operators are fused: neither this nor what is composed declares any.
@pointwise("liveshape.pointwise", rows=None)
def fused(e: Build, expression: Any, operands: Any, numbers: Any) -> Term:
    """Several pointwise operators as one expression."""
    return e.whole(Pointwise(expression, operands, numbers))[-1]


@op("liveshape.pointwise_results")
def several(expression: Any, operands: Any, numbers: Any, out: Tensors) -> Steps:
    """Several pointwise operators as one expression, more than one value of which is read."""
    yield from evaluate(Pointwise(expression, operands, numbers), *out)
