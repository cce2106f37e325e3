"""The WGSL of an expression, four elements at a time: its statements, and the fields of Params for its numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from liveshape.errors import PlanError
from liveshape.graph.elements import is_complex
from liveshape.graph.expression import Applied, Expression, is_whole
from liveshape.kernels.pointwise_table import FUNCTIONS

# What drivers calculate with as if numbers were real: (a + b) - a becomes b, a * (b - b) zero, 1 / (1 / a) a.
# Products with a function of their argument are as well: a * f(a) + a * b becomes a * (f(a) + b).
_ALGEBRA = frozenset(
    "neg add add_scaled sub sub_scaled mul div reciprocal sqrt rsqrt exp expm1 log log1p log_of_base "
    "gelu gelu_tanh silu hardswish".split()
)
_SUMS = frozenset("add add_scaled sub sub_scaled".split())
_ORDER = frozenset("lt le gt ge".split())
COMPUTED = -1  # instead of the place of a call: what a kernel computes, the first operand of its epilogue
_INVERSES = frozenset("div reciprocal sqrt rsqrt exp log".split())
_ARGUMENT = re.compile(r"\b[abcd]\b")
_ROUNDED = {
    "float16": "half_rounded({})",
    "bfloat16": "bfloat16_rounded({})",
    "int8": "(({} << vec4<u32>(24u)) >> vec4<u32>(24u))",
    "uint8": "({} & vec4<i32>(255))",
}


def vector_of(dtype: str) -> str:
    """The WGSL type of four values of a dtype.

    >>> vector_of("bool"), vector_of("complex64")
    ('vec4<i32>', 'mat2x4<f32>')
    """
    return "mat2x4<f32>" if is_complex(dtype) else "vec4<i32>" if is_whole(dtype) else "vec4<f32>"


def scalar_of(dtype: str) -> str:
    """The WGSL type that a value of a dtype, which is not complex, is computed in.

    >>> scalar_of("bool"), scalar_of("float16")
    ('i32', 'f32')
    """
    return "i32" if is_whole(dtype) else "f32"


def statements(expression: Expression, operands: Sequence[str], prefix: str, half: bool) -> tuple[list[str], list[str]]:
    """The statements that compute an expression, and the names of its results, of the types that `vector_of` says.

    `operands` are names of such vectors, by the dtype of each; numbers are fields of params. Results of calls are
    rounded to their dtypes, but for the last, which its store rounds; without `half` nothing is stored as float16.
    Where a driver could cancel what an operator rounds, its result goes through a zero that is known at run time alone.
    """
    numbers = (f"{vector_of(kind)}(params.{prefix}{place})" for place, kind in enumerate(expression.numbers))
    names = [*operands, *numbers]
    lines = []
    for place, call in enumerate(expression.calls):
        value = _value(expression, call, names)
        if place < len(expression.calls) - 1:
            value = rounded(value, call.dtype, half)
        if place in hidden(expression):
            zero = f"params.{prefix}zero"
            whole = is_whole(call.dtype)
            value = f"({value} ^ vec4<i32>(i32({zero})))" if whole else f"hidden_from_algebra({value}, {zero})"
        name = f"{prefix}v{place}"
        lines.append(f"let {name} = {value};")
        names.append(name)
    return lines, [names[place] for place in expression.results]


def rounded(value: str, dtype: str, half: bool) -> str:
    """Four values as a tensor of this dtype would keep them.

    >>> rounded("x", "float16", True), rounded("x", "float16", False), rounded("x", "bool", True)
    ('half_rounded(x)', 'x', 'x')
    """
    if dtype == "float16" and not half:
        return value
    return _ROUNDED[dtype].format(value) if dtype in _ROUNDED else value


def converted(value: str, source: str, target: str) -> str:
    """Four values of one type of WGSL in another one.

    >>> converted("x", "vec4<i32>", "vec4<f32>"), converted("x", "vec4<f32>", "mat2x4<f32>")
    ('vec4<f32>(x)', 'mat2x4<f32>(x, vec4<f32>())')
    """
    if source == target:
        return value
    if target == "mat2x4<f32>":
        return f"{target}({converted(value, source, 'vec4<f32>')}, vec4<f32>())"
    return f"{target}({value})"


def number_fields(expression: Expression, prefix: str, computed: bool) -> list[tuple[str, str]]:
    """The fields of Params that hold its numbers: name and type."""
    zero = [(f"{prefix}zero", "u32")] if hidden(expression, computed) else []
    return [(f"{prefix}{place}", scalar_of(kind)) for place, kind in enumerate(expression.numbers)] + zero


@lru_cache(maxsize=4096)
def hidden(expression: Expression, computed: bool = False) -> frozenset[int]:
    """The calls whose results a driver must not see through, as it could not if each were a kernel of its own.

    That is where functions of arithmetic follow each other, and a value is read more than once or inverted twice. What
    may be contracted to one rounding, a product and a sum, stays in sight. Where the first operand is `computed` by a
    kernel and summed, it is hidden as well: (a * b + c * d) - e would become a * b + (c * d - e). So is a comparison
    that chooses between what it compares: it would become a maximum, which drops NaN.

    >>> sum_of, rest = Applied("add", (0, 1), "float32"), Applied("sub", (2, 0), "float32")
    >>> sorted(hidden(Expression(("float32", "float32"), (), (sum_of, rest))))
    [0]
    >>> product = Applied("mul", (0, 1), "float32")
    >>> sorted(hidden(Expression(("float32",) * 2, ("float32",), (product, replace(rest, arguments=(3, 2))))))
    []
    >>> [sorted(hidden(Expression(("float32",) * 2, (), (sum_of,)), computed)) for computed in (False, True)]
    [[], [-1]]
    >>> above, chosen = Applied("ge", (0, 1), "bool"), Applied("where", (2, 0, 1), "float32")
    >>> sorted(hidden(Expression(("float32",) * 2, (), (above, chosen))))
    [0]
    """
    given = len(expression.operands) + len(expression.numbers)
    source: dict[int, int] = {}  # of copies, and of what is computed again
    first: dict[Applied, int] = {}
    reads: Counter[int] = Counter()
    chosen: set[int] = set()  # comparisons
    inner: dict[int, bool] = {}  # calls that another one reads, and whether that may undo it
    for place, call in enumerate(expression.calls):
        arguments = tuple(source.get(each, each) for each in call.arguments)
        if call.function == "copy" and call.dtype == expression.dtype_of(arguments[0]):
            source[given + place] = arguments[0]
            continue
        source[given + place] = first.setdefault(replace(call, arguments=arguments), given + place)
        if call.function == "where" and not is_whole(call.dtype) and arguments[0] >= given:
            above = expression.calls[arguments[0] - given]
            if above.function in _ORDER and {source.get(each, each) for each in above.arguments} == {*arguments[1:]}:
                chosen.add(arguments[0] - given)
        if call.function not in _ALGEBRA or is_whole(call.dtype) or is_complex(call.dtype):
            continue
        reads.update(each for each in arguments if not len(expression.operands) <= each < given)
        for each in {*arguments, *call.arguments}:
            if each >= given and (before := expression.calls[each - given]).function in _ALGEBRA:
                undone = {call.function, before.function} <= _INVERSES
                inner[each - given] = inner.get(each - given, False) or undone
    again = any(count > 1 for count in reads.values())
    found = chosen | {place for place, undone in inner.items() if undone or again}
    summed = {source.get(each, each) for call in expression.calls if call.function in _SUMS for each in call.arguments}
    if computed and 0 in summed and _is_float(expression.operands[0]):
        found.add(COMPUTED)
    return frozenset(found)


def _is_float(dtype: str) -> bool:
    return not is_whole(dtype) and not is_complex(dtype)


def _value(expression: Expression, call: Applied, names: Sequence[str]) -> str:
    """A call as a vector of its dtype's class."""
    function = FUNCTIONS[call.function]
    dtypes = [expression.dtype_of(place) for place in call.arguments]
    whole = function.of_wholes([is_whole(dtype) for dtype in dtypes], call.dtype)
    of_complex = any(is_complex(dtype) for dtype in dtypes)
    text = function.complexes if of_complex else function.wholes if whole else function.floats
    if text is None:
        raise PlanError(f"{call.function} is no function of {', '.join(dtypes)} that gives {call.dtype}")
    computed = "mat2x4<f32>" if of_complex else "vec4<i32>" if whole else "vec4<f32>"
    given = {}
    for position, (letter, place) in enumerate(zip("abcd", call.arguments, strict=False)):
        wanted = "vec4<i32>" if position in function.conditions else computed
        given[letter] = converted(names[place], vector_of(dtypes[position]), wanted)
    value = _ARGUMENT.sub(lambda match: given[match.group()], text)
    result = vector_of(call.dtype)
    if function.flags:
        return f"select({result}(0), {result}(1), {value})"
    if function.pairs or (of_complex and not is_complex(call.dtype)):
        return value
    return converted(value, computed, result)
