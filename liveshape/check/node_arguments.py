"""The arguments of a node as JSON: values by their place in a list, rows of arguments, plain numbers and texts, and
what fused nodes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from liveshape.errors import FormatError
from liveshape.graph import Value
from liveshape.graph.elements import supported
from liveshape.graph.expression import Applied, Expression
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.ops import OPS
from liveshape.ops.composed import Anchor, Composition, Loading, Place

_PARTS: dict[str, Any] = {each.__name__: each for each in (Anchor, Applied, Composition, Expression, Loading, Place)}


def written(argument: Any, places: Mapping[Value, int]) -> Any:
    """An argument as JSON has it.

    >>> x = Value("x")
    >>> written((x, 1.5), {x: 0})
    {'row': [{'value': 0}, 1.5]}
    """
    if isinstance(argument, Value):
        return {"value": places[argument]}
    if isinstance(argument, tuple):
        return {"row": [written(item, places) for item in argument]}
    if (name := type(argument).__name__) in _PARTS:
        return {name: [written(getattr(argument, field.name), places) for field in fields(argument) if field.init]}
    return argument


def read(argument: Any, values: Sequence[Value]) -> Any:
    """What `written` wrote.

    >>> read({"row": [{"value": 0}, 1.5]}, [Value("x")])[1]
    1.5
    """
    if not isinstance(argument, dict):
        return argument
    ((kind, content),) = argument.items()
    if kind == "value":
        return values[content]
    items = tuple(read(item, values) for item in content)
    return items if kind == "row" else _checked(_PARTS[kind](*items))


def _checked(part: Any) -> Any:
    """A part of a fused node that can be one."""
    if isinstance(part, Anchor) and part.name not in OPS:
        raise FormatError(f"a fused node is of the operator {part.name}, which has no kernel here")
    if isinstance(part, Expression):
        first = len(part.operands) + len(part.numbers)
        for place, call in enumerate(part.calls, first):
            if call.function not in FUNCTIONS or not all(0 <= each < place for each in call.arguments):
                raise FormatError(f"an expression calls {call.function} of {call.arguments}, which cannot be")
        last = first + len(part.calls) - 1
        if not all(0 <= each < len(part.operands) or first <= each < last for each in part.kept):
            raise FormatError(f"an expression keeps the values {part.kept}, which it cannot")
        if not part.calls or not all(supported(part.dtype_of(place)) for place in range(last + 1)):
            raise FormatError(f"an expression has no calls, or takes elements that it cannot: {part.operands}")
    return part
