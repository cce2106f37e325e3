"""An operator with an epilogue: an expression of its result is stored instead of it, or beside it.

Which kernels an operator takes is its own affair: where one of these stores the result, its composition with the
expression is dispatched instead. Where a route has a kernel that is not composable the result goes through memory, as
without an epilogue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import GeneratorType
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Node, Shape, Tensor, Value
from liveshape.graph.elements import stored_alike
from liveshape.graph.expression import Expression
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.composition import EPILOGUE, composed, is_light
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.pointwise import Pointwise, evaluate, evaluate_in_place, laid_out, stores_halves
from liveshape.ops.registry import OPS, Tensors, op
from liveshape.ops.shapes import broadcast_shapes

Steps = Iterator[Any]


@dataclass(frozen=True)
class Place:
    """Where a value of a node stands among those that it reads."""

    index: int


@dataclass(frozen=True)
class Anchor:
    """An operator and its arguments but the output, values by their places; the dtype and the bound of its result.

    >>> Anchor("aten.mm.default", (0.0,), "float32", (1,)) == Anchor("aten.mm.default", (-0.0,), "float32", (1,))
    False
    """

    name: str
    arguments: tuple[Any, ...]
    dtype: str
    max_shape: Shape
    spelled: str = field(init=False, repr=False)  # 1, 1.0 and True are equal, and not the same

    def __post_init__(self) -> None:
        object.__setattr__(self, "spelled", repr(self.arguments))


@dataclass(frozen=True)
class Composition:
    """An anchor, the views of its result one after the other, and an expression whose first operand these give.

    Arguments of views are those but for what they view. Where the result is `alike`, it has the shape of the output at
    every live size. An expression that keeps its first operand stores what the anchor gives, without views.
    """

    anchor: Anchor
    views: tuple[Anchor, ...]
    expression: Expression
    alike: bool

    def __str__(self) -> str:
        views = "".join(f", {view.name}" for view in self.views)
        return f"x0 = {self.anchor.name}{views}; {self.expression}"

    @property
    def max_shape(self) -> Shape:
        """That of what the expression gets."""
        return (self.anchor, *self.views)[-1].max_shape


@dataclass(frozen=True)
class Loading:
    """An operator, and the expression of which it loads one operand, whose place is behind its other values.

    `max_shape` is the bound of that operand.
    """

    anchor: Anchor
    expression: Expression
    max_shape: Shape

    def __str__(self) -> str:
        return f"{self.anchor.name} of {self.expression}"


def has_expression(node: Node) -> bool:
    """Whether a node is fused of others: an expression, or an operator with one in its epilogue or its prologue.

    Example: `has_expression(plan.graph.nodes[3])`.
    """
    return bool(node.args) and isinstance(node.args[0], (Composition, Expression, Loading))


def with_places(arguments: tuple[Any, ...], values: list[Value]) -> tuple[Any, ...]:
    """Arguments with their values replaced by their places among `values`, which gets those that it lacks."""

    def placed(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(placed(item) for item in argument)
        if not isinstance(argument, Value):
            return argument
        if argument not in values:
            values.append(argument)
        return Place(values.index(argument))

    return tuple(placed(argument) for argument in arguments)


def from_places(arguments: Any, values: Any) -> Any:
    """Arguments with their values: what `with_places` took out."""
    if isinstance(arguments, tuple):
        return tuple([from_places(item, values) for item in arguments])
    return values[arguments.index] if isinstance(arguments, Place) else arguments


def anchored_operations(named: Mapping[str, Any]) -> int:
    """FLOPs of an operator that is a product, of the arguments of a node that stores an expression of it."""
    anchor = named["composition"].anchor
    operator = OPS[anchor.name]
    arguments = (*from_places(anchor.arguments, named["values"]), named["out"][0])
    of_operator = {each.name: argument for each, argument in zip(operator.parameters, arguments, strict=True)}
    product: Any = operator.traits.product
    return int(product.operations(of_operator))


@op("liveshape.composed")
def compose(composition: Any, values: Any, operands: Any, numbers: Any, out: Tensors) -> Steps:
    """out = the results of an expression of what an operator computes; `values` are what that reads, `operands` the
    others."""
    anchor, expression = composition.anchor, composition.expression
    computed = LiveTensor(Tensor(f"{out[0].name} before its epilogue", anchor.dtype, anchor.max_shape), bytearray())
    memory = next((each for each, place in zip(out, expression.results, strict=True) if place == 0), None)
    in_place = memory is None and composition.alike and stored_alike(anchor.dtype, out[0].dtype)
    if memory is None and not in_place:
        memory = yield Scratch(anchor.dtype, composition.max_shape)
    limits: Any = yield GetLimits()
    half = yield from stores_halves(expression)
    dispatches = yield from collected(OPS[anchor.name].run(*from_places(anchor.arguments, values), computed))
    shape = viewed_shape(composition, values, computed)
    whole = broadcast_shapes(shape, *(tensor.shape for tensor in operands))
    for result in out:
        result.shape = whole
    storing = [each for each in dispatches if computed in each.tensors]
    made = Pointwise(expression, operands, numbers)
    if whole == shape:
        stored = [
            _with_epilogue(each, made, computed, out, half, limits) if each in storing else each for each in dispatches
        ]
        if None not in stored:
            yield from stored
            return
    if composition.alike and whole != shape:
        raise ShapeError(f"what was proved of live sizes does not hold: {shape} is computed, {whole} is stored")
    target = memory or out[0]
    target.shape = shape
    for each in dispatches:
        yield onto(each, computed, target) if each in storing else each
    if memory is None:
        yield from evaluate_in_place(made, *out)
        return
    rest = replace(expression, kept=tuple(place for place in expression.kept if place != 0))
    yield from evaluate(Pointwise(rest, (memory, *operands), numbers), *(each for each in out if each is not memory))


def collected(steps: Steps) -> Generator[Any, Any, list[Dispatch]]:
    """The dispatches of an operator; what else it asks for is asked for."""
    found: list[Dispatch] = []
    reply: Any = None
    while True:
        try:
            request = steps.send(reply) if isinstance(steps, GeneratorType) else next(steps)
        except StopIteration:
            return found
        reply = None
        if type(request) is Dispatch:
            found.append(request)
        else:
            reply = yield request


def viewed_shape(composition: Composition, values: Any, computed: LiveTensor) -> Shape:
    """The live shape of a result behind its views, which move nothing; `values` are live, too.

    Example: `viewed_shape(composition, values, computed)`.
    """
    source = computed
    for view in composition.views:
        target = LiveTensor(Tensor(source.name, view.dtype, view.max_shape), bytearray())
        for _ in OPS[view.name].run(source, *from_places(view.arguments, values), target) or ():
            pass
        source = target
    return source.shape


def _with_epilogue(
    dispatch: Dispatch, made: Pointwise, computed: LiveTensor, out: Tensors, half: bool, limits: Limits
) -> Dispatch | None:
    """A dispatch that stores an expression of the result that it writes; None where its kernel does not."""
    kernel, (_, *tensors) = dispatch.kernel, dispatch.tensors
    binding = kernel.bindings[0]
    width = dispatch.values.get("VEC", 1) if binding.vector == "V" else int(binding.vector[3:] or 1)
    bindings = sum(tensor.bindings for tensor in (*tensors, *made.tensors)) + len(out)
    composable = kernel.composable and (is_light(made.expression) or not kernel.wants_light)
    if not composable or dispatch.tensors[0] is not computed or computed in tensors or width not in (1, 4):
        return None
    if any(each.bindings != 1 for each in out) or bindings > limits.max_bindings:
        return None
    found, values = laid_out(made, out[0].shape, EPILOGUE)
    kernel = composed(kernel, made.expression, found, half)
    return like(dispatch, kernel, (out[0], *tensors, *out[1:], *made.tensors), dispatch.values | values)


def onto(dispatch: Dispatch, computed: LiveTensor, memory: LiveTensor) -> Dispatch:
    """A dispatch that writes its result to other memory."""
    tensors = tuple([memory if tensor is computed else tensor for tensor in dispatch.tensors])
    return like(dispatch, dispatch.kernel, tensors, dispatch.values)


def like(dispatch: Dispatch, kernel: Kernel, tensors: Tensors, values: dict[str, Any]) -> Dispatch:
    """A dispatch of the same grid."""
    return Dispatch(
        kernel, tensors, values, dispatch.groups, dispatch.threads, dispatch.cooperative_units, dispatch.turns
    )
