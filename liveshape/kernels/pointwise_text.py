"""The WGSL of an expression, four elements at a time: its statements, and the fields of Params for its numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from liveshape.errors import PlanError
from liveshape.graph.expression import Applied, Expression, is_whole
from liveshape.kernels.pointwise_table import FUNCTIONS

_ARGUMENT = re.compile(r"\b[abcd]\b")
_ROUNDED = {"float16": "half_rounded", "bfloat16": "bfloat16_rounded"}
_TYPES = {True: "vec4<i32>", False: "vec4<f32>"}


def statements(expression: Expression, operands: Sequence[str], prefix: str, half: bool) -> tuple[list[str], str]:
    """The statements that compute an expression, and the name of its result: a vec4 of f32, of i32 where it is whole.

    `operands` are names of such vectors, by the dtype of each; numbers are fields of params. Results of calls are
    rounded to their dtypes, but for the last, which its store rounds; without `half` nothing is stored as float16.
    """
    names = [*operands, *(f"{_TYPES[is_whole(kind)]}(params.{prefix}{place})" for place, kind in _numbers(expression))]
    lines = []
    for place, call in enumerate(expression.calls):
        value = _value(expression, call, names)
        if place < len(expression.calls) - 1:
            value = rounded(value, call.dtype, half)
        name = f"{prefix}v{place}"
        lines.append(f"let {name} = {value};")
        names.append(name)
    return lines, names[-1]


def rounded(value: str, dtype: str, half: bool) -> str:
    """A vector of f32 as a tensor of this dtype would keep it.

    >>> rounded("x", "float16", True), rounded("x", "float16", False), rounded("x", "bool", True)
    ('half_rounded(x)', 'x', 'x')
    """
    if dtype == "float16" and not half:
        return value
    return f"{_ROUNDED[dtype]}({value})" if dtype in _ROUNDED else value


def number_fields(expression: Expression, prefix: str) -> list[tuple[str, str]]:
    """The fields of Params that hold its numbers: name and type."""
    return [(f"{prefix}{place}", "i32" if is_whole(kind) else "f32") for place, kind in _numbers(expression)]


def _numbers(expression: Expression) -> list[tuple[int, str]]:
    return list(enumerate(expression.numbers))


def _value(expression: Expression, call: Applied, names: Sequence[str]) -> str:
    """A call as a vector of its dtype's class."""
    function = FUNCTIONS[call.function]
    kinds = [is_whole(expression.dtype_of(place)) for place in call.arguments]
    whole = function.of_wholes(kinds, call.dtype)
    text = function.wholes if whole else function.floats
    if text is None:
        raise PlanError(f"{call.function} is a function of whole numbers, not of {call.dtype}")
    given = {}
    for position, (letter, place) in enumerate(zip("abcd", call.arguments, strict=False)):
        wanted = whole or position in function.conditions
        given[letter] = names[place] if kinds[position] == wanted else f"{_TYPES[wanted]}({names[place]})"
    value = _ARGUMENT.sub(lambda match: given[match.group()], text)
    result = _TYPES[is_whole(call.dtype)]
    if function.flags:
        return f"select({result}(0), {result}(1), {value})"
    return value if whole == is_whole(call.dtype) else f"{result}({value})"
