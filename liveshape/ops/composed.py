"""An operator with an expression in its epilogue, which is stored instead of its result, or beside it, or in its
prologue, where one of its operands is computed as a kernel loads it.

Which kernels an operator takes is its own affair: where one of these stores the result, or one alone reads the operand,
its composition with the expression is dispatched instead. Where a route has a kernel that is not composable the result
or the operand goes through memory, as without an expression.
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
from liveshape.kernels.composition import EPILOGUE, PROLOGUE, composed, is_light
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.pointwise import Pointwise, evaluate, laid_out, stores_halves
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
    computed = _standing_in(f"{out[0].name} before its epilogue", anchor.dtype, anchor.max_shape)
    memory = next((each for each, place in zip(out, expression.results, strict=True) if place == 0), None)
    in_place = memory is None and composition.alike and stored_alike(anchor.dtype, out[0].dtype)
    if memory is None and not in_place:
        memory = yield Scratch(anchor.dtype, composition.max_shape)
    limits: Any = yield GetLimits()
    half = yield from stores_halves(expression)
    dispatches = yield from _collected(OPS[anchor.name].run(*from_places(anchor.arguments, values), computed))
    shape = viewed_shape(composition, values, computed)
    whole = broadcast_shapes(shape, *(tensor.shape for tensor in operands))
    if composition.alike and whole != shape:
        raise ShapeError(f"what was proved of live sizes does not hold: {shape} is computed, {whole} is stored")
    for result in out:
        result.shape = whole
    storing = [each for each in dispatches if computed in each.tensors]
    made = Pointwise(expression, (computed, *operands), numbers)
    taken = {each: _with_expression(each, made, computed, out, half, limits) for each in storing if whole == shape}
    if whole == shape and None not in taken.values():
        yield from (taken.get(each, each) for each in dispatches)
        return
    target = memory or out[0]
    target.shape = shape
    yield from (_onto(each, computed, target) for each in dispatches)
    rest = replace(expression, kept=tuple(place for place in expression.kept if place != 0))
    yield from evaluate(
        made._replace(expression=rest, tensors=(target, *operands)), *(each for each in out if each is not memory)
    )


@op("liveshape.loaded", epilogues=True)
def load(composition: Any, values: Any, operands: Any, numbers: Any, out: LiveTensor) -> Steps:
    """out = an operator of `values` and of an expression, whose operands broadcast together."""
    anchor, dtype = composition.anchor, composition.expression.dtype
    made = Pointwise(composition.expression, operands, numbers)
    operand = _standing_in(f"{out.name} before its operator", dtype, composition.max_shape)
    memory: Any = yield Scratch(dtype, composition.max_shape)
    limits: Any = yield GetLimits()
    operand.shape = broadcast_shapes(*(tensor.shape for tensor in operands))
    dispatches = yield from _collected(OPS[anchor.name].run(*from_places(anchor.arguments, (*values, operand)), out))
    reading = [each for each in dispatches if operand in each.tensors]
    taken = _with_expression(reading[0], made, operand, (), limits.half, limits) if len(reading) == 1 else None
    if reading and taken is None:
        yield from evaluate(made, memory)
    for each in dispatches:
        yield _onto(each, operand, memory) if taken is None or each not in reading else taken


def _standing_in(name: str, dtype: str, max_shape: Shape) -> LiveTensor:
    """What an operator takes for a tensor, whose elements are nowhere in memory."""
    return LiveTensor(Tensor(name, dtype, max_shape), bytearray())


def _collected(steps: Steps) -> Generator[Any, Any, list[Dispatch]]:
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


def _with_expression(
    dispatch: Dispatch, made: Pointwise, tensor: LiveTensor, outs: Tensors, half: bool, limits: Limits
) -> Dispatch | None:
    """A dispatch with an expression in the place of a tensor: it stores the results in `outs`, or loads it if there are
    none. None where its kernel does not."""
    kernel, operands = dispatch.kernel, [each for each in made.tensors if each is not tensor]
    slots = [place for place, each in enumerate(dispatch.tensors) if each is tensor]
    if outs:
        composable = kernel.composable and (is_light(made.expression) or not kernel.wants_light)
        slot, bound = 0 if composable and slots == [0] else None, [outs[0], *dispatch.tensors[1:], *outs[1:], *operands]
    else:
        slot = next((place for place in slots if kernel.bindings[place].name == kernel.loads), None)
        # What stands in the place of an absent tensor is any other of its dtype.
        other = next((each for each in operands if each.dtype == tensor.dtype), None)
        rest = [other if each is tensor else each for each in dispatch.tensors]
        bound = [operands[0] if place == slot else each for place, each in enumerate(rest)] + operands[1:]
    if slot is None or None in bound or sum(each.bindings for each in bound) > limits.max_bindings:
        return None
    vector = kernel.bindings[slot].vector
    width = dispatch.values.get("VEC", 1) if vector == "V" else int(vector[3:] or 1)
    if width not in (1, 4) or any(each.bindings != 1 for each in outs or operands):
        return None
    found, values = laid_out(made, (outs or (tensor,))[0].shape, EPILOGUE if outs else PROLOGUE, held=tensor)
    return _like(dispatch, composed(kernel, made.expression, found, half), tuple(bound), dispatch.values | values)


def _onto(dispatch: Dispatch, computed: LiveTensor, memory: LiveTensor) -> Dispatch:
    """A dispatch that writes its result to other memory."""
    tensors = tuple([memory if tensor is computed else tensor for tensor in dispatch.tensors])
    return _like(dispatch, dispatch.kernel, tensors, dispatch.values)


def _like(dispatch: Dispatch, kernel: Kernel, tensors: Tensors, values: dict[str, Any]) -> Dispatch:
    """A dispatch of the same grid."""
    return Dispatch(
        kernel, tensors, values, dispatch.groups, dispatch.threads, dispatch.cooperative_units, dispatch.turns
    )
